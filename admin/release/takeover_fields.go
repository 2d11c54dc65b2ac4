package release

import (
	"context"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Liqo's CRDs were generated with other versions of Kubernetes than ours, so the pod templates in them have other fields.
// That matters only where an object has one of these.

// lostFields are fields of any version of live that ours lacks, as unknownFields writes them.
func lostFields(live, ours *apiextensionsv1.CustomResourceDefinition) (lost []string) {
	known := schemasOf(ours)
	for version, schema := range schemasOf(live) {
		lost = append(lost, unknownFields(schema, known[version], "")...)
	}
	slices.Sort(lost)
	return slices.Compact(lost)
}

// usedFields are those of the paths at which an object has a value.
func usedFields(objects []unstructured.Unstructured, paths []string) []string {
	return slices.DeleteFunc(paths, func(path string) bool {
		steps := strings.Split(strings.NewReplacer("[]", ".[]", "{}", ".{}").Replace(path), ".")
		return !slices.ContainsFunc(objects, func(o unstructured.Unstructured) bool { return hasValue(o.Object, steps) })
	})
}

func hasValue(v any, steps []string) bool {
	if len(steps) == 0 {
		return v != nil
	}
	fields, _ := v.(map[string]any)
	switch rest := steps[1:]; steps[0] {
	case "[]":
		elements, _ := v.([]any)
		return slices.ContainsFunc(elements, func(e any) bool { return hasValue(e, rest) })
	case "{}":
		for _, e := range fields {
			if hasValue(e, rest) {
				return true
			}
		}
		return false
	default:
		return hasValue(fields[steps[0]], rest)
	}
}

// readObjects reads the objects of the kinds of which Liqo's CRDs have fields that ours lack.
func (g *takeoverGatherer) readObjects(ctx context.Context) error {
	f := &g.facts
	f.objects = map[string][]unstructured.Unstructured{}
	for name, live := range f.live {
		ours, ok := f.wanted[name]
		if !ok || isApplied(&live) || len(lostFields(&live, &ours)) == 0 {
			continue
		}
		var list unstructured.UnstructuredList
		for _, v := range live.Spec.Versions {
			if v.Storage {
				list.SetGroupVersionKind(schema.GroupVersionKind{Group: live.Spec.Group, Version: v.Name, Kind: live.Spec.Names.ListKind})
			}
		}
		if err := g.Client.List(ctx, &list); err != nil {
			return g.Explain("list "+name, err)
		}
		f.objects[name] = list.Items
	}
	return nil
}
