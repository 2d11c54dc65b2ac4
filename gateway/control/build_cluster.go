package control

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/tunnel"
)

// Cluster says that controllers make and complete the objects, and what a
// gateway among them has to go by. Three things differ from a directory:
//
// What a directory lacks nobody will add; here everything comes sooner or later,
// in any order. Above all, a Configuration without a status is one that is not
// remapped there, and one whose remapped CIDRs are not known yet here: to
// forward by it would be to forward to the addresses of somebody else.
//
// A directory has one author, who is told of a mistake and mends it. Here
// anybody in the cluster can make an IP, and must not be able to stop a gateway
// by it: a bad object is left out, see Desired.Ignored.
//
// What is in force stays in force until what replaces it is complete.
type Cluster struct {
	// ClusterID is the peer's, as the gateway was told at its start.
	ClusterID string
	// NodeName is the node that the gateway runs on; empty: not known.
	NodeName string
	// InForce is what the data plane does now. Zero: nothing yet.
	InForce dataplane.Config
}

// inCluster tells whether the objects come from an API server.
func (b *builder) inCluster() bool { return b.objects.Cluster != nil }

// wait records what nothing can be done without.
func (b *builder) wait(p manifests.Problem) { b.waiting = append(b.waiting, p.Masked()) }

// lack warns of what no traffic is possible without, or none by the newest state.
func (b *builder) lack(p manifests.Problem) {
	b.warnings = append(b.warnings, p)
	b.desired.Missing = append(b.desired.Missing, p)
}

// exclude reports an object, or a part of one, that cannot be used. From files
// that refuses the state; from a cluster the object is left out. The caller
// leaves it out either way.
func (b *builder) exclude(p manifests.Problem) {
	if b.inCluster() {
		b.desired.Ignored = append(b.desired.Ignored, p)
		return
	}
	b.problems = append(b.problems, p)
}

// clusterPeerKey takes the peer's public key from the objects of a cluster. What
// is wrong with a key concerns the tunnel alone: pods go on being routed, and
// the gateway stays ready for a key that is right.
//
//	no PublicKey             nobody is admitted
//	one that is no key       nobody is admitted
//	several, the same key    that key
//	several keys             the one in force stays; before there was one, nobody is admitted
func (b *builder) clusterPeerKey() {
	var keys []tunnel.PublicKey
	var problems manifests.Problems
	for _, k := range b.objects.PublicKeys {
		r := manifests.RefTo("PublicKey", k, &k.Object.ObjectMeta)
		if why := b.badPeerKey(k.Object.Spec.PublicKey); why != "" {
			b.exclude(r.Problem(publicKeyPath, "%s", why))
			continue
		}
		key := tunnel.PublicKey(k.Object.Spec.PublicKey)
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
			problems = append(problems, r.Problem(nil, "is one of several PublicKeys of the peer with different keys: "+
				"the key in force stays; delete all but the one that the peer uses"))
		}
	}
	switch len(keys) {
	case 0:
		if len(b.objects.PublicKeys) == 0 {
			b.lack(b.gatewayRef.Problem(nil, "there is no PublicKey of the peer yet: no tunnel until it comes"))
		}
	case 1:
		b.desired.DataPlane.Tunnel.PeerKey = keys[0]
	default:
		b.desired.DataPlane.Tunnel.PeerKey = b.objects.Cluster.InForce.Tunnel.PeerKey
		for _, p := range problems {
			b.exclude(p)
		}
	}
}

// clusterConfiguration finds the Configuration to go by. Without one the CIDRs
// in force stay, unless there is no Configuration at all any more: its CIDRs
// then are free for others.
func (b *builder) clusterConfiguration() (found manifests.Sourced[networkingv1beta1.Configuration], ok bool) {
	for _, c := range b.objects.Configurations {
		r := manifests.RefTo("Configuration", c, &c.Object.ObjectMeta)
		switch why := notReady(c.Object); {
		case why != "":
			b.lack(r.Problem(nil, "%s", why))
		case ok:
			b.exclude(r.Problem(nil, "is a second Configuration, besides %s: the peer has one; delete one of them", found.Object.Name))
		default:
			found, ok = c, true
		}
	}
	switch {
	case ok:
	case len(b.objects.Configurations) == 0:
		b.lack(b.gatewayRef.Problem(nil, "there is no Configuration of the peer yet: nothing is forwarded until it comes"))
	default:
		b.keepCIDRs()
	}
	return found, ok
}

// notReady says why a Configuration cannot be gone by yet; empty: it can.
func notReady(c *networkingv1beta1.Configuration) string {
	done := meta.FindStatusCondition(c.Status.Conditions, string(networkingv1beta1.ConditionNetworkCIDRsConfigured))
	switch {
	case done == nil || c.Status.Remote == nil && done.Status == metav1.ConditionTrue:
		return "is new: waiting for the controller to say under which CIDRs the peer is reached"
	case done.ObservedGeneration != c.Generation:
		return "has changed: what was in force stays until the controller has looked at it"
	case done.Status != metav1.ConditionTrue:
		return "is not ready: " + done.Reason + ": " + done.Message
	case c.Spec.Local == nil:
		return "lacks spec.local: waiting for the controller to fill it in"
	}
	return ""
}

// keepCIDRs takes the CIDRs of both clusters from what is in force.
func (b *builder) keepCIDRs() {
	old, c := &b.objects.Cluster.InForce, &b.desired.DataPlane
	c.LocalPods, c.LocalExternal, c.Remote = old.LocalPods, old.LocalExternal, old.Remote
	keep := func(what string, p netip.Prefix) { b.used = append(b.used, usedPrefix{prefix: p, what: what}) }
	for _, p := range c.LocalPods {
		keep("local pod CIDR", p)
	}
	for _, p := range c.LocalExternal {
		keep("local external CIDR", p)
	}
	for _, m := range c.Remote {
		keep("remote CIDR", m.Inside)
	}
}
