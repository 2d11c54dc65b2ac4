//go:build !race

package tunlink

// raceEnabled tells tests whether the race detector is on: it allocates by itself.
const raceEnabled = false
