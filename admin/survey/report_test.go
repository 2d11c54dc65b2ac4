package survey

import (
	"encoding"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/objects/manifests"
)

// TestReportsAgree compares the names in the types here with those in what the
// programs print: their tests keep the golden files up to date. A field that is
// renamed there would read as zero here.
func TestReportsAgree(t *testing.T) {
	for _, tt := range []struct {
		name  string
		typ   reflect.Type
		files []string
	}{
		{"gateway", reflect.TypeFor[GatewayReport](), []string{"../../cmd/gateway/testdata/report.json"}},
		{"fabric", reflect.TypeFor[FabricReport](), []string{"../../cmd/fabric/testdata/report-standalone.json", "../../cmd/fabric/testdata/report-cluster.json"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			printed := make(map[string]bool)
			for _, f := range tt.files {
				text := readFile(t, f)
				var tree any
				if err := json.Unmarshal(text, &tree); err != nil {
					t.Fatal(err)
				}
				treePaths(tree, "", printed)
				if err := json.Unmarshal(text, reflect.New(tt.typ).Interface()); err != nil {
					t.Errorf("%s: %v", f, err)
				}
			}
			for _, p := range typePaths(tt.typ, "") {
				if !printed[p] {
					t.Errorf("%s is nowhere in %v", p, tt.files)
				}
			}
		})
	}
}

func TestReadsGatewayReport(t *testing.T) {
	r := gatewayReport(t)
	if r.Version != "v0.1.0" || r.DataPlane.MTU != 1340 || r.DataPlane.Egress.Bytes != 100000 || r.Sync.Peer.Latency != 12345*time.Microsecond ||
		len(r.DataPlane.Nodes) != 2 || r.DataPlane.Nodes[0].Encapsulation != "vxlan" || r.Sync.Refused[0].Line != 12 ||
		r.DataPlane.Remote[0].Outside.String() != "10.243.0.0/16" || !strings.HasSuffix(r.Cluster.API.Error, "connection refused") {
		t.Errorf("%+v", r)
	}
}

// gatewayReport is what a gateway printed.
func gatewayReport(t *testing.T) *GatewayReport {
	t.Helper()
	r := new(GatewayReport)
	if err := json.Unmarshal(readFile(t, "../../cmd/gateway/testdata/report.json"), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// treePaths adds the paths of everything in a JSON value. Elements of lists and
// values of maps are joined under one name.
func treePaths(v any, at string, out map[string]bool) {
	out[at] = true
	switch v := v.(type) {
	case map[string]any:
		for key := range maps.Keys(v) {
			treePaths(v[key], at+"."+key, out)
			treePaths(v[key], at+".*", out)
		}
	case []any:
		for _, e := range v {
			treePaths(e, at+"[]", out)
		}
	}
}

// shared are types that both sides use.
var shared = []reflect.Type{reflect.TypeFor[metav1.Condition](), reflect.TypeFor[manifests.Problem]()}

// typePaths are the paths that a type reads, down to values that have a text of
// their own.
func typePaths(t reflect.Type, at string) []string {
	paths := []string{at}
	text := reflect.TypeFor[encoding.TextUnmarshaler]()
	switch {
	case reflect.PointerTo(t).Implements(text), slices.Contains(shared, t):
		return paths
	case t.Kind() == reflect.Pointer:
		return typePaths(t.Elem(), at)
	case t.Kind() == reflect.Slice:
		return append(paths, typePaths(t.Elem(), at+"[]")...)
	case t.Kind() == reflect.Map:
		return append(paths, typePaths(t.Elem(), at+".*")...)
	case t.Kind() != reflect.Struct:
		return paths
	}
	for f := range fieldsOf(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		paths = append(paths, typePaths(f.Type, at+"."+name)...)
	}
	return slices.Compact(paths)
}

func fieldsOf(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}
