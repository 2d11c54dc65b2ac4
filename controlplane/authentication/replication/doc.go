// Package replication copies the objects by which a consumer asks to the provider, and the answers back.
//
//	Secret of a ControlPlane identity -> session: one client, one loop
//	here, the Secret's namespace      -- spec, labels, annotations -->  there, the namespace of its annotation
//	                                  <-- status -------------------
//
// A session compares both sides as wholes, whenever something changes on either, so that nothing depends on having
// heard of each change: after an outage of either API server, however long, one comparison puts everything right. What
// is there and came from this cluster (liqo.io/originID), and is not here any more, is deleted. There are no
// finalizers: when an identity is removed, its session takes back what it has copied before it ends.
//
// The provider is another party. It runs no program and reads no file through a kubeconfig (package credentials), its
// answers are bounded in size and time, it cannot send us elsewhere, and of its objects only those are looked at that
// were copied from here. An outage means wait, never delete.
package replication
