package gatewaydeploy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// gather reads what Build needs to know. It writes one thing, new keys, because
// whether they could be made is a fact.
func (r *reconciler) gather(ctx context.Context, g *gateway) (Facts, []refusal, error) {
	f := Facts{Gateway: g, Options: r.options, Now: metav1.Now()}
	if err := r.gatherRival(ctx, &f); err != nil || f.Rival != "" {
		return f, nil, err
	}
	if err := r.gatherPods(ctx, &f); err != nil {
		return f, nil, err
	}
	refusals, err := r.gatherKeys(ctx, &f)
	if err != nil {
		return f, nil, err
	}
	for _, read := range []func(context.Context, *Facts) error{
		r.gatherPublicKeys, r.gatherAccount, r.gatherBindings, r.gatherWorkload, r.gatherMonitor, r.gatherHolder, r.gatherPolicies,
	} {
		if err := read(ctx, &f); err != nil {
			return f, nil, err
		}
	}
	return f, refusals, nil
}

// gatherRival looks for a gateway of the other kind with the same name. The older
// one stays; of the same age, the server.
func (r *reconciler) gatherRival(ctx context.Context, f *Facts) error {
	g := f.Gateway
	o, err := r.kind.other().get(ctx, r, client.ObjectKeyFromObject(g))
	if err != nil || !o.GetDeletionTimestamp().IsZero() {
		return client.IgnoreNotFound(err)
	}
	mine, theirs := g.GetCreationTimestamp(), o.GetCreationTimestamp()
	if theirs.Before(&mine) || theirs.Equal(&mine) && o.kind.mode == modeServer {
		f.Rival = o.kind.name
	}
	return nil
}

// gatherKeys reads the Secrets, and makes the one with the gateway's keys if the
// user has none and it does not exist. If it was there, and a pod works with what was
// in it, new keys would end the connection, as the peer does not know them: then they
// are made when somebody asks for them by an empty Secret, and tells the peer.
func (r *reconciler) gatherKeys(ctx context.Context, f *Facts) ([]refusal, error) {
	g := f.Gateway
	key := client.ObjectKey{Namespace: g.GetNamespace(), Name: g.secretName()}
	secret, err := r.secret(ctx, key)
	if err != nil {
		return nil, err
	}
	f.Secret = secret
	if g.provided() {
		key.Name = childName(g.GetName())
		f.Generated, err = find[corev1.Secret](ctx, r, key)
		return nil, err
	}
	if was := *g.keys; f.Secret == nil && was != nil && was.Name == key.Name {
		if f.KeysIn = keysIn(f.Pods, f.Now.Time); f.KeysIn != "" {
			return nil, r.gatherOtherSecrets(ctx, f)
		}
	}
	if f.Secret != nil && asksForKeys(f.Secret) {
		uid := f.Secret.UID
		if err := r.Delete(ctx, f.Secret, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("delete the empty Secret %s: %w", key, err)
		}
		f.Secret = nil
	}
	if f.Secret == nil {
		made, err := f.newSecret(rand.Reader)
		if err != nil {
			return nil, err
		}
		// An error when it exists by now: what others made is not overwritten.
		err = r.Create(ctx, made, client.FieldOwner(apply.FieldOwner))
		if message, refused := apply.Refusal(err); refused {
			return []refusal{{made, message}}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("create Secret %s: %w", key, err)
		}
		f.Secret = made
		if was := *g.keys; was != nil && was.Name == made.Name {
			r.event(g, corev1.EventTypeWarning, eventKeysReplaced,
				"Secret "+made.Name+" was gone, and new keys are generated, which the peer does not know: run 'liqoctl network connect' again, or give it the new PublicKey")
		}
	}
	return nil, r.gatherOtherSecrets(ctx, f)
}

// secret reads a Secret past the cache if that does not have it: it holds only
// labelled ones, and may be late.
func (r *reconciler) secret(ctx context.Context, key client.ObjectKey) (*corev1.Secret, error) {
	s, err := find[corev1.Secret](ctx, r, key)
	if err != nil || s != nil {
		return s, err
	}
	return find[corev1.Secret](ctx, r.live, key)
}

func (r *reconciler) gatherOtherSecrets(ctx context.Context, f *Facts) error {
	id := f.remoteClusterID()
	if id == "" {
		return nil
	}
	var secrets corev1.SecretList
	if err := r.List(ctx, &secrets, client.InNamespace(f.Gateway.GetNamespace()), client.MatchingLabels{
		networkingv1beta1.LabelGatewayResource: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: id,
	}); err != nil {
		return fmt.Errorf("list Secrets: %w", err)
	}
	for i := range secrets.Items {
		s := &secrets.Items[i]
		if _, key := s.Data[networkingv1beta1.PrivateKeyEntry]; key && s.Name != f.Gateway.secretName() && metav1.GetControllerOf(s) == nil {
			f.OtherSecrets = append(f.OtherSecrets, s.Name)
		}
	}
	return nil
}

func (r *reconciler) gatherPublicKeys(ctx context.Context, f *Facts) error {
	id := f.remoteClusterID()
	if id == "" {
		return nil
	}
	var keys networkingv1beta1.PublicKeyList
	if err := r.List(ctx, &keys, client.InNamespace(f.Gateway.GetNamespace()),
		client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: id}); err != nil {
		return fmt.Errorf("list PublicKeys: %w", err)
	}
	f.PublicKeys = keys.Items
	return nil
}

// gatherAccount reads the service account, and looks whether it is somebody else's.
func (r *reconciler) gatherAccount(ctx context.Context, f *Facts) (err error) {
	key := client.ObjectKey{Namespace: f.Gateway.GetNamespace(), Name: f.Gateway.accountName()}
	if f.Account, err = find[corev1.ServiceAccount](ctx, r, key); err == nil && f.Account == nil {
		f.Account, err = find[corev1.ServiceAccount](ctx, r.live, key)
	}
	f.ForeignAccount = f.Account != nil && !apply.Ours(r.Scheme(), f.Account, f.Gateway.ownerOf(f.Account))
	return err
}

func (r *reconciler) gatherBindings(ctx context.Context, f *Facts) (err error) {
	key := client.ObjectKeyFromObject(f.Gateway)
	if f.Bindings, f.ClusterBindings, err = r.outsideBindings(ctx, key); err != nil {
		return err
	}
	inside, err := find[rbacv1.RoleBinding](ctx, r, client.ObjectKey{Namespace: key.Namespace, Name: childName(key.Name)})
	if inside != nil {
		f.Bindings = append(f.Bindings, *inside)
	}
	return err
}

// outsideBindings are the bindings that lead back to a gateway by their labels.
func (r *reconciler) outsideBindings(ctx context.Context, key client.ObjectKey) ([]rbacv1.RoleBinding, []rbacv1.ClusterRoleBinding, error) {
	labels := client.MatchingLabels{
		networkingv1beta1.LabelGatewayName: key.Name, networkingv1beta1.LabelGatewayNamespace: key.Namespace,
	}
	var roles rbacv1.RoleBindingList
	if err := r.List(ctx, &roles, client.InNamespace(r.options.LiqoNamespace), labels); err != nil {
		return nil, nil, fmt.Errorf("list RoleBindings: %w", err)
	}
	var clusterRoles rbacv1.ClusterRoleBindingList
	if err := r.List(ctx, &clusterRoles, labels); err != nil {
		return nil, nil, fmt.Errorf("list ClusterRoleBindings: %w", err)
	}
	return roles.Items, clusterRoles.Items, nil
}

func (r *reconciler) gatherWorkload(ctx context.Context, f *Facts) error {
	g := f.Gateway
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: g.GetNamespace(), Name: name} }
	var errs [5]error
	f.Deployment, errs[0] = find[appsv1.Deployment](ctx, r, key(childName(g.GetName())))
	f.MetricsService, errs[1] = find[corev1.Service](ctx, r, key(metricsName(g.GetName())))
	f.Lease, errs[2] = find[coordinationv1.Lease](ctx, r, key(f.leaseName()))
	f.Connection, errs[3] = find[networkingv1beta1.Connection](ctx, r, key(childName(g.GetName())))
	if g.service != nil {
		f.Service, errs[4] = find[corev1.Service](ctx, r, key(serviceName(g.GetName())))
	}
	return errors.Join(errs[:]...)
}

// gatherMonitor asks about the ServiceMonitor only where there may be one: neither
// the kind nor the object is cached.
func (r *reconciler) gatherMonitor(ctx context.Context, f *Facts) error {
	g := f.Gateway
	if !g.wantsMonitor() && f.MetricsService == nil {
		return nil
	}
	if known, err := r.hasKind(monitorKind); err != nil || !known {
		return err
	}
	f.Monitors = true
	m := new(unstructured.Unstructured)
	m.SetGroupVersionKind(monitorKind)
	switch err := r.live.Get(ctx, client.ObjectKey{Namespace: g.GetNamespace(), Name: metricsName(g.GetName())}, m); {
	case err == nil:
		f.Monitor = m
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get ServiceMonitor: %w", err)
	}
	return nil
}

func (r *reconciler) gatherPods(ctx context.Context, f *Facts) error {
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.InNamespace(f.Gateway.GetNamespace()), client.MatchingLabels{
		networkingv1beta1.LabelComponent: networkingv1beta1.ComponentGateway, networkingv1beta1.LabelGatewayName: f.Gateway.GetName(),
	}); err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	f.Pods = pods.Items
	seen := make(map[string]bool)
	for i := range f.Pods {
		name := f.Pods[i].Spec.NodeName
		if name == "" || seen[name] {
			continue
		}
		seen[name] = true
		n, err := find[corev1.Node](ctx, r, client.ObjectKey{Name: name})
		if err != nil {
			return err
		}
		if n != nil {
			f.Nodes = append(f.Nodes, *n)
		}
	}
	return nil
}

// gatherHolder looks whether the holder of the Lease has ended, or its container while
// there is another pod, and it is not just being started again. That it is not in the
// cache may mean that it is very new, and to take the Lease from a gateway that leads
// would interrupt it.
func (r *reconciler) gatherHolder(ctx context.Context, f *Facts) error {
	name := holder(f.Lease)
	if name == "" {
		return nil
	}
	for i := range f.Pods {
		if p := &f.Pods[i]; p.Name == name {
			f.HolderRestarts = !finished(p) && restarts(p, time.Now())
			f.HolderGone = finished(p) || stopped(p) && !f.HolderRestarts && f.standsBy(p)
			return nil
		}
	}
	p, err := find[corev1.Pod](ctx, r.live, client.ObjectKey{Namespace: f.Gateway.GetNamespace(), Name: name})
	if err != nil {
		return err
	}
	f.HolderGone = p == nil || finished(p)
	return nil
}

// gatherPolicies reads what lets packets in, and from which addresses nodes send.
func (r *reconciler) gatherPolicies(ctx context.Context, f *Facts) error {
	key := client.ObjectKey{Namespace: f.Gateway.GetNamespace(), Name: childName(f.Gateway.GetName())}
	var errs [2]error
	f.NetworkPolicy, errs[0] = find[networkingv1.NetworkPolicy](ctx, r, key)
	f.DisruptionBudget, errs[1] = find[policyv1.PodDisruptionBudget](ctx, r, key)
	if err := errors.Join(errs[:]...); err != nil || !f.Options.NetworkPolicies {
		return err
	}
	var err error
	if f.NodePrefixes, err = r.nodes.get(ctx); err != nil {
		return err
	}
	unmatched, err := r.unmatched.ask(time.Now(), func() (bool, error) { return r.hasKind(ciliumKind) })
	f.NodesUnmatched = unmatched
	return err
}

// ciliumKind is there where Cilium is, to which nodes are no addresses but
// identities of their own: an ipBlock of a NetworkPolicy matches none, unless its
// administrator said so.
var ciliumKind = schema.GroupVersionKind{Group: "cilium.io", Version: "v2", Kind: "CiliumNode"}

// hasKind tells whether the cluster has a kind.
func (r *reconciler) hasKind(kind schema.GroupVersionKind) (bool, error) {
	_, err := r.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the kind %s: %w", kind.Kind, err)
	}
	return true, nil
}

// cachedAnswer is the answer to a question, asked again when it is older than
// recheckKind: without it, a kind that does not exist would cost a request each time.
type cachedAnswer struct {
	mu     sync.Mutex
	at     time.Time // zero: never asked
	answer bool
}

func (r *cachedAnswer) ask(now time.Time, question func() (bool, error)) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && now.Sub(r.at) < recheckKind {
		return r.answer, nil
	}
	answer, err := question()
	if err != nil {
		return false, err
	}
	r.at, r.answer = now, answer
	return answer, nil
}

// object is a pointer to an API type.
type object[T any] interface {
	*T
	client.Object
}

// find reads an object. It is nil if it does not exist, as nothing does whose name, from
// a spec, is none.
func find[T any, P object[T]](ctx context.Context, c client.Reader, key client.ObjectKey) (P, error) {
	if len(content.IsPathSegmentName(key.Name)) > 0 {
		return nil, nil
	}
	o := P(new(T))
	switch err := c.Get(ctx, key, o); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %s %s: %w", reflect.TypeFor[T]().Name(), key, err)
	}
	return o, nil
}
