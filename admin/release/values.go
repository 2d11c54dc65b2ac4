package release

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/controlplane/cidr"
)

// Values are those of a chart, as YAML says them.
type Values = map[string]any

// YAML writes values as a file that --values reads.
func YAML(v Values) (string, error) {
	b, err := yaml.Marshal(v)
	return string(b), err
}

// merge puts the values of over upon those of base. Lists are replaced. Neither
// is changed.
func merge(base, over Values) Values { return loader.MergeMaps(base, over) }

// at is the value at a path with dots, or nil.
func at(v Values, path string) any {
	keys := strings.Split(path, ".")
	for _, k := range keys[:len(keys)-1] {
		v, _ = v[k].(map[string]any)
	}
	return v[keys[len(keys)-1]]
}

// value is the tree that holds one value at a path.
func value(v any, path string) Values {
	keys := strings.Split(path, ".")
	for _, k := range slices.Backward(keys) {
		v = map[string]any{k: v}
	}
	return v.(map[string]any)
}

// Empty tells whether a value of YAML or JSON says nothing: null, or a text, list or
// table without anything in it. Numbers and booleans always say something.
func Empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// textAt is the text at a path, or "".
func textAt(v Values, path string) string {
	s, _ := at(v, path).(string)
	return s
}

// cidrsAt reads the prefixes of a list at one path, or the one of another path.
func cidrsAt(v Values, many, one string) ([]netip.Prefix, error) {
	var texts []string
	list, _ := at(v, many).([]any)
	for _, e := range list {
		texts = append(texts, fmt.Sprint(e))
	}
	path := many
	if s := textAt(v, one); len(texts) == 0 && s != "" {
		texts, path = []string{s}, one
	}
	var ps []netip.Prefix
	for _, s := range texts {
		p, err := cidr.Parse(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// cidrValue is the tree that says prefixes: the one, or the list.
func cidrValue(ps []netip.Prefix, many, one string) Values {
	if len(ps) == 1 {
		return value(ps[0].String(), one)
	}
	return value(list(ps), many)
}

func list(ps []netip.Prefix) []any {
	texts := make([]any, len(ps))
	for i, p := range ps {
		texts[i] = p.String()
	}
	return texts
}
