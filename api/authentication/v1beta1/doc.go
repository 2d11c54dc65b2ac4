// Package v1beta1 holds the Go types of the API group authentication.liqo.io, version v1beta1: how one cluster, the
// consumer, gets an identity in another one, the provider, and asks it for resources.
//
// It is the contract and nothing more: fields, enumerations, defaults and validation rules, which controller-gen turns
// into the CustomResourceDefinitions in deploy/crds. Names, fields, labels and the contents of certificates are those
// of Liqo, so that the other cluster may run Liqo in either role.
//
// Who writes what:
//
//	Tenant         provider's user, or made by the consumer's (handshake); status: provider's controller
//	Identity       consumer's user (handshake) or controller (slices); status: consumer's controller
//	ResourceSlice  consumer's user; a copy of it at the provider; status: provider's controller, copied back
//	Renew          consumer's controller; a copy at the provider; status: provider's controller, copied back
//
// +kubebuilder:object:generate=true
// +groupName=authentication.liqo.io
package v1beta1
