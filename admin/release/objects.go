package release

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// decode reads the objects of a stream of YAML documents.
func decode(manifests string) ([]*unstructured.Unstructured, error) {
	d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	var us []*unstructured.Unstructured
	for {
		u := new(unstructured.Unstructured)
		switch err := d.Decode(&u.Object); {
		case errors.Is(err, io.EOF):
			return us, nil
		case err != nil:
			return nil, fmt.Errorf("decode the manifests: %w", err)
		case len(u.Object) > 0:
			us = append(us, u)
		}
	}
}

// own marks an object as Helm marks those of the release.
func own(u *unstructured.Unstructured, namespace string) {
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[labelManagedBy] = "Helm"
	annotations[annotationReleaseName], annotations[annotationRelease] = Name, namespace
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
}

// alike tells whether two states of an object say the same, whoever wrote it.
func alike(a, b *unstructured.Unstructured) bool {
	return reflect.DeepEqual(substance(a), substance(b))
}

func substance(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	return u.Object
}

// describe names an object in messages.
func describe(o client.Object) string {
	name := o.GetName()
	if ns := o.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return o.GetObjectKind().GroupVersionKind().Kind + " " + name
}

// leaves calls f for every value that is not a table, with its path.
func leaves(v Values, prefix string, f func(path string, v any)) {
	for _, k := range slices.Sorted(maps.Keys(v)) {
		if table, ok := v[k].(map[string]any); ok && len(table) > 0 {
			leaves(table, prefix+k+".", f)
		} else {
			f(prefix+k, v[k])
		}
	}
}

// byPath is what leaves finds. Keys with dots, such as those of labels, are what at does
// not find.
func byPath(v Values) map[string]any {
	m := make(map[string]any)
	leaves(v, "", func(path string, v any) { m[path] = v })
	return m
}
