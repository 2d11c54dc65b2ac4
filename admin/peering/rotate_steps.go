package peering

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

const (
	// makeKeysFor is how long a controller may take to make a Secret. It takes a
	// fraction of a second.
	makeKeysFor = 20 * time.Second
	// undividedFor bounds what an interruption has to wait for.
	undividedFor = makeKeysFor + 15*time.Second
)

// annotationTouched, on a gateway's pod, is the key that it is to take. The kubelet syncs a
// pod at once when it changes, otherwise once a minute.
const annotationTouched = "networking.liqo.io/awaits-public-key"

// secret reads the metadata of the Secret with a gateway's keys.
func (e *end) secret(ctx context.Context, g *gateway) (*metav1.PartialObjectMetadata, error) {
	if why := g.ambiguous(); why != "" {
		return nil, e.Errorf("%s: %s; nothing was changed", g, why)
	}
	ref := g.status().keys
	if ref == nil {
		return nil, e.Errorf("%s has no status.secretRef, so it has no keys: %w: check its conditions, and whether the controllers are running", g, ErrNotReady)
	}
	s := secretMetadata()
	if err := e.Client.Get(ctx, e.named(ref.Name), s); err != nil {
		return nil, e.Explain("read Secret "+e.named(ref.Name).String(), err)
	}
	return s, nil
}

// secretMetadata is to hold what is known of a Secret without its keys.
func secretMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
}

// generated tells whether a controller made the Secret and would make another.
func (e *end) generated(g *gateway, s metav1.Object) bool {
	return s.GetName() == generatedSecret(g.GetName()) && s.GetLabels()[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue && metav1.GetControllerOf(s) != nil
}

// readOwnKey reads the public key of this end's gateway.
func (e *end) readOwnKey() *step {
	s := e.readKey()
	s.done = "Gateway keys correctly retrieved"
	return s
}

// repairKey tells this end the key that its peer has, in case an earlier run was killed before
// it did.
func (e *end) repairKey() *step {
	s := &step{in: e.Cluster, waiting: "Comparing public keys"}
	s.try = func(ctx context.Context) (missing string, err error) {
		ks, err := e.publicKeys(ctx)
		if err != nil {
			return "", err
		}
		if len(ks) == 1 && bytes.Equal(ks[0].Spec.PublicKey, e.peer.key) {
			return "", nil
		}
		if missing, err := e.tellKey().try(ctx); missing != "" || err != nil {
			return missing, err
		}
		s.note(progress.Warning, "The public key in this cluster was not that of the gateway of cluster "+e.peer.id+": it was replaced, as after an unfinished rotation")
		return "", nil
	}
	return s
}

// rotation is the replacement of the keys of one end.
type rotation struct {
	*end
	former    *metav1.PartialObjectMetadata // the Secret as it was before; nil: not read yet
	formerKey []byte                        // the public one that was in it
	handshake time.Time                     // the last one before
	touched   bool
}

// renew creates new keys and tells the peer the public one.
func (r *rotation) renew() *step {
	s := &step{in: r.Cluster, waiting: "Replacing keys", done: "New keys generated", clues: r.controllerClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		if r.former == nil {
			if missing, err := r.remember(ctx); missing != "" || err != nil {
				return missing, err
			}
		}
		// The rest is done as a whole: an interruption waits for its end.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undividedFor)
		defer cancel()
		if r.key, err = r.replaceSecret(ctx); err != nil {
			return "", err
		}
		return r.tellPeer(ctx)
	}
	return s
}

// remember reads the state before the change. A gateway may be restarting, as after a rotation that was interrupted: then its
// report is missing.
func (r *rotation) remember(ctx context.Context) (missing string, err error) {
	g, err := r.readGateway(ctx)
	if err != nil {
		return "", err
	}
	secret, err := r.secret(ctx, g)
	if err != nil {
		return "", err
	}
	report, missing, err := r.report(ctx)
	if report == nil {
		return missing, err
	}
	r.former, r.formerKey, r.handshake = secret, r.key, report.DataPlane.Tunnel.LastHandshake
	return "", nil
}

// replaceSecret deletes the Secret, asks for another, waits for the one that the
// controller makes, and returns its public key.
func (r *rotation) replaceSecret(ctx context.Context) (public []byte, err error) {
	name := client.ObjectKeyFromObject(r.former)
	uid := r.former.UID
	err = r.Client.Delete(ctx, r.former.DeepCopy(), client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // these: it is gone already
		return nil, r.Explain("delete Secret "+name.String(), err)
	}
	asked, err := r.askForKeys(ctx, r.former)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(makeKeysFor)
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		s := secretMetadata()
		err := r.Client.Get(ctx, name, s)
		if err == nil && s.UID != uid && s.UID != asked.UID {
			public, err = PublicKeyOf(ctx, r.Cluster, r.role, r.namespace, r.gateway())
			if err == nil && !bytes.Equal(public, r.formerKey) { // the status may be older than the Secret
				return public, nil
			}
		}
		if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, ErrNotReady) && patience(err) == 0 {
			return nil, r.Explain("read the new keys in Secret "+name.String(), err)
		}
		if time.Now().After(deadline) {
			return nil, r.giveUp(ctx, name, asked)
		}
		time.Sleep(pause)
	}
}

// askForKeys makes an empty Secret, in whose place the controller puts one with new
// keys. One that is there already is the answer.
func (e *end) askForKeys(ctx context.Context, like metav1.Object) (*corev1.Secret, error) {
	s := &corev1.Secret{Type: corev1.SecretTypeOpaque, ObjectMeta: metav1.ObjectMeta{
		Name: like.GetName(), Namespace: like.GetNamespace(), Labels: maps.Clone(like.GetLabels()), OwnerReferences: slices.Clone(like.GetOwnerReferences()),
	}}
	err := e.write.Create(ctx, s)
	if apierrors.IsAlreadyExists(err) {
		return new(corev1.Secret), nil
	}
	return s, e.Explain(fmt.Sprintf("ask for new keys by an empty Secret %s/%s", s.Namespace, s.Name), err)
}

// giveUp withdraws the request for new keys, which no controller has answered: nobody would
// tell the peer about keys generated later. The pods continue with the keys that they have.
// It always returns an error.
func (r *rotation) giveUp(ctx context.Context, name types.NamespacedName, asked *corev1.Secret) error {
	if asked.UID != "" {
		err := r.write.Delete(ctx, asked, client.Preconditions{UID: &asked.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // these: it was answered by now
			return r.Explain("delete Secret "+name.String(), err)
		}
	}
	r.former = nil
	return &complaint{fmt.Sprintf("no controller generated new keys within %v: running pods continue with the previous ones, but no other pod can start without Secret %s: "+
		"check whether the controllers are running, then run the command again", makeKeysFor, name)}
}

// tellPeer tells the peer the new public key.
func (r *rotation) tellPeer(ctx context.Context) (missing string, err error) {
	tell := r.peer.tellKey()
	var since time.Time
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		if missing, err = tell.try(ctx); missing == "" && err == nil {
			return "", nil
		}
		if since.IsZero() {
			since = time.Now()
		}
		if err != nil && time.Since(since) >= patience(err) || ctx.Err() != nil {
			return missing, err
		}
		time.Sleep(pause)
	}
}

// taken waits until the gateway of this end uses its new keys.
func (r *rotation) taken() *step {
	s := &step{in: r.Cluster, waiting: "Waiting for the gateway to take its new keys", done: "Gateway uses its new keys", clues: r.gatewayClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		if !r.touched {
			if err := r.touch(ctx); err != nil {
				s.note(progress.Warning, err.Error()+"; it takes up to two minutes for a pod to see its new keys")
			}
			r.touched = true
		}
		report, missing, err := r.report(ctx)
		if report == nil {
			return missing, err
		}
		self := report.DataPlane.Tunnel.Self
		if self == "" || self == r.text() { // a gateway that does not tell is an older one
			return "", nil
		}
		return "the gateway still uses its previous keys: the kubelet has not delivered the new ones yet", nil
	}
	return s
}

// proven waits until the peer has had a handshake with the new keys.
func (r *rotation) proven() *step {
	p := r.peer
	return &step{
		in: p.Cluster, waiting: "Waiting for a handshake with the new keys", done: "Handshake with the new keys of cluster " + r.id + " seen", clues: p.connectionClues,
		try: func(ctx context.Context) (missing string, err error) {
			ours, missing, err := r.report(ctx)
			if ours == nil {
				return missing, err
			}
			theirs, missing, err := p.report(ctx)
			if errors.Is(err, survey.ErrOfLiqo) { // then ours alone tells
				return handshakeMissing(nil, ours.DataPlane.Tunnel, r.text(), r.handshake), nil
			}
			if theirs == nil {
				return missing, err
			}
			return handshakeMissing(&theirs.DataPlane.Tunnel, ours.DataPlane.Tunnel, r.text(), r.handshake), nil
		},
	}
}

// handshakeMissing is what is missing of a handshake with a new key, by what the
// gateway at the other end of the tunnel and the one with the key say. before is
// the last one that the latter had with its former key. theirs is nil if nobody can ask for it.
func handshakeMissing(theirs *survey.TunnelStats, ours survey.TunnelStats, key string, before time.Time) string {
	switch {
	case theirs != nil && theirs.Peer != key:
		return "its gateway has not seen the new public key yet"
	case theirs != nil && theirs.LastHandshake.IsZero():
		return "there has been no handshake with the new key yet"
	case !ours.LastHandshake.After(before):
		return "the peer's gateway has had no handshake since it got its new key"
	}
	return ""
}

// text is the key as WireGuard's tools print it.
func (e *end) text() string { return base64.StdEncoding.EncodeToString(e.key) }

// report asks the gateway of this end. While it restarts there is no report, and missing says why.
func (e *end) report(ctx context.Context) (report *survey.GatewayReport, missing string, err error) {
	pods, err := e.gatewayPods(ctx)
	if err == nil {
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool {
			return p.Labels[networkingv1beta1.LabelActive] == networkingv1beta1.LabelTrue && p.DeletionTimestamp == nil
		})
		if i < 0 {
			return nil, fmt.Sprintf("no pod of the gateway %s/%s is active: see its Deployment", e.namespace, e.gateway()), nil
		}
		if survey.OfLiqo(&pods[i].Spec) {
			return nil, "", e.Errorf("pod %s/%s tells neither its key nor its handshakes: %w; to replace its keys, hand it over first with 'liqoctl network adopt %s'",
				pods[i].Namespace, pods[i].Name, survey.ErrOfLiqo, e.peer.id)
		}
		report, err = survey.ReadGateway(ctx, e.Cluster, client.ObjectKeyFromObject(&pods[i]))
	}
	if err == nil || apierrors.IsForbidden(err) {
		return report, "", err
	}
	return nil, err.Error(), nil
}

func (e *end) gatewayPods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := e.list(ctx, "pods", &list, client.InNamespace(e.namespace), client.MatchingLabels{
		networkingv1beta1.LabelComponent: networkingv1beta1.ComponentGateway, networkingv1beta1.LabelGatewayName: e.gateway(),
	})
	return list.Items, err
}

// touch changes an annotation of the gateway's pods.
func (r *rotation) touch(ctx context.Context) error {
	pods, err := r.gatewayPods(ctx)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotationTouched: r.text()}}})
	if err != nil {
		return fmt.Errorf("encode annotations: %w", err)
	}
	for i := range pods {
		err := r.write.Patch(ctx, &pods[i], client.RawPatch(types.MergePatchType, patch))
		if client.IgnoreNotFound(err) != nil {
			return r.Explain("annotate pod "+client.ObjectKeyFromObject(&pods[i]).String(), err)
		}
	}
	return nil
}
