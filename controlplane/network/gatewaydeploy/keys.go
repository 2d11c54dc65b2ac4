package gatewaydeploy

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// keyLen is the length of a Curve25519 key.
const keyLen = 32

// secretName is that of the Secret that the gateway is to use.
func (g *gateway) secretName() string {
	if g.secretRef != "" {
		return g.secretRef
	}
	return childName(g.GetName())
}

// provided tells whether the Secret is the user's.
func (g *gateway) provided() bool { return g.secretName() != childName(g.GetName()) }

// keys judges the Secret and returns its public key, nil if it is not usable.
func (f *Facts) keys(p *Plan) (public []byte) {
	const ready = networkingv1beta1.ConditionKeysReady
	g, name := f.Gateway, f.Gateway.secretName()
	if f.KeysIn != "" {
		// So that it is still known which keys there were.
		p.Keys, p.PublicKey, p.PublicKeyTime = *g.keys, *g.publicKey, *g.publicKeyTime
		p.recheck(recheckSecret)
		f.say(p, ready, false, networkingv1beta1.ReasonSecretDeleted,
			"Secret %s was deleted. Pod %s keeps using the keys that were in it, and packets pass; another pod could not start. "+
				"'liqoctl network connect' has new keys generated, and gives them to the peer", name, f.KeysIn)
		return nil
	}
	if f.Secret == nil && !g.provided() {
		f.say(p, ready, false, networkingv1beta1.ReasonSecretNotFound, "Secret %s could not be made: see the condition Deployed", name)
		return nil
	}
	if f.Secret == nil {
		f.say(p, ready, false, networkingv1beta1.ReasonSecretNotFound,
			"there is no Secret %s: create it with data.%s, the text that wg genkey prints, or drop secretRef of the %s to have keys generated",
			name, networkingv1beta1.PrivateKeyEntry, g.kind.parent)
		p.recheck(recheckSecret)
		return nil
	}
	public, why := judge(f.Secret.Data)
	if why != "" {
		if f.Secret.Labels[networkingv1beta1.LabelGatewayResource] != networkingv1beta1.LabelTrue {
			p.recheck(recheckSecret) // its correction wakes nobody
		}
		repair := ""
		if !g.provided() {
			repair = ". Or delete the Secret to have new keys generated"
		}
		f.say(p, ready, false, networkingv1beta1.ReasonSecretInvalid, "Secret %s: %s%s", name, why, repair)
		return nil
	}
	// Not before: a name that was mistyped may be that of a Secret for something else.
	p.LabelSecret = f.missingLabels()
	p.PublicKey, p.PublicKeyTime = public, f.keysSince(public)
	p.Keys = &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: g.GetNamespace(), Name: name}
	f.dropGenerated(p)
	switch {
	case len(f.OtherSecrets) > 0:
		others := slices.Sorted(slices.Values(f.OtherSecrets))
		f.say(p, ready, false, networkingv1beta1.ReasonSecretAmbiguous,
			"Secret %s, with generated keys, is in use, but these are also labelled as keys for this peer: %s. Name one in secretRef of the %s, or delete the others",
			name, strings.Join(others, ", "), g.kind.parent)
	case g.provided():
		f.say(p, ready, true, networkingv1beta1.ReasonKeysProvided, "Secret %s holds the keys", name)
	default:
		f.say(p, ready, true, networkingv1beta1.ReasonKeysGenerated, "Secret %s holds the generated keys", name)
	}
	return public
}

// keysSince is since when a public key is the gateway's.
func (f *Facts) keysSince(public []byte) metav1.Time {
	before, since := *f.Gateway.publicKey, *f.Gateway.publicKeyTime
	switch {
	case len(before) > 0 && !bytes.Equal(before, public):
		return metav1.NewTime(f.Now.Truncate(time.Second)) // as the API server keeps it
	case len(before) > 0 && !since.IsZero():
		return since
	}
	return f.Secret.CreationTimestamp
}

// asksForKeys tells whether a Secret is the request for new keys: it is marked as ours,
// and holds nothing.
func asksForKeys(s *corev1.Secret) bool {
	return len(s.Data) == 0 && s.Labels[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue && s.DeletionTimestamp.IsZero()
}

// keysPatience is how long a pod that is not ready counts as one that will go on with
// its keys: its container may be starting again.
const keysPatience = 3 * time.Minute

// keysIn names a pod that has the keys of a Secret that was deleted; empty: there is
// none. The kubelet leaves in the volume of a pod what was there.
func keysIn(pods []corev1.Pod, now time.Time) string {
	for i := range pods {
		p := &pods[i]
		if finished(p) || !p.DeletionTimestamp.IsZero() {
			continue
		}
		started := slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.ContainerID != "" })
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && (c.Status == corev1.ConditionTrue || started && now.Sub(c.LastTransitionTime.Time) < keysPatience) {
				return p.Name
			}
		}
	}
	return ""
}

// annotationLabelled, on a Secret of a user, holds the labels that the controllers gave
// it, separated by commas. They take away those, and no others, when no gateway refers
// to the Secret any more.
const annotationLabelled = "networking.liqo.io/labelled"

// missingLabels are those by which the Secret of the user is found, as a patch of its
// metadata; nil if it has them.
func (f *Facts) missingLabels() map[string]any {
	missing := make(map[string]any, 2)
	add := func(k, v string) { missing[k] = v }
	if f.Secret.Labels[networkingv1beta1.LabelGatewayResource] != networkingv1beta1.LabelTrue {
		add(networkingv1beta1.LabelGatewayResource, networkingv1beta1.LabelTrue)
	}
	// Another peer's ID stays: one Secret may serve several gateways.
	if id := f.remoteClusterID(); id != "" && f.Secret.Labels[networkingv1beta1.LabelRemoteClusterID] == "" {
		add(networkingv1beta1.LabelRemoteClusterID, id)
	}
	if len(missing) == 0 {
		return nil
	}
	patch := map[string]any{"labels": missing}
	if f.Secret.Labels[networkingv1beta1.LabelManaged] != networkingv1beta1.LabelTrue {
		given := slices.Sorted(maps.Keys(missing))
		for l := range strings.SplitSeq(f.Secret.Annotations[annotationLabelled], ",") {
			if l != "" && !slices.Contains(given, l) {
				given = append(given, l)
			}
		}
		patch["annotations"] = map[string]string{annotationLabelled: strings.Join(given, ",")}
	}
	return patch
}

// withoutLabels is a patch of the metadata of a Secret that takes away the labels which
// the controllers gave it; nil if there are none.
func withoutLabels(s *corev1.Secret) map[string]any {
	labelled, ok := s.Annotations[annotationLabelled]
	if !ok {
		return nil
	}
	labels := make(map[string]any)
	for l := range strings.SplitSeq(labelled, ",") {
		// The annotation is a user's to write, too.
		if l == networkingv1beta1.LabelGatewayResource || l == networkingv1beta1.LabelRemoteClusterID {
			labels[l] = nil
		}
	}
	return map[string]any{"labels": labels, "annotations": map[string]any{annotationLabelled: nil}}
}

// dropGenerated deletes the generated Secret when the user's is in use, so that a
// peer has one Secret, and no private key lies about that nothing needs. Before
// that every pod must have been made anew, or one could start without its volume.
func (f *Facts) dropGenerated(p *Plan) {
	g, d := f.Generated, f.Deployment
	if g == nil || d == nil || g.Labels[networkingv1beta1.LabelManaged] != networkingv1beta1.LabelTrue {
		return
	}
	if o := metav1.GetControllerOf(g); o == nil || o.UID != f.Gateway.family().UID {
		return
	}
	rolledOut := d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == d.Status.Replicas && d.Status.ReadyReplicas > 0
	if rolledOut && volumeSecret(&d.Spec.Template.Spec) == f.Gateway.secretName() {
		p.Delete = append(p.Delete, g)
	}
}

// judge returns the public key of a key pair, or says what is wrong with the pair.
func judge(data map[string][]byte) (public []byte, why string) {
	raw, ok := data[networkingv1beta1.PrivateKeyEntry]
	if !ok {
		return nil, "data." + networkingv1beta1.PrivateKeyEntry + " is required: the text that wg genkey prints"
	}
	if why := badKey(raw); why != "" {
		return nil, "data." + networkingv1beta1.PrivateKeyEntry + " " + why
	}
	key, err := ecdh.X25519().NewPrivateKey(raw)
	if err != nil {
		return nil, "data." + networkingv1beta1.PrivateKeyEntry + " is not a Curve25519 key"
	}
	public = key.PublicKey().Bytes()
	if given, ok := data[networkingv1beta1.PublicKeyEntry]; ok && !bytes.Equal(given, public) {
		why := "is not the public key of " + networkingv1beta1.PrivateKeyEntry + ": replace it by the output of wg pubkey for that key, or leave it out"
		if bad := badKey(given); bad != "" {
			why = bad
		}
		return nil, "data." + networkingv1beta1.PublicKeyEntry + " " + why
	}
	return public, ""
}

// badKey says why raw is not a key. It repeats none of it.
func badKey(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "is empty: it must be the text that wg genkey or wg pubkey prints"
	case len(raw) == keyLen && bytes.Equal(raw, make([]byte, keyLen)):
		return "is all zeros"
	case len(raw) == keyLen:
		return ""
	}
	if inner, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(raw))); err == nil && len(inner) == keyLen {
		return "is encoded twice: write the text that wg prints as it is, without base64 over it and not under stringData"
	}
	return fmt.Sprintf("decodes to %d bytes, but a WireGuard key has %d", len(raw), keyLen)
}

// peerKey judges the peer's public key. own is this gateway's, or nil.
func (f *Facts) peerKey(p *Plan, own []byte) {
	const ready = networkingv1beta1.ConditionPeerKeyReady
	id := f.remoteClusterID()
	switch {
	case id == "":
		f.say(p, ready, false, networkingv1beta1.ReasonPeerKeyMissing,
			"the label %s is missing: it names the cluster whose key to use", networkingv1beta1.LabelRemoteClusterID)
		return
	case len(f.PublicKeys) == 0:
		f.say(p, ready, false, networkingv1beta1.ReasonPeerKeyMissing,
			"there is no PublicKey with the label %s=%s: create it with the public key of the peer's gateway", networkingv1beta1.LabelRemoteClusterID, id)
		return
	case len(f.PublicKeys) > 1:
		names := make([]string, len(f.PublicKeys))
		for i := range f.PublicKeys {
			names[i] = f.PublicKeys[i].Name
		}
		slices.Sort(names)
		f.say(p, ready, false, networkingv1beta1.ReasonPeerKeyAmbiguous,
			"the peer has one key, but these PublicKeys are labelled with its ID: %s. Delete all but one", strings.Join(names, ", "))
		return
	}
	k := &f.PublicKeys[0]
	why := badKey(k.Spec.PublicKey)
	if own != nil && bytes.Equal(own, k.Spec.PublicKey) {
		why = "is this gateway's own public key: put the peer's there"
	}
	if why != "" {
		f.say(p, ready, false, networkingv1beta1.ReasonPeerKeyInvalid, "PublicKey %s: spec.publicKey %s", k.Name, why)
		return
	}
	f.say(p, ready, true, networkingv1beta1.ReasonPeerKeyAccepted, "PublicKey %s holds the peer's key", k.Name)
}

// newSecret is a Secret with new keys.
func (f *Facts) newSecret(random io.Reader) (*corev1.Secret, error) {
	private, public, err := newKeys(random)
	if err != nil {
		return nil, fmt.Errorf("generate keys: %w", err)
	}
	s := &corev1.Secret{
		ObjectMeta: f.meta(childName(f.Gateway.GetName()), f.Gateway.family()), Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{networkingv1beta1.PrivateKeyEntry: private, networkingv1beta1.PublicKeyEntry: public},
	}
	s.Labels[networkingv1beta1.LabelGatewayResource] = networkingv1beta1.LabelTrue
	return s, nil
}

// newKeys makes a key pair as wg genkey and wg pubkey do. The private key is
// clamped (RFC 7748, section 5): every user of it does that anyway, and tools show
// the clamped one.
func newKeys(random io.Reader) (private, public []byte, err error) {
	private = make([]byte, keyLen)
	if _, err := io.ReadFull(random, private); err != nil {
		return nil, nil, err
	}
	private[0] &= 248
	private[31] = private[31]&127 | 64
	key, err := ecdh.X25519().NewPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return private, key.PublicKey().Bytes(), nil
}
