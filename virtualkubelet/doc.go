// Package virtualkubelet keeps the virtual nodes that stand for one other cluster, the provider, and runs the pods on
// them there. One process does so for all virtual nodes of a provider.
//
//	this cluster, the consumer                          provider
//	VirtualNode --> Node, Lease, status                 /livez of the API server
//	Pod on the Node       --reflection.ShadowPod-->     ShadowPod
//	status of the Pod     <--reflection.PodStatus--     Pod
//	Events of the Pod     <--reflection.Event------     Events of the Pod and the ShadowPod
//	tokens of the Pod     ---------------------->       Secret
//	ConfigMap, Secret, Service, EndpointSlice, Ingress  -->    the same, in the namespaces of the NamespaceMap
//
// All decisions about objects are those of package reflection; this package reads and writes. It is level-based: a
// worker looks at what there is on both sides, never at the event that woke it.
//
// # What it never does
//
// It touches no pod on a Node that is not ours, which the labels of the Node say, even if a VirtualNode has its name: a
// worker asks the API server for the Node each time, and without an answer does nothing.
//
// It takes over no object at the provider that lacks the labels of this peering: an Event FailedReflection says so. It
// deletes nothing while it cannot see both sides: not while the provider is away, not before all lists were read, and
// not when the NamespaceMap is missing or has no answer. A pod here goes only after the one at the provider is gone, by
// the word of the provider's API server and not of a cache.
package virtualkubelet
