// Package clusters tests the whole of the control plane from outside: two real
// control planes at once, in each the controller as a pod under the role that is
// shipped, gateways as pods made by it, and nodes and pods that are simulated
// but speak real Geneve to real sockets. Both clusters use the same pod CIDR and
// the same external CIDR.
//
//	pod - node - gateway - node port - gateway - node - pod
//
// The user's part is played with kubectl and the manifests of the documents in
// the folder SLUICE_SPEC; without it the tests that need them are skipped. What
// the node agent will do is played by the type fabric. No root is needed; as
// root, pods run as the users that their spec names.
//
//	go test ./test/clusters                   some minutes
//	go test ./test/clusters -clusters.long    also what takes longer
package clusters
