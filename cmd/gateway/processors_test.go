package main

import "testing"

func TestProcessors(t *testing.T) {
	for _, tt := range []struct {
		workers         bool
		available, want int
	}{
		{false, 1, 1}, {false, 2, 2}, {false, 3, 2}, {false, 4, 2}, {false, 16, 8},
		{true, 1, 1}, {true, 2, 1}, {true, 3, 1}, {true, 4, 2}, {true, 16, 8},
	} {
		if got := processors(tt.workers)(tt.available); got != tt.want {
			t.Errorf("with workers %t, of %d processors %d are used, want %d", tt.workers, tt.available, got, tt.want)
		}
	}
}
