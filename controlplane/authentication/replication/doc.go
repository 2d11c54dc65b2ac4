// Package replication copies the objects by which a consumer asks to the provider, and the answers back.
//
//	Secret of a ControlPlane identity -> session: one client, one loop
//	here, the Secret's namespace      -- spec, labels, annotations -->  there, the namespace of its annotation
//	                                  <-- status -------------------
//
// A session compares both sides as wholes, whenever something changes on either, so that nothing depends on having
// heard of each change: after an outage of either API server, however long, one comparison puts everything right. What
// is there and came from this cluster (liqo.io/originID), and is not here any more, is deleted. There are no
// finalizers: when an identity is removed, what its session has copied is taken back by the kubeconfig that it had. A
// Secret beside the identity keeps that until nothing is left, for identities that go while no controller runs, and for
// providers that are away.
//
// The provider is another party. It runs no program and reads no file through a kubeconfig (package credentials), its
// answers are bounded in size and time, it cannot send us elsewhere, and of its objects only those are looked at that
// were copied from here. An outage means wait, never delete.
package replication
