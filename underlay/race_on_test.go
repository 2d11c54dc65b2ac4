//go:build race

package underlay

// raceEnabled tells tests that the race detector is on: it allocates by itself.
const raceEnabled = true
