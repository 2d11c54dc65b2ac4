package peering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// readKey reads the public key of this end's gateway.
func (e *end) readKey() *step {
	which := "Gateway " + strings.ToLower(string(e.role))
	asked := false
	return &step{
		in: e.Cluster, waiting: "Waiting for g" + which[1:] + " Secret to be created", done: which + " Secret created successfully",
		try: func(ctx context.Context) (missing string, err error) {
			g, err := e.readGateway(ctx)
			if err != nil {
				return "", err
			}
			if s := g.lostKeys(e.namespace, e.peer.id); s != nil && !asked {
				if _, err := e.askForKeys(ctx, s); err != nil {
					return "", err
				}
				asked = true
			}
			if missing, err := conditionMissing(g, networkingv1beta1.ConditionKeysReady); missing != "" || err != nil {
				return missing, err
			}
			e.key, err = PublicKeyOf(ctx, e.Cluster, e.role, e.namespace, g.GetName())
			if errors.Is(err, ErrNotReady) {
				return err.Error(), nil
			}
			return "", err
		},
		clues: e.gatewayClues,
	}
}

// lostKeys is the Secret, without its keys, that has been deleted although the gateway still
// works with the keys that were in it; nil if there is none.
func (g *gateway) lostKeys(namespace, peer string) *corev1.Secret {
	c := meta.FindStatusCondition(g.status().conditions, string(networkingv1beta1.ConditionKeysReady))
	if c == nil || c.Reason != string(networkingv1beta1.ReasonSecretDeleted) {
		return nil
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: generatedSecret(g.GetName()), Namespace: namespace, Labels: map[string]string{
		networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelGatewayResource: networkingv1beta1.LabelTrue,
		networkingv1beta1.LabelRemoteClusterID: peer,
	}}}
}

// generatedSecret is the name of the Secret with the keys that the controller makes
// for a gateway.
func generatedSecret(gateway string) string { return "gw-" + gateway }

// tellKey tells this end its peer's public key.
func (e *end) tellKey() *step {
	return &step{
		in: e.Cluster, waiting: "Creating public key", done: "Public key correctly created",
		try: func(ctx context.Context) (missing string, err error) {
			g, err := e.readGateway(ctx)
			if err != nil {
				return "", err
			}
			live, err := e.publicKeys(ctx)
			switch {
			case err != nil:
				return "", err
			case len(live) > 1:
				return "", &complaint{manyKeys(e.namespace, live)}
			case len(live) == 0:
				k := NewPublicKey(e.metadata(""), e.peer.key)
				k.OwnerReferences = []metav1.OwnerReference{g.owner()}
				return "", e.Explain(fmt.Sprintf("create PublicKey %s/%s", k.Namespace, k.Name), e.write.Create(ctx, k))
			case live[0].DeletionTimestamp != nil:
				return fmt.Sprintf("PublicKey %s/%s is being deleted", live[0].Namespace, live[0].Name), nil
			}
			return "", e.replaceKey(ctx, &live[0], g)
		},
	}
}

// replaceKey writes the peer's key into an existing PublicKey, and makes this gateway its
// owner: with an earlier gateway as owner it would be garbage-collected.
func (e *end) replaceKey(ctx context.Context, k *networkingv1beta1.PublicKey, g *gateway) error {
	before := k.DeepCopy()
	k.Spec.PublicKey = bytes.Clone(e.peer.key)
	k.Labels[networkingv1beta1.LabelGatewayResource] = networkingv1beta1.LabelTrue // there are labels: it was found by one
	if slices.ContainsFunc(k.OwnerReferences, func(o metav1.OwnerReference) bool { return isGateway(o) && o.UID != g.GetUID() }) {
		k.OwnerReferences = slices.DeleteFunc(k.OwnerReferences, isGateway)
		k.OwnerReferences = append(k.OwnerReferences, g.owner())
	}
	if equality.Semantic.DeepEqual(before, k) {
		return nil
	}
	return e.Explain(fmt.Sprintf("change PublicKey %s/%s", k.Namespace, k.Name), e.write.Patch(ctx, k, client.MergeFrom(before)))
}

// publicKeys are those of the peer in the tenant namespace.
func (e *end) publicKeys(ctx context.Context) ([]networkingv1beta1.PublicKey, error) {
	var list networkingv1beta1.PublicKeyList
	err := e.list(ctx, "PublicKeys", &list, client.InNamespace(e.namespace), client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: e.peer.id})
	return list.Items, err
}

func manyKeys(namespace string, ks []networkingv1beta1.PublicKey) string {
	names := make([]string, len(ks))
	for i := range ks {
		names[i] = ks[i].Name
	}
	return fmt.Sprintf("namespace %s has several PublicKeys of the peer, %s: delete all but one of them", namespace, strings.Join(names, ", "))
}

// owner refers to a gateway as that which an object goes with.
func (g *gateway) owner() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: networkingv1beta1.GroupVersion.String(), Kind: g.kind(), Name: g.GetName(), UID: g.GetUID()}
}

func isGateway(o metav1.OwnerReference) bool {
	return o.Kind == "GatewayServer" || o.Kind == "GatewayClient"
}
