//go:build race

package tunnel

// raceEnabled tells tests that the race detector is on: it allocates by itself.
const raceEnabled = true
