// Package controlplanetest runs the controllers against real control planes: an
// etcd, a kube-apiserver and, as garbage collection and namespaces are its
// work, a kube-controller-manager for each cluster, as processes on loopback.
//
// Such a control plane has no node. StartKubelet gives it some: Node objects, a
// scheduler that takes turns, and pods that run as processes of this machine,
// with the arguments, Secrets, service account and probes of their spec, each on
// an address of its own in 127.0.0.0/8. `kubectl exec` and `kubectl logs` reach
// them through the API server. StartKubeProxy carries UDP from node ports and load
// balancers to them. No root is needed.
//
// The programs of the control plane are built once by
// test/kubetools/build.sh (make kube).
package controlplanetest
