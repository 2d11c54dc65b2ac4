package access

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// told is what an API server tells of its kinds.
type told struct {
	discovery.ServerResourcesInterface
	lists []*metav1.APIResourceList
	err   error
}

func (d told) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return nil, d.lists, d.err
}

func TestUndiscovered(t *testing.T) {
	crd := func(group, plural string, versions ...apiextensionsv1.CustomResourceDefinitionVersion) (d apiextensionsv1.CustomResourceDefinition) {
		d.Name, d.Spec.Group, d.Spec.Names.Plural, d.Spec.Versions = plural+"."+group, group, plural, versions
		return d
	}
	crds := []apiextensionsv1.CustomResourceDefinition{
		crd("a.io", "cats", apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Served: true}, apiextensionsv1.CustomResourceDefinitionVersion{Name: "v2", Served: true}),
		crd("b.io", "dogs", apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Served: true}, apiextensionsv1.CustomResourceDefinitionVersion{Name: "v0"}),
	}
	cats := &metav1.APIResourceList{GroupVersion: "a.io/v1", APIResources: []metav1.APIResource{{Name: "cats"}, {Name: "cats/status"}}}
	newCats := &metav1.APIResourceList{GroupVersion: "a.io/v2", APIResources: cats.APIResources}
	dogs := &metav1.APIResourceList{GroupVersion: "b.io/v1", APIResources: []metav1.APIResource{{Name: "dogs"}}}
	broken := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: errors.New("no answer")}}
	for _, tt := range []struct {
		name string
		told told
		want []string
	}{
		{"nothing", told{}, []string{"cats.a.io/v1", "cats.a.io/v2", "dogs.b.io/v1"}},
		{"an older version", told{lists: []*metav1.APIResourceList{cats, dogs}}, []string{"cats.a.io/v2"}},
		{"the name in another group", told{lists: []*metav1.APIResourceList{cats, newCats, {GroupVersion: "c.io/v1", APIResources: dogs.APIResources}}}, []string{"dogs.b.io/v1"}},
		{"all", told{lists: []*metav1.APIResourceList{cats, newCats, dogs}}, nil},
		{"all, and a group of others is out of order", told{lists: []*metav1.APIResourceList{cats, newCats, dogs}, err: broken}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Undiscovered(tt.told, crds)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	if _, err := Undiscovered(told{err: errors.New("out of reach")}, crds); err == nil {
		t.Error("no error")
	}
}
