// Package nettest is `liqoctl test network`: it puts a prober on every node of some
// clusters and lets the probers reach each other in all ways that should work.
//
//	Plan      inventories             -> checks: who tries which address, and the expected result
//	Judge     a check and its results -> an outcome in plain words
//	Run       the thin shell around them: creates the pods, runs checks by exec, cleans up
//
// A check requires more than an answer: the right pod must answer, and it must see the
// address that the sending pod has from that cluster's point of view. Traffic that arrives
// with another source address would later break network policies and logs.
//
// The test does not offload pods: each cluster has a namespace with its own pods, and
// Services whose endpoints are the pods of one peer.
package nettest
