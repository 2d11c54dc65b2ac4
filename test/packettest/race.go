//go:build race

package packettest

// Race says that the race detector is on: it allocates, so that tests cannot
// count allocations.
const Race = true
