package survey

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Keys is the key pair of a gateway without its private half, as the controller tells it: nobody has to read the Secret.
type Keys struct {
	Secret string // its name
	// Public is the public key in base64; empty: the controller does not tell, as Liqo's.
	Public string
	// Since is since when these keys are the gateway's; zero: not known.
	Since time.Time
}

// keysOf is what the status of a gateway tells of its keys; nil: there are none yet.
func keysOf(secret *corev1.ObjectReference, public []byte, since metav1.Time) *Keys {
	if secret == nil {
		return nil
	}
	return &Keys{Secret: secret.Name, Public: base64.StdEncoding.EncodeToString(public), Since: since.Time}
}

// publicKeyLen is that of Curve25519, in bytes.
const publicKeyLen = 32

// KeyFault is something that is wrong with the keys of a connection.
type KeyFault struct {
	// Object is what it is about; empty: nothing that is there.
	Object string
	// Message says what is wrong, Cause why, or what follows, Fix what to do.
	Message, Cause, Fix string
	// Warning says that traffic flows nevertheless, for now.
	Warning bool
}

// PublicKey is the public key of a gateway in base64, by its status or by what it
// reports; empty: not known.
func (g *Gateway) PublicKey(r *GatewayReport) string {
	switch {
	case g == nil:
		return ""
	case g.Keys != nil && g.Keys.Public != "":
		return g.Keys.Public
	case r != nil:
		return r.DataPlane.Tunnel.Self
	}
	return ""
}

// KeyFaults judges the public key that this cluster has of a peer, and what its gateway,
// by its report, makes of it; nil: it was not asked. Of the peer's end it needs to know
// nothing; see KeyMismatch.
func (p *Peer) KeyFaults(r *GatewayReport) (out []KeyFault) {
	how := p.newKey()
	switch n := len(p.PublicKeys); {
	case n == 0:
		return []KeyFault{{Message: fmt.Sprintf("there is no PublicKey of %s in namespace %s", p, p.Namespace),
			Cause: "the gateway does not know its peer, and accepts no handshake", Fix: how}}
	case n > 1:
		return []KeyFault{{Message: fmt.Sprintf("there are %d PublicKeys of %s in namespace %s", n, p, p.Namespace),
			Cause: "the gateway cannot know which of them is the right one", Fix: "delete all but one"}}
	}
	o := &p.PublicKeys[0]
	object, has := publicKeyName(o), base64.StdEncoding.EncodeToString(o.Spec.PublicKey)
	switch {
	case len(o.Spec.PublicKey) != publicKeyLen:
		return []KeyFault{{Object: object, Message: fmt.Sprintf("it holds %d bytes; a key has %d", len(o.Spec.PublicKey), publicKeyLen),
			Cause: "the key was truncated, or encoded twice", Fix: how}}
	case has == p.Gateway.PublicKey(r):
		return []KeyFault{{Object: object, Message: fmt.Sprintf("it holds the key of this cluster's own gateway, not that of %s", p),
			Cause: "the keys were applied in the wrong cluster", Fix: how}}
	case r == nil:
		return nil
	}
	t := r.DataPlane.Tunnel
	if t.Peer != "" && t.Peer != has {
		out = append(out, KeyFault{Object: object, Message: fmt.Sprintf("the gateway still works with %s instead of %s", keyText(t.Peer), keyText(has)),
			Cause: "it has not applied the change yet, or refuses it", Warning: true})
	}
	if own := p.Gateway.Keys; own != nil && own.Public != "" && t.Self != "" && own.Public != t.Self {
		out = append(out, KeyFault{Object: "Secret " + p.Gateway.Namespace + "/" + own.Secret, Message: fmt.Sprintf("the gateway still works with the key %s instead of %s", keyText(t.Self), keyText(own.Public)),
			Cause: "a kubelet takes up to a minute to bring a changed Secret into the pod", Warning: true})
	}
	return out
}

// HandshakeFault is that handshakes arrive which the gateway does not accept, while the
// session of before still lives; nil: none. It is all that one end sees of a wrong key at
// the other.
func (p *Peer) HandshakeFault(r *GatewayReport) *KeyFault {
	if r == nil || r.Sync.Peer.Value != networkingv1beta1.Connected || !r.refusesHandshakes() {
		return nil
	}
	return &KeyFault{Object: p.Gateway.String(), Message: "handshakes arrive, but none that this gateway accepts", Warning: true,
		Cause: fmt.Sprintf("one of the two clusters has a PublicKey that is not that of the other's gateway, and the old session ends when a gateway restarts; or the handshakes are not from %s at all", p),
		Fix:   "run 'liqoctl network doctor' with the kubeconfig of both clusters; 'liqoctl network connect' exchanges the keys again"}
}

// KeyMismatch is the fault that the peer's gateway has another key than this cluster was
// told; nil: it has the same. Compared is false where one of the two is not known.
func (p *Peer) KeyMismatch(theirs string, keys *Keys) (fault *KeyFault, compared bool) {
	if len(p.PublicKeys) != 1 || len(p.PublicKeys[0].Spec.PublicKey) != publicKeyLen || theirs == "" {
		return nil, false
	}
	o := &p.PublicKeys[0]
	has := base64.StdEncoding.EncodeToString(o.Spec.PublicKey)
	if has == theirs {
		return nil, true
	}
	const follows = "no handshake succeeds, and sessions end after three minutes"
	cause := "it was written after those keys were generated, by hand or for another gateway; " + follows
	if keys != nil && keys.Since.After(publicKeySince(o)) {
		cause = "the keys of that gateway have changed since: its Secret was deleted or replaced; " + follows
	}
	return &KeyFault{Object: publicKeyName(o), Message: fmt.Sprintf("it holds %s, but the gateway of %s has %s", keyText(has), p, keyText(theirs)), Cause: cause, Fix: p.newKey()}, true
}

func (p *Peer) newKey() string {
	theirs := "server"
	if p.Gateway != nil && p.Gateway.Role == networkingv1beta1.ConnectionServer {
		theirs = "client"
	}
	return fmt.Sprintf("run 'liqoctl network connect' again, or apply here what 'liqoctl generate publickey --gateway-type %s --gateway-name NAME' prints in %s", theirs, p)
}

func publicKeyName(o *networkingv1beta1.PublicKey) string {
	return "PublicKey " + o.Namespace + "/" + o.Name
}

// keyText is enough of a public key to tell it from another.
func keyText(key string) string {
	if len(key) > 12 {
		return key[:12] + "..."
	}
	return key
}

// publicKeySince is when a cluster was told this key.
func publicKeySince(o *networkingv1beta1.PublicKey) time.Time {
	return writtenAt(&o.ObjectMeta, "f:spec", "f:publicKey")
}

// writtenAt is when a field of an object was last written. Who wrote what when is
// in the managed fields; where something removed them, the object's own age is
// all that there is.
func writtenAt(m *metav1.ObjectMeta, path ...string) time.Time {
	at := m.CreationTimestamp.Time
	for _, e := range m.ManagedFields {
		if e.Time != nil && e.FieldsV1 != nil && e.Time.After(at) && owns(e.FieldsV1.GetRawBytes(), path) {
			at = e.Time.Time
		}
	}
	return at
}

// owns tells whether a field is among managed fields.
func owns(fields []byte, path []string) bool {
	if len(path) == 0 {
		return true
	}
	var inside map[string]json.RawMessage
	if json.Unmarshal(fields, &inside) != nil {
		return false
	}
	next, ok := inside[path[0]]
	return ok && owns(next, path[1:])
}
