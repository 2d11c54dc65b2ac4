package survey

import (
	"encoding/base64"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Entries of the Secret of a gateway.
const (
	privateKeyEntry = "privateKey"
	publicKeyEntry  = "publicKey"
)

// Keys is the key pair of a gateway without its private half.
type Keys struct {
	Secret string // its name
	// Public is the public key in base64; empty: the Secret does not hold it.
	Public string
	// Since is when the private key was last changed.
	Since time.Time
	// Generated says that the controller made it.
	Generated bool
}

// keysOf takes from Secrets what may be known of them, and overwrites the rest.
func keysOf(secrets []corev1.Secret) map[types.NamespacedName]Keys {
	out := make(map[types.NamespacedName]Keys, len(secrets))
	for i := range secrets {
		s := &secrets[i]
		k := Keys{
			Secret: s.Name, Since: keySince(&s.ObjectMeta),
			Generated: s.Labels[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue,
		}
		if public := s.Data[publicKeyEntry]; len(public) > 0 {
			k.Public = base64.StdEncoding.EncodeToString(public)
		}
		for _, v := range s.Data {
			clear(v)
		}
		out[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = k
	}
	return out
}

// keySince is when the private key of a Secret was last written: a Secret may be
// older than what is in it.
func keySince(m *metav1.ObjectMeta) time.Time { return writtenAt(m, "f:data", "f:"+privateKeyEntry) }

// PublicKeySince is when a cluster was told this key.
func PublicKeySince(o *networkingv1beta1.PublicKey) time.Time {
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
