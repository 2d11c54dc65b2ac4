package peering

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestKindProblem(t *testing.T) {
	crd := func(version string, fields ...string) *apiextensionsv1.CustomResourceDefinition {
		spec := apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
		for _, f := range fields {
			spec.Properties[f] = apiextensionsv1.JSONSchemaProps{}
		}
		return &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: version, Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
			}},
		}}}}
	}
	open := crd("v1beta1")
	open.Spec.Versions[0].Schema.OpenAPIV3Schema.XPreserveUnknownFields = new(true)
	open.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = nil
	needed := neededKind{gv: networkingv1beta1.GroupVersion, resource: "things", fields: []string{"spec.a", "spec.b"}}
	for _, tt := range []struct {
		name string
		crd  *apiextensionsv1.CustomResourceDefinition
		want string
	}{
		{"all there", crd("v1beta1", "a", "b", "c"), ""},
		{"anything goes", open, ""},
		{"a field lacks", crd("v1beta1", "a"), "the CRD things.networking.liqo.io is outdated: it lacks spec.b"},
		{"another version", crd("v1alpha1", "a", "b"), "the CRD things.networking.liqo.io does not match this version: it serves v1alpha1, not v1beta1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := kindProblem(tt.crd, needed); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
