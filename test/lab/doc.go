// Package lab builds small networks out of Linux network namespaces and runs
// programs in them, so that tests and benchmarks see real kernel TCP/IP stacks
// at both ends:
//
//	pod - node - gateway - WAN - gateway - node - pod
//
// Both clusters use the same pod CIDR, as in production. The node ends are made
// by the node agent (Node.StartFabric), with a CNI, kube-proxy and the Internet
// played by the lab; or by the lab itself, as kernel tunnels: VXLAN, or VXLAN
// whose header two nftables rules rewrite to Geneve on the wire, because many
// kernels lack the Geneve device. In the gateway's namespace runs either the gateway of this repository, as an
// unprivileged user (Cluster.StartGateway), or what a user would run instead:
// a kernel tunnel, nftables and stock wireguard-go (Cluster.StartStock).
//
// It needs root and the usual network tools; New skips the test with the list
// of what is missing. Nothing outside the namespaces is changed. Every name
// carries the process ID of the test, everything is removed when the test ends,
// and what a killed run left behind is removed by the next one.
//
// The package is no test framework: it knows addresses and processes, the tests
// know what to expect. It is Linux only and never part of a product.
package lab
