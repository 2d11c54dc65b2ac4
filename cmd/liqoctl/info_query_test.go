package main

import (
	"encoding/json"
	"testing"

	"github.com/sluice-net/sluice/admin/release"
)

// FuzzLookUp: no path makes lookUp panic, and what it finds is not empty.
func FuzzLookUp(f *testing.F) {
	for _, path := range []string{"", ".", "a", "a.b", "A.B.0", "a..b", "c.d.e", "a.b.-1", "a.b.99999999999999999999"} {
		f.Add(path)
	}
	var tree any
	if err := json.Unmarshal([]byte(`{"a": {"b": [1, "two", {"x": null}]}, "c.d": {"e": true}, "": {"": 0}}`), &tree); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string) {
		found, err := lookUp(tree, path)
		if err == nil && release.Empty(found) {
			t.Errorf("%q: %v", path, found)
		}
	})
}
