package peering_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/admin/peering"
)

// TestCycles peers and unpeers ten times. The last time the tenant namespaces go, too: then there is what was before.
func TestCycles(t *testing.T) {
	t.Parallel()
	rome, milan, o, before := pairOf(t)
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
	like(t, afterwards(before), rome, milan)
}

// afterwards are the objects that there are when a peering has ended: those from before, and the key by which rome proves
// who it is, to whichever provider.
func afterwards(before []string) []string {
	return slices.Sorted(slices.Values(append(slices.Clone(before), "rome: Secret liqo/authentication-keys")))
}

// fleeting are kinds of which objects come and go by themselves, or with a Service under another name each time.
var fleeting = []string{"events", "leases", "endpointslices", "endpoints", "ipaddresses", "replicasets", "pods", "componentstatuses"}

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
