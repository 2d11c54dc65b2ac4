//go:build race

package geneve

const raceEnabled = true
