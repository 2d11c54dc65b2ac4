package manifests

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The decoder is our own because the usual way, YAML to JSON to struct, loses
// the lines on the first step and stops at the first error on the second.

const (
	// maxDepth stops an alias that contains itself. No API type is a tenth as deep.
	maxDepth = 100
	// maxProblems is more than anybody reads at once.
	maxProblems = 100
)

// placeholder matches what manuals write where the reader must fill in.
var placeholder = regexp.MustCompile(`^<[A-Z][A-Z0-9_ -]*>$`)

// decoder fills Go values from the nodes of one file and goes on after an error.
type decoder struct {
	file     string
	object   string // of the document being read
	budget   int    // of nodes to look at; see newDecoder
	problems Problems
	warnings Problems
	fields   map[reflect.Type]map[string][]int
}

// newDecoder returns a decoder of one file. Aliases can multiply a small file
// into billions of nodes, so the work is bounded by the length of the text: a
// node takes at least two bytes of it and is looked at twice at most, unless
// aliases repeat it.
func newDecoder(f file) *decoder {
	return &decoder{file: f.name, budget: 2*len(f.data) + 1000}
}

func (d *decoder) fail(n *yaml.Node, path *field.Path, format string, args ...any) {
	if len(d.problems) == maxProblems {
		d.budget = 0
		return
	}
	d.problems = append(d.problems, d.problem(n, path, format, args...))
}

func (d *decoder) warn(n *yaml.Node, path *field.Path, format string, args ...any) {
	d.warnings = append(d.warnings, d.problem(n, path, format, args...))
}

func (d *decoder) problem(n *yaml.Node, path *field.Path, format string, args ...any) Problem {
	p := Problem{File: d.file, Object: d.object, Reason: fmt.Sprintf(format, args...)}
	if n != nil {
		p.Line = n.Line
	}
	if path != nil {
		p.Field = path.String()
	}
	return p.Masked()
}

// enter resolves an alias and counts the node. It reports false for what must
// not be looked at any more: the problem is recorded.
func (d *decoder) enter(n *yaml.Node, path *field.Path, depth int) (*yaml.Node, bool) {
	if d.budget--; d.budget <= 0 {
		if d.budget == 0 {
			d.fail(n, nil, "too complex: aliases repeat too much")
		}
		return n, false
	}
	if depth > maxDepth {
		d.fail(n, nil, "nested deeper than %d levels", maxDepth) // the path would fill the screen
		return n, false
	}
	if n.Kind == yaml.AliasNode {
		return d.enter(n.Alias, path, depth+1)
	}
	return n, true
}

// value decodes n into v, which must be settable.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path *field.Path, depth int) {
	n, ok := d.enter(n, path, depth)
	if !ok || n.ShortTag() == "!!null" {
		return
	}
	switch {
	case decodesItself(v):
		d.leaf(n, v, path, depth)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path, depth+1)
	case v.Kind() == reflect.Struct:
		d.structure(n, v, path, depth)
	case v.Kind() == reflect.Map:
		d.mapping(n, v, path, depth)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		d.sequence(n, v, path, depth)
	default:
		d.leaf(n, v, path, depth)
	}
}

// decodesItself tells whether v's type brings its own JSON form.
func decodesItself(v reflect.Value) bool {
	switch v.Addr().Interface().(type) {
	case json.Unmarshaler, encoding.TextUnmarshaler:
		return true
	}
	return false
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path *field.Path, depth int) {
	fields := d.fieldsOf(v.Type())
	d.pairs(n, path, func(key, value *yaml.Node) {
		at := below(path, key.Value)
		index, ok := fields[key.Value]
		if !ok {
			d.fail(key, at, "unknown field%s", didYouMean(key.Value, fields))
			return
		}
		d.value(value, v.FieldByIndex(index), at, depth+1)
	})
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path *field.Path, depth int) {
	m := reflect.MakeMap(v.Type())
	d.pairs(n, path, func(key, value *yaml.Node) {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(value, elem, path.Key(key.Value), depth+1)
		m.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), elem)
	})
	v.Set(m)
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, path *field.Path, depth int) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, path, "must be a list, not %s", describe(n))
		return
	}
	s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.value(item, s.Index(i), path.Index(i), depth+1)
	}
	v.Set(s)
}

// pairs calls do for every key of a mapping, once per key.
func (d *decoder) pairs(n *yaml.Node, path *field.Path, do func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "must be a map, not %s", describe(n))
		return
	}
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.ShortTag() == "!!merge":
			d.fail(key, path, "merge keys (<<) are not supported: write the fields out")
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			d.fail(key, path, "a key must be text, not %s: quote it", describe(key))
		case seen[key.Value] > 0:
			d.fail(key, below(path, key.Value), "duplicate field, first on line %d", seen[key.Value])
		default:
			seen[key.Value] = key.Line
			do(key, value)
		}
	}
}

// leaf hands one value to encoding/json, which knows every leaf type there is.
func (d *decoder) leaf(n *yaml.Node, v reflect.Value, path *field.Path, depth int) {
	before := len(d.problems)
	plain := d.plain(n, path, depth)
	if len(d.problems) > before {
		return
	}
	text, err := json.Marshal(plain)
	if err == nil {
		err = json.Unmarshal(text, v.Addr().Interface())
	}
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil:
	case errors.As(err, &wrongType):
		d.fail(n, path, "%s", mismatch(wrongType.Type, n))
	default:
		d.fail(n, path, "%v", err)
	}
}

// plain turns n into what encoding/json calls an interface value.
func (d *decoder) plain(n *yaml.Node, path *field.Path, depth int) any {
	n, ok := d.enter(n, path, depth)
	if !ok {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		d.pairs(n, path, func(key, value *yaml.Node) {
			m[key.Value] = d.plain(value, below(path, key.Value), depth+1)
		})
		return m
	case yaml.SequenceNode:
		s := make([]any, len(n.Content))
		for i, item := range n.Content {
			s[i] = d.plain(item, path.Index(i), depth+1)
		}
		return s
	}
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		if placeholder.MatchString(n.Value) {
			d.fail(n, path, "still holds the placeholder %s: put the real value there", n.Value)
		}
		return n.Value
	case "!!null", "!!bool", "!!int", "!!float":
		var x any
		if err := n.Decode(&x); err != nil {
			// The error quotes the value, which may be a key.
			d.fail(n, path, "is not what its tag %s says", n.Tag)
		}
		return x
	}
	d.fail(n, path, "the YAML tag %s is not supported", n.Tag)
	return nil
}

// fieldsOf maps the JSON names of t's fields to their indexes, those of inlined
// structs included.
func (d *decoder) fieldsOf(t reflect.Type) map[string][]int {
	if known, ok := d.fields[t]; ok {
		return known
	}
	out := make(map[string][]int)
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || !f.IsExported() || hiddenByName(t, f) {
			continue
		}
		out[name] = f.Index
	}
	if d.fields == nil {
		d.fields = make(map[reflect.Type]map[string][]int)
	}
	d.fields[t] = out
	return out
}

// hiddenByName tells whether f is promoted through a struct that JSON does not
// inline because its tag names it, such as "metadata".
func hiddenByName(t reflect.Type, f reflect.StructField) bool {
	for i := 1; i < len(f.Index); i++ {
		outer := t.FieldByIndex(f.Index[:i])
		if name, _, _ := strings.Cut(outer.Tag.Get("json"), ","); name != "" || outer.Type.Kind() == reflect.Pointer {
			return true
		}
	}
	return false
}

// below is path.Child for names and path.Key for names with dots or slashes.
func below(path *field.Path, name string) *field.Path {
	switch {
	case path == nil:
		return field.NewPath(name)
	case strings.ContainsAny(name, "./[]"):
		return path.Key(name)
	}
	return path.Child(name)
}

func didYouMean(name string, fields map[string][]int) string {
	for known := range fields {
		if strings.EqualFold(known, name) {
			return fmt.Sprintf("; did you mean %q?", known)
		}
	}
	return ""
}

// describe names what stands in the file, without its value: it may be a key.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!bool":
		return "a boolean"
	case "!!int":
		return "a number"
	case "!!float":
		return "a fraction"
	case "!!null":
		return "null"
	}
	return "text"
}

// mismatch says why n does not fit a field of type t.
func mismatch(t reflect.Type, n *yaml.Node) string {
	if n.ShortTag() == "!!int" && t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 {
		return fmt.Sprintf("is out of range for %d bits", t.Bits())
	}
	if n.ShortTag() == "!!float" {
		return "must be " + want(t) + " without a fraction"
	}
	return fmt.Sprintf("must be %s, not %s", want(t), describe(n))
}

// want names what a field of type t takes.
func want(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text (in quotes)"
	case reflect.Bool:
		return "a boolean"
	case reflect.Slice, reflect.Array:
		return "base64 text"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a positive number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a " + strings.ToLower(t.Kind().String())
}
