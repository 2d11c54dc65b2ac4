//go:build race

package neighbor

const raceEnabled = true
