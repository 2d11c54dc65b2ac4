// Package v1 stands for that of Kubernetes.
package v1

// Pod is a kind.
type Pod struct{}

// Old is deprecated.
//
// Deprecated: use Pod.
type Old struct{}
