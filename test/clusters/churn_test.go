package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/document"
)

// kills is how often each controller is killed.
const kills = 50

// testChurn kills both controllers again and again while a user creates,
// changes and deletes objects, his own and theirs. Then he wants what was there
// in an undisturbed run: exactly that must be there, and nothing must be left
// when he deletes it.
func testChurn(t *testing.T, p *pair) {
	d := document.Read(t, document.Declarative)
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var all []*churned
	for i := range 2 {
		all = append(all, newChurned(t, d, p, i))
	}
	empty := p.snapshot(t)

	for _, c := range all {
		c.want(t)
	}
	undisturbed := p.snapshot(t)
	for _, c := range all {
		c.remove(t)
	}
	p.sameAs(t, "after an undisturbed run", empty)

	done := make(map[string]int)
	for stop := p.killControllers(t, r); !stop(); {
		what, err := all[r.IntN(len(all))].change(t.Context(), r)
		if err == nil { // what is not there cannot be deleted or changed
			done[what]++
		}
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond) // a user is not that fast
	}
	t.Logf("changes while both controllers were killed %d times: %v", kills, done)
	for _, c := range all {
		c.want(t)
	}
	p.sameAs(t, "with a controller that was killed", undisturbed)
	p.distinct(t)

	stop := p.killControllers(t, r)
	for _, c := range all {
		c.remove(t)
	}
	for !stop() {
		time.Sleep(50 * time.Millisecond)
	}
	p.sameAs(t, "deleted while the controller was killed", empty)
}

// churned is a peering with what its users want.
type churned struct {
	*peering
	objects []wanted
}

type wanted struct {
	on *end
	*unstructured.Unstructured
}

// newChurned exposes the gateway by a load balancer. A fixed node port could be
// lost for minutes: an API server whose client dies while it makes a Service by
// server-side apply keeps the port and not the Service.
func newChurned(t *testing.T, d *document.Document, p *pair, i int) *churned {
	t.Helper()
	c := &churned{peering: newPeering(t, p, fmt.Sprintf("churn-%d", i))}
	ip := p.provider.kubelet.Loopback.LoadBalancer(100 + i).String()
	namespaces, objects := declarative(t, d, c.peering, wgNodePort)
	for _, o := range slices.Concat(namespaces, objects) {
		u := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(p.balanced(o.manifest, ip)), &u.Object); err != nil {
			t.Fatal(err)
		}
		if o.namespace != "" {
			u.SetNamespace(o.namespace)
		}
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
		c.objects = append(c.objects, wanted{o.on, u})
	}
	return c
}

func (w wanted) apply(ctx context.Context) error {
	return w.on.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(w.DeepCopy()), client.FieldOwner("user"), client.ForceOwnership)
}

// want applies what the users want and waits until they have it.
func (c *churned) want(t *testing.T) {
	t.Helper()
	start := time.Now()
	for _, w := range c.objects {
		controlplanetest.Eventually(t, "the API server takes "+w.GetKind(), func(ctx context.Context) error {
			if err := w.apply(ctx); err != nil {
				return err
			}
			live := w.DeepCopy()
			if err := w.on.Get(ctx, w.GetNamespace(), w.GetName(), live); err != nil {
				return err
			}
			if live.GetDeletionTimestamp() != nil {
				return errors.New("the last one is not gone yet")
			}
			return nil
		})
	}
	c.established(t, start)
}

// made are kinds that the controllers make of a user's objects. A service account
// is not among them: the token of one that was deleted is worth nothing any more,
// and a kubelet gives its pods another only when the old one has run out.
var made = []schema.GroupVersionKind{
	appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("Service"),
	corev1.SchemeGroupVersion.WithKind("Pod"),
	rbacv1.SchemeGroupVersion.WithKind("Role"), rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
	coordinationv1.SchemeGroupVersion.WithKind("Lease"), ipamv1alpha1.GroupVersion.WithKind("Network"),
	networkingv1beta1.GroupVersion.WithKind("Connection"), networkingv1beta1.GroupVersion.WithKind("InternalFabric"),
	networkingv1beta1.GroupVersion.WithKind("GeneveTunnel"), networkingv1beta1.GroupVersion.WithKind("WgGatewayServer"),
	networkingv1beta1.GroupVersion.WithKind("WgGatewayClient"),
}

// change does something at random and says what.
func (c *churned) change(ctx context.Context, r *rand.Rand) (what string, err error) {
	w := c.objects[r.IntN(len(c.objects))]
	e := w.on
	switch r.IntN(10) {
	case 0, 1, 2:
		return "applied one", w.apply(ctx)
	case 3, 4, 5:
		for _, w := range c.objects {
			if err = w.apply(ctx); err != nil {
				break // its namespace may be ending
			}
		}
		return "applied all", err
	case 6:
		if w.GetKind() == "Namespace" && r.IntN(3) > 0 {
			return "", errors.New("too often") // it takes some ten seconds to come back
		}
		return "deleted one", e.Client.Delete(ctx, w.DeepCopy())
	case 7:
		return "deleted what was made of it", e.deleteAll(ctx, made[r.IntN(len(made))], e.namespace)
	case 8:
		kind := []string{"InternalNode", "RouteConfiguration"}[r.IntN(2)]
		namespace := map[string]string{"RouteConfiguration": controlplanetest.LiqoNamespace}[kind]
		return "deleted what was made of nodes", e.deleteAll(ctx, networkingv1beta1.GroupVersion.WithKind(kind), namespace)
	default:
		if w.GetKind() != "GatewayServer" && w.GetKind() != "GatewayClient" {
			return "", errors.New("only gateways are changed")
		}
		changed := w.DeepCopy()
		if err := unstructured.SetNestedField(changed.Object, int64(1300+r.IntN(40)), "spec", "mtu"); err != nil {
			return "", err
		}
		return "changed", wanted{e, changed}.apply(ctx)
	}
}

func (e *end) deleteAll(ctx context.Context, kind schema.GroupVersionKind, namespace string) error {
	o := new(unstructured.Unstructured)
	o.SetGroupVersionKind(kind)
	return e.Client.DeleteAllOf(ctx, o, client.InNamespace(namespace))
}

// killControllers kills the controllers of both sides until each was killed
// often enough. done tells when; it is to be called until it does.
func (p *pair) killControllers(t *testing.T, r *rand.Rand) (done func() bool) {
	t.Helper()
	var wg sync.WaitGroup
	for _, s := range p.sides() {
		name, err := s.controllerPod(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		wg.Go(func() {
			for range kills {
				for len(s.kubelet.PIDs(controlplanetest.LiqoNamespace, name)) == 0 && t.Context().Err() == nil {
					time.Sleep(20 * time.Millisecond)
				}
				// It needs some 500 ms to start, so that it is killed in the middle of that as well.
				time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
				_ = s.kubelet.Kill(controlplanetest.LiqoNamespace, name) // it lives, or ended by itself
			}
		})
	}
	over := make(chan struct{})
	go func() {
		wg.Wait()
		close(over)
	}()
	t.Cleanup(func() { <-over })
	return func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	}
}

// counted are the kinds whose objects are compared.
const counted = leftovers + ",clusterrolebindings,internalnodes,namespaces,configmaps"

// snapshot is what is there: of each side a line for each object, with what it
// is called, its labels and its owners.
func (p *pair) snapshot(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, s := range p.sides() {
		out, err := s.Kubectl("get", counted, "-A", "-o", "json")
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Items []snapshotItem }
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatal(err)
		}
		for _, i := range list.Items {
			all[s.id] = append(all[s.id], i.String())
		}
		slices.Sort(all[s.id])
	}
	return all
}

type snapshotItem struct {
	Kind     string
	Metadata struct {
		Name, Namespace, GenerateName string
		Labels                        map[string]string
		OwnerReferences               []struct{ Kind, Name string }
	}
}

// String leaves out what is random.
func (i snapshotItem) String() string {
	m := &i.Metadata
	hash := m.Labels["pod-template-hash"]
	delete(m.Labels, "pod-template-hash")
	steady := func(name string) string {
		if hash == "" {
			return name
		}
		return strings.ReplaceAll(name, hash, "*")
	}
	name := m.Name
	if m.GenerateName != "" {
		name = m.GenerateName + "*"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s/%s", i.Kind, m.Namespace, steady(name))
	for _, k := range slices.Sorted(maps.Keys(m.Labels)) {
		fmt.Fprintf(&text, " %s=%s", k, m.Labels[k])
	}
	for _, o := range m.OwnerReferences {
		fmt.Fprintf(&text, " of %s %s", o.Kind, steady(o.Name))
	}
	return text.String()
}

// sameAs waits until what is there is what was there.
func (p *pair) sameAs(t *testing.T, when string, want map[string][]string) {
	t.Helper()
	controlplanetest.Eventually(t, "the same objects "+when, func(context.Context) error {
		if diff := cmp.Diff(want, p.snapshot(t)); diff != "" {
			return fmt.Errorf("(-want +got)\n%s", diff)
		}
		return nil
	})
}

// distinct checks that nothing that must be unique was handed out twice.
func (p *pair) distinct(t *testing.T) {
	t.Helper()
	for _, s := range p.sides() {
		var tunnels networkingv1beta1.GeneveTunnelList
		var nodes networkingv1beta1.InternalNodeList
		var fabrics networkingv1beta1.InternalFabricList
		for _, list := range []struct {
			kind string
			err  error
		}{{"tunnels", s.Client.List(t.Context(), &tunnels)}, {"nodes", s.Client.List(t.Context(), &nodes)}, {"fabrics", s.Client.List(t.Context(), &fabrics)}} {
			if list.err != nil {
				t.Fatalf("list %s: %v", list.kind, list.err)
			}
		}
		owner := make(map[string]string)
		take := func(what, by string) {
			if other := owner[what]; other != "" {
				t.Errorf("%s: %s belongs to %s and to %s", s.id, what, other, by)
			}
			owner[what] = by
		}
		for _, o := range tunnels.Items {
			take(fmt.Sprintf("VNI %d", o.Spec.ID), o.Namespace+"/"+o.Name)
		}
		for _, o := range nodes.Items {
			take(string(o.Spec.Interface.Node.IP), "node "+o.Name)
		}
		for _, o := range fabrics.Items {
			take(string(o.Spec.Interface.Gateway.IP), "gateway "+o.Namespace+"/"+o.Name)
		}
	}
}
