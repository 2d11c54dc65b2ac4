package nettest

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/test/golden"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func remap(there, here string) []peering.Remap {
	return []peering.Remap{{There: netip.MustParsePrefix(there), Here: netip.MustParsePrefix(here)}}
}

// rome and milan use the same CIDRs, and rome remaps what milan does not.
func rome() Inventory {
	return Inventory{
		ID: "rome", Name: "local",
		Probers: []Prober{{Namespace, "r1", "n1", addr("10.243.1.2")}, {Namespace, "r2", "n2", addr("10.243.2.3")}},
		Hosts:   []Prober{{HostNamespace, "h1", "n1", addr("192.0.2.1")}},
		Nodes: []Node{
			{Name: "cp", InternalIP: addr("192.0.2.9"), ControlPlane: true}, {Name: "n1", InternalIP: addr("192.0.2.1"), ExternalIP: addr("198.51.100.1")},
		},
		Views:      []View{{ID: "milan", Configuration: "t/milan", Pod: remap("10.243.0.0/16", "10.71.0.0/16"), External: remap("10.70.0.0/16", "10.72.0.0/16")}},
		Services:   []Service{{Peer: "milan", ClusterIP: addr("10.96.0.7"), NodePort: 30007, Balancer: "lb.example.org"}},
		ExternalIP: addr("10.70.0.5"),
	}
}

func milan() Inventory {
	return Inventory{
		ID: "milan", Name: "remote",
		Probers:    []Prober{{Namespace, "m1", "n1", addr("10.243.1.4")}},
		Nodes:      []Node{{Name: "n1", InternalIP: addr("192.0.2.3")}},
		Views:      []View{{ID: "rome", Configuration: "t/rome", Pod: remap("10.243.0.0/16", "10.243.0.0/16"), External: remap("10.70.0.0/16", "10.80.0.0/16")}},
		ExternalIP: addr("10.70.0.6"),
	}
}

func TestPlan(t *testing.T) {
	everything := Wanted{PodNodePort: true, ExternalNodePort: true, LoadBalancer: true, ExternalIP: true, Nodes: AllNodes, Internet: addr("1.1.1.1")}
	hiding := rome()
	hiding.HidesPods = true
	alone := milan()
	alone.Views = nil
	elsewhere := milan()
	elsewhere.Probers[0].IP = addr("172.16.0.1")
	shares := func(i Inventory, at string) Inventory {
		imported := Service{Peer: i.Views[0].ID}
		if at != "" {
			imported.ClusterIP = addr(at)
		}
		i.Exports, i.Imported = true, []Service{imported}
		return i
	}
	third := milan()
	third.ID = "turin"
	for _, test := range []struct {
		name     string
		clusters []Inventory
		wanted   Wanted
	}{
		{"unasked", []Inventory{rome(), milan()}, Wanted{Internet: addr("1.1.1.1")}},
		{"basic", []Inventory{rome(), milan()}, Wanted{Basic: true, Internet: addr("1.1.1.1")}},
		{"everything", []Inventory{rome(), milan()}, everything},
		{"basic-with-node-ports-of-workers", []Inventory{rome(), milan()}, Wanted{Basic: true, PodNodePort: true, Nodes: Workers}},
		{"basic-with-node-ports-of-control-planes", []Inventory{rome(), milan()}, Wanted{Basic: true, ExternalNodePort: true, Nodes: ControlPlanes}},
		{"pods-are-hidden", []Inventory{hiding, milan()}, Wanted{Basic: true}},
		{"exported", []Inventory{shares(rome(), "10.96.0.8"), shares(milan(), "")}, Wanted{}},
		{"not-peered", []Inventory{rome(), alone}, Wanted{}},
		{"one-of-three-not-peered", []Inventory{rome(), milan(), third}, Wanted{Basic: true}},
		{"wrong-pod-CIDR", []Inventory{rome(), elsewhere}, Wanted{Basic: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b strings.Builder
			for _, c := range Plan(test.clusters, test.wanted) {
				fmt.Fprintf(&b, "%-28s %-14s -> %-34s %s", c.Kind, c.From.Name, c.To.Name, c.URL+c.Missing)
				if c.Times > 0 {
					fmt.Fprintf(&b, " x%d", c.Times)
				}
				if len(c.Sources) > 0 {
					fmt.Fprintf(&b, " seen as %v", c.Sources)
				}
				if len(c.Odd) > 0 {
					fmt.Fprintf(&b, " or %v", c.Odd)
				}
				fmt.Fprintln(&b)
			}
			golden.Compare(t, "testdata/plan-"+test.name+".txt", b.String())
		})
	}
}

func TestBatches(t *testing.T) {
	checks := []Check{
		{From: Party{Cluster: "a", Pod: "1"}, URL: "u1"},
		{From: Party{Cluster: "a", Pod: "2"}, URL: "u1"},
		{From: Party{Cluster: "a", Pod: "1"}, URL: "u2"},
		{From: Party{Cluster: "a", Pod: "1"}, URL: "u1"}, // twice the same: to tell the results apart
		{From: Party{Cluster: "a", Pod: "1"}, URL: "u3", Times: 2},
		{From: Party{Cluster: "b", Pod: "1"}, URL: "u1"},
	}
	if diff := cmp.Diff([][]int{{0, 2}, {1}, {3}, {4}, {5}}, batches(checks)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var many []Check
	for i := range 2*batchSize + 1 {
		many = append(many, Check{URL: fmt.Sprint(i)})
	}
	if got := batches(many); len(got) != 3 || len(got[2]) != 1 {
		t.Errorf("%d batches", len(got))
	}
}
