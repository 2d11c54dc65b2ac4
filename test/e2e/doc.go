// Package e2e tests the gateway and the node agent from outside, between real
// kernels: two clusters with the same pod CIDR in network namespaces (package
// lab), stock wireguard-go as the peer, and a Linux kernel with WireGuard and
// Geneve of its own (package uml). One test adds a control plane (package
// controlplanetest).
//
// The tests need root and skip loudly without. Long ones have flags:
//
//	go test ./test/e2e -e2e.rekey                 traffic over a rekey, 130 s
//	go test ./test/e2e -e2e.malformed 1000000     more malformed datagrams for each socket
//	go test ./test/e2e -run Kernel                with the user-mode kernel, which is built first
package e2e
