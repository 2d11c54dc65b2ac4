package main

import "testing"

func TestProcessors(t *testing.T) {
	for available, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 2, 16: 8} {
		if got := processors(available); got != want {
			t.Errorf("of %d processors %d are used, want %d", available, got, want)
		}
	}
}

func TestNodeSockets(t *testing.T) {
	for processors, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 3, 5: 4, 32: 4} {
		if got := nodeSockets(processors); got != want {
			t.Errorf("%d sockets on %d processors, want %d", got, processors, want)
		}
	}
}
