//go:build race

package nodelink

// raceEnabled tells tests whether the race detector is on: it allocates by itself.
const raceEnabled = true
