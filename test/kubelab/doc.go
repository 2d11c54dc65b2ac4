// Package kubelab runs whole Kubernetes clusters on one machine, out of network
// namespaces: per cluster an etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler, and nodes with containerd, runc, kubelet, kube-proxy and
// bridged pods, as they come. All clusters use the same pod CIDR, the same
// Service CIDR and the same network of nodes, and each lies behind its own
// router with address translation:
//
//	     WAN 203.0.113.0/24: the administrator .1, the Internet 1.1.1.1
//	         |                                     |
//	    a-router .10                          b-router .20
//	         |  LAN 192.168.50.0/24                |  LAN 192.168.50.0/24
//	   -------------------                   -------------------
//	   |        |        |                   |        |        |
//	a-plane   a-1      a-2                b-plane   b-1      b-2
//
// A node is a machine of its own but for the kernel: it has process IDs, mounts,
// a host name, a network namespace and cgroups apart from others, so it can lose
// its power (Node.Kill) and boot again with its disk (Node.Start).
//
// The Kubernetes programs are built once by test/kubetools/build.sh (make
// kube); containerd, runc and the CNI plugins are Debian's. Images come from
// archives, and nothing needs the network. It needs root; New skips the test
// with the list of what is missing. What a lab leaves behind when its process is
// killed, the next one removes.
//
// NetworkPolicies are enforced when Options ask for it, by rules in the nodes'
// nftables. With Options.Routed each cluster has a LAN of its own, and nodes reach those
// of other clusters. Not there: DNS for Services, and load balancers. Tried with the
// cgroups of version 1.
package kubelab
