// Package kubernetes tests all of it as users have it: whole clusters, each with
// an API server, a scheduler, two nodes with kubelet, containerd, runc, kube-proxy
// and a network plugin, behind its own NAT; our images in them, installed and
// connected by liqoctl. All clusters use the same pod CIDR, the same Service CIDR
// and the same addresses of nodes.
//
//	pod - node - gateway - node port - NAT - WAN - NAT - node port - gateway - node - pod
//
// TestClusters brings up two clusters, rome and milan, and runs its parts on them in
// order. rome is the local cluster of all commands, which has the gateway clients, and
// milan the remote one, which has the servers. What is under test is installed once,
// and one connection serves all parts that need one (world.connect); parts that need
// the clusters apart end it (world.apart). Each can be run alone. TestPeerings does the
// same with two other clusters, for what they share beside the network.
//
// The documents of package document are followed word for word. It needs root and what
// package kubelab needs.
//
//	go test ./test/kubernetes                              what takes minutes
//	go test ./test/kubernetes -kubernetes.long             also what takes longer
//	go test ./test/kubernetes -kubernetes.long -kubernetes.hours  also what waits for an hour
//	go test ./test/kubernetes -run Liqo -kubernetes.liqo -v  with Liqo, which test/liqo/build.sh builds
//	go test ./test/kubernetes -run TestClusters/NAME -v    one part
//	... -run TestClusters/page -kubernetes.screenshots DIR  pictures of liqoctl console
package kubernetes
