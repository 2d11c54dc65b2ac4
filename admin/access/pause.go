package access

import (
	"context"
	"time"
)

// Pause waits. It is false when ctx has ended.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
