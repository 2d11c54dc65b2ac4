package offloading_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/controlplane/offloading"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// consumer is the cluster rome, with the controllers of offloading under the roles that the chart gives them.
func consumer(t *testing.T) *controlplanetest.Cluster {
	t.Helper()
	c := controlplanetest.Start(t)
	install(t, c)
	c.Create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: "liqo-clusterid-configmap"}, Data: map[string]string{"CLUSTER_ID": "rome"}})
	return c
}

func run(t *testing.T, c *controlplanetest.Cluster) (stop func()) {
	t.Helper()
	return c.RunManager(t, func(mgr ctrl.Manager) error {
		peerings, err := authentication.PeeringCache(mgr)
		if err != nil {
			return err
		}
		return offloading.SetupWithManager(mgr, peerings, offloading.Options{LiqoNamespace: controlplanetest.LiqoNamespace})
	})
}

func tenant(peer string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-" + peer, Labels: map[string]string{"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": peer}}}
}

func virtualNode(peer, name, region string) *offloadingv1beta1.VirtualNode {
	return &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + peer, Name: name, Labels: map[string]string{"liqo.io/remote-cluster-id": peer}},
		Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: offloadingv1beta1.ClusterID(peer), Labels: map[string]string{"region": region}},
	}
}

func offloadingOf(namespace string, change func(*offloadingv1beta1.NamespaceOffloadingSpec)) *offloadingv1beta1.NamespaceOffloading {
	o := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "offloading"}}
	if change != nil {
		change(&o.Spec)
	}
	return o
}

func inRegion(region string) func(*offloadingv1beta1.NamespaceOffloadingSpec) {
	return func(s *offloadingv1beta1.NamespaceOffloadingSpec) {
		s.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{term(requires("region", corev1.NodeSelectorOpIn, region))}
	}
}

// mapped waits until the NamespaceMap of a peer asks for exactly these namespaces; nil: there is none.
func mapped(t *testing.T, c *controlplanetest.Cluster, peer string, want map[string]string) {
	t.Helper()
	controlplanetest.Eventually(t, fmt.Sprintf("NamespaceMap %s asks for %v", peer, want), func(ctx context.Context) error {
		m := new(offloadingv1beta1.NamespaceMap)
		err := c.Get(ctx, "liqo-tenant-"+peer, peer, m)
		switch {
		case apierrors.IsNotFound(err) && want == nil:
			return nil
		case err != nil:
			return err
		case want == nil:
			return errors.New("it is there")
		case !maps.Equal(m.Spec.DesiredMapping, want):
			return fmt.Errorf("it asks for %v", m.Spec.DesiredMapping)
		}
		for _, label := range []string{"liqo.io/remote-cluster-id", "liqo.io/remoteID"} {
			if m.Labels[label] != peer {
				return fmt.Errorf("it has labels %v", m.Labels)
			}
		}
		if m.Labels["liqo.io/replication"] != "true" || len(m.Finalizers) > 0 {
			return fmt.Errorf("it has labels %v and finalizers %v", m.Labels, m.Finalizers)
		}
		return nil
	})
}

// phase waits until the NamespaceOffloading of a namespace has a phase.
func phase(t *testing.T, c *controlplanetest.Cluster, namespace string, want offloadingv1beta1.OffloadingPhase) {
	t.Helper()
	controlplanetest.Eventually(t, fmt.Sprintf("namespace %s is %s", namespace, want), func(ctx context.Context) error {
		o := new(offloadingv1beta1.NamespaceOffloading)
		if err := c.Get(ctx, namespace, "offloading", o); err != nil {
			return err
		}
		if o.Status.OffloadingPhase != want || o.Status.ObservedGeneration != o.Generation || len(o.Finalizers) > 0 {
			return fmt.Errorf("%+v, finalizers %v", o.Status, o.Finalizers)
		}
		return nil
	})
}

// marked waits until a namespace has the label by which its pods are changed, or does not.
func marked(t *testing.T, c *controlplanetest.Cluster, namespace string, want bool) {
	t.Helper()
	controlplanetest.Eventually(t, fmt.Sprintf("namespace %s is marked: %v", namespace, want), func(ctx context.Context) error {
		ns := new(corev1.Namespace)
		if err := c.Get(ctx, "", namespace, ns); err != nil {
			return err
		}
		if (ns.Labels["liqo.io/scheduling-enabled"] == "true") != want {
			return fmt.Errorf("it has labels %v", ns.Labels)
		}
		return nil
	})
}

// answer is what a provider says about a namespace.
func answer(t *testing.T, c *controlplanetest.Cluster, peer, namespace, name string, phase offloadingv1beta1.MappingPhase) {
	t.Helper()
	m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + peer, Name: peer}}
	controlplanetest.EditStatus(t, c, m, func(m *offloadingv1beta1.NamespaceMap) {
		if m.Status.CurrentMapping == nil {
			m.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{}
		}
		m.Status.CurrentMapping[namespace] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: name, Phase: phase}
	})
}

// TestNamespaces offloads namespaces to two providers, from the first VirtualNode to the last.
func TestNamespaces(t *testing.T) {
	c := consumer(t)
	stop := run(t, c)
	for _, o := range []client.Object{
		tenant("milan"), tenant("dallas"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "eu-only"}},
		offloadingOf("demo", nil), offloadingOf("eu-only", inRegion("eu")),
	} {
		c.Create(t, o)
	}
	phase(t, c, "demo", offloadingv1beta1.OffloadingNoClusterSelected)
	marked(t, c, "demo", true)

	c.Create(t, virtualNode("milan", "milan", "eu"))
	mapped(t, c, "milan", map[string]string{"demo": "demo-rome", "eu-only": "eu-only-rome"})
	c.Create(t, virtualNode("dallas", "dallas", "us"))
	mapped(t, c, "dallas", map[string]string{"demo": "demo-rome"})
	phase(t, c, "demo", offloadingv1beta1.OffloadingInProgress)
	answer(t, c, "milan", "demo", "demo-rome", offloadingv1beta1.MappingAccepted)
	answer(t, c, "dallas", "demo", "demo-rome", offloadingv1beta1.MappingCreationLoopBackOff)
	phase(t, c, "demo", offloadingv1beta1.OffloadingSomeFailed)
	answer(t, c, "dallas", "demo", "demo-rome", offloadingv1beta1.MappingAccepted)
	phase(t, c, "demo", offloadingv1beta1.OffloadingReady)
	phase(t, c, "eu-only", offloadingv1beta1.OffloadingInProgress)

	t.Run("the labels of a Node count", func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dallas", Labels: map[string]string{"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "dallas", "region": "eu"}}}
		c.Create(t, node)
		mapped(t, c, "dallas", map[string]string{"demo": "demo-rome", "eu-only": "eu-only-rome"})
		c.Delete(t, node)
		mapped(t, c, "dallas", map[string]string{"demo": "demo-rome"})
	})
	t.Run("entries of others go", func(t *testing.T) {
		controlplanetest.Edit(t, c, &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-dallas", Name: "dallas"}}, func(m *offloadingv1beta1.NamespaceMap) {
			m.Spec.DesiredMapping["kube-system"] = "stolen"
		})
		mapped(t, c, "dallas", map[string]string{"demo": "demo-rome"})
	})
	t.Run("local", func(t *testing.T) {
		controlplanetest.Edit(t, c, offloadingOf("demo", nil), func(o *offloadingv1beta1.NamespaceOffloading) {
			o.Spec.PodOffloadingStrategy = offloadingv1beta1.LocalPodOffloadingStrategy
		})
		marked(t, c, "demo", false)
		phase(t, c, "demo", offloadingv1beta1.OffloadingReady)
		controlplanetest.Edit(t, c, offloadingOf("demo", nil), func(o *offloadingv1beta1.NamespaceOffloading) {
			o.Spec.PodOffloadingStrategy = offloadingv1beta1.RemotePodOffloadingStrategy
		})
		marked(t, c, "demo", true)
	})
	t.Run("a copy of another cluster's request is left alone", func(t *testing.T) {
		theirs := &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "rome", Labels: map[string]string{"liqo.io/replication": "false", "liqo.io/originID": "milan", "liqo.io/remoteID": "rome"}},
			Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"theirs": "theirs-milan"}},
		}
		c.Create(t, theirs)
		c.Create(t, offloadingOf("default", nil))
		mapped(t, c, "milan", map[string]string{"demo": "demo-rome", "eu-only": "eu-only-rome", "default": "default-rome"})
		if err := c.Get(t.Context(), theirs.Namespace, theirs.Name, theirs); err != nil || len(theirs.Spec.DesiredMapping) != 1 {
			t.Errorf("%v, %v", theirs.Spec, err)
		}
	})
	// While nobody looks one goes, and the other's namespace too.
	stop()
	for _, o := range []client.Object{offloadingOf("demo", nil), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "eu-only"}}} {
		c.Delete(t, o)
	}
	controlplanetest.Eventually(t, "namespace eu-only is gone", func(ctx context.Context) error {
		if err := c.Get(ctx, "", "eu-only", new(corev1.Namespace)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	run(t, c)
	marked(t, c, "demo", false)
	mapped(t, c, "milan", map[string]string{"default": "default-rome"})
	for _, peer := range []string{"milan", "dallas"} {
		c.Delete(t, virtualNode(peer, peer, ""))
		mapped(t, c, peer, nil)
	}
	phase(t, c, "default", offloadingv1beta1.OffloadingNoClusterSelected)
}

// TestNamespacesInAnyOrder makes and removes the objects of an offloaded namespace in orders by chance. What is there in
// the end is always the same, and nothing is left.
func TestNamespacesInAnyOrder(t *testing.T) {
	c := consumer(t)
	run(t, c)
	for i := range 6 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			peer, ns := fmt.Sprint("peer-", i), fmt.Sprint("ns-", i)
			c.Create(t, tenant(peer))
			c.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
			objects := []client.Object{virtualNode(peer, peer+"-a", "eu"), virtualNode(peer, peer+"-b", "us"), offloadingOf(ns, inRegion("eu"))}
			random := rand.New(rand.NewPCG(uint64(i), 1))
			shuffle := func() {
				random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
			}
			shuffle()
			t.Logf("made: %s", names(objects))
			for _, o := range objects {
				c.Create(t, o)
			}
			mapped(t, c, peer, map[string]string{ns: ns + "-rome"})
			marked(t, c, ns, true)
			shuffle()
			t.Logf("removed: %s", names(objects))
			for _, o := range objects {
				c.Delete(t, o)
			}
			mapped(t, c, peer, nil)
			marked(t, c, ns, false)
		})
	}
}

func names(objects []client.Object) (all []string) {
	for _, o := range objects {
		all = append(all, o.GetName())
	}
	return slices.Clip(all)
}

// TestPodsMadeBefore offloads a namespace whose pods wait already.
func TestPodsMadeBefore(t *testing.T) {
	c := consumer(t)
	run(t, c)
	for _, name := range []string{"before", "selected"} {
		c.Namespace(t, name, nil)
	}
	waiting, bound, elsewhere := pod("before", func(s *corev1.PodSpec) {
		s.Tolerations = []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}}
	}),
		pod("before", func(s *corev1.PodSpec) { s.NodeName = "node" }), pod("selected", func(*corev1.PodSpec) {})
	for _, o := range []client.Object{
		waiting, bound, elsewhere, tenant("milan"), tenant("dallas"), virtualNode("milan", "milan", "eu"), virtualNode("dallas", "dallas", "us"),
		offloadingOf("before", nil), offloadingOf("selected", inRegion("eu")),
	} {
		c.Create(t, o)
	}
	tolerating := func(p *corev1.Pod, want ...corev1.Toleration) {
		t.Helper()
		controlplanetest.Eventually(t, fmt.Sprintf("pod %s tolerates %v", p.Name, want), func(ctx context.Context) error {
			if err := c.Client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			if got := withoutDefaults(p.Spec.Tolerations); !slices.Equal(got, want) {
				return fmt.Errorf("it tolerates %v", got)
			}
			return nil
		})
	}
	tolerating(waiting, corev1.Toleration{Key: "own", Operator: corev1.TolerationOpExists}, added)
	tolerating(bound)
	tolerating(elsewhere) // it could end up in dallas
	c.Delete(t, virtualNode("dallas", "dallas", ""))
	tolerating(elsewhere, added)

	t.Run("the controller may change nothing else of pods", func(t *testing.T) {
		as, err := client.New(c.ServiceAccount(controlplanetest.LiqoNamespace, controlplanetest.Controller), client.Options{Scheme: c.Client.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		unoffloaded := pod("default", func(*corev1.PodSpec) {})
		c.Create(t, unoffloaded)
		for name, change := range map[string]func(*corev1.Pod){
			"image":      func(p *corev1.Pod) { p.Spec.Containers[0].Image = "example.org/other" },
			"label":      func(p *corev1.Pod) { p.Labels = map[string]string{"app": "victim"} },
			"annotation": func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} },
			"finalizer":  func(p *corev1.Pod) { p.Finalizers = []string{"example.org/f"} },
			"deadline":   func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)) },
			"other toleration": func(p *corev1.Pod) {
				p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "x", Operator: corev1.TolerationOpExists})
			},
			"another namespace": func(p *corev1.Pod) {
				unoffloaded.DeepCopyInto(p)
				p.Spec.Tolerations = append(p.Spec.Tolerations, added)
			},
		} {
			p := waiting.DeepCopy()
			change(p)
			before := waiting
			if p.Namespace == unoffloaded.Namespace {
				before = unoffloaded
			}
			// A policy takes an API server a moment.
			controlplanetest.Eventually(t, "forbidden: "+name, func(ctx context.Context) error {
				if err := as.Patch(ctx, p, client.MergeFrom(before), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "does nothing else to pods") {
					return fmt.Errorf("got %v", err)
				}
				return nil
			})
		}
	})
}
