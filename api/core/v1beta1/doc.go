// Package v1beta1 holds the Go types of the API group core.liqo.io, version v1beta1: what one cluster knows of another one
// that it has a peering with.
//
// It is the contract and nothing more: fields, enumerations, defaults and validation rules, which controller-gen turns
// into the CustomResourceDefinition in deploy/crds. Names and fields are those of Liqo.
//
// The controller makes and deletes ForeignClusters and writes their status. Users read them.
//
// +kubebuilder:object:generate=true
// +groupName=core.liqo.io
package v1beta1
