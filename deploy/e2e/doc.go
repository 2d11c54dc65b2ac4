// Package e2e tests the gateway from outside, between real kernels: two
// clusters with the same pod CIDR in network namespaces (package lab), stock
// wireguard-go as the peer, and a Linux kernel with WireGuard and Geneve of its
// own (package uml).
//
// The tests need root and skip loudly without. Long ones have flags:
//
//	go test ./deploy/e2e -e2e.rekey     traffic over a rekey, 130 s
//	go test ./deploy/e2e -e2e.kernel    with the user-mode kernel, which is built first
package e2e
