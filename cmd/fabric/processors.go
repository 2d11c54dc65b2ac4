package main

// maxProcessors is as many as there are workers of links of kind tun, unless a
// flag asks for more.
const maxProcessors = 4

// processors returns a function for daemon.UseProcessors: nothing here uses more
// processors than there are queues, and each would cost memory.
func processors(queues int) func(available int) int {
	return func(available int) int { return min(available, max(maxProcessors, queues)) }
}
