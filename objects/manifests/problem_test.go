package manifests

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ExampleProblem() {
	fmt.Println(Problem{File: "peer.yaml", Line: 12, Object: "PublicKey peer", Field: "spec.publicKey", Reason: "is required"})
	// Output: peer.yaml:12: PublicKey peer: spec.publicKey: is required
}

func TestCondensed(t *testing.T) {
	var warnings Problems
	for i := range 10 {
		warnings = append(warnings, Problem{Object: "InternalNode " + string(rune('a'+i)), Reason: "waits"})
	}
	warnings = append(warnings, Problem{Object: "IP x", Reason: "waits for something else"})
	got := warnings.Condensed()
	want := slices.Concat(warnings[:maxAlike], Problems{{Reason: "5 more objects like this: waits"}}, warnings[10:])
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("condensed (-want +got):\n%s", diff)
	}
}

func TestProblems(t *testing.T) {
	one, two := Problem{Object: "IP a", Reason: "one"}, Problem{Object: "IP a", Reason: "two"}
	if err := (Problems)(nil).OrNil(); err != nil {
		t.Errorf("no problem is an error: %v", err)
	}
	if diff := cmp.Diff(Problems{two}, ProblemsOf(fmt.Errorf("apply: %w", Problems{two}.OrNil()))); diff != "" {
		t.Errorf("problems of an error (-want +got):\n%s", diff)
	}
	if got := ProblemsOf(nil); got != nil {
		t.Errorf("no error is a problem: %v", got)
	}
	key := strings.Repeat("k", 44)
	if got := ProblemsOf(errors.New("bad " + key)).Error(); got != "bad (hidden: may be a key)" {
		t.Errorf("another error: %s", got)
	}
	if diff := cmp.Diff(Problems{two}, Problems{one, two}.Without(Problems{one})); diff != "" {
		t.Errorf("new ones (-want +got):\n%s", diff)
	}
	p := Problem{File: "f.yaml", Line: 3, Object: "IP a", Field: "spec.ip", Reason: "why"}
	if diff := cmp.Diff([]any{"file", "f.yaml", "line", 3, "object", "IP a", "field", "spec.ip", "reason", "why"}, p.Attrs()); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{"reason", "why"}, Problem{Reason: "why"}.Attrs()); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if err := Waiting(Problems{one, two}); err.Error() != "IP a: one\nIP a: two" {
		t.Errorf("waiting: %v", err)
	}
}

func TestRef(t *testing.T) {
	meta := &metav1.ObjectMeta{Namespace: "tenant", Name: "a"}
	r := Ref{Kind: "IP", Meta: meta, Source: Source{File: "/keys"}}
	if got, want := r.Problem(field.NewPath("spec", "ip"), "is %d", 1).String(), "/keys: IP tenant/a: spec.ip: is 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := r.Problem(nil, "%s", strings.Repeat("A", 43)).String(), "/keys: IP tenant/a: (hidden: may be a key)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !(Source{}).Has(field.NewPath("spec")) || (Source{}).Line(field.NewPath("spec")) != 0 {
		t.Error("what was not read from a file has every field and no line")
	}
}
