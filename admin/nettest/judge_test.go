package nettest

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/admin/probe"
)

func TestJudge(t *testing.T) {
	m := milan()
	r := rome()
	check := remoteCheck(PodToPod, &r, &m, r.Probers[0], m.Probers[0]) // seen as 10.243.1.2 there, as it is not remapped
	remapped := remoteCheck(PodToPod, &m, &r, m.Probers[0], r.Probers[0])
	large, service, internet, missing := check, check, check, check
	large.Kind, service.Kind = PodToPodLarge, PodToService
	service.To.Pod, service.Times, service.Odd = "", 2, []netip.Addr{service.unknown}
	internet.To, internet.Sources = Party{Name: "Internet"}, nil
	missing.Missing = "no load balancer"
	well := func(cluster, pod, source string) probe.Result {
		return probe.Result{OK: true, Status: 200, Tries: 1, Seconds: 0.5, Answer: &probe.Answer{Identity: probe.Identity{Cluster: cluster, Pod: pod}, Source: source}}
	}
	again := well("milan", "m1", "10.243.1.2")
	again.Tries = 3
	here := Check{Kind: ExternalToNodePort, From: Party{Name: "this machine"}, To: Party{Cluster: "milan"}}
	unrouted := probe.Result{Tries: 3, Error: "network is unreachable"}
	silent := probe.Result{Tries: 3, Error: "no answer within 5s"}
	for _, test := range []struct {
		name    string
		check   Check
		results []probe.Result
		ok      bool
		seen    string // answered, source
		says    string // error or note
	}{
		{"right", check, []probe.Result{well("milan", "m1", "10.243.1.2")}, true, "milan/m1 10.243.1.2", ""},
		{"right, as IPv4 in IPv6", check, []probe.Result{well("milan", "m1", "::ffff:10.243.1.2")}, true, "milan/m1 ::ffff:10.243.1.2", ""},
		{"right, in the end", check, []probe.Result{again}, true, "milan/m1 10.243.1.2", "only attempt 3 succeeded"},
		{"nothing", check, []probe.Result{silent}, false, " ", "no answer within 5s"},
		{"no result", check, nil, false, " ", "0 of 1 results arrived"},
		{"cannot be tried", missing, nil, false, " ", "no load balancer"},
		{"the other cluster's pod of the same address", check, []probe.Result{well("rome", "r9", "10.243.1.2")}, false, "rome/r9 10.243.1.2", "pod r9 of cluster rome answers: the address does not lead to milan/m1 (n1)"},
		{"another pod", check, []probe.Result{well("milan", "m2", "10.243.1.2")}, false, "milan/m2 10.243.1.2", "pod m2 of cluster milan answers"},
		{"somebody else", check, []probe.Result{{OK: true, Status: 301, Tries: 1}}, false, " ", "something other than a pod of this test answers (HTTP status 301)"},
		{"the node's address", check, []probe.Result{well("milan", "m1", "10.80.0.0")}, false, "milan/m1 10.80.0.0",
			"the sender is seen as 10.80.0.0, which stands for everything in cluster rome that is not a pod, instead of 10.243.1.2: a node there masquerades pod addresses"},
		{"not remapped", remapped, []probe.Result{well("rome", "r1", "10.243.1.4")}, false, "rome/r1 10.243.1.4",
			"the sender is seen as 10.243.1.4, its address in its own cluster, instead of 10.71.1.4: the gateway of cluster rome does not remap it"},
		{"some other address", check, []probe.Result{well("milan", "m1", "192.0.2.3")}, false, "milan/m1 192.0.2.3", "the sender is seen as 192.0.2.3 instead of 10.243.1.2: something on the path translates (masquerades) the source address"},
		{"no address", check, []probe.Result{well("milan", "m1", "me")}, false, "milan/m1 me", `the sender is seen as "me"`},
		{"large packets that get lost", large, []probe.Result{{Tries: 3, Stalled: true, Error: "0 of 9 bytes came, then no answer within 5s"}}, false, " ", "small packets get through but large ones do not"},
		{"large datagrams that get lost", large, []probe.Result{silent}, false, " ", "no answer within 5s to large packets"},
		{"any pod of a Service", service, []probe.Result{well("milan", "m7", "10.243.1.2"), well("milan", "m8", "10.243.1.2")}, true, "milan/m7 10.243.1.2", ""},
		{"a Service that hides pods", service, []probe.Result{well("milan", "m7", "10.80.0.0"), well("milan", "m8", "10.80.0.0")}, true, "milan/m7 10.80.0.0", "kube-proxy there hides pod addresses"},
		{"a Service that fails sometimes", service, []probe.Result{well("milan", "m7", "10.243.1.2"), silent}, false, " ", "1 of 2 times: no answer within 5s"},
		{"a Service with half of the results", service, []probe.Result{silent}, false, " ", "1 of 2 results arrived"},
		{"no route from a pod", check, []probe.Result{unrouted}, false, " ", "network is unreachable"},
		{"no route from here", here, []probe.Result{unrouted}, false, " ", "network is unreachable: this machine has no route to the address"},
		{"the Internet", internet, []probe.Result{{OK: true, Status: 301, Tries: 1}}, true, " ", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := Judge(test.check, test.results)
			if o.OK != test.ok || o.OK != (o.Error == "") || o.Answered+" "+o.Source != test.seen {
				t.Errorf("ok %t, seen %q, error %q; want %t, %q", o.OK, o.Answered+" "+o.Source, o.Error, test.ok, test.seen)
			}
			if want := test.name == "no route from here"; o.NoRoute != want {
				t.Errorf("no route: %t, want %t", o.NoRoute, want)
			}
			if said := o.Error + o.Note; !strings.Contains(said, test.says) || test.says == "" && said != "" {
				t.Errorf("says %q, want %q in it", said, test.says)
			}
		})
	}
}

func TestJudgeCounts(t *testing.T) {
	o := Judge(Check{Times: 2}, []probe.Result{{OK: true, Seconds: 1, Tries: 1}, {OK: true, Seconds: 3, Tries: 2}})
	want := Outcome{Check: Check{Times: 2}, OK: true, Seconds: 2, Tries: 2, Note: "only attempt 2 succeeded"}
	if diff := cmp.Diff(want, o, cmpopts.IgnoreUnexported(Check{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func FuzzParseResults(f *testing.F) {
	f.Add(`{"url":"http://a/","ok":true}` + "\n" + `{"url":"http://b/"}`)
	f.Add("{}{")
	f.Add("prober: no")
	f.Fuzz(func(t *testing.T, out string) {
		results, err := parseResults(strings.NewReader(out))
		if results == nil && err == nil {
			t.Error("nothing, and no error")
		}
	})
}
