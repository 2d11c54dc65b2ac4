// Package access reaches one cluster as its administrator does: through a
// kubeconfig, with the rights that it grants. It reads and writes objects, runs
// commands in pods, and explains errors in plain words.
//
// It decides nothing: peering, doctor, survey, bundle and the others work
// through it.
package access
