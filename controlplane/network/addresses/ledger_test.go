package addresses

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
)

const liqo = "liqo"

// newIP is a claim of an IP in namespace rome, made that many minutes after the
// first.
func newIP(name, local string, minute int, change ...func(*ipamv1alpha1.IP)) claim {
	ip := &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "rome", Name: name, UID: types.UID(fmt.Sprintf("%s@%d", name, minute)), Labels: map[string]string{},
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)),
		},
		Spec: ipamv1alpha1.IPSpec{IP: ipamv1alpha1.Address(local)},
	}
	for _, f := range change {
		f(ip)
	}
	return claimOf(ip)
}

func of(namespace, name string) func(*ipamv1alpha1.IP) {
	return func(ip *ipamv1alpha1.IP) {
		ip.Spec.NetworkRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
	}
}

func given(addr, cidr string) func(*ipamv1alpha1.IP) {
	return func(ip *ipamv1alpha1.IP) {
		ip.Status.IP, ip.Status.CIDR = ipamv1alpha1.Address(addr), ipamv1alpha1.CIDR(cidr)
	}
}

func labelled(network string) func(*ipamv1alpha1.IP) {
	return func(ip *ipamv1alpha1.IP) {
		ip.Labels[ipamv1alpha1.LabelNetworkNamespace], ip.Labels[ipamv1alpha1.LabelNetworkName] = liqo, network
	}
}

func newNetwork(namespace, name, asked, granted string, preAllocated int32, kind string) origin {
	n := &ipamv1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}},
		Spec:       ipamv1alpha1.NetworkSpec{CIDR: ipamv1alpha1.CIDR(asked), PreAllocated: preAllocated},
		Status:     ipamv1alpha1.NetworkStatus{CIDR: ipamv1alpha1.CIDR(granted)},
	}
	if kind != "" {
		n.Labels[ipamv1alpha1.LabelNetworkType] = kind
	}
	return originOf(n, liqo)
}

// networksOfTest are the Networks that the claims of these tests name.
func networksOfTest() []origin {
	return []origin{
		newNetwork(liqo, "external-cidr", "10.70.0.0/16", "10.70.0.0/30", 1, "external-cidr"),
		newNetwork(liqo, "external-cidr-v6", "fd00:70::/64", "fd00:70::/64", 0, "external-cidr"),
		newNetwork(liqo, "pod-cidr", "10.42.0.0/16", "10.42.0.0/16", 0, "pod-cidr"),
		newNetwork("rome", "reserving", "10.9.0.0/29", "10.9.0.0/29", 6, ""),
		newNetwork("rome", "waiting", "10.8.0.0/16", "", 0, ""),
		newNetwork("rome", "tiny", "10.7.0.0/32", "10.7.0.0/32", 1, ""),
		newNetwork("rome", "external-cidr", "10.6.0.0/24", "10.6.0.0/24", 0, "external-cidr"), // of a tenant
	}
}

func (d decision) text() string {
	return fmt.Sprintf("%s %s of %s: %s", d.reason, d.addr, d.prefix, d.message)
}

func TestDecide(t *testing.T) {
	const reached = ": remote clusters reach it as "
	for _, tt := range []struct {
		name  string
		claim claim
		want  string
	}{
		{"the first address is for unknown senders", newIP("a", "10.42.0.1", 1),
			"Allocated 10.70.0.1 of 10.70.0.0/30" + reached + "10.70.0.1 of Network liqo/external-cidr"},
		{"also where the Network does not say so", newIP("a", "fd00:42::1", 1),
			"Allocated fd00:70::1 of fd00:70::/64" + reached + "fd00:70::1 of Network liqo/external-cidr-v6"},
		{"of a Network by name", newIP("a", "10.42.0.1", 1, of(liqo, "pod-cidr")),
			"Allocated 10.42.0.0 of 10.42.0.0/16" + reached + "10.42.0.0 of Network liqo/pod-cidr"},
		{"in its own namespace, behind what is reserved", newIP("a", "10.42.0.1", 1, of("", "reserving")),
			"Allocated 10.9.0.6 of 10.9.0.0/29" + reached + "10.9.0.6 of Network rome/reserving"},
		{"no gateway keeps addresses of a tenant's Network", newIP("a", "10.42.0.1", 1, of("", "external-cidr")),
			"Allocated 10.6.0.0 of 10.6.0.0/24" + reached + "10.6.0.0 of Network rome/external-cidr"},
		{"all is reserved", newIP("a", "10.42.0.1", 1, of("", "tiny")),
			"Exhausted invalid IP of invalid Prefix: Network rome/tiny: no address of 10.7.0.0/32 is free: 0 are held: " +
				"delete IPs that are not needed, or make a larger Network and name it in spec.networkRef"},
		{"a Network without a prefix", newIP("a", "10.42.0.1", 1, of("", "waiting")),
			"NetworkNotReady invalid IP of invalid Prefix: Network rome/waiting has no prefix yet: its condition says why"},
		{"no Network", newIP("a", "10.42.0.1", 1, of("milan", "x")),
			"NetworkNotReady invalid IP of invalid Prefix: Network milan/x does not exist: make it, or name another one in spec.networkRef"},
		{"another family", newIP("a", "fd00:42::1", 1, of(liqo, "external-cidr")),
			"Invalid invalid IP of invalid Prefix: spec.ip fd00:42::1 cannot be translated from an address of 10.70.0.0/30, which Network liqo/external-cidr has: " +
				"name a Network of the same family in spec.networkRef"},
		{"loopback", newIP("a", "127.0.0.1", 1),
			"Invalid invalid IP of invalid Prefix: spec.ip: 127.0.0.1/32 overlaps 127.0.0.0/8, which cannot be routed between clusters: no gateway can reach it; make another IP"},
		{"no address", newIP("a", "x", 1),
			`Invalid invalid IP of invalid Prefix: spec.ip: address "x": not an IPv4 or IPv6 address: make another IP`},

		{"given before", newIP("a", "10.42.0.1", 1, given("10.70.0.3", "10.70.0.0/30"), labelled("external-cidr")),
			"Allocated 10.70.0.3 of 10.70.0.0/30" + reached + "10.70.0.3 of Network liqo/external-cidr"},
		{"given before, without labels", newIP("a", "fd00:42::1", 1, given("10.70.0.3", "10.70.0.0/30")),
			"Allocated 10.70.0.3 of 10.70.0.0/30" + reached + "10.70.0.3 of Network liqo/external-cidr"},
		{"given before, from what is reserved", newIP("a", "10.42.0.1", 1, given("10.70.0.0", "10.70.0.0/30")),
			"Allocated 10.70.0.0 of 10.70.0.0/30" + reached + "10.70.0.0 of Network liqo/external-cidr"},
		{"given before, the reference was changed since", newIP("a", "10.42.0.1", 1, given("10.70.0.3", "10.70.0.0/30"), labelled("external-cidr"), of(liqo, "pod-cidr")),
			"Allocated 10.70.0.3 of 10.70.0.0/30" + reached + "10.70.0.3 of Network liqo/external-cidr"},
		{"given before, the Network has another prefix", newIP("a", "10.42.0.1", 1, given("10.99.0.3", "10.99.0.0/16"), labelled("external-cidr")),
			"Invalid invalid IP of invalid Prefix: status.ip: address 10.99.0.3 is not in 10.70.0.0/30, the prefix that Network liqo/external-cidr has now: " +
				"delete this IP and make it again"},
		{"given before, the Network is gone", newIP("a", "10.42.0.1", 1, given("10.99.0.3", "10.99.0.0/16"), labelled("gone")),
			"NetworkNotReady invalid IP of invalid Prefix: Network liqo/gone does not exist: make it, or name another one in spec.networkRef; " +
				"until then, others may be given 10.99.0.3"},
		{"given before, no address", newIP("a", "10.42.0.1", 1, given("x", "10.70.0.0/30")),
			`Invalid invalid IP of invalid Prefix: status.ip: address "x": not an IPv4 or IPv6 address: delete this IP and make it again`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, find := newLedger(), lookupIn(networksOfTest())
			for range 2 {
				if diff := cmp.Diff(tt.want, l.decide(tt.claim, find).text()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			l.retry(find)
			if woken := l.retry(find); woken != nil {
				t.Errorf("woken: %v", woken)
			}
			l.forget(tt.claim.key)
			if l.retry(find); len(l.entries)+len(l.pools) != 0 {
				t.Errorf("left after it is gone: %v, %v", l.entries, l.pools)
			}
		})
	}
	t.Run("no external CIDR", func(t *testing.T) {
		want := "NetworkNotReady invalid IP of invalid Prefix: there is no external CIDR of the family of spec.ip: " +
			"name a Network in spec.networkRef, or make one with label ipam.liqo.io/network-type=external-cidr"
		if got := newLedger().decide(newIP("a", "10.42.0.1", 1), lookupIn(nil)).text(); got != want {
			t.Errorf("got %s", got)
		}
	})
}

// TestWaiting serves those that wait when an address is given back and when the
// Network gets its prefix.
func TestWaiting(t *testing.T) {
	l, networks := newLedger(), networksOfTest()
	networks[0].prefix = networks[4].prefix // none yet
	find := lookupIn(networks)
	for i, name := range []string{"d", "c", "b", "a", "e"} {
		if d := l.decide(newIP(name, "10.42.0.1", i), find); d.reason != ipamv1alpha1.ReasonNetworkNotReady {
			t.Errorf("%s: %s", name, d.text())
		}
	}
	l.retry(find)
	networks[0].prefix = networksOfTest()[0].prefix
	find = lookupIn(networks)
	// The youngest is looked at first; it gets nothing before the others did.
	got := l.decide(newIP("e", "10.42.0.1", 4), find)
	if got.addr.String() != "10.70.0.1" {
		t.Errorf("got %s", got.text())
	}
	if diff := cmp.Diff([]string{"rome/d", "rome/c", "rome/b", "rome/a"}, l.retry(find)); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	for key, want := range map[string]string{"rome/d": "10.70.0.2", "rome/c": "10.70.0.3", "rome/b": "invalid IP"} {
		if got := l.entries[key].decision; got.addr.String() != want {
			t.Errorf("%s: %s", key, got.text())
		}
	}
	l.forget("rome/d")
	if diff := cmp.Diff([]string{"rome/b"}, l.retry(find)); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	if got := l.entries["rome/b"].decision; got.addr.String() != "10.70.0.2" {
		t.Errorf("got %s", got.text())
	}
}

func TestSameAddress(t *testing.T) {
	l, find := newLedger(), lookupIn(networksOfTest())
	older := newIP("older", "10.42.0.1", 1, given("10.70.0.2", "10.70.0.0/30"))
	younger := newIP("a-younger", "10.42.0.2", 2, given("10.70.0.2", "10.70.0.0/30"))
	l.load([]claim{younger, older, newIP("none", "10.42.0.3", 0)}, find)
	if d := l.entries[older.key].decision; !d.granted() {
		t.Errorf("older: %s", d.text())
	}
	want := "Overlap invalid IP of invalid Prefix: status.ip: address 10.70.0.2 is held by IP rome/older, which is older: " +
		"delete and recreate one of the two; nothing is changed until then"
	if d := l.entries[younger.key].decision; d.text() != want {
		t.Errorf("younger: %s", d.text())
	}
	if d := l.entries["rome/none"].decision; d.addr.String() != "10.70.0.3" {
		t.Errorf("who has none comes after who has one: %s", d.text())
	}
	l.forget(older.key)
	if woken := l.retry(find); !slices.Equal(woken, []string{younger.key}) || !l.entries[younger.key].decision.granted() {
		t.Errorf("woken: %v, %s", woken, l.entries[younger.key].decision.text())
	}
}

// TestMemory: what was decided stands until it is seen, whatever changes meanwhile.
func TestMemory(t *testing.T) {
	l, networks := newLedger(), networksOfTest()
	find := lookupIn(networks)
	c := newIP("a", "10.42.0.1", 1)
	first := l.decide(c, find)
	c.network = "liqo/pod-cidr" // the reference is changed
	if d := l.decide(c, find); d != first {
		t.Errorf("got %s", d.text())
	}
	c.network = ""
	shorter := newNetwork(liqo, "ext", "10.71.0.0/16", "10.71.0.0/16", 0, "external-cidr") // one that would be chosen instead
	if d := l.decide(c, lookupIn(append(networks, shorter))); d != first {
		t.Errorf("got %s", d.text())
	}
	networks[0] = newNetwork(liqo, "external-cidr", "10.70.0.0/16", "10.75.0.0/30", 1, "external-cidr")
	if d := l.decide(c, lookupIn(networks)); d.addr.String() != "10.75.0.1" {
		t.Errorf("the Network is another one now: got %s", d.text())
	}
	again := newIP("a", "10.42.0.1", 9, of(liqo, "pod-cidr"))
	if d := l.decide(again, lookupIn(networks)); d.network != "liqo/pod-cidr" {
		t.Errorf("the IP is another one now: got %s", d.text())
	}
}

// TestRestart gives, forgets and restores: whoever has an address keeps it, and
// none is given twice.
func TestRestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		find := lookupIn(networksOfTest())
		before, records := newLedger(), map[string]claim{}
		for i := range rapid.IntRange(1, 15).Draw(t, "steps") {
			name := rapid.StringMatching("[a-f]").Draw(t, "name")
			if _, ok := records["rome/"+name]; ok {
				before.forget("rome/" + name)
				delete(records, "rome/"+name)
				before.retry(find)
				continue
			}
			c := newIP(name, "10.42.0.1", i, of("", rapid.SampledFrom([]string{"reserving", "tiny", "external-cidr"}).Draw(t, "network")))
			before.decide(c, find)
			records[c.key] = c
			before.retry(find)
		}
		var claims []claim
		for key, c := range records {
			if d := before.entries[key].decision; d.granted() {
				c.granted, c.from = ipamv1alpha1.Address(d.addr.String()), ipamv1alpha1.CIDR(d.prefix.String())
			}
			claims = append(claims, c)
		}
		after, held := newLedger(), map[string]string{}
		after.load(claims, find)
		after.retry(find)
		for key := range records {
			was, is := before.entries[key].decision, after.entries[key].decision
			if was != is {
				t.Fatalf("%s: %s, and after a restart %s", key, was.text(), is.text())
			}
			if other, taken := held[is.addr.String()]; taken && is.granted() {
				t.Fatalf("%s and %s both have %s", key, other, is.addr)
			}
			held[is.addr.String()] = key
		}
	})
}
