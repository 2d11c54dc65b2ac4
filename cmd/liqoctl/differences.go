package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// objectDifferences lists where an object is not as wanted: "spec.mtu is 1400, not
// 1340". What nobody asked for may be anything: defaults, others' labels.
func objectDifferences(wanted, actual map[string]any) []string {
	var diff []string
	for _, path := range [][]string{{"metadata", "labels"}, {"metadata", "annotations"}, {"spec"}} {
		w, a := any(wanted), any(actual)
		name := ""
		for _, key := range path {
			w, a = field(w, key), field(a, key)
			name = dotted(name, key)
		}
		diff = append(diff, differences(name, w, a)...)
	}
	return diff
}

func field(v any, key string) any {
	m, _ := v.(map[string]any)
	return m[key]
}

func dotted(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func differences(path string, wanted, actual any) []string {
	if w, ok := wanted.(map[string]any); ok {
		var diff []string
		for _, key := range slices.Sorted(maps.Keys(w)) {
			diff = append(diff, differences(dotted(path, key), w[key], field(actual, key))...)
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
