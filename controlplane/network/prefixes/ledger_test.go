package prefixes

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/cidr"
)

const liqo = "liqo"

// network is a Network named by its key, made that many minutes after the first.
func network(namespace, name, asked string, minute int, change ...func(*ipamv1alpha1.Network)) claim {
	n := &ipamv1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("%s/%s@%d", namespace, name, minute)),
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)), Labels: map[string]string{},
		},
		Spec: ipamv1alpha1.NetworkSpec{CIDR: ipamv1alpha1.CIDR(asked)},
	}
	for _, f := range change {
		f(n)
	}
	return claimOf(n, liqo)
}

func label(key, value string) func(*ipamv1alpha1.Network) {
	return func(n *ipamv1alpha1.Network) { n.Labels[key] = value }
}

func granted(p string) func(*ipamv1alpha1.Network) {
	return func(n *ipamv1alpha1.Network) { n.Status.CIDR = ipamv1alpha1.CIDR(p) }
}

func notRemapped(n *ipamv1alpha1.Network) {
	n.Labels[ipamv1alpha1.LabelNetworkNotRemapped] = networkingv1beta1.LabelTrue
}

func shared(n *ipamv1alpha1.Network) {
	n.Labels[ipamv1alpha1.LabelNetworkShared] = networkingv1beta1.LabelTrue
}

// installation is what a cluster has before any peer.
func installation() []claim {
	return []claim{
		network(liqo, "reserved-192-168-7-0-24", "192.168.7.0/24", 0, label(ipamv1alpha1.LabelNetworkType, "reserved"), notRemapped, shared),
		network(liqo, "pod-cidr", "10.243.0.0/16", 0, label(ipamv1alpha1.LabelNetworkType, "pod-cidr"), notRemapped),
		network(liqo, "service-cidr", "10.96.0.0/12", 0, label(ipamv1alpha1.LabelNetworkType, "service-cidr"), notRemapped),
		network(liqo, "external-cidr", "10.70.0.0/16", 0, label(ipamv1alpha1.LabelNetworkType, "external-cidr")),
		network(liqo, "internal-cidr", "10.80.0.0/16", 0, label(ipamv1alpha1.LabelNetworkType, "internal-cidr")),
	}
}

func ledgerOf(t testing.TB, claims ...claim) *ledger {
	t.Helper()
	l, err := newLedger(cidr.DefaultPools(), liqo)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range claims {
		l.decide(c, claims)
	}
	l.changed = false
	return l
}

// text is a decision in one line.
func (d decision) text() string {
	if d.reason == "" {
		return "waits"
	}
	return fmt.Sprintf("%s %s: %s", d.reason, d.prefix, d.message)
}

const (
	overlapAdvice = ": create a Network with another CIDR, delete what conflicts, or let another prefix stand for this one by removing the label ipam.liqo.io/network-not-remapped"
	poolAdvice    = ": give the controller a further pool (--ipam-pools), or delete Networks or peerings that are not needed"
	statusAdvice  = ", which is older: delete and recreate one of the two; nothing is changed until then"
)

func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name  string
		claim claim
		want  string
	}{
		{"a free prefix", network("rome", "a", "10.42.0.0/16", 1), "Allocated 10.42.0.0/16: granted as asked for"},
		{"a public one", network("rome", "a", "8.0.0.0/16", 1), "Remapped 10.71.0.0/16: 10.71.0.0/16 stands for 8.0.0.0/16, which is in no pool (--ipam-pools)"},
		{"a public one, granted before", network("rome", "a", "8.0.0.0/16", 1, granted("8.0.0.0/16")), "Allocated 8.0.0.0/16: granted as asked for"},
		{"a public one, not remapped", network("rome", "a", "8.0.0.0/16", 1, notRemapped), "Allocated 8.0.0.0/16: granted as asked for"},
		{"a public one of the installation", network(liqo, "pod-cidr-8", "8.0.0.0/16", 1, label(ipamv1alpha1.LabelNetworkType, "pod-cidr")), "Allocated 8.0.0.0/16: granted as asked for"},
		{"a free one outside the pools", network("rome", "a", "100.64.0.0/10", 1),
			"Remapped 10.0.0.0/10: 10.0.0.0/10 stands for 100.64.0.0/10, which is in no pool (--ipam-pools)"},
		{"the pod CIDR of this cluster", network("rome", "a", "10.243.0.0/16", 1),
			"Remapped 10.71.0.0/16: 10.71.0.0/16 stands for 10.243.0.0/16, which was in use in this cluster"},
		{"a reserved prefix", network("rome", "a", "192.168.7.0/25", 1),
			"Remapped 10.71.0.0/25: 10.71.0.0/25 stands for 192.168.7.0/25, which was in use in this cluster"},
		{"the same, not remapped", network("rome", "a", "10.243.0.0/16", 1, notRemapped),
			"Overlap invalid Prefix: 10.243.0.0/16 overlaps 10.243.0.0/16 of Network liqo/pod-cidr" + overlapAdvice},
		{"the same, shared", network("rome", "a", "10.243.0.0/16", 1, shared), "Allocated 10.243.0.0/16: granted as asked for"},
		{"too large to be remapped", network("rome", "a", "10.0.0.0/8", 1),
			"Exhausted invalid Prefix: 10.0.0.0/8 overlaps 10.70.0.0/16 of Network liqo/external-cidr, 10.80.0.0/16 of Network liqo/internal-cidr, " +
				"10.96.0.0/12 of Network liqo/service-cidr and 10.243.0.0/16 of Network liqo/pod-cidr, and no pool (10.0.0.0/8, 192.168.0.0/16, 172.16.0.0/12) " +
				"has a free /8 to stand for it" + poolAdvice},
		{"the tunnel", network("rome", "a", "169.254.18.0/30", 1),
			"Invalid invalid Prefix: 169.254.18.0/30 overlaps 169.254.0.0/16, which cannot be routed between clusters: create a Network with another CIDR"},
		{"host bits", network("rome", "a", "10.42.0.1/16", 1),
			"Invalid invalid Prefix: 10.42.0.1/16 has bits set behind its length: write 10.42.0.0/16: create a Network with another CIDR"},
		{"no prefix", network("rome", "a", "10.42.0.0", 1),
			`Invalid invalid Prefix: CIDR "10.42.0.0": not an IPv4 or IPv6 prefix: create a Network with another CIDR`},
		{"link-local, reserved", network(liqo, "reserved-x", "169.254.0.0/16", 1, label(ipamv1alpha1.LabelNetworkType, "reserved"), shared, notRemapped),
			"Allocated 169.254.0.0/16: granted as asked for"},

		{"granted before", network("rome", "a", "10.243.0.0/16", 1, granted("10.5.0.0/16")),
			"Remapped 10.5.0.0/16: 10.5.0.0/16 stands for 10.243.0.0/16, which was in use in this cluster"},
		{"granted before, by one who ignores host bits", network("rome", "a", "10.42.0.1/16", 1, granted("10.42.0.0/16")), "Allocated 10.42.0.0/16: granted as asked for"},
		{"granted before, in use", network("rome", "a", "10.42.0.0/16", 1, granted("10.243.0.0/17")),
			"Overlap invalid Prefix: status.cidr 10.243.0.0/17 overlaps 10.243.0.0/16 of Network liqo/pod-cidr" + statusAdvice},
		{"granted before, below what is reserved", network("rome", "a", "192.168.7.0/24", 1, granted("192.168.7.0/24")), "Allocated 192.168.7.0/24: granted as asked for"},
		{"granted before, not to be routed", network("rome", "a", "10.42.0.0/16", 1, granted("127.0.0.0/16")),
			"Invalid invalid Prefix: status.cidr: 127.0.0.0/16 overlaps 127.0.0.0/8, which cannot be routed between clusters: create a Network with another CIDR"},
		{"granted before, no prefix", network("rome", "a", "10.42.0.0/16", 1, granted("x")),
			`Invalid invalid Prefix: status.cidr: CIDR "x": not an IPv4 or IPv6 prefix: create a Network with another CIDR`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := ledgerOf(t, installation()...)
			if diff := cmp.Diff(tt.want, l.decide(tt.claim, installation()).text()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := l.decide(tt.claim, installation()).text(); again != tt.want {
				t.Errorf("the second time: %s", again)
			}
			if woken := l.retry(installation()); len(woken) > 0 {
				t.Errorf("others are woken: %v", woken)
			}
			l.forget(tt.claim.key)
			if l.allocator.Len() != len(installation()) {
				t.Errorf("%d prefixes are held after it is gone", l.allocator.Len())
			}
		})
	}
}

func TestClaim(t *testing.T) {
	for _, tt := range []struct {
		name  string
		claim claim
		kind  string
		class class
	}{
		{"by its label", network(liqo, "pods", "10.0.0.0/16", 0, label(ipamv1alpha1.LabelNetworkType, "pod-cidr")), "pod-cidr", classFixed},
		{"by its name", network(liqo, "external-cidr", "10.0.0.0/16", 0), "external-cidr", classMovable},
		{"the label before the name", network(liqo, "external-cidr", "10.0.0.0/16", 0, label(ipamv1alpha1.LabelNetworkType, "reserved")), "reserved", classFixed},
		{"an unknown type", network(liqo, "x", "10.0.0.0/16", 0, label(ipamv1alpha1.LabelNetworkType, "x")), "", classOther},
		{"of a tenant", network("rome", "pod-cidr", "10.0.0.0/16", 0, label(ipamv1alpha1.LabelNetworkType, "pod-cidr")), "", classOther},
	} {
		if tt.claim.kind != tt.kind || tt.claim.class != tt.class {
			t.Errorf("%s: got %q, %v, want %q, %v", tt.name, tt.claim.kind, tt.claim.class, tt.kind, tt.class)
		}
	}
}

// TestInstallationFirst lets a peer with the same prefixes as this cluster come
// before, with and between the Networks of the installation.
func TestInstallationFirst(t *testing.T) {
	peer := []claim{
		network("rome", "external", "10.70.0.0/16", 1, label(networkingv1beta1.LabelCIDRType, networkingv1beta1.CIDRTypeExternal)),
		network("rome", "pod", "10.243.0.0/16", 1, label(networkingv1beta1.LabelCIDRType, networkingv1beta1.CIDRTypePod)),
		network("rome", "pod-2", "10.80.0.0/16", 1, label(networkingv1beta1.LabelCIDRType, networkingv1beta1.CIDRTypePod)),
		network("rome", "lan", "192.168.7.0/24", 1, notRemapped),
	}
	want := map[string]string{
		"liqo/reserved-192-168-7-0-24": "192.168.7.0/24", "liqo/pod-cidr": "10.243.0.0/16", "liqo/service-cidr": "10.96.0.0/12",
		"liqo/external-cidr": "10.70.0.0/16", "liqo/internal-cidr": "10.80.0.0/16",
		"rome/pod": "10.71.0.0/16", "rome/pod-2": "10.68.0.0/16", "rome/external": "10.69.0.0/16", "rome/lan": "invalid Prefix",
	}
	check := func(t *testing.T, l *ledger) {
		t.Helper()
		got := map[string]string{}
		for key := range l.entries {
			g, _ := l.allocator.Get(owner(key))
			got[key] = g.Prefix.String()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	rng := rand.New(rand.NewPCG(1, 0))
	shuffled := func(claims ...claim) []claim {
		rng.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
		return claims
	}
	for range 50 {
		t.Run("all are there when the controller starts", func(t *testing.T) {
			l := ledgerOf(t)
			l.load(shuffled(append(installation(), peer...)...))
			check(t, l)
		})
		t.Run("the peer is there before the installation", func(t *testing.T) {
			l := ledgerOf(t)
			l.load(shuffled(slices.Clone(peer)...))
			there := []claim{}
			for _, c := range installation() {
				there = append(there, c)
				// Whatever wakes whom in between.
				for _, c := range shuffled(append(slices.Clone(peer), c)...) {
					l.decide(c, there)
					l.retry(there)
				}
			}
			check(t, l)
		})
		t.Run("they are there at once and looked at in any order", func(t *testing.T) {
			l := ledgerOf(t)
			for _, c := range shuffled(installation()...) {
				l.decide(c, installation())
				l.retry(installation())
			}
			for _, c := range []claim{peer[1], peer[2], peer[3], peer[0]} { // as they were made
				l.decide(c, installation())
			}
			check(t, l)
		})
	}
}

func TestNotInstalled(t *testing.T) {
	l, remote := ledgerOf(t), network("rome", "a", "10.243.0.0/16", 0)
	got := l.decide(remote, installation()[2:])
	if want := "NetworkNotReady invalid Prefix: the Networks of this cluster must exist first, but namespace liqo has none with label ipam.liqo.io/network-type=pod-cidr: " +
		"the controller creates them when it knows the prefixes of this cluster; its log names the missing flags"; got.text() != want {
		t.Errorf("got %s\nwant %s", got.text(), want)
	}
	if got := l.decide(remote, installation()); got.reason != "" {
		t.Errorf("while they are not decided: %s", got.text())
	}
	for _, c := range installation() {
		l.decide(c, installation())
	}
	if woken := l.retry(installation()); !slices.Equal(woken, []string{remote.key}) {
		t.Errorf("woken: %v", woken)
	}
	if got := l.decide(remote, installation()); got.prefix != netip.MustParsePrefix("10.71.0.0/16") {
		t.Errorf("got %s", got.text())
	}
}

// TestWaiting serves those that wait when another one goes.
func TestWaiting(t *testing.T) {
	l := ledgerOf(t, installation()...)
	first := network("rome", "first", "10.42.0.0/16", 1)
	waiting := []claim{
		network("rome", "younger", "10.42.0.0/16", 3, notRemapped),
		network("rome", "older", "10.42.0.0/17", 2, notRemapped),
		network("rome", "elsewhere", "10.243.0.0/16", 1, notRemapped),
	}
	l.decide(first, installation())
	for _, c := range waiting {
		if d := l.decide(c, installation()); d.reason != ipamv1alpha1.ReasonOverlap {
			t.Errorf("%s: %s", c.key, d.text())
		}
	}
	l.forget(first.key)
	// The younger one's message names the older one now.
	if diff := cmp.Diff([]string{"rome/older", "rome/younger"}, l.retry(installation())); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	if got := l.entries["rome/older"].decision; got.prefix != netip.MustParsePrefix("10.42.0.0/17") {
		t.Errorf("got %s", got.text())
	}
	if woken := l.retry(installation()); woken != nil {
		t.Errorf("woken again: %v", woken)
	}
	// Allowed to be remapped, it need not wait.
	d := l.decide(network("rome", "younger", "10.42.0.0/16", 3), installation())
	if d.reason != ipamv1alpha1.ReasonRemapped {
		t.Errorf("got %s", d.text())
	}
}

// TestOverlappingStatus is a cluster with two Networks that were granted the
// same, and what becomes of them.
func TestOverlappingStatus(t *testing.T) {
	older := network("rome", "older", "10.243.0.0/16", 1, granted("10.5.0.0/16"))
	younger := network("milan", "younger", "10.243.0.0/16", 2, granted("10.4.0.0/15"))
	l := ledgerOf(t)
	l.load(slices.Concat([]claim{younger, older}, granted4(installation())))
	if d := l.entries[older.key].decision; !d.granted() {
		t.Errorf("older: %s", d.text())
	}
	if d := l.entries[younger.key].decision; d.text() !=
		"Overlap invalid Prefix: status.cidr 10.4.0.0/15 overlaps 10.5.0.0/16 of Network rome/older"+statusAdvice {
		t.Errorf("younger: %s", d.text())
	}
	// Nobody else gets what is in dispute.
	third := network("turin", "third", "10.4.0.0/16", 3)
	if d := l.decide(third, installation()); d.reason != ipamv1alpha1.ReasonRemapped {
		t.Errorf("third: %s", d.text())
	}
	l.changed = false
	if woken := l.retry(installation()); woken != nil {
		t.Errorf("woken: %v", woken)
	}
	t.Run("the older one goes", func(t *testing.T) {
		l.forget(older.key)
		if woken := l.retry(installation()); !slices.Equal(woken, []string{younger.key}) || !l.entries[younger.key].decision.granted() {
			t.Errorf("woken: %v; %s", woken, l.entries[younger.key].decision.text())
		}
		if d := l.decide(older, installation()); d.reason != ipamv1alpha1.ReasonOverlap {
			t.Errorf("who was older comes back: %s", d.text())
		}
	})
	t.Run("a disputed status is taken away", func(t *testing.T) {
		older.granted = ""
		d := l.decide(older, installation())
		if d.reason != ipamv1alpha1.ReasonRemapped || d.prefix.Overlaps(netip.MustParsePrefix("10.4.0.0/15")) {
			t.Errorf("got %s", d.text())
		}
	})
}

// granted4 has the installation granted as it asked.
func granted4(claims []claim) []claim {
	for i := range claims {
		claims[i].granted = claims[i].asked
	}
	return claims
}

func TestEdits(t *testing.T) {
	l := ledgerOf(t, installation()...)
	c := network("rome", "a", "10.243.0.0/16", 1)
	first := l.decide(c, installation()).prefix
	if first != netip.MustParsePrefix("10.71.0.0/16") {
		t.Fatalf("got %v", first)
	}
	t.Run("the cache is behind", func(t *testing.T) {
		if d := l.decide(c, nil); d.prefix != first {
			t.Errorf("got %s", d.text())
		}
	})
	t.Run("somebody writes another status", func(t *testing.T) {
		c.granted = "10.99.0.0/24"
		if d := l.decide(c, nil); d.reason != ipamv1alpha1.ReasonOverlap { // of the Services
			t.Errorf("got %s", d.text())
		}
		c.granted = "10.5.0.0/16"
		if d := l.decide(c, nil); d.prefix != netip.MustParsePrefix("10.5.0.0/16") || !l.changed {
			t.Errorf("got %s", d.text())
		}
	})
	t.Run("it becomes shared, and is not any more", func(t *testing.T) {
		c.shared = true
		d := l.decide(c, nil)
		other := l.decide(network("rome", "b", "10.5.0.0/16", 1, shared), installation())
		if !d.granted() || !other.granted() {
			t.Errorf("got %s, %s", d.text(), other.text())
		}
		c.shared = false
		if d := l.decide(c, nil); !d.granted() { // the other one still is
			t.Errorf("got %s", d.text())
		}
	})
	t.Run("it is deleted and made again with another prefix", func(t *testing.T) {
		d := l.decide(network("rome", "a", "10.42.0.0/16", 9), installation())
		if d.prefix != netip.MustParsePrefix("10.42.0.0/16") || !l.changed {
			t.Errorf("got %s", d.text())
		}
	})
}

// TestRestart grants, forgets and restores in any order; whoever has a prefix
// keeps it, nothing overlaps, and who asks next gets the same answer.
func TestRestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, err := newLedger([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/27")}, liqo)
		if err != nil {
			t.Fatal(err)
		}
		asked := rapid.SampledFrom([]string{"10.0.0.0/29", "10.0.0.8/30", "10.0.0.0/32", "10.0.0.16/28", "11.0.0.0/28"})
		install := granted4(installation())
		for _, c := range install {
			before.decide(c, install)
		}
		records := install
		for i := range rapid.IntRange(1, 12).Draw(t, "networks") {
			c := network("rome", fmt.Sprint("n", i), asked.Draw(t, "asked"), i)
			if d := before.decide(c, install); d.granted() {
				c.granted = ipamv1alpha1.CIDR(d.prefix.String())
			}
			records = append(records, c)
			if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
				before.forget(c.key)
				records = records[:len(records)-1]
			}
		}
		after, err := newLedger(before.allocator.Pools(), liqo)
		if err != nil {
			t.Fatal(err)
		}
		after.load(rapid.Permutation(records).Draw(t, "listed"))
		for _, c := range records {
			was, _ := before.allocator.Get(owner(c.key))
			is, _ := after.allocator.Get(owner(c.key))
			if was != is {
				t.Fatalf("%s held %v and holds %v", c.key, was, is)
			}
		}
		next := network("rome", "next", asked.Draw(t, "asked"), 99)
		if want, got := before.decide(next, install), after.decide(next, install); want != got {
			t.Fatalf("got %s, want %s", got.text(), want.text())
		}
	})
}
