package release_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	texttemplate "text/template"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/template"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// liqo plays Liqo's controllers and its peers, as strictly as they are: they render the template that a gateway refers to,
// and replace the whole spec of the Deployment and of the Service by what it says. Nothing helps them over what Kubernetes
// refuses.
type liqo struct {
	t *testing.T
	*controlplanetest.Cluster

	mu      sync.Mutex
	manager client.Client     // writes what Liqo's controllers write
	mute    bool              // the peer answers no gateway of ours
	down    bool              // the peer answers no gateway at all
	told    map[string]string // what was reported last of a gateway, and by which pod
	wrong   map[string]int    // what went wrong, and how often
}

// startLiqo is Liqo in a cluster, until the test ends.
func startLiqo(t *testing.T, c *controlplanetest.Cluster) *liqo {
	l := &liqo{t: t, Cluster: c, manager: c.Client, told: map[string]string{}, wrong: map[string]int{}}
	controlplanetest.Repeat(t, 200*time.Millisecond, func(ctx context.Context) {
		if err := l.reconcile(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
			l.mu.Lock()
			l.wrong[err.Error()]++
			l.mu.Unlock()
		}
	})
	return l
}

// writer is who writes what Liqo's controllers write.
func (l *liqo) writer() client.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.manager
}

// refused is what the API server refused to Liqo.
func (l *liqo) refused() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.wrong)
}

func (l *liqo) silence(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute = on
}

// cut has the peers answer neither our gateways nor Liqo's.
func (l *liqo) cut(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = on
}

func (l *liqo) reconcile(ctx context.Context) error {
	var servers networkingv1beta1.GatewayServerList
	var clients networkingv1beta1.GatewayClientList
	if err := l.Client.List(ctx, &servers); err != nil {
		return err
	}
	if err := l.Client.List(ctx, &clients); err != nil {
		return err
	}
	for i := range servers.Items {
		g := &servers.Items[i]
		g.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind("GatewayServer"))
		if err := l.gateway(ctx, g, "Server", g.Spec.ServerTemplateRef, g.Spec); err != nil {
			return fmt.Errorf("GatewayServer %s: %w", g.Name, err)
		}
	}
	for i := range clients.Items {
		g := &clients.Items[i]
		g.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind("GatewayClient"))
		if err := l.gateway(ctx, g, "Client", g.Spec.ClientTemplateRef, g.Spec); err != nil {
			return fmt.Errorf("GatewayClient %s: %w", g.Name, err)
		}
	}
	return nil
}

// gateway makes a gateway what its template says.
func (l *liqo) gateway(ctx context.Context, g client.Object, role string, ref corev1.ObjectReference, spec any) error {
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind(ref.Kind))
	if err := l.Client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, u); err != nil {
		return err
	}
	source, _, err := unstructured.NestedMap(u.Object, "spec", "template", "spec")
	if err != nil {
		return err
	}
	if err := strict(source, "spec"); err != nil {
		return err
	}
	v := template.Vars{
		Spec: spec, Name: g.GetName(), Namespace: g.GetNamespace(), GatewayUID: string(g.GetUID()),
		ClusterID: g.GetLabels()[networkingv1beta1.LabelRemoteClusterID], SecretName: "gw-" + g.GetName(),
	}
	rendered, err := template.Render(source, v, nil)
	if err != nil {
		return err
	}
	wg := new(unstructured.Unstructured)
	wg.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind("WgGateway" + role))
	wg.SetNamespace(g.GetNamespace())
	wg.SetName(g.GetName())
	wg.SetFinalizers([]string{"networking.liqo.io/clusterrolebinding"})
	if err := l.put(ctx, wg, g, func() { wg.Object["spec"] = runtime.DeepCopyJSON(rendered) }); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Namespace: g.GetNamespace(), Name: "gw-" + g.GetName()}
	connection := &networkingv1beta1.Connection{ObjectMeta: meta}
	connection.Spec.Type, connection.Spec.GatewayRef.Name = networkingv1beta1.ConnectionType(role), g.GetName()
	for _, o := range []struct{ object, owner client.Object }{
		{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: g.GetNamespace(), Name: g.GetName()}}, wg},
		{&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"privateKey": make([]byte, 32), "publicKey": make([]byte, 32)}}, g},
		{connection, g},
	} {
		mark(o.object, o.owner)
		if err := l.writer().Create(ctx, o.object); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	writeKeysVolume(rendered, meta.Name)
	d := &appsv1.Deployment{ObjectMeta: meta}
	if err := l.replace(ctx, d, wg, &d.Spec, rendered["deployment"]); err != nil {
		return err
	}
	if s := (&corev1.Service{ObjectMeta: meta}); rendered["service"] != nil {
		if err := l.replace(ctx, s, wg, &s.Spec, rendered["service"]); err != nil {
			return err
		}
	}
	return l.connect(ctx, d)
}

// writeKeysVolume writes the volume with the keys anew, as Liqo does: without a mode that the template has.
func writeKeysVolume(rendered map[string]any, secret string) {
	volumes, _, _ := unstructured.NestedFieldNoCopy(rendered, "deployment", "spec", "template", "spec", "volumes")
	list, _ := volumes.([]any)
	for i, v := range list {
		if v.(map[string]any)["name"] == "wireguard-config" {
			list[i] = map[string]any{"name": "wireguard-config", "secret": map[string]any{"secretName": secret}}
		}
	}
}

// mark gives an object the owner and the labels that Liqo gives it.
func mark(o, owner client.Object) {
	kind := owner.GetObjectKind().GroupVersionKind()
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true),
	}})
	if o.GetLabels() == nil {
		o.SetLabels(map[string]string{})
	}
	labels := o.GetLabels()
	labels[networkingv1beta1.LabelManaged] = "true"
	if _, keys := o.(*corev1.Secret); keys {
		o.GetOwnerReferences()[0].Controller = nil
		labels[networkingv1beta1.LabelGatewayResource] = "true"
	}
	if id := owner.GetLabels()[networkingv1beta1.LabelRemoteClusterID]; id != "" {
		labels[networkingv1beta1.LabelRemoteClusterID] = id
	}
	o.SetLabels(labels)
}

// put creates an object, or updates it.
func (l *liqo) put(ctx context.Context, o, owner client.Object, set func()) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		err := l.writer().Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			set()
			mark(o, owner)
			return l.writer().Create(ctx, o)
		}
		if err != nil {
			return err
		}
		set()
		mark(o, owner)
		return l.writer().Update(ctx, o)
	})
}

// replace replaces the whole spec of an object by what stands in a template.
func (l *liqo) replace(ctx context.Context, o, owner client.Object, spec any, with any) error {
	content := with.(map[string]any)["spec"].(map[string]any)
	return l.put(ctx, o, owner, func() {
		switch s := spec.(type) { // nothing of the former spec survives
		case *appsv1.DeploymentSpec:
			*s = appsv1.DeploymentSpec{}
		case *corev1.ServiceSpec:
			*s = corev1.ServiceSpec{}
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, spec); err != nil {
			l.t.Error(err)
		}
	})
}

// connect reports what the peer would answer to the pod that runs: Liqo's gateway in three containers, or ours if it may read
// what it needs. A pod reports only what is new: our gateway hardly ever writes a latency that stays the same. The peer
// answers in a later second than that in which the pod was started; times of objects have no fractions.
func (l *liqo) connect(ctx context.Context, d *appsv1.Deployment) error {
	if s := d.Status; s.AvailableReplicas == 0 || s.ObservedGeneration < d.Generation || s.UpdatedReplicas != s.Replicas {
		return nil
	}
	var pods corev1.PodList
	if err := l.Client.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
		return err
	}
	if len(pods.Items) != 1 || pods.Items[0].Status.StartTime == nil || time.Since(pods.Items[0].Status.StartTime.Time) < time.Second {
		return nil
	}
	value := networkingv1beta1.Connected
	if pod := d.Spec.Template.Spec; len(pod.Containers) == 1 {
		review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + d.Namespace + ":" + pod.ServiceAccountName,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: "networking.liqo.io", Resource: "configurations", Namespace: d.Namespace},
		}}
		if err := l.Client.Create(ctx, &review); err != nil {
			return err
		}
		if l.is(&l.mute) || !review.Status.Allowed {
			value = networkingv1beta1.ConnectionError
		}
	}
	if l.is(&l.down) {
		value = networkingv1beta1.ConnectionError
	}
	news := string(pods.Items[0].UID) + " " + string(value)
	if l.told[d.Namespace] == news {
		return nil
	}
	c := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
	if err := l.Client.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
		return err
	}
	before := c.DeepCopy()
	c.Status.Value, c.Status.Latency = value, networkingv1beta1.ConnectionLatency{Value: "1ms", Timestamp: metav1.Now()}
	if err := l.Client.Status().Patch(ctx, c, client.MergeFrom(before)); err != nil {
		return err
	}
	l.told[d.Namespace] = news
	return nil
}

func (l *liqo) is(what *bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *what
}

// strict are the rules of Liqo's renderer that ours does not have: a key is optional only before a string, and every string is
// a template of its own.
func strict(v any, path string) error {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if _, text := e.(string); strings.HasPrefix(k, "?") && !text {
				return fmt.Errorf("panic: %s.%s is optional and no string", path, k)
			}
			if err := strict(e, path+"."+k); err != nil {
				return err
			}
		}
	case []any:
		for i, e := range v {
			if err := strict(e, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case string:
		if _, err := texttemplate.New("").Parse(v); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// fields are those of all objects that must be the same after a handover and the way back.
const fields = `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.spec.clusterIP} {.spec.ports} ` +
	`{.spec.serverTemplateRef} {.spec.clientTemplateRef} {.data}{"\n"}{end}`

// state is what there is, of all kinds that a handover concerns.
func (l *liqo) state() string {
	l.t.Helper()
	const kinds = "gatewayservers,gatewayclients,services,secrets,serviceaccounts,clusterroles,clusterrolebindings,wggatewayservertemplates,wggatewayclienttemplates"
	out, err := l.Kubectl("get", kinds, "-A", "-o", fields)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

func (l *liqo) unchanged(what, before string) {
	l.t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(l.state(), "\n")); diff != "" {
		l.t.Errorf("%s (-before +after)\n%s", what, diff)
	}
}
