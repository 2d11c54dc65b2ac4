package manifests

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/api/text"
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

// Attrs are the parts of the problem as keys and values for a log.
func (p Problem) Attrs() (attrs []any) {
	if p.File != "" {
		attrs = append(attrs, "file", p.File)
	}
	if p.Line > 0 {
		attrs = append(attrs, "line", p.Line)
	}
	if p.Object != "" {
		attrs = append(attrs, "object", p.Object)
	}
	if p.Field != "" {
		attrs = append(attrs, "field", p.Field)
	}
	return append(attrs, "reason", p.Reason)
}

// keyShaped matches what may be key material: base64 or hex text of 30 bytes or
// more. No name that we know is that long without a hyphen or a dot.
var keyShaped = regexp.MustCompile(`[A-Za-z0-9+/]{40,}={0,2}`)

// Masked hides key material. A key that stands where a name belongs, on the
// wrong side of a colon or too far left, is part of a path or of a message.
func (p Problem) Masked() Problem {
	for _, text := range []*string{&p.Object, &p.Field, &p.Reason} {
		*text = keyShaped.ReplaceAllLiteralString(*text, "(hidden: may be a key)")
	}
	return p
}

// Problems is everything that is wrong with one state. It is an error so that
// a state is refused as a whole, with all its reasons at once.
type Problems []Problem

// Error has one line per problem.
func (ps Problems) Error() string { return text.Join(ps, "\n") }

// OrNil is the problems as an error: nil if there are none, and not an error that
// holds no problem.
func (ps Problems) OrNil() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// ProblemsOf turns any error into problems; nil into none.
func ProblemsOf(err error) Problems {
	if err == nil {
		return nil
	}
	var ps Problems
	if errors.As(err, &ps) {
		return ps
	}
	return Problems{Problem{Reason: err.Error()}.Masked()}
}

// Without returns the problems that are not among the known: those that are
// worth a line in the log.
func (ps Problems) Without(known Problems) (out Problems) {
	for _, p := range ps {
		if !slices.Contains(known, p) {
			out = append(out, p)
		}
	}
	return out
}

// maxAlike is how many problems of one reason are worth reading.
const maxAlike = 5

// Condensed replaces all but the first few of the problems with one reason by
// their number: while a large cluster starts, thousands of nodes wait.
func (ps Problems) Condensed() (out Problems) {
	type alike struct{ field, reason string }
	count := make(map[alike]int)
	for _, p := range ps {
		k := alike{p.Field, p.Reason}
		if count[k]++; count[k] <= maxAlike {
			out = append(out, p)
		}
	}
	for i := len(out) - 1; i >= 0; i-- { // after the last of those that are shown
		k := alike{out[i].Field, out[i].Reason}
		if more := count[k] - maxAlike; more > 0 {
			objects := "objects"
			if more == 1 {
				objects = "object"
			}
			out = slices.Insert(out, i+1, Problem{Field: k.field, Reason: fmt.Sprintf("%d more %s like this: %s", more, objects, k.reason)})
			delete(count, k)
		}
	}
	return out
}

// Waiting says why there is nothing to put in force yet although nobody made a
// mistake. What is in force stays.
type Waiting Problems

// Error has one line per reason.
func (w Waiting) Error() string { return Problems(w).Error() }

// Ref names an object in a problem.
type Ref struct {
	Kind   string
	Meta   *metav1.ObjectMeta
	Source Source
}

// RefTo names an object that was read.
func RefTo[T any](kind string, s Sourced[T], meta *metav1.ObjectMeta) Ref {
	return Ref{Kind: kind, Meta: meta, Source: s.Source}
}

// Problem is a problem of the object, at path if that is not nil.
func (r Ref) Problem(path *field.Path, format string, args ...any) Problem {
	h := header{Kind: r.Kind, Namespace: r.Meta.Namespace, Name: r.Meta.Name}
	p := Problem{File: r.Source.File, Line: r.Source.Line(path), Object: h.String(), Reason: fmt.Sprintf(format, args...)}
	if path != nil {
		p.Field = path.String()
	}
	return p.Masked()
}
