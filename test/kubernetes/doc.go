// Package kubernetes tests all of it as users have it: whole clusters, each with
// an API server, a scheduler, two nodes with kubelet, containerd, runc, kube-proxy
// and a network plugin, behind its own NAT; our images in them, installed and
// connected by liqoctl. All clusters use the same pod CIDR, the same Service CIDR
// and the same addresses of nodes.
//
//	pod - node - gateway - node port - NAT - WAN - NAT - node port - gateway - node - pod
//
// TestClusters brings up two clusters, rome and milan, installs Sluice on both, and
// runs its parts in order on them. Each part leaves the clusters as it found them:
// installed and not connected. rome is the local cluster of all commands, which has
// the gateway clients, and milan the remote one, which has the servers.
//
// The documents in the folder SLUICE_SPEC are followed word for word; without it the
// tests that need them are skipped, which they say. It needs root and what package
// kubelab needs.
//
//	go test ./test/kubernetes                              what takes minutes
//	go test ./test/kubernetes -kubernetes.long             also what takes longer
//	go test ./test/kubernetes -run TestClusters/NAME -v    one part
package kubernetes
