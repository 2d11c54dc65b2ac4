package template

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Vars are what a template can refer to.
type Vars struct {
	// Spec is the spec of the gateway: a struct with JSON tags, or a map.
	Spec any
	// Name is the name of the gateway.
	Name string
	// Namespace is the namespace of the gateway.
	Namespace string
	// GatewayUID is the UID of the gateway.
	GatewayUID string
	// ClusterID is the ID of the remote cluster.
	ClusterID string
	// SecretName is the name of the Secret that the spec refers to, if any.
	SecretName string
}

// Bounds of a rendered object, well above what an API server takes.
const (
	maxDepth  = 64
	maxValues = 100_000
	maxTotal  = 2 << 20
)

// textKeys hold, wherever Kubernetes has them, strings and nothing else.
var textKeys = map[string]bool{
	"labels": true, "annotations": true, "matchLabels": true, "nodeSelector": true, "stringData": true,
	"env": true, "args": true, "command": true,
}

// Render renders a template for an object of the type of like, a struct with JSON
// tags, or a pointer to one; nil: of any kind. It changes nothing in template and
// shares nothing with it. An error begins with the path of the field.
func Render(template map[string]any, v Vars, like any) (map[string]any, error) {
	r := renderer{vars: v.values(), deadline: time.Now().Add(maxTime)}
	return r.object(template, place{kind: indirect(reflect.TypeOf(like))})
}

// renderer renders one object.
type renderer struct {
	vars     map[string]any
	deadline time.Time
	values   int // so far
	total    int // bytes so far
}

// place is where in the object a value stands.
type place struct {
	path  *field.Path
	depth int
	// kind is the type that the value must have; nil if that is not known.
	kind reflect.Type
	// text says that it is a string although the type is not known.
	text bool
	// optional says that an empty value is no mistake.
	optional bool
}

func (p place) fail(format string, args ...any) error {
	if p.path == nil {
		return fmt.Errorf(format, args...)
	}
	return fmt.Errorf("%s: %w", p.path, fmt.Errorf(format, args...))
}

// child is the place of the value of key.
func (p place) child(key string) (place, error) {
	name, optional := strings.CutPrefix(key, "?")
	c := place{depth: p.depth + 1, text: p.text || textKeys[name], optional: optional}
	switch {
	case p.path == nil:
		c.path = field.NewPath(key)
	case strings.ContainsAny(key, "./"): // of a label
		c.path = p.path.Key(key)
	default:
		c.path = p.path.Child(key)
	}
	if name == "" {
		return c, c.fail("a key must not be empty")
	}
	if p.kind == nil {
		return c, nil
	}
	var known bool
	if c.kind, known = memberType(p.kind, name); !known {
		return c, c.fail("there is no such field")
	}
	return c, nil
}

func (p place) element(i int) place {
	c := place{path: p.path.Index(i), depth: p.depth + 1, text: p.text}
	if p.kind != nil {
		c.kind = elementType(p.kind)
	}
	return c
}

func (r *renderer) object(m map[string]any, p place) (map[string]any, error) {
	out := make(map[string]any, len(m))
	// Sorted, so that of several mistakes it is always the same that is reported.
	for _, key := range slices.Sorted(maps.Keys(m)) {
		c, err := p.child(key)
		if err != nil {
			return nil, err
		}
		v, err := r.value(m[key], c)
		if err != nil {
			return nil, err
		}
		if !c.optional {
			out[key] = v
			continue
		}
		name := key[1:]
		if _, twice := m[name]; twice {
			return nil, c.fail("%s is there without a question mark, too", name)
		}
		if !isEmpty(v) {
			out[name] = v
		}
	}
	return out, nil
}

func (r *renderer) value(v any, p place) (any, error) {
	if r.values++; r.values > maxValues {
		return nil, p.fail("more than %d values", maxValues)
	}
	if p.depth > maxDepth {
		return nil, p.fail("more than %d levels deep", maxDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		return r.object(v, p)
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			rendered, err := r.value(e, p.element(i))
			if err != nil {
				return nil, err
			}
			list[i] = rendered
		}
		return list, nil
	case string:
		s, err := r.text(v, p)
		if err != nil {
			return nil, err
		}
		return convert(s, p)
	case nil, bool, int64, float64:
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	}
	return nil, p.fail("%T is no type of JSON", v)
}

// text renders one string.
func (r *renderer) text(s string, p place) (string, error) {
	out, err := execute(s, r.vars, r.deadline)
	if err != nil {
		return "", p.fail("%w", err)
	}
	if r.total += len(out); r.total > maxTotal {
		return "", p.fail("the object is larger than %d bytes", maxTotal)
	}
	return out, nil
}

var errEmpty = errors.New("renders to nothing: begin its key with a question mark to leave it out then")

// convert turns text into what its place wants.
func convert(s string, p place) (any, error) {
	if p.kind == nil {
		if n, ok := integer(s); ok && !p.text {
			return n, nil
		}
		return s, nil
	}
	kind := p.kind.Kind()
	if kind == reflect.String {
		return s, nil
	}
	if s == "" {
		if p.optional {
			return nil, nil
		}
		return nil, p.fail("%w", errEmpty)
	}
	switch kind {
	case reflect.Bool:
		if s != "true" && s != "false" {
			return nil, p.fail("%q is neither true nor false", s)
		}
		return s == "true", nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, p.kind.Bits())
		if err != nil {
			return nil, p.fail("%q is no integer of %d bits", s, p.kind.Bits())
		}
		return n, nil
	}
	return nil, p.fail("%q stands where the object has %s", s, describe(p.kind))
}

// integer reads an integer in its usual form: "007" and "+7" are text.
func integer(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case int64:
		return v == 0
	case float64:
		return v == 0
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
