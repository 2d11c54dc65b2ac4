// Package remotenamespaces makes the namespaces that consumers ask for.
//
//	NamespaceMap, a copy in a tenant namespace -> Namespace, and in it a RoleBinding for the group of the consumer,
//	                                              and a ResourceQuota
//	                                           <- status: what there is
//
// A namespace is made for one NamespaceMap and one namespace of the consumer, which its annotations name. What exists
// under the name that is asked for and was not made for that is left alone, also if it was made for another NamespaceMap
// of the same consumer. Its PodSecurity level is the provider's.
//
// There are no finalizers. A namespace whose NamespaceMap is gone, or does not ask for it any more, is found by its
// annotation, after a restart as well, and deleted. A Tenant that is not ready stops what is new and nothing else; one
// that is drained loses its namespaces, and one that is deleted takes its NamespaceMaps along.
package remotenamespaces
