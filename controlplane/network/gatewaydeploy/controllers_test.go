package gatewaydeploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestControllers runs both controllers, under the roles they are shipped with,
// against one control plane. Every subtest has a namespace of its own.
func TestControllers(t *testing.T) {
	w := &world{Cluster: controlplanetest.Start(t), t: t, options: everything}
	w.ApplyManifest(t, "services", "services.yaml")
	w.createNode(t, "node-1", "192.0.2.1")
	w.createNode(t, "node-2", "192.0.2.2")
	w.start(t)
	for _, test := range []struct {
		name string
		run  func(*world, *testing.T)
	}{
		{"a server from its spec to a reachable endpoint", (*world).testServer},
		{"a client", (*world).testClient},
		{"a settled gateway is not written to", (*world).testSettled},
		{"what the gateway may do", (*world).testRights},
		{"every type of Service", (*world).testServiceTypes},
		{"a node port that is taken", (*world).testNodePortTaken},
		{"the node port survives", (*world).testNodePortSurvives},
		{"several tunnels", (*world).testSeveralPorts},
		{"the node of the active pod", (*world).testNode},
		{"a pod that restarts", (*world).testRestart},
		{"keys are generated once", (*world).testKeysOnce},
		{"a Secret of the user", (*world).testUserSecret},
		{"rotation of keys", (*world).testRotation},
		{"from generated keys to the user's", (*world).testSwitchOfKeys},
		{"what is deleted or edited comes back", (*world).testRestored},
		{"a strategy that changes", (*world).testStrategy},
		{"several replicas", (*world).testReplicas},
		{"a service account of somebody else", (*world).testForeignAccount},
		{"objects of a user", (*world).testForeign},
		{"metrics", (*world).testMetrics},
		{"policies", (*world).testPolicies},
		{"two gateways with one name", (*world).testRivals},
		{"a gateway that is rendered again", (*world).testRerendered},
		{"a gateway that is deleted", (*world).testDeleted},
		{"a namespace that is deleted", (*world).testNamespaceDeleted},
		{"what was left while no controller ran", (*world).testOrphans}, // the last one: it stops the controllers
	} {
		t.Run(test.name, func(t *testing.T) { test.run(w, t) })
	}
}

// world is the control plane with the controllers.
type world struct {
	*controlplanetest.Cluster
	t       *testing.T // of all
	stop    func()
	options Options
	// probe is a reconciler of servers that is called by hand. What it writes is counted.
	probe  *reconciler
	client *controlplanetest.Counting // of probe
	// spaces counts the namespaces of tests.
	spaces int
}

func (w *world) start(t *testing.T) {
	w.stop = w.RunManager(t, func(mgr ctrl.Manager) error {
		w.probe = newReconciler(mgr, &serverKind, w.options, &nodeAddresses{Reader: mgr.GetClient()})
		w.client = &controlplanetest.Counting{Client: w.probe.Client}
		w.probe.Client = w.client
		return SetupWithManager(mgr, w.options)
	})
}

// everything is what can be switched on.
var everything = Options{
	LiqoNamespace: controlplanetest.LiqoNamespace, NetworkPolicies: true, MetricsNamespace: "monitoring", DisruptionBudgets: true, Services: true,
}

// space is a namespace with one gateway in it.
type space struct {
	*world
	ns string
}

// space makes a namespace, and if yaml is not empty applies it there: NS stands for
// the namespace.
func (w *world) space(t *testing.T, yaml string) *space {
	t.Helper()
	w.spaces++
	s := &space{w, fmt.Sprintf("tenant-%d", w.spaces)}
	w.Namespace(t, s.ns, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	if yaml != "" {
		s.apply(yaml)
	}
	return s
}

func (s *space) apply(yaml string) { s.Apply(strings.ReplaceAll(yaml, "NS", s.ns)) }

func (s *space) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.Kubectl(append([]string{"-n", s.ns}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// read reads an object of the namespace.
func read[T any, P object[T]](ctx context.Context, s *space, name string) (P, error) {
	o := P(new(T))
	return o, s.Get(ctx, s.ns, name, o)
}

// eventually reads an object of the namespace until check is content with it.
func eventually[T any, P object[T]](t *testing.T, s *space, what, name string, check func(P) error) (last P) {
	t.Helper()
	controlplanetest.Eventually(t, what, func(ctx context.Context) error {
		o, err := read[T, P](ctx, s, name)
		if err != nil {
			return err
		}
		last = o
		return check(o)
	})
	return last
}

// conditions is what a status has to say, as "Type=Status Reason", each in order.
func (s *space) serverSays(t *testing.T, want ...string) *networkingv1beta1.WgGatewayServer {
	t.Helper()
	return eventually(t, s, strings.Join(want, ", "), "server", func(g *networkingv1beta1.WgGatewayServer) error {
		return says(g, g.Status.Conditions, want...)
	})
}

func says(o client.Object, conditions []metav1.Condition, want ...string) error {
	var errs []error
	for _, line := range want {
		kind, rest, _ := strings.Cut(line, "=")
		c := meta.FindStatusCondition(conditions, kind)
		switch {
		case c == nil:
			errs = append(errs, fmt.Errorf("no condition %s", kind))
		case string(c.Status)+" "+c.Reason != rest:
			errs = append(errs, fmt.Errorf("%s is %s %s: %s", kind, c.Status, c.Reason, c.Message))
		case c.ObservedGeneration != o.GetGeneration():
			errs = append(errs, fmt.Errorf("%s is of generation %d, not %d", kind, c.ObservedGeneration, o.GetGeneration()))
		}
	}
	return errors.Join(errs...)
}

// gone is nil when an object does not exist.
func gone(err error) error {
	if err == nil {
		return errors.New("still there")
	}
	return client.IgnoreNotFound(err)
}

func (w *world) createNode(t *testing.T, name, address string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.Create(t, n)
	w.setNode(t, name, address, corev1.ConditionTrue)
}

func (w *world) setNode(t *testing.T, name, address string, ready corev1.ConditionStatus) {
	t.Helper()
	controlplanetest.Eventually(t, "set node", func(ctx context.Context) error {
		var n corev1.Node
		if err := w.Get(ctx, "", name, &n); err != nil {
			return err
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		return w.Client.Status().Update(ctx, &n)
	})
}

// startPods does a kubelet's work for pods that wait: count of them, on a node.
func (s *space) startPods(t *testing.T, node string, count int) (names []string) {
	t.Helper()
	controlplanetest.Eventually(t, fmt.Sprintf("%d pods to start", count), func(ctx context.Context) error {
		var pods corev1.PodList
		if err := s.Client.List(ctx, &pods, client.InNamespace(s.ns)); err != nil {
			return err
		}
		names = nil
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Spec.NodeName == "" && p.DeletionTimestamp.IsZero() {
				names = append(names, p.Name)
			}
		}
		if len(names) != count {
			return fmt.Errorf("%d pods wait", len(names))
		}
		return nil
	})
	for i, name := range names {
		s.runPod(t, name, node, fmt.Sprintf("10.200.%d.%d", s.spaces, i+1))
	}
	return names
}

func (s *space) runPod(t *testing.T, name, node, ip string) {
	t.Helper()
	ctx := context.Background()
	err := s.Clientset.CoreV1().Pods(s.ns).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.setPod(t, name, func(p *corev1.Pod) {
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
}

func (s *space) setPod(t *testing.T, name string, change func(*corev1.Pod)) {
	t.Helper()
	controlplanetest.Eventually(t, "set pod", func(ctx context.Context) error {
		p, err := read[corev1.Pod](ctx, s, name)
		if err != nil {
			return err
		}
		change(p)
		return s.Client.Status().Update(ctx, p)
	})
}

// killPod ends a pod at once, as when its node is gone.
func (s *space) killPod(t *testing.T, name string) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns}}
	if err := s.Client.Delete(context.Background(), p, client.GracePeriodSeconds(0)); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}
