package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// objectDifferences lists where an object is not as wanted: "spec.mtu is 1400, not
// 1340". What nobody asked for may be anything: defaults, others' labels.
func objectDifferences(wanted, actual map[string]any) []string {
	var diff []string
	for _, path := range [][]string{{"metadata", "labels"}, {"metadata", "annotations"}, {"spec"}} {
		w, _, _ := unstructured.NestedFieldNoCopy(wanted, path...)
		a, _, _ := unstructured.NestedFieldNoCopy(actual, path...)
		diff = append(diff, differences(strings.Join(path, "."), w, a)...)
	}
	return diff
}

func differences(path string, wanted, actual any) []string {
	if w, ok := wanted.(map[string]any); ok {
		var diff []string
		a, _ := actual.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(w)) {
			diff = append(diff, differences(path+"."+key, w[key], a[key])...)
		}
		return diff
	}
	if wanted == nil || same(wanted, actual) {
		return nil
	}
	if actual == nil {
		return []string{fmt.Sprintf("%s is not set to %s", path, compact(wanted))}
	}
	return []string{fmt.Sprintf("%s is %s, not %s", path, compact(actual), compact(wanted))}
}

// same compares values. A CIDR may stand as a string or as a list of one.
func same(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	return isOne(a, b) || isOne(b, a)
}

func isOne(list, element any) bool {
	l, ok := list.([]any)
	return ok && len(l) == 1 && reflect.DeepEqual(l[0], element)
}

func compact(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
