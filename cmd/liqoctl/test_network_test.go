package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/admin/nettest"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/test/golden"
)

// networkReport is what a test of two clusters found.
func networkReport() *nettest.Report {
	pod := func(cluster, name, node string) nettest.Party {
		return nettest.Party{Cluster: cluster, Pod: name, Node: node, Name: fmt.Sprintf("%s/%s (%s)", cluster, name, node)}
	}
	a, b := pod("rome", "prober-a", "n1"), pod("milan", "prober-b", "n1")
	check := func(kind nettest.Kind, from, to nettest.Party, url string) nettest.Check {
		return nettest.Check{Kind: kind, From: from, To: to, URL: url}
	}
	return &nettest.Report{Outcomes: []nettest.Outcome{
		{Check: check(nettest.PodToPod, a, b, "http://10.71.1.4:8080/"), OK: true, Answered: "milan/prober-b", Source: "10.243.1.2", Seconds: 0.0012345, Tries: 1},
		{Check: check(nettest.PodToPod, b, a, "http://10.243.1.2:8080/"), Answered: "rome/prober-a", Source: "10.72.0.0", Seconds: 0.25, Tries: 1,
			Error: "the sender is seen as 10.72.0.0, which stands for everything in cluster milan that is not a pod, instead of 10.71.1.4: a node there masquerades pod addresses before the gateway sees them"},
		{Check: check(nettest.PodToPodLarge, a, b, "udp://10.71.1.4:8080?bytes=4000"), Seconds: 5, Tries: 3, Error: "no answer within 5s"},
		{Check: check(nettest.PodToPodLarge, a, b, "http://10.71.1.4:8080/?bytes=2097152"), OK: true, Source: "10.243.1.2", Seconds: 0.0512, Tries: 2, Note: "only attempt 2 succeeded"},
		{Check: check(nettest.ExternalToLoadBalancer, nettest.Party{Name: "this machine"}, nettest.Party{Cluster: "milan", Name: "milan: Service, through load balancer of rome"}, ""),
			Error: "no load balancer has assigned an address to the Service: does the cluster have one?"},
	}}
}

func TestNetworkTestLooks(t *testing.T) {
	r := networkReport()
	golden.Compare(t, "testdata/network-test/few.txt", shown(outcomePage(r, false)))
	for range manyChecks {
		r.Outcomes = append(r.Outcomes, r.Outcomes[0])
	}
	golden.Compare(t, "testdata/network-test/many.txt", shown(outcomePage(r, false)))
	if all := shown(outcomePage(r, true)); strings.Count(all, "prober-a (n1)") < manyChecks {
		t.Errorf("-v does not show all:\n%s", all)
	}
	golden.Compare(t, "testdata/network-test/few.json", printed(t, formatJSON, networkReport()))
	remap := func(there, here string) []peering.Remap {
		return []peering.Remap{{There: netip.MustParsePrefix(there), Here: netip.MustParsePrefix(here)}}
	}
	golden.Compare(t, "testdata/network-test/inventory.txt", shown(inventoryPage([]nettest.Inventory{
		{ID: "rome", Name: "local", Probers: []nettest.Prober{{Name: "prober-a", Node: "n1", IP: netip.MustParseAddr("10.243.1.2")}}},
		{ID: "milan", Name: "remote", Probers: []nettest.Prober{{Name: "prober-b", Node: "n1", IP: netip.MustParseAddr("10.243.1.4")}},
			Views: []nettest.View{{ID: "rome", Pod: remap("10.243.0.0/16", "10.71.0.0/16")}}},
	})))
}

func TestNetworkTestVerdict(t *testing.T) {
	ok, failed, unrouted := nettest.Outcome{OK: true}, nettest.Outcome{}, nettest.Outcome{NoRoute: true}
	for _, test := range []struct {
		outcomes []nettest.Outcome
		want     string
	}{
		{[]nettest.Outcome{ok}, "<nil>"},
		{[]nettest.Outcome{ok, failed}, "1 of 2 checks failed: 'liqoctl network doctor' looks for the cause"},
		{[]nettest.Outcome{ok, unrouted}, "1 of 2 checks failed: this machine has no route to the addresses of 1, which says nothing about the clusters"},
		{[]nettest.Outcome{failed, unrouted}, "2 of 2 checks failed: this machine has no route to the addresses of 1, which says nothing about the clusters; for the rest, 'liqoctl network doctor' looks for the cause"},
	} {
		if got := fmt.Sprint(verdict(&nettest.Report{Outcomes: test.outcomes})); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestNetworkTestFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{nil, "no remote cluster given"},
		{[]string{"--np-nodes", "some"}, "--np-nodes some is not one of [all workers control-planes]"},
		{[]string{"--internet-address", "example.org"}, "--internet-address example.org is not an address"},
		{[]string{"--internet-address", "", "--ip"}, "--ip needs --internet-address"},
		{[]string{"--replicas", "-1"}, "--replicas -1"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			got := liqoctl(t.Context(), append([]string{"test", "network"}, test.args...)...)
			if got.code != 1 || !strings.Contains(got.stderr, test.says) {
				t.Errorf("exit code %d, stderr %q; want %q", got.code, got.stderr, test.says)
			}
		})
	}
}
