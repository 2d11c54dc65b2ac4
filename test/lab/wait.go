package lab

import "time"

// T is the part of *testing.T that a lab needs. It is an interface of its own so
// that a lab can also be built without a test, to look around in.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(func())
}

// Patience is how long a test waits for what must come, however busy the machine is.
const Patience = time.Minute

// Eventually calls try until it returns nil, and fails the test with its last
// error when that has not happened within the limit. What is waited for here
// lies in other processes and gives no signal, so it is polled, for half of the
// time at most: what try computes is taken from what it waits for.
func Eventually(t T, limit time.Duration, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		began := time.Now()
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		time.Sleep(max(20*time.Millisecond, time.Since(began)))
	}
}
