package control

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/tunnel"
)

// keyLen is the length of a Curve25519 key.
const keyLen = 32

// privateKey takes the gateway's key from its Secret. No message repeats any of it.
func (b *builder) privateKey() {
	s, ok := b.secret()
	if !ok {
		return
	}
	r := manifests.RefTo("Secret", s, &s.Object.ObjectMeta)
	if !b.inCluster() { // there the controller has chosen it
		b.peerLabel(r, b.secretName == "")
		b.sameNamespace(r)
	}
	path := field.NewPath("data").Key(networkingv1beta1.PrivateKeyEntry)
	raw := s.Object.Data[networkingv1beta1.PrivateKeyEntry]
	if why := badKey(raw); why != "" {
		b.fail(r, path, "%s", why)
		return
	}
	key, err := ecdh.X25519().NewPrivateKey(raw)
	if err != nil {
		b.fail(r, path, "is not a Curve25519 key")
		return
	}
	b.desired.DataPlane.Tunnel.PrivateKey = tunnel.PrivateKey(raw)
	public, given := s.Object.Data[networkingv1beta1.PublicKeyEntry]
	if given && !bytes.Equal(public, key.PublicKey().Bytes()) {
		b.fail(r, field.NewPath("data").Key(networkingv1beta1.PublicKeyEntry), "is not the public key of %s", path)
	}
}

// secret finds the Secret by the gateway's secretRef, or the only one that
// holds a private key.
func (b *builder) secret() (found manifests.Sourced[corev1.Secret], ok bool) {
	if b.inCluster() {
		if len(b.objects.Secrets) == 0 {
			b.wait(manifests.Problem{Reason: "there are no keys of this gateway yet: the Secret that the controller makes or that spec.secretRef names must be mounted"})
			return found, false
		}
		return b.objects.Secrets[0], true
	}
	path := field.NewPath("spec", "secretRef", "name")
	for _, s := range b.objects.Secrets {
		switch _, holdsKey := s.Object.Data[networkingv1beta1.PrivateKeyEntry]; {
		case b.secretName != "" && s.Object.Name == b.secretName:
			return s, true
		case b.secretName != "" || !holdsKey:
		case ok:
			b.fail(manifests.RefTo("Secret", s, &s.Object.ObjectMeta), nil, "is a second Secret with a private key, besides %q: name one in %s of the %s",
				found.Object.Name, path, b.gatewayRef.Kind)
			return found, false
		default:
			found, ok = s, true
		}
	}
	switch {
	case ok:
	case b.secretName != "":
		b.fail(b.gatewayRef, path, "there is no Secret %q", b.secretName)
	default:
		b.fail(b.gatewayRef, nil, "there is no Secret with data.%s: the gateway needs its WireGuard key", networkingv1beta1.PrivateKeyEntry)
	}
	return found, ok
}

// peerKey takes the peer's public key. It may be missing: the keys are
// exchanged after both gateways run.
func (b *builder) peerKey() {
	if b.inCluster() {
		b.clusterPeerKey()
		return
	}
	keys := b.objects.PublicKeys
	if len(keys) == 0 {
		b.warn(b.gatewayRef, nil, "there is no PublicKey of the peer yet: no tunnel until it comes")
		return
	}
	first := manifests.RefTo("PublicKey", keys[0], &keys[0].Object.ObjectMeta)
	b.peerLabel(first, true)
	b.sameNamespace(first)
	for _, k := range keys[1:] {
		b.fail(manifests.RefTo("PublicKey", k, &k.Object.ObjectMeta), nil, "is a second PublicKey (%s): the peer has one",
			first.Problem(nil, "the other one"))
	}
	raw := keys[0].Object.Spec.PublicKey
	if why := b.badPeerKey(raw); why != "" {
		b.fail(first, publicKeyPath, "%s", why)
		return
	}
	b.desired.DataPlane.Tunnel.PeerKey = tunnel.PublicKey(raw)
}

var publicKeyPath = field.NewPath("spec", "publicKey")

// badPeerKey says why raw cannot be the peer's key.
func (b *builder) badPeerKey(raw []byte) string {
	if why := badKey(raw); why != "" {
		return why
	}
	if own := b.desired.DataPlane.Tunnel.PrivateKey; own != (tunnel.PrivateKey{}) && own.Public() == tunnel.PublicKey(raw) {
		return "is this gateway's own public key: put the peer's there"
	}
	return ""
}

// badKey says why raw is not a key.
func badKey(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "is required: the 32 bytes of a WireGuard key in base64, as wg genkey and wg pubkey print them"
	case len(raw) == keyLen && bytes.Equal(raw, make([]byte, keyLen)):
		return "is all zeros"
	case len(raw) == keyLen:
		return ""
	}
	if inner, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(raw))); err == nil && len(inner) == keyLen {
		return "is encoded twice: it decodes to the base64 text of a key instead of its 32 bytes. Write the text that wg prints here as it is, without base64 over it (and not under stringData)"
	}
	return "decodes to " + plural(len(raw), "byte") + ", but a WireGuard key has 32"
}
