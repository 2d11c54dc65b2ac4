//go:build !race

package underlay

// raceEnabled tells tests that the race detector is off.
const raceEnabled = false
