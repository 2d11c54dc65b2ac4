package peering

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Authenticate gives the local cluster, the consumer, an identity in the remote one,
// the provider: the provider makes a nonce, the consumer signs it, and the provider
// signs a certificate for the key that did.
func Authenticate(ctx context.Context, consumer, provider *access.Cluster, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	ends := newPair(consumer, provider, &o)
	if err := ends.prepareIdentities(ctx, tell, ends.rightsToAuthenticate); err != nil {
		return err
	}
	h := &handshake{consumer: ends[0], provider: ends[1], proxyURL: o.ProxyURL}
	var p plan
	var first []stage
	if o.InBand {
		first = after(p.add(nil, h.inBand()))
	}
	spaces := p.add(first, ends.steps((*end).tenantNamespace)...)
	nonce := p.add(after(spaces), h.nonce())
	signature := p.add(after(nonce), h.signature())
	tenant := p.add(after(signature), h.tenant())
	p.add(after(tenant), h.identity())
	return p.run(ctx, tell)
}

// Unauthenticate takes the identity of the consumer, which is the local cluster, back.
// It fails while the consumer has ResourceSlices of the provider.
func Unauthenticate(ctx context.Context, consumer, provider *access.Cluster, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	ends := newPair(consumer, provider, &o)
	if err := ends.prepareIdentities(ctx, tell, ends.rightsToAuthenticate); err != nil {
		return err
	}
	h := &handshake{consumer: ends[0], provider: ends[1]}
	if err := h.noSlices(ctx); err != nil {
		return err
	}
	var p plan
	identity := p.add(nil, h.removeIdentity(false))
	p.add(after(identity), h.removeTenant())
	return p.run(ctx, tell)
}

// prepareIdentities finds out who the clusters are and all that stands in the way of
// identities, before anything is changed.
func (p pair) prepareIdentities(ctx context.Context, tell progress.Func, rights func(*end) []access.Permission) error {
	if err := p.identify(ctx, tell); err != nil {
		return err
	}
	for _, e := range p {
		tell.Waiting(e.Name, "Checking cluster "+e.id)
	}
	tell = tell.Serial()
	return p.both(func(e *end) error {
		if err := e.readPeering(ctx); err != nil {
			return err
		}
		if err := e.awaitNamespace(ctx, tell); err != nil {
			return err
		}
		if err := e.Require(ctx, rights(e)...); err != nil {
			return err
		}
		return e.checkAuthentication(ctx)
	})
}

func (p pair) rightsToAuthenticate(e *end) []access.Permission {
	kind, secret := "tenants", authv1beta1.NonceSecret
	if e == p[0] {
		kind, secret = "identities", authv1beta1.SignedNonceSecret
	}
	all := append(e.rightsToSign(secret), access.Permission{Verb: "delete", Resource: "secrets", Namespace: e.namespace, Name: secret})
	all = append(all, access.Permissions(authv1beta1.GroupVersion.Group, kind, e.namespace, "get", "create", "patch", "delete")...)
	if e.options.InBand && e != p[0] {
		all = append(all, access.Permission{Verb: "get", Group: ipamv1alpha1.GroupVersion.Group, Resource: "ips", Namespace: e.LiqoNamespace, Name: apiServerProxy})
	}
	return all
}

// rightsToSign are those to a Secret of a handshake, with its namespace.
func (e *end) rightsToSign(secret string) (all []access.Permission) {
	if e.namespaceFound() == nil {
		all = append(all, access.Permission{Verb: "create", Resource: "namespaces"})
	}
	for _, v := range []string{"get", "patch"} {
		all = append(all, access.Permission{Verb: v, Resource: "secrets", Namespace: e.namespace, Name: secret})
	}
	return append(all, access.Permission{Verb: "create", Resource: "secrets", Namespace: e.namespace})
}

// checkAuthentication fails if the controllers of the cluster do not take part in
// authentication: every step would wait in vain.
func (e *end) checkAuthentication(ctx context.Context) error {
	enabled, err := e.authenticates(ctx)
	if err == nil && !enabled {
		err = e.Errorf("authentication is not enabled in cluster %s (it has no ClusterRole %s); nothing was changed; to enable it: %s",
			e.id, authv1beta1.RemoteControlPlaneRole, e.enable())
	}
	return err
}

// enable is the command that enables authentication in the cluster. It keeps what else is set.
func (e *end) enable() string { return e.Command("install", "--set", "authentication.enabled=true") }

// authenticates tells whether authentication is enabled. It says yes to a user who may not look: the step that waits
// reports the truth.
func (e *end) authenticates(ctx context.Context) (bool, error) {
	is, _, err := e.hasRole(ctx, authv1beta1.RemoteControlPlaneRole)
	return is, err
}

// hasRole tells whether there is a ClusterRole. To a user who may not look it says yes, and seen is false.
func (e *end) hasRole(ctx context.Context, name string) (is, seen bool, err error) {
	err = e.Client.Get(ctx, client.ObjectKey{Name: name}, new(rbacv1.ClusterRole))
	switch {
	case apierrors.IsNotFound(err):
		return false, true, nil
	case apierrors.IsForbidden(err):
		return true, false, nil
	}
	return true, true, e.Explain("read ClusterRole "+name, err)
}

// tenantNamespace makes the namespace of the peering.
func (e *end) tenantNamespace() *step {
	return &step{
		in: e.Cluster, waiting: "Ensuring tenant namespace", done: "Tenant namespace correctly ensured",
		try: func(ctx context.Context) (string, error) { return "", e.ensureNamespace(ctx) },
	}
}

// handshake is what the steps of Authenticate hand to each other.
type handshake struct {
	consumer, provider *end // the Tenant has the name of the consumer

	nonceText []byte
	proxyURL  *string
	// proof is what the consumer's controller wrote beside the nonce.
	proof map[string][]byte
	// granted is what the provider gave; nil: nothing yet.
	granted *authv1beta1.AuthParams
}

// identityName is that of the Identity for a provider.
func identityName(providerID string) string { return "controlplane-" + providerID }

// nonce lets the provider create a nonce, unless there is a Tenant that is ready and serves the consumer.
func (h *handshake) nonce() *step {
	e := h.provider
	return &step{
		in: e.Cluster, waiting: "Waiting for the nonce", done: "Nonce retrieved", detailed: true, clues: e.controllerClues,
		try: func(ctx context.Context) (missing string, err error) {
			if h.granted, err = h.ready(ctx); err != nil {
				return "", err
			}
			if h.granted != nil {
				return e.addressMissing(ctx, h.consumer.id, h.granted)
			}
			h.nonceText, missing, err = e.makeNonce(ctx)
			return missing, err
		},
	}
}

// makeNonce returns the nonce for the peer, once the controller has made it.
func (e *end) makeNonce(ctx context.Context) (nonce []byte, missing string, err error) {
	s := &corev1.Secret{ObjectMeta: e.metadata(authv1beta1.NonceSecret).of("", map[string]string{authv1beta1.LabelNonce: networkingv1beta1.LabelTrue})}
	if _, err := e.readOrCreate(ctx, s); err != nil {
		return nil, "", err
	}
	if nonce = s.Data[authv1beta1.NonceKey]; len(nonce) == 0 {
		return nil, "Secret " + s.Name + " has no nonce yet: the controller writes it", nil
	}
	return nonce, "", judgeNonce(s)
}

// signature lets the consumer sign it.
func (h *handshake) signature() *step {
	e := h.consumer
	return &step{
		in: e.Cluster, waiting: "Waiting for the signed nonce", done: "Signed nonce retrieved", clues: e.controllerClues,
		try: func(ctx context.Context) (missing string, err error) {
			if h.granted != nil {
				return "", nil
			}
			s := &corev1.Secret{
				ObjectMeta: e.metadata(authv1beta1.SignedNonceSecret).of("", map[string]string{authv1beta1.LabelSignedNonce: networkingv1beta1.LabelTrue}),
				Data:       map[string][]byte{authv1beta1.NonceKey: h.nonceText},
			}
			if _, err := e.readOrCreate(ctx, s); err != nil {
				return "", err
			}
			if !bytes.Equal(s.Data[authv1beta1.NonceKey], h.nonceText) {
				// The nonce is from an earlier handshake, and so is its signature.
				before := s.DeepCopy()
				s.Data = map[string][]byte{authv1beta1.NonceKey: h.nonceText}
				if err := e.write.Patch(ctx, s, client.MergeFrom(before)); err != nil {
					return "", e.Explain("write the nonce", err)
				}
			}
			if len(s.Data[authv1beta1.SignedNonceKey]) > 0 && len(s.Data[authv1beta1.PublicKey]) == 0 && len(s.Data[authv1beta1.RequestKey]) == 0 {
				if h.proof, err = e.proofOfLiqo(ctx, s.Data); err == nil && h.proof == nil {
					missing = "the signature in Secret " + s.Name + " does not match its nonce yet: the controller updates it"
				}
				return missing, err
			}
			for _, key := range []string{authv1beta1.SignedNonceKey, authv1beta1.PublicKey, authv1beta1.RequestKey} {
				if len(s.Data[key]) == 0 {
					return fmt.Sprintf("Secret %s has no %s yet: the controller writes it", s.Name, key), nil
				}
			}
			h.proof = s.Data
			return "", nil
		},
	}
}

// readOrCreate reads a Secret into s, or creates it as s is. made: it did the latter.
func (e *end) readOrCreate(ctx context.Context, s *corev1.Secret) (made bool, err error) {
	wanted := s.DeepCopy()
	err = e.Client.Get(ctx, client.ObjectKeyFromObject(s), s)
	if apierrors.IsNotFound(err) {
		*s = *wanted
		return true, e.Explain("create Secret "+s.Name, e.write.Create(ctx, s))
	}
	return false, e.Explain("read Secret "+wanted.Name, err)
}

// tenant lets the provider check what the consumer proves.
func (h *handshake) tenant() *step {
	e := h.provider
	return &step{
		in: e.Cluster, waiting: "Waiting for the Tenant to be ready", done: "Tenant status is filled", detailed: true, clues: e.controllerClues,
		try: func(ctx context.Context) (missing string, err error) {
			if h.granted != nil {
				return "", nil
			}
			wanted := newTenant(e.metadata(h.consumer.id), h.proof, h.proxyURL)
			var t authv1beta1.Tenant
			switch err := e.Client.Get(ctx, client.ObjectKeyFromObject(wanted), &t); {
			case apierrors.IsNotFound(err):
				return "the controller has not processed the Tenant yet", e.Explain("create the Tenant", e.write.Create(ctx, wanted))
			case err != nil:
				return "", e.Explain("read the Tenant", err)
			case t.DeletionTimestamp != nil:
				return "an earlier Tenant is being deleted", nil
			case asksOtherwise(&t, wanted):
				before := t.DeepCopy()
				wanted.Spec.TenantCondition = t.Spec.TenantCondition // the provider's word
				t.Spec = wanted.Spec
				return "the controller has not processed the Tenant yet", e.Explain("change the Tenant", e.write.Patch(ctx, &t, client.MergeFrom(before)))
			}
			if missing, err = tenantNotReady(&t); missing != "" || err != nil {
				return missing, err
			}
			if h.granted = t.Status.AuthParams; h.granted == nil {
				return "Tenant " + t.Name + " has no credentials yet", nil
			}
			if missing, err = e.addressMissing(ctx, t.Name, h.granted); missing != "" || err != nil {
				h.granted = nil
			}
			return missing, err
		},
	}
}

// newTenant returns the Tenant of the consumer that m names as the remote cluster. proof is what that cluster's
// controller wrote beside the nonce.
func newTenant(m Metadata, proof map[string][]byte, proxyURL *string) *authv1beta1.Tenant {
	o := &authv1beta1.Tenant{
		ObjectMeta: m.of("", nil),
		Spec: authv1beta1.TenantSpec{
			ClusterID: authv1beta1.ClusterID(m.RemoteClusterID), AuthzPolicy: authv1beta1.KeysExchange,
			PublicKey: proof[authv1beta1.PublicKey], CSR: proof[authv1beta1.RequestKey], Signature: proof[authv1beta1.SignedNonceKey],
			ProxyURL: proxyURL, TenantCondition: authv1beta1.TenantActive,
		},
	}
	o.SetGroupVersionKind(authv1beta1.GroupVersion.WithKind("Tenant"))
	return o
}

// newIdentity returns the Identity for the provider that m names as the remote cluster. granted are the credentials, and
// namespace is where they are of use there.
func newIdentity(m Metadata, granted *authv1beta1.AuthParams, namespace string) *authv1beta1.Identity {
	o := &authv1beta1.Identity{
		ObjectMeta: m.of("", nil),
		Spec: authv1beta1.IdentitySpec{
			ClusterID: authv1beta1.ClusterID(m.RemoteClusterID), Type: authv1beta1.ControlPlaneIdentity,
			AuthParams: *granted, Namespace: &namespace,
		},
	}
	o.SetGroupVersionKind(authv1beta1.GroupVersion.WithKind("Identity"))
	return o
}

// notReady is what the condition Ready waits for. A problem that only a person can solve is a complaint.
func notReady(what string, generation int64, conditions []metav1.Condition) (missing string, err error) {
	c := meta.FindStatusCondition(conditions, authv1beta1.ConditionReady)
	switch {
	case c == nil || c.ObservedGeneration < generation:
		return "no controller has processed the latest version of " + what + " yet", nil
	case c.Status == metav1.ConditionTrue:
		return "", nil
	case authv1beta1.PassesByItself(c.Reason):
		return what + ": " + c.Message, nil
	}
	return "", &complaint{what + ": " + c.Message}
}

// identity gives the consumer what the provider granted.
func (h *handshake) identity() *step {
	e := h.consumer
	return &step{
		in: e.Cluster, waiting: "Waiting for the Identity to be ready", done: "Identity status is filled", detailed: true, clues: e.controllerClues,
		try: func(ctx context.Context) (missing string, err error) {
			wanted := newIdentity(e.metadata(identityName(h.provider.id)), h.granted, h.provider.namespace)
			var i authv1beta1.Identity
			switch err := e.Client.Get(ctx, client.ObjectKeyFromObject(wanted), &i); {
			case apierrors.IsNotFound(err):
				return "the controller has not processed the Identity yet", e.Explain("create the Identity", e.write.Create(ctx, wanted))
			case err != nil:
				return "", e.Explain("read the Identity", err)
			case i.DeletionTimestamp != nil:
				return "an earlier Identity is being deleted", nil
			case !equality.Semantic.DeepEqual(i.Spec.AuthParams, *h.granted):
				before := i.DeepCopy()
				i.Spec = wanted.Spec
				return "the controller has not processed the Identity yet", e.Explain("change the Identity", e.write.Patch(ctx, &i, client.MergeFrom(before)))
			}
			return identityNotReady(&i)
		},
	}
}

// noSlices fails while the consumer has something of the provider.
func (h *handshake) noSlices(ctx context.Context) error {
	e := h.consumer
	var list authv1beta1.ResourceSliceList
	if err := e.Client.List(ctx, &list, e.ownSlices()...); err != nil {
		return e.Explain("list ResourceSlices", err)
	}
	var names []string
	for _, s := range list.Items {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	if len(names) > 0 {
		return e.Errorf("cluster %s still uses resources of cluster %s; nothing was changed: delete the ResourceSlices %v first", e.id, h.provider.id, names)
	}
	return nil
}

// removeIdentity deletes the identity of the consumer. If the provider is gone, the controller is told as well that there is
// nothing to take back from it.
func (h *handshake) removeIdentity(providerGone bool) *step {
	e := h.consumer
	return e.forgetIdentity("Identity control plane", authv1beta1.SignedNonceSecret, e.givenCredentials, func(ctx context.Context) (found []client.Object, err error) {
		var list authv1beta1.IdentityList
		err = e.list(ctx, "Identities", &list, client.InNamespace(e.namespace))
		for i := range list.Items {
			// Those of slices go with their slices.
			if o := &list.Items[i]; string(o.Spec.ClusterID) == e.peer.id && o.Spec.Type == authv1beta1.ControlPlaneIdentity {
				found = append(found, o)
			}
		}
		if err != nil || !providerGone {
			return found, err
		}
		record, err := e.secretNamed(ctx, authv1beta1.CopiesSecret)
		if record != nil {
			found = append(found, record)
		}
		return found, err
	})
}

func (h *handshake) removeTenant() *step {
	e := h.provider
	return e.forgetIdentity("Tenant", authv1beta1.NonceSecret, e.givenRights, func(ctx context.Context) (found []client.Object, err error) {
		if found, err = e.ownBindings(ctx); err != nil {
			return nil, err
		}
		var list authv1beta1.TenantList
		err = e.list(ctx, "Tenants", &list, client.InNamespace(e.namespace))
		for i := range list.Items {
			if o := &list.Items[i]; string(o.Spec.ClusterID) == e.peer.id {
				found = append(found, o)
			}
		}
		return found, err
	})
}

// forgetIdentity deletes what find finds and the Secret of the handshake of this end, and waits until they are gone. It tells
// of what stays, as users have made it.
func (e *end) forgetIdentity(what, secret string, stays func(context.Context) ([]string, error), find func(context.Context) ([]client.Object, error)) *step {
	s := &step{in: e.Cluster, waiting: "Deleting " + what, done: what + " already deleted", clues: e.controllerClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		doomed, err := find(ctx)
		if err != nil {
			return "", err
		}
		if len(doomed) > 0 {
			s.done = what + " correctly deleted"
		}
		nonce, err := e.secretNamed(ctx, secret)
		if err != nil {
			return "", err
		}
		if nonce != nil {
			doomed = append(doomed, nonce)
		}
		if missing, err = e.removeAll(ctx, doomed...); missing != "" || err != nil {
			return missing, err
		}
		kept, err := stays(ctx)
		if err != nil { // which is no reason to stop: all that was to be deleted is
			kept = append(kept, fmt.Sprintf("whether something that users have given stays is not known: %v", err))
		}
		for _, text := range kept {
			s.note(progress.Warning, text)
		}
		return "", nil
	}
	return s
}
