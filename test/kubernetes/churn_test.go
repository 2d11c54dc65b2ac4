package kubernetes

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
	"github.com/sluice-net/sluice/test/document"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// kills is how often the controller of each cluster is killed.
const kills = 20

// testChurn kills both controllers again and again while a user creates, changes and
// deletes objects, his own and theirs. Then he wants what was there in an undisturbed
// run: exactly that must be there, and nothing must be left when he deletes it.
func testChurn(t *testing.T, w *world) {
	w.apart(t)
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := &churned{world: w, sides: w.pairOfServers(t, 2)}
	namespaces, objects := declarative(t, w, document.Read(t, document.Declarative))
	for _, m := range slices.Concat(namespaces, objects) {
		u := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(balanced(m.text)), &u.Object); err != nil {
			t.Fatal(err)
		}
		if m.namespace != "" {
			u.SetNamespace(m.namespace)
		}
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
		c.objects = append(c.objects, wanted{m.on, u})
	}
	// A fixed node port could be lost for minutes: an API server whose client dies
	// while it makes a Service by server-side apply keeps the port and not the Service.
	w.balance(t)
	t.Cleanup(func() { removePeering(t, w, consumerNamespace, providerNamespace) })

	empty := c.snapshot(t)
	c.want(t)
	undisturbed := c.snapshot(t)
	c.remove(t)
	c.sameAs(t, "after an undisturbed run", empty)

	done := make(map[string]int)
	for stop := c.killControllers(t, r); !stop(); {
		what, err := c.change(t.Context(), r)
		if err == nil { // what is not there cannot be deleted or changed
			done[what]++
		}
		lasts(t.Context(), time.Duration(r.IntN(200))*time.Millisecond) // a user is not that fast
	}
	t.Logf("changes while both controllers were killed %d times: %v", kills, done)
	c.want(t)
	c.sameAs(t, "with a controller that was killed", undisturbed)
	c.distinct(t)

	stop := c.killControllers(t, r)
	c.remove(t)
	for !stop() {
		lasts(t.Context(), 50*time.Millisecond)
	}
	c.sameAs(t, "deleted while the controller was killed", empty)
}

// churned is a peering with what its users want.
type churned struct {
	*world
	sides   [2]*side
	objects []wanted
}

type wanted struct {
	on *kubelab.Cluster
	*unstructured.Unstructured
}

func (o wanted) apply(ctx context.Context) error {
	return o.on.Client().Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner("user"), client.ForceOwnership)
}

// want applies what the users want and waits until they have it.
func (c *churned) want(t *testing.T) {
	t.Helper()
	for _, o := range c.objects {
		lab.Eventually(t, patience, "the API server takes "+o.GetKind(), func() error {
			if err := o.apply(t.Context()); err != nil {
				return err
			}
			live := o.DeepCopy()
			if err := o.on.Client().Get(t.Context(), client.ObjectKeyFromObject(live), live); err != nil {
				return err
			}
			if live.GetDeletionTimestamp() != nil {
				return errors.New("the last one is not gone yet")
			}
			return nil
		})
	}
	c.connected(t)
	c.talk(t, c.sides)
}

// remove deletes what the users wanted.
func (c *churned) remove(t *testing.T) {
	t.Helper()
	for on, namespace := range map[*kubelab.Cluster]string{c.a: consumerNamespace, c.b: providerNamespace} {
		c.kubectl(t, on, "delete", "-n", namespace, "gatewayservers,gatewayclients,configurations,publickeies", "--all", "--ignore-not-found", "--wait=false")
		c.kubectl(t, on, "delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
	}
}

// madeKinds are kinds that the controllers make of a user's objects.
var madeKinds = []schema.GroupVersionKind{
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
	o := c.objects[r.IntN(len(c.objects))]
	namespace := map[*kubelab.Cluster]string{c.a: consumerNamespace, c.b: providerNamespace}[o.on]
	switch r.IntN(10) {
	case 0, 1, 2:
		return "applied one", o.apply(ctx)
	case 3, 4, 5:
		for _, o := range c.objects {
			if err = o.apply(ctx); err != nil {
				break // its namespace may be ending
			}
		}
		return "applied all", err
	case 6:
		if o.GetKind() == "Namespace" && r.IntN(3) > 0 {
			return "", errors.New("too often") // it takes some ten seconds to come back
		}
		return "deleted one", o.on.Client().Delete(ctx, o.DeepCopy())
	case 7:
		return "deleted what was made of it", deleteAll(ctx, o.on, madeKinds[r.IntN(len(madeKinds))], namespace)
	case 8:
		kind := []string{"InternalNode", "RouteConfiguration"}[r.IntN(2)]
		namespace := map[string]string{"RouteConfiguration": liqoNamespace}[kind]
		return "deleted what was made of nodes", deleteAll(ctx, o.on, networkingv1beta1.GroupVersion.WithKind(kind), namespace)
	default:
		if o.GetKind() != "GatewayServer" && o.GetKind() != "GatewayClient" {
			return "", errors.New("only gateways are changed")
		}
		changed := o.DeepCopy()
		if err := unstructured.SetNestedField(changed.Object, int64(1300+r.IntN(40)), "spec", "mtu"); err != nil {
			return "", err
		}
		return "changed", wanted{o.on, changed}.apply(ctx)
	}
}

func deleteAll(ctx context.Context, c *kubelab.Cluster, kind schema.GroupVersionKind, namespace string) error {
	o := new(unstructured.Unstructured)
	o.SetGroupVersionKind(kind)
	return c.Client().DeleteAllOf(ctx, o, client.InNamespace(namespace))
}

// killControllers takes the controllers' pods away by force until that was done to
// each cluster's often enough: a process that is killed in its place a kubelet starts
// again later each time. done tells when; it is to be called until it does.
func (c *churned) killControllers(t *testing.T, r *rand.Rand) (done func() bool) {
	t.Helper()
	var all sync.WaitGroup
	for _, on := range []*kubelab.Cluster{c.a, c.b} {
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		all.Go(func() {
			for range kills {
				// It needs some 500 ms to start, so that it is killed in the middle of that as well.
				lasts(t.Context(), time.Duration(r.IntN(2000))*time.Millisecond)
				_, _ = on.Kubectl("delete", "pods", "-n", liqoNamespace, "--all", "--grace-period=0", "--force", "--wait=false") // there may be none
			}
		})
	}
	over := make(chan struct{})
	go func() {
		all.Wait()
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
const counted = stateKinds + ",replicasets,pods,ips.ipam.liqo.io,firewallconfigurations,routeconfigurations,clusterrolebindings,internalnodes,namespaces,configmaps"

// snapshot is what is there: of each cluster a line for each object, with what it is
// called, its labels and its owners.
func (c *churned) snapshot(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, on := range []*kubelab.Cluster{c.a, c.b} {
		var list struct{ Items []snapshotItem }
		if err := json.Unmarshal([]byte(c.kubectl(t, on, "get", counted, "-A", "-o", "json")), &list); err != nil {
			t.Fatal(err)
		}
		for _, i := range list.Items {
			if i.Kind != "ReplicaSet" || i.Metadata.Namespace != liqoNamespace {
				all[on.Name] = append(all[on.Name], i.String())
			}
		}
		slices.Sort(all[on.Name])
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
func (c *churned) sameAs(t *testing.T, when string, want map[string][]string) {
	t.Helper()
	lab.Eventually(t, 2*patience, "the same objects "+when, func() error {
		if diff := cmp.Diff(want, c.snapshot(t)); diff != "" {
			return fmt.Errorf("(-want +got)\n%s", diff)
		}
		return nil
	})
}

// distinct checks that nothing that must be unique was handed out twice.
func (c *churned) distinct(t *testing.T) {
	t.Helper()
	for _, on := range []*kubelab.Cluster{c.a, c.b} {
		var tunnels networkingv1beta1.GeneveTunnelList
		var nodes networkingv1beta1.InternalNodeList
		var fabrics networkingv1beta1.InternalFabricList
		if err := errors.Join(on.Client().List(t.Context(), &tunnels), on.Client().List(t.Context(), &nodes), on.Client().List(t.Context(), &fabrics)); err != nil {
			t.Fatal(err)
		}
		owner := make(map[string]string)
		take := func(what, by string) {
			if other := owner[what]; other != "" {
				t.Errorf("%s: %s belongs to %s and to %s", on.Name, what, other, by)
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
