//go:build race

package dataplane_test

// raceEnabled tells tests that the race detector is on: it allocates by itself
// and is slow.
const raceEnabled = true
