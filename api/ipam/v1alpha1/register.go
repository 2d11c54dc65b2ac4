package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "ipam.liqo.io", Version: "v1alpha1"}

// AddToScheme makes the kinds of this package known to s. Its signature is that of every other AddToScheme, so that
// callers can list them.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Network{}, &NetworkList{},
		&IP{}, &IPList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
