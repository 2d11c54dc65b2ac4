// Package controlplanetest runs the controllers against real control planes: an
// etcd, a kube-apiserver and, as garbage collection and namespaces are its
// work, a kube-controller-manager for each cluster, as processes on loopback.
//
// The programs are built once by deploy/e2e/kubetools/build.sh (make kube).
package controlplanetest
