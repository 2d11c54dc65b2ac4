package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/admin/release"
)

// get prints the value at a path of v, as -o json names it: a value as it is,
// anything larger as YAML or, with -o json, as JSON. Where there is nothing at
// the path, others are tried.
func (o *output) get(v any, path string, others ...string) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return err
	}
	found, err := lookUp(tree, path)
	for _, other := range others {
		if v, otherErr := lookUp(tree, other); err != nil && otherErr == nil {
			found, err = v, nil
		}
	}
	if err != nil {
		return err
	}
	return o.value(found)
}

// value prints a value that was looked up.
func (o *output) value(v any) error {
	switch v.(type) {
	case map[string]any, []any:
		if !o.given() {
			return o.as(formatYAML).data(v)
		}
		return o.data(v)
	}
	if o.format == formatJSON {
		return o.data(v)
	}
	_, err := fmt.Fprintln(o.w, v)
	return err
}

// as is the output in another format.
func (o *output) as(format string) *output {
	c := *o
	c.format = format
	return &c
}

// errNoValue says that a path is right, and that nothing is there now.
var errNoValue = errors.New("it has no value yet")

// lookUp follows a path of keys and of indexes of lists. Keys may be in upper or
// lower case; one that holds dots itself, as cluster IDs may, is found, too.
func lookUp(tree any, path string) (any, error) {
	rest := strings.Trim(path, ".")
	at := ""
	for rest != "" {
		next, key, after, err := step(tree, rest)
		if err != nil {
			where := "there is"
			if at != "" {
				where = fmt.Sprintf("%q has", at)
			}
			return nil, fmt.Errorf("--get %s: %s %w", path, where, err)
		}
		tree, rest = next, after
		at = strings.TrimPrefix(at+"."+key, ".")
	}
	if _, list := tree.([]any); !list && release.Empty(tree) {
		return nil, fmt.Errorf("--get %s: %w", path, errNoValue)
	}
	return tree, nil
}

// step takes one step into a tree and returns what is left of the path. Its
// error goes on after "there is" or "it has".
func step(tree any, path string) (next any, key, rest string, err error) {
	switch v := tree.(type) {
	case map[string]any:
		// The longest key that fits: a cluster ID may have dots.
		for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '.') {
			if key, ok := findKey(v, path[:end]); ok {
				return v[key], key, strings.TrimPrefix(path[end:], "."), nil
			}
		}
		head, _, _ := strings.Cut(path, ".")
		return nil, "", "", fmt.Errorf("no %q: choose from %s", head, strings.Join(slices.Sorted(maps.Keys(v)), ", "))
	case []any:
		head, rest, _ := strings.Cut(path, ".")
		i, err := strconv.Atoi(head)
		if err != nil || i < 0 || i >= len(v) {
			return nil, "", "", fmt.Errorf("no %q: it is a list of %d, counted from 0", head, len(v))
		}
		return v[i], head, rest, nil
	}
	head, _, _ := strings.Cut(path, ".")
	return nil, "", "", fmt.Errorf("no %q: it is a value", head)
}

// findKey returns the key that is meant: the same or, if there is none, the first
// that differs in upper and lower case only.
func findKey(m map[string]any, name string) (string, bool) {
	if _, ok := m[name]; ok {
		return name, true
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if strings.EqualFold(key, name) {
			return key, true
		}
	}
	return "", false
}
