package doctor

import (
	"encoding/base64"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// publicKeyLen is that of Curve25519.
const publicKeyLen = 32

// keys compares, for each end, the public key that it has of the other with the
// one that the other has. Only public keys are known here.
func keys(p *peering) (out []Finding) {
	judged := false
	for _, e := range p.ends() {
		found, compared := e.peerKey(p.opposite(e))
		judged = judged || compared
		if other := p.opposite(e); other != nil && !compared && len(found) == 0 {
			found = append(found, skip("whether the key is that of the gateway of %s is not known: %s", e.id, or(other.cluster.unread("Secret"), other.silent())).in(e.cluster))
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

// ownKey is the public key of this end in base64; empty: not known.
func (e *end) ownKey() string {
	if k := e.gateway().Keys; k != nil && k.Public != "" {
		return k.Public
	}
	if e.after != nil {
		return e.after.DataPlane.Tunnel.Self
	}
	return ""
}

// peerKey judges the key that this end has of the other.
func (e *end) peerKey(other *end) (out []Finding, compared bool) {
	g := e.gateway()
	for _, f := range conditionFindings(g.String(), g.Conditions, networkingv1beta1.ConditionKeysReady) {
		out = append(out, f.in(e.cluster))
	}
	if why := e.cluster.unread("PublicKey"); why != "" {
		return append(out, skip("%s", why).in(e.cluster)), false
	}
	how := "run 'liqoctl network connect' again, or apply here what 'liqoctl generate publickey' prints in " + e.id
	switch n := len(e.peer.PublicKeys); {
	case n == 0:
		return append(out, fail("there is no PublicKey of %s in namespace %s", e.id, e.peer.Namespace).in(e.cluster).
			because("the gateway does not know whom to talk to, and takes no handshake").fix("%s", how)), false
	case n > 1:
		return append(out, fail("there are %d PublicKeys of %s in namespace %s", n, e.id, e.peer.Namespace).in(e.cluster).
			because("which of them is the right one is not for the gateway to guess").fix("delete all but one")), false
	}
	o := &e.peer.PublicKeys[0]
	object := "PublicKey " + o.Namespace + "/" + o.Name
	has := base64.StdEncoding.EncodeToString(o.Spec.PublicKey)
	var theirs string
	if other != nil && other.gateway() != nil {
		theirs = other.ownKey()
	}
	problem := func(f Finding) ([]Finding, bool) {
		return append(out, f.on(object).in(e.cluster).fix("%s", how)), true
	}
	switch {
	case len(o.Spec.PublicKey) != publicKeyLen:
		return problem(fail("it holds %d bytes; a key has %d", len(o.Spec.PublicKey), publicKeyLen).because("something was cut, or encoded twice"))
	case has == e.ownKey():
		return problem(fail("it holds the key of this cluster's own gateway, not that of %s", e.id).because("the keys were applied in the wrong cluster"))
	case theirs != "" && theirs != has:
		const follows = "no handshake succeeds, and sessions end after three minutes"
		f := fail("it holds %s, but the gateway of %s has %s", keyText(has), e.id, keyText(theirs))
		if keys := other.gateway().Keys; keys != nil && keys.Since.After(survey.PublicKeySince(o)) {
			return problem(f.because("the keys of that gateway have changed since: its Secret was deleted or replaced; %s", follows))
		}
		return problem(f.because("it was written later than those keys were made, by hand or of another gateway; %s", follows))
	}
	if e.after != nil && e.after.DataPlane.Tunnel.Peer != "" && e.after.DataPlane.Tunnel.Peer != has {
		out = append(out, warn("the gateway still works with %s instead of %s", keyText(e.after.DataPlane.Tunnel.Peer), keyText(has)).on(object).in(e.cluster).
			because("it has not taken the change over yet, or refuses it"))
	}
	if own := e.gateway().Keys; own != nil && e.after != nil && own.Public != "" && e.after.DataPlane.Tunnel.Self != "" && own.Public != e.after.DataPlane.Tunnel.Self {
		out = append(out, warn("the gateway still works with the key %s instead of %s", keyText(e.after.DataPlane.Tunnel.Self), keyText(own.Public)).
			on("Secret "+e.gateway().Namespace+"/"+own.Secret).in(e.cluster).because("a kubelet takes up to a minute to bring a changed Secret into the pod"))
	}
	return out, theirs != ""
}

// keyText is enough of a public key to tell it from another.
func keyText(key string) string {
	if len(key) > 12 {
		return key[:12] + "..."
	}
	return key
}
