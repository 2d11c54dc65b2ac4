// Package nettest is `liqoctl test network`: it puts a prober on every node of
// some clusters and lets them reach each other in all ways that should work.
//
//	Plan      what is there            -> checks: who tries which address, and what should come of it
//	Judge     a check and what came    -> an outcome in plain words
//	Run       the thin shell around them: makes the pods, runs them by exec, cleans up
//
// A check demands more than an answer: the right pod has to answer, and it has to
// see the address that the asking pod has in its own cluster's view. Traffic that
// gets there with another source breaks network policies and logs later.
//
// Nothing of it needs pods to be offloaded: in each cluster there is a namespace
// with pods of its own, and Services whose endpoints are the pods of one peer.
package nettest
