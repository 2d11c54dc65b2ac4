//go:build race

package netstack

// raceEnabled tells allocation tests that the detector allocates as well.
const raceEnabled = true
