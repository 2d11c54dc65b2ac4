package doctor

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// keys compares, for each end, the public key that it has of the other with the
// one that the other has. Only public keys are known here.
func keys(p *peering) (out []Finding) {
	judged := false
	for _, e := range p.ends() {
		found, compared := e.peerKey(p.opposite(e))
		if f := e.peer.HandshakeFault(e.after); f != nil && !compared {
			found = append(found, finding(*f).in(e.cluster))
		}
		judged = judged || compared
		if other := p.opposite(e); other != nil && !compared && len(found) == 0 {
			found = append(found, skip("whether the key is that of the gateway of %s is not known: %s", e.id, other.keyUnknown()).in(e.cluster))
		}
		out = append(out, found...)
	}
	switch {
	case len(out) > 0:
		return out
	case !judged && p.remote == nil:
		return []Finding{pass("there is one PublicKey, of the right length; whether it is the peer's can only be judged with the other kubeconfig")}
	}
	return []Finding{pass("each gateway has the public key of the other")}
}

// peerKey judges the key that this end has of the other.
func (e *end) peerKey(other *end) (out []Finding, compared bool) {
	g := e.gateway()
	for _, f := range conditionFindings(g.String(), g.Conditions, networkingv1beta1.ConditionKeysReady) {
		c := meta.FindStatusCondition(g.Conditions, string(networkingv1beta1.ConditionKeysReady))
		if c.Reason == string(networkingv1beta1.ReasonSecretDeleted) { // packets pass
			f.Status = Warning
			f = f.fix("run 'liqoctl network connect' again: it has new keys generated, and gives them to the peer")
		}
		out = append(out, f.in(e.cluster))
	}
	if why := e.cluster.unread("PublicKey"); why != "" {
		return append(out, skip("%s", why).in(e.cluster)), false
	}
	var theirs string
	var keys *survey.Keys
	if other != nil && other.gateway() != nil {
		theirs, keys = other.gateway().PublicKey(other.after), other.gateway().Keys
	}
	faults := e.peer.KeyFaults(e.after)
	mismatch, compared := e.peer.KeyMismatch(theirs, keys)
	// One cause is one finding.
	if mismatch != nil && !slices.ContainsFunc(faults, func(f survey.KeyFault) bool { return !f.Warning }) {
		faults = []survey.KeyFault{*mismatch}
	}
	for _, f := range faults {
		out = append(out, finding(f).in(e.cluster))
	}
	return out, compared
}

// keyUnknown says why the public key of an end's gateway is not known.
func (e *end) keyUnknown() string {
	switch g := e.gateway(); {
	case g == nil:
		return cmp.Or(e.cluster.unread("GatewayServer", "GatewayClient"), "there is no gateway")
	case g.Keys == nil:
		return g.String() + " has no keys yet"
	}
	return "its controller does not tell it, and the gateway does not: " + e.silent()
}

// finding is a fault of keys.
func finding(k survey.KeyFault) Finding {
	f := fail("%s", k.Message)
	if k.Warning {
		f = warn("%s", k.Message)
	}
	if k.Object != "" {
		f = f.on(k.Object)
	}
	return f.because("%s", k.Cause).fix("%s", k.Fix)
}
