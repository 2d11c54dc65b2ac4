// Package v1beta1 holds the Go types of the API group offloading.liqo.io, version v1beta1: how pods of one cluster, the
// consumer, run in another one, the provider.
//
// It is the contract and nothing more: fields, enumerations, defaults and validation rules, which controller-gen turns
// into the CustomResourceDefinitions in deploy/crds. Names, fields and labels are those of Liqo, so that the other
// cluster may run Liqo in either role.
//
// Who writes what:
//
//	NamespaceOffloading  consumer's user; status: consumer's controller
//	VirtualNode          consumer's user, or controller from a ResourceSlice; status: controller and virtual kubelet
//	VkOptionsTemplate    consumer's user
//	NamespaceMap         consumer's controller; a copy at the provider; status: provider's controller, copied back
//	ShadowPod            at the provider, by the consumer's virtual kubelet; status: provider's controller
//	ShadowEndpointSlice  at the provider, by the consumer's virtual kubelet
//	Quota                provider's controller
//
// The schema of a pod in a ShadowPod, and of a Deployment in a VirtualNode, is left open: an object of any type, whose
// fields are all kept. The full schema of a pod spec has 8000 lines, and it would remove the fields of a newer
// Kubernetes before anybody could see them. Whoever reads such a field must expect anything in it.
//
// +kubebuilder:object:generate=true
// +groupName=offloading.liqo.io
package v1beta1
