package tunnel

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// quietFor is how long an error of one kind is silent after it was logged:
// wireguard-go reports some errors per packet or per handshake attempt.
const quietFor = 30 * time.Second

// errorLog passes wireguard-go's errors on, each kind at most once in quietFor.
// The kind is the format string; what is formatted are abbreviated public keys,
// addresses and errors, never a private key.
type errorLog struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[string]*errorKind
}

type errorKind struct {
	logged     time.Time
	suppressed int
}

// maxErrorKinds bounds the map should a caller ever put data in the format.
const maxErrorKinds = 64

// newDeviceLogger maps wireguard-go's two levels: errors are warnings to us,
// because the tunnel goes on after each of them, and the rest is debug output.
func newDeviceLogger(log *slog.Logger) *device.Logger {
	e := &errorLog{log: log, kinds: make(map[string]*errorKind)}
	return &device.Logger{
		Errorf: e.errorf,
		Verbosef: func(format string, args ...any) {
			// Asked on each call, because the level may change at run time; and
			// before formatting, because some of these are per packet.
			if log.Enabled(context.Background(), slog.LevelDebug) {
				log.Debug("wireguard", "detail", fmt.Sprintf(format, args...))
			}
		},
	}
}

func (e *errorLog) errorf(format string, args ...any) {
	suppressed, ok := e.admit(format, time.Now())
	if !ok {
		return
	}
	e.log.Warn("wireguard reported an error", "detail", fmt.Sprintf(format, args...), "suppressed", suppressed)
}

// admit reports whether an error of this kind is logged now, and how many were
// not since the last one.
func (e *errorLog) admit(kind string, now time.Time) (suppressed int, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := e.kinds[kind]
	if k == nil {
		if len(e.kinds) >= maxErrorKinds {
			clear(e.kinds)
		}
		k = &errorKind{}
		e.kinds[kind] = k
	}
	if !k.logged.IsZero() && now.Sub(k.logged) < quietFor {
		k.suppressed++
		return 0, false
	}
	suppressed, k.suppressed, k.logged = k.suppressed, 0, now
	return suppressed, true
}
