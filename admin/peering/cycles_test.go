package peering_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// testCycles peers and unpeers ten times. The last time the tenant namespaces go, too: then there is what was before, and
// the key by which the consumer proves who it is, to whichever provider.
func testCycles(t *testing.T, rome, milan *side, o peering.PeerOptions, before []string) {
	const cycles = 10
	for i := range cycles {
		if err := peering.Peer(t.Context(), rome.access, milan.access, o, nil); err != nil {
			t.Fatalf("peering number %d: %v", i+1, err)
		}
		end := o.Options
		end.DeleteNamespaces = i == cycles-1
		if err := peering.Unpeer(t.Context(), rome.access, milan.access, end, nil); err != nil {
			t.Fatalf("end of peering number %d: %v", i+1, err)
		}
	}
	before = append(before, "rome: Secret liqo/authentication-keys")
	slices.Sort(before)
	controlplanetest.Eventually(t, "both clusters are as before", func(context.Context) error {
		now, err := objectsOf(rome, milan)
		if diff := cmp.Diff(before, now); err == nil && diff != "" {
			err = errors.New("(-before +after):\n" + diff)
		}
		return err
	})
}

// fleeting are kinds of which objects come and go by themselves.
var fleeting = []string{"events", "leases", "endpointslices", "endpoints", "replicasets", "pods", "componentstatuses"}

// objectsOf names all objects of some clusters, of whatever kind.
func objectsOf(sides ...*side) (names []string, err error) {
	for _, s := range sides {
		kinds, err := s.Kubectl("api-resources", "--verbs=list", "-o", "name")
		if err != nil {
			return nil, err
		}
		all := slices.DeleteFunc(strings.Fields(kinds), func(kind string) bool {
			plural, _, _ := strings.Cut(kind, ".")
			return slices.Contains(fleeting, plural)
		})
		out, err := s.Kubectl("get", strings.Join(all, ","), "-A", "-o", "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(out) {
			names = append(names, s.id+": "+strings.TrimSpace(line))
		}
	}
	slices.Sort(names)
	return names, nil
}
