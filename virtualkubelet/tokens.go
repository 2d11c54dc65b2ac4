package virtualkubelet

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/reflection"
)

// apiAccess says how offloaded pods reach the API server of this cluster. They do not while it has no address for other
// clusters, or the peering no network.
func (k *Kubelet) apiAccess() (a reflection.APIAccess) {
	if len(k.home.configurations.List()) == 0 {
		return a
	}
	for _, ip := range k.home.ips.List() {
		if address, err := ip.Status.IP.Addr(); err == nil && ip.Status.IP != "" {
			return reflection.APIAccess{Address: address, Port: k.options.APIServerPort}
		}
	}
	return a
}

// tokens keeps the Secret at the provider with the tokens by which a pod is known to the API server here: the pod's own
// identity, bound to the pod, so that its end is theirs.
func (k *Kubelet) tokens(ctx context.Context, at key, here *corev1.Pod, s *session, sp *space, wanted []reflection.Token) error {
	if len(wanted) == 0 {
		return nil
	}
	if !sp.tokens.synced() {
		return errNotListed
	}
	to := s.resource(s.core, secrets)
	var have metav1.Object
	if o := sp.tokens.get(sp.there, reflection.TokenSecretName(here.Name)); o != nil {
		have = o
	} else if to.justMade(sp.there, reflection.TokenSecretName(here.Name)) {
		return errNotListed
	}
	refresh := reflection.RefreshAt(here, have, wanted)
	if wait := time.Until(refresh); wait > 0 {
		k.queue.AddAfter(at, wait)
		return nil
	}
	if s.problem() != "" {
		k.queue.AddAfter(at, probeEvery) // a token for every trial would be made in vain
		return nil
	}
	tokens := map[string]string{}
	var expires time.Time
	for _, w := range wanted {
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: new(w.ExpirationSeconds),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: here.Name, UID: here.UID},
		}}
		if w.Audience != "" {
			r.Spec.Audiences = []string{w.Audience}
		}
		answer := new(authenticationv1.TokenRequest)
		account := reflection.ServiceAccountName(here)
		err := k.home.core.Post().Namespace(here.Namespace).Resource("serviceaccounts").Name(account).SubResource("token").Body(r).Do(ctx).Into(answer)
		if err != nil {
			return fmt.Errorf("get a token of service account %s/%s: %w", here.Namespace, account, err)
		}
		tokens[w.Key] = answer.Status.Token
		if e := answer.Status.ExpirationTimestamp.Time; expires.IsZero() || e.Before(expires) {
			expires = e
		}
	}
	if _, err := to.apply(ctx, k.peering, reflection.TokenSecret(here, tokens, expires, sp.there, k.peering), have); err != nil {
		return err
	}
	return nil // the Secret's event has the next time reckoned
}

// dropTokens deletes the tokens of a pod that is gone.
func (k *Kubelet) dropTokens(ctx context.Context, at key, s *session, sp *space) error {
	o := sp.tokens.get(sp.there, reflection.TokenSecretName(at.name))
	if o == nil || o.DeletionTimestamp != nil || o.Annotations[offloadingv1beta1.AnnotationServiceAccountPodName] != at.name {
		return nil
	}
	return s.resource(s.core, secrets).delete(ctx, o, nil)
}
