package main

// processors returns a function for daemon.UseProcessors: the gateway computes on half
// of the available processors, and on no fewer than directions where there are as many.
//
// The other half is not lost. What the gateway asks of the kernel runs there, which
// includes the node's whole receiving side when it is on the same machine, and
// so do the pods. Each direction of the packet path is one goroutine. WireGuard's
// workers are more, and on each hand-over to one Go wakes a thread on every processor
// that idles, which mostly finds nothing to do: two processors are left one for them.
func processors(workers bool) func(available int) int {
	directions := 2
	if workers {
		directions = 1
	}
	return func(available int) int { return max(min(available, directions), available/2) }
}
