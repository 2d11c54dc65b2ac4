package main

// processors returns on how many of the available processors the gateway
// computes: on half.
//
// A packet passes five goroutines in wireguard-go, and on each hand-off Go wakes
// a thread on every processor that idles, which mostly finds nothing to do: on
// two processors a TCP stream costs a quarter more with two than with one. The
// other half is not lost. What the gateway asks of the kernel runs there, which
// includes the node's whole receiving side when it is on the same machine, and
// so do the pods.
func processors(available int) int { return max(1, available/2) }
