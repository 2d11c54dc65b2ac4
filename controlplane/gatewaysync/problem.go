package gatewaysync

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Problem is one thing that is wrong with an object, or that its author should
// know. It says where to look before it says what is wrong.
type Problem struct {
	// File is relative to the manifests directory; empty for objects that come
	// from an API server.
	File string `json:"file,omitempty"`
	// Line counts from 1; zero when there is none to point at.
	Line int `json:"line,omitempty"`
	// Object is the kind and the name, as in "Configuration tenant/peer".
	Object string `json:"object,omitempty"`
	// Field is the path of the field, as in "spec.remote.cidr.pod[0]".
	Field string `json:"field,omitempty"`
	// Reason is a phrase for the person who wrote the object. It never holds
	// key material.
	Reason string `json:"reason"`
}

// String is the problem on one line, the way compilers print theirs, so that
// editors can jump to it.
func (p Problem) String() string {
	var parts []string
	if p.File != "" {
		at := p.File
		if p.Line > 0 {
			at = fmt.Sprintf("%s:%d", p.File, p.Line)
		}
		parts = append(parts, at)
	}
	for _, s := range []string{p.Object, p.Field, p.Reason} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

// keyShaped matches what may be key material: base64 or hex text of 30 bytes or
// more. No name that we know is that long without a hyphen or a dot.
var keyShaped = regexp.MustCompile(`[A-Za-z0-9+/]{40,}={0,2}`)

// masked hides key material. A key that stands where a name belongs, on the
// wrong side of a colon or too far left, is part of a path or of a message.
func (p Problem) masked() Problem {
	for _, text := range []*string{&p.Object, &p.Field, &p.Reason} {
		*text = keyShaped.ReplaceAllLiteralString(*text, "(hidden: may be a key)")
	}
	return p
}

// Problems is everything that is wrong with one state. It is an error so that
// a state is refused as a whole, with all its reasons at once.
type Problems []Problem

// Error has one line per problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// orNil avoids the non-nil error that holds no problem.
func (ps Problems) orNil() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// Source says where an object was read from. The zero Source belongs to an
// object that was not read from a file.
type Source struct {
	File string
	node *yaml.Node
}

// Line is the line of the field, or of the innermost parent that is written
// down: a missing field has no line of its own.
func (s Source) Line(path *field.Path) int {
	n := s.node
	if n == nil {
		return 0
	}
	line := n.Line
	for _, step := range steps(path) {
		key, value := child(n, step)
		if value == nil {
			break
		}
		line = key.Line
		if n = value; n.Kind == yaml.AliasNode {
			n = n.Alias
		}
	}
	return line
}

// has tells whether the field is written down. Without a file it is taken to be:
// an API server has checked what is required.
func (s Source) has(path *field.Path) bool {
	n := s.node
	if n == nil {
		return true
	}
	for _, step := range steps(path) {
		_, value := child(n, step)
		if value == nil || value.ShortTag() == "!!null" {
			return false
		}
		if n = value; n.Kind == yaml.AliasNode {
			n = n.Alias
		}
	}
	return true
}

// steps splits a path into keys and indexes: field.Path does not reveal its
// elements, only its text, where a key in brackets may hold dots.
func steps(path *field.Path) (out []string) {
	if path == nil {
		return nil
	}
	text := path.String()
	for text != "" {
		switch text[0] {
		case '.':
			text = text[1:]
		case '[':
			end := strings.IndexByte(text, ']')
			if end < 0 {
				return out
			}
			out = append(out, text[1:end])
			text = text[end+1:]
		default:
			end := strings.IndexAny(text, ".[")
			if end < 0 {
				end = len(text)
			}
			out = append(out, text[:end])
			text = text[end:]
		}
	}
	return out
}

// child returns the node to point at and the node to descend into.
func child(n *yaml.Node, step string) (at, value *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i], n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		var i int
		if _, err := fmt.Sscanf(step, "%d", &i); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
	}
	return nil, nil
}
