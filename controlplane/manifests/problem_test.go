package manifests

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
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
