// Package reflection turns objects of a cluster into what stands for them in another one, and what happens there
// back. It is pure: it reads nothing, writes nothing and knows no clock.
//
//	consumer                                provider
//	Pod on a virtual node  --ShadowPod-->   ShadowPod, from which a Pod is made
//	status of the Pod      <--PodStatus--   Pod
//	ConfigMap, Secret,     ---------->      the same kind, same name
//	Service
//	EndpointSlice          ---------->      ShadowEndpointSlice
//	Event                  <--Event-----    Event
//
// The consumer is the cluster whose pods run elsewhere, the provider the one where they run. The addresses of the
// provider's pods are translated to those by which the consumer reaches them ([Addresses]).
//
// Nothing is lost in silence: each field of a PodSpec is kept, changed, dropped because it only concerns where the
// pod runs, or the pod is refused with the field's name ([RefusedError]). What the provider wrote is not trusted: of a
// status, only what a kubelet reports is taken, in bounded size, and no address that belongs to no known CIDR.
package reflection
