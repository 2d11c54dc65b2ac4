// Package controlplanetest runs the controllers against real control planes: an
// etcd, a kube-apiserver and a kube-controller-manager, as processes on loopback. A
// test has one to itself while it runs. Then others get it, as new: the tests of a
// process share some, and with `go run ./test/controlplanes go test ...` all tests of a
// run do. Package plane has how that is done.
//
// A control plane has no node. StartKubelet gives it some: Node objects, a
// scheduler that takes turns, and pods that run as processes of this machine,
// with the arguments, Secrets, service account and probes of their spec, each on
// an address of its own in 127.0.0.0/8. `kubectl exec` and `kubectl logs` reach
// them through the API server. No network leads from one to another.
//
// Package kubelab has real nodes: kubelets, containerd, kube-proxy, in network
// namespaces. They need root, images and tens of seconds, and prove that what the
// project ships runs there. The stand-in needs neither and starts at once, so that
// tests of what is written to an API server, and of what follows from it, run anywhere:
// installations, peerings and bundles. What it plays is what these tests ask for, and
// no more.
//
// The programs of the control plane are built once by
// test/kubetools/build.sh (make kube).
package controlplanetest
