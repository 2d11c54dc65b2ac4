// Package access is a cluster as its administrator reaches it: through a
// kubeconfig, with the rights that it gives. It reads and writes objects, runs
// commands in pods, and says in plain words what is in the way.
//
// It decides nothing: peering, doctor, survey, bundle and the others work
// through it.
package access
