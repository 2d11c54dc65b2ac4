package access

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Undiscovered returns the served versions of CRDs, <name>/<version>, of which the
// API server does not tell those who ask which kinds there are, as Helm and kubectl
// do. It tells them a moment after the CRDs are Established.
func Undiscovered(d discovery.ServerResourcesInterface, crds []apiextensionsv1.CustomResourceDefinition) (missing []string, err error) {
	_, lists, err := d.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // other groups may be out of order
		return nil, err
	}
	told, err := discovery.GroupVersionResources(lists)
	if err != nil {
		return nil, err
	}
	for i := range crds {
		spec := &crds[i].Spec
		for _, v := range spec.Versions {
			if _, ok := told[schema.GroupVersionResource{Group: spec.Group, Version: v.Name, Resource: spec.Names.Plural}]; v.Served && !ok {
				missing = append(missing, fmt.Sprintf("%s/%s", crds[i].Name, v.Name))
			}
		}
	}
	return missing, nil
}

// Listable are the wanted kinds of those that an API server serves, if they can be listed.
func Listable(served []*metav1.APIResourceList, want func(schema.GroupVersionKind) bool) (kinds []schema.GroupVersionKind) {
	for _, l := range served {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range l.APIResources {
			if kind := gv.WithKind(r.Kind); slices.Contains(r.Verbs, "list") && want(kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds
}
