package internalnetwork

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// objects is an API server's content that is only listed.
type objects struct {
	client.Reader
	nodes   []networkingv1beta1.InternalNode
	fabrics []networkingv1beta1.InternalFabric
	tunnels []networkingv1beta1.GeneveTunnel
	lists   int
}

func (o *objects) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	o.lists++
	switch l := l.(type) {
	case *networkingv1beta1.InternalNodeList:
		l.Items = o.nodes
	case *networkingv1beta1.InternalFabricList:
		l.Items = o.fabrics
	case *networkingv1beta1.GeneveTunnelList:
		l.Items = append(l.Items, o.tunnels...)
	}
	return nil
}

func internalNode(name string, second int64, ip networkingv1beta1.Address) networkingv1beta1.InternalNode {
	n := networkingv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, 0)}}
	n.Spec.Interface.Node.IP = ip
	return n
}

func TestAddressBook(t *testing.T) {
	fabric := networkingv1beta1.InternalFabric{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "milan", CreationTimestamp: metav1.Unix(3, 0)}}
	fabric.Spec.Interface.Gateway.IP = "10.80.0.5"
	api := &objects{
		nodes:   []networkingv1beta1.InternalNode{internalNode("younger", 9, "10.80.0.1"), internalNode("older", 1, "10.80.0.1"), internalNode("outside", 2, "10.99.0.1")},
		fabrics: []networkingv1beta1.InternalFabric{fabric},
	}
	b := &addressBook{reader: api, network: client.ObjectKey{Namespace: "liqo", Name: "internal-cidr"}}
	ask := func(p pool, owner string, has networkingv1beta1.Address, want string) {
		t.Helper()
		g, err := b.grant(t.Context(), p, owner, has)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", g.Addr, g.Reason, g.Lost)), " ")
		if got != want {
			t.Errorf("%s with %q: got %q, want %q", owner, has, got, want)
		}
	}
	none, small := pool{}, pool{prefix: netip.MustParsePrefix("10.80.0.0/29"), reserved: 2}
	ask(none, "InternalNode new", "", "invalid IP WaitingForInternalCIDR")
	ask(none, "InternalNode older", "10.80.0.1", "10.80.0.1") // everybody keeps what they have
	if api.lists != 0 {
		t.Errorf("%d lists without need", api.lists)
	}
	ask(small, "InternalNode new", "", "10.80.0.6")
	ask(small, "InternalNode older", "10.80.0.1", "10.80.0.1") // although it is reserved
	ask(small, "InternalNode older", "10.80.0.7", "10.80.0.1") // somebody edited it
	ask(small, "InternalNode younger", "10.80.0.1", "10.80.0.2 address 10.80.0.1 is held by InternalNode older")
	ask(small, "InternalNode outside", "10.99.0.1", "10.80.0.3 address 10.99.0.1 is not in 10.80.0.0/29")
	ask(small, "InternalNode bad", "1.2.3", `10.80.0.4 address "1.2.3": not an IPv4 or IPv6 address`)
	ask(small, "InternalFabric ns/milan", "10.80.0.5", "10.80.0.5")
	ask(small, "InternalNode late", "", "invalid IP InternalCIDRExhausted")
	ask(none, "InternalNode new", "", "10.80.0.6") // the Network is gone for a moment
	b.release("InternalNode bad")
	if b.holds("InternalNode bad") || !b.holds("InternalNode new") {
		t.Error("wrong holders")
	}
	ask(small, "InternalNode late", "", "10.80.0.4")
	if api.lists != 2 {
		t.Errorf("%d lists, want 2 for all grants of a pool", api.lists)
	}
	large := pool{prefix: netip.MustParsePrefix("10.80.0.0/24")}
	ask(large, "InternalNode older", "10.80.0.1", "10.80.0.1")
	ask(large, "InternalNode late", "10.80.0.4", "10.80.0.4")
}

func geneveTunnel(node string, second int64, id int32) networkingv1beta1.GeneveTunnel {
	g := networkingv1beta1.GeneveTunnel{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "milan-" + node, CreationTimestamp: metav1.Unix(second, 0)}}
	g.Spec.ID, g.Spec.InternalFabricRef.Name, g.Spec.InternalNodeRef.Name = id, "milan", node
	return g
}

func TestVNIBook(t *testing.T) {
	second := geneveTunnel("older", 8, 5)
	second.Name = "second"
	tunnels := []networkingv1beta1.GeneveTunnel{
		geneveTunnel("younger", 9, 3), geneveTunnel("older", 1, 3), geneveTunnel("zero", 2, 0), geneveTunnel("large", 2, 1<<24), geneveTunnel("last", 2, 1<<24-1), second,
	}
	b := &vniBook{reader: &objects{tunnels: tunnels}}
	ask := func(node string, has *networkingv1beta1.GeneveTunnel, want string) {
		t.Helper()
		id, lost, err := b.grant(t.Context(), pair{"ns", "milan", node}, has)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(fmt.Sprintf("%d %s", id, lost)); got != want {
			t.Errorf("%s: got %q, want %q", node, got, want)
		}
	}
	ask("new", nil, "1") // behind the last one comes the first, but 0
	ask("older", &tunnels[1], "3")
	ask("younger", &tunnels[0], "2 VNI 3 is that of the tunnel of InternalFabric ns/milan to node older")
	ask("large", &tunnels[3], "4 VNI 16777216 does not fit into 24 bits")
	ask("zero", &tunnels[2], "0") // it was given once
	ask("last", &tunnels[4], "16777215")
	edited := geneveTunnel("new", 1, 99)
	ask("new", &edited, "1")
	milan := types.NamespacedName{Namespace: "ns", Name: "milan"}
	if held := b.heldFor(milan); len(held) != 6 || !slices.Contains(held, pair{"ns", "milan", "new"}) || b.heldFor(types.NamespacedName{Name: "milan"}) != nil {
		t.Errorf("held for %s: %v", milan, held)
	}
	b.release(pair{"ns", "milan", "new"})
	b.release(pair{"ns", "milan", "new"})
	ask("next", nil, "5") // not the one that was released
	free := geneveTunnel("restored", 1, 1)
	ask("restored", &free, "1")
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 250)
	for _, tt := range []struct{ name, got, want string }{
		{"routes", routesName("n1"), "n1-gw-node"},
		{"routes of a node with a long name", routesName(long), long[:234] + "-" + hash(long) + "-gw-node"},
		{"tunnel", tunnelName(pair{"ns", "milan", "n1"}), "milan-n1"},
		{"label", labelValue("n1"), "n1"},
		{"label of a long name", labelValue(long), long[:52] + "-" + hash(long)},
		{"no dot before the hash", labelValue(strings.Repeat("a", 50) + ".." + long), strings.Repeat("a", 50) + "-" + hash(strings.Repeat("a", 50)+".."+long)},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if len(tt.got) > 253 {
			t.Errorf("%s: %d characters", tt.name, len(tt.got))
		}
	}
	if l := linkName(long); len(l) != 15 || l == linkName("n1") || l != linkName(long) {
		t.Errorf("link %q", l)
	}
}

// TestKeptLinkName: what Liqo has named keeps its name, as a new one would interrupt the traffic. Anything else is none.
func TestKeptLinkName(t *testing.T) {
	ours := linkName("n1")
	for has, want := range map[string]string{
		"liqo.x7k2m9q4zw": "liqo.x7k2m9q4zw", ours: ours, "": ours, "liqo.x7k2m9q4z": ours, "liqo.x7k2m9q4zw1": ours, "liqo.x7k2m9q4z/": ours,
		"eth0": ours, "liqo-x7k2m9q4zw": ours, "liqo.X7K2M9Q4ZW": ours,
	} {
		if got := keptLinkName(has, "n1"); got != want {
			t.Errorf("of %q: %q, want %q", has, got, want)
		}
	}
}
