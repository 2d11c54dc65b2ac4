package lab

import (
	"testing"
	"time"
)

// Eventually calls try until it returns nil, and fails the test with its last
// error when that has not happened within the limit. What is waited for here
// lies in other processes and gives no signal, so it is polled.
func Eventually(t testing.TB, limit time.Duration, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
