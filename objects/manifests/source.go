package manifests

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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

// Has tells whether the field is written down. Without a file it is taken to be:
// an API server has checked what is required.
func (s Source) Has(path *field.Path) bool {
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
