package release

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common/util"
)

// valuesList is where a user finds the values of the chart.
const valuesList = "https://github.com/sluice-net/sluice/blob/main/deploy/chart/README.md lists all values"

// Check tells which of the values are not valid for the chart.
func (c *Chart) Check(values Values) error {
	s, err := c.schema()
	if err != nil {
		return err
	}
	var errs []error
	known := s.known("")
	unknown := s.unknown(values, "")
	for _, path := range unknown {
		errs = append(errs, fmt.Errorf("the chart has no value %s%s", path, suggestion(path, known)))
	}
	if len(errs) > 0 {
		errs = append(errs, errors.New(valuesList))
	}
	all := c.coalesced(values)
	if err := c.latest(all); err != nil {
		return errors.Join(append(errs, err)...) // the schema refuses it, too, without saying why
	}
	if err := util.ValidateAgainstSchema(c.chart, c.coalesced(without(values, unknown, ""))); err != nil {
		errs = append(errs, schemaError(err))
	}
	return errors.Join(errs...)
}

// tags are the paths of the values that are tags of images.
var tags = []string{"tag", "controllerManager.image.version", "networking.gatewayTemplates.container.gateway.image.version", "networking.fabric.image.version"}

// latest refuses the tag of this name.
func (c *Chart) latest(values Values) error {
	var paths []string
	for _, path := range tags {
		if textAt(values, path) == "latest" {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	return fmt.Errorf("%s: the tag latest does not identify an image, and nodes may have different images under it: set the tag of your images as 'make images' prints it, such as --set tag=%s",
		strings.Join(paths, ", "), c.Version())
}

// schemaError drops what Helm's message says of the schema's place.
func schemaError(err error) error {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == Name+":" })
	return fmt.Errorf("the values are not valid:\n%s", strings.Join(lines, "\n"))
}

// schemaNode is what is read of the chart's schema.
type schemaNode struct {
	Ref         string                `json:"$ref"`
	Type        any                   `json:"type"`
	Description string                `json:"description"`
	Default     any                   `json:"default"`
	Examples    []any                 `json:"examples"`
	Ignored     string                `json:"ignored"`
	Additional  any                   `json:"additionalProperties"`
	Properties  map[string]schemaNode `json:"properties"`
	Defs        map[string]schemaNode `json:"$defs"`
}

// schema is that of the chart's values. One without a schema knows nothing, and
// refuses nothing.
func (c *Chart) schema() (s schemaNode, err error) {
	if len(c.chart.Schema) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(c.chart.Schema, &s); err != nil {
		return s, fmt.Errorf("values.schema.json of chart %s: %w", c.chart.Name(), err)
	}
	return s, nil
}

// closed tells whether a table has no other keys than those of its schema.
func (s schemaNode) closed() bool { return s.Properties != nil && s.Additional == false }

// unknown are the paths of the values that the schema has no place for.
func (s schemaNode) unknown(v Values, prefix string) (paths []string) {
	for _, k := range slices.Sorted(maps.Keys(v)) {
		below, known := s.Properties[k]
		switch table, is := v[k].(map[string]any); {
		case !known && s.closed():
			paths = append(paths, prefix+k)
		case known && is:
			paths = append(paths, below.unknown(table, prefix+k+".")...)
		}
	}
	return paths
}

// known are the paths of all values, including those that only have others below them.
// Values without effect are not recommended.
func (s schemaNode) known(prefix string) (paths []string) {
	for _, k := range slices.Sorted(maps.Keys(s.Properties)) {
		if below := s.Properties[k]; below.Ignored == "" {
			paths = append(append(paths, prefix+k), below.known(prefix+k+".")...)
		}
	}
	return paths
}

// ignored tells which of the values do nothing here, and why.
func (s schemaNode) ignored(v Values, prefix string) (notes []string) {
	for _, k := range slices.Sorted(maps.Keys(v)) {
		p := s.Properties[k]
		if p.Ignored != "" {
			notes = append(notes, fmt.Sprintf("the value %s%s has no effect: %s", prefix, k, p.Ignored))
		} else if table, ok := v[k].(map[string]any); ok {
			notes = append(notes, p.ignored(table, prefix+k+".")...)
		}
	}
	return notes
}

// ignored tells which of the values do nothing here, and why.
func (c *Chart) ignored(v Values) []string {
	s, err := c.schema()
	if err != nil {
		return nil // Check says so
	}
	return s.ignored(v, "")
}

// without are the values but those at paths.
func without(v Values, paths []string, prefix string) Values {
	kept := Values{}
	for k, below := range v {
		if slices.Contains(paths, prefix+k) {
			continue
		}
		if table, ok := below.(map[string]any); ok {
			below = without(table, paths, prefix+k+".")
		}
		kept[k] = below
	}
	return kept
}

// suggestion names the paths that may be meant: those that end as the wrong one
// does, those whose last word is spelt most like its last one, or else those that
// are spelt most like it as a whole. A section above it is not meant.
func suggestion(path string, known []string) string {
	const some = 3
	last := lastWord(path)
	others := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return strings.HasPrefix(path, k+".") })
	whole := func(k string) int { return distance(path, k) }
	alike := slices.DeleteFunc(slices.Clone(others), func(k string) bool { return !strings.HasSuffix(k, "."+last) })
	if len(alike) == 0 || len(alike) > some {
		alike = nearest(others, len(last)/4+1, func(k string) int { return distance(last, lastWord(k)) })
		alike = nearest(alike, len(path)+len(strings.Join(alike, "")), whole)
	}
	if len(alike) == 0 {
		alike = nearest(others, len(path)/4+2, whole)
	}
	if len(alike) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(alike[:min(some, len(alike))], " or ") + "?"
}

// lastWord is what a path ends in.
func lastWord(path string) string { return path[strings.LastIndex(path, ".")+1:] }

// nearest are the paths that are the least far, and not farther than the limit.
func nearest(paths []string, limit int, far func(string) int) []string {
	for _, p := range paths {
		limit = min(limit, far(p))
	}
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return far(p) > limit })
}

// distance is how many letters must be put in, left out or changed to make one
// text of another, without regard to capitals.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
