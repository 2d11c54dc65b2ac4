package main

// processors is for daemon.UseProcessors: the gateway computes on half of the available
// processors, and on no fewer than two, one for each direction, where there are as many.
//
// The other half is not lost. What the gateway asks of the kernel runs there, which
// includes the node's whole receiving side when it is on the same machine, and
// so do the pods.
func processors(available int) int { return max(min(available, 2), available/2) }

// mostNodeSockets is how many sockets towards the nodes there are by default at most.
const mostNodeSockets = 4

// nodeSockets is how many sockets towards the nodes there are, and so how many goroutines carry
// packets in each direction, if no flag says so, on so many processors. One is left for the
// other direction.
func nodeSockets(processors int) int { return max(1, min(processors-1, mostNodeSockets)) }
