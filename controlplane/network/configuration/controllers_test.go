package configuration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/cidr"
	"github.com/sluice-net/sluice/controlplane/network/prefixes"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/document"
)

// world is a control plane with the controller in it. The tests play the IPAM.
type world struct {
	*controlplanetest.Cluster
	client     *controlplanetest.Counting
	reconciler *reconciler
}

func TestControllers(t *testing.T) {
	w := &world{Cluster: controlplanetest.Start(t)}
	w.RunManager(t, func(mgr ctrl.Manager) error {
		w.reconciler = newReconciler(mgr, Options{LiqoNamespace: controlplanetest.LiqoNamespace})
		w.client = &controlplanetest.Counting{Client: w.reconciler.Client}
		w.reconciler.Client = w.client
		return w.reconciler.setup(mgr)
	})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world, string)
	}{
		{"local", testLocal}, // first: it makes the Networks of the installation
		{"documents", testDocuments},
		{"lists", testLists},
		{"change", testChange},
		{"refused", testRefused},
		{"foreign-status", testForeignStatus},
		{"bad-input", testBadInput},
		{"duplicates", testDuplicates},
		{"restored", testRestored},
		{"recreated", testRecreated},
		{"deleted", testDeleted},
		{"ipam", testIPAM}, // last: it answers for all of them
	} {
		t.Run(test.name, func(t *testing.T) {
			w.Namespace(t, test.name, nil)
			test.run(t, w, test.name)
		})
	}
}

func manifest(namespace, name, spec string) string {
	return fmt.Sprintf(`{apiVersion: networking.liqo.io/v1beta1, kind: Configuration, metadata: {namespace: %s, name: %s, labels: {liqo.io/remote-cluster-id: peer}}, spec: {%s}}`,
		namespace, name, spec)
}

// want waits for a condition of the newest generation.
func (w *world) want(t *testing.T, namespace, name string, reason networkingv1beta1.ConditionReason, parts ...string) *networkingv1beta1.Configuration {
	t.Helper()
	var c networkingv1beta1.Configuration
	controlplanetest.Eventually(t, fmt.Sprintf("%s/%s is %s", namespace, name, reason), func(ctx context.Context) error {
		c = networkingv1beta1.Configuration{}
		if err := w.Get(ctx, namespace, name, &c); err != nil {
			return err
		}
		got := meta.FindStatusCondition(c.Status.Conditions, string(networkingv1beta1.ConditionNetworkCIDRsConfigured))
		if got == nil || got.Reason != string(reason) || got.ObservedGeneration != c.Generation {
			return fmt.Errorf("generation %d: %+v", c.Generation, got)
		}
		if ready := reason == networkingv1beta1.ReasonNetworkCIDRsConfigured; (got.Status == metav1.ConditionTrue) != ready {
			return fmt.Errorf("status %s", got.Status)
		}
		for _, p := range parts {
			if !strings.Contains(got.Message, p) {
				return fmt.Errorf("%q does not say %q", got.Message, p)
			}
		}
		return nil
	})
	return &c
}

// grant plays the IPAM: it waits for a Network and writes its status.
func (w *world) grant(t *testing.T, namespace, name, cidr string, reason ipamv1alpha1.ConditionReason) *ipamv1alpha1.Network {
	t.Helper()
	var n ipamv1alpha1.Network
	controlplanetest.Eventually(t, "Network "+name, func(ctx context.Context) error {
		if err := w.Get(ctx, namespace, name, &n); err != nil {
			return err
		}
		status := metav1.ConditionFalse
		if cidr != "" {
			status = metav1.ConditionTrue
		}
		n.Status.CIDR = ipamv1alpha1.CIDR(cidr)
		meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{
			Type: string(ipamv1alpha1.ConditionAllocated), Status: status, Reason: string(reason), Message: "says the IPAM", ObservedGeneration: n.Generation,
		})
		return w.Client.Status().Update(ctx, &n)
	})
	return &n
}

// settled fails if a Configuration that is as it should be is written to.
func (w *world) settled(t *testing.T, namespace, name string) {
	t.Helper()
	controlplanetest.Eventually(t, "nothing is written", func(ctx context.Context) error {
		before := w.client.Writes.Load()
		if _, err := w.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}); err != nil {
			return err
		}
		if n := w.client.Writes.Load() - before; n != 0 {
			return fmt.Errorf("%d writes", n) // once perhaps, as long as a cache is behind
		}
		return nil
	})
}

func (w *world) wantRemote(t *testing.T, c *networkingv1beta1.Configuration, want string) {
	t.Helper()
	if diff := cmp.Diff(cluster(t, want), c.Status.Remote); diff != "" {
		t.Errorf("status.remote (-want +got):\n%s", diff)
	}
}

func testLocal(t *testing.T, w *world, namespace string) {
	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: 10.243.0.0/16, external: 10.70.0.0/16}}"))
	w.want(t, namespace, "c", networkingv1beta1.ReasonWaitingForLocalNetworks, "ipam.liqo.io/network-type=pod-cidr")
	if err := w.Get(context.Background(), namespace, "c-pod-10-243-0-0-16", new(ipamv1alpha1.Network)); !apierrors.IsNotFound(err) {
		t.Errorf("a Network before the prefixes of this cluster are known (%v)", err)
	}
	for _, n := range []struct{ name, kind, cidr string }{
		{"pod-cidr-10-243-0-0-16", "pod-cidr", "10.243.0.0/16"}, {"pod-cidr-fd00-243---56", "pod-cidr", "fd00:243::/56"}, {"external-cidr", "external-cidr", "10.70.0.0/16"},
	} {
		w.Apply(fmt.Sprintf("{apiVersion: ipam.liqo.io/v1alpha1, kind: Network, metadata: {namespace: liqo, name: %s, labels: {ipam.liqo.io/network-type: %s}}, spec: {cidr: %q}}", n.name, n.kind, n.cidr))
	}
	w.want(t, namespace, "c", networkingv1beta1.ReasonWaitingForLocalNetworks, "has no prefix yet")
	w.grant(t, "liqo", "pod-cidr-10-243-0-0-16", "", ipamv1alpha1.ReasonExhausted)
	w.grant(t, "liqo", "pod-cidr-fd00-243---56", "fd00:243::/56", ipamv1alpha1.ReasonAllocated)
	w.grant(t, "liqo", "external-cidr", "10.70.0.0/16", ipamv1alpha1.ReasonAllocated)
	w.want(t, namespace, "c", networkingv1beta1.ReasonWaitingForLocalNetworks, "waiting for Network liqo/pod-cidr-10-243-0-0-16", "says the IPAM")
	w.grant(t, "liqo", "pod-cidr-10-243-0-0-16", "10.243.0.0/16", ipamv1alpha1.ReasonAllocated)
	c := w.want(t, namespace, "c", networkingv1beta1.ReasonWaitingForNetworks)
	if diff := cmp.Diff(cluster(t, `cidr: {pod: [10.243.0.0/16, "fd00:243::/56"], external: 10.70.0.0/16}`), c.Spec.Local); diff != "" {
		t.Errorf("spec.local (-want +got):\n%s", diff)
	}
	// What is given is left alone.
	w.Apply(strings.Replace(manifest(namespace, "given", "local: {cidr: {pod: 10.1.0.0/16}}, remote: {cidr: {pod: 10.243.0.0/16}}"), "peer", "other", 1))
	w.grant(t, namespace, "given-pod-10-243-0-0-16", "10.71.0.0/16", ipamv1alpha1.ReasonRemapped)
	c = w.want(t, namespace, "given", networkingv1beta1.ReasonNetworkCIDRsConfigured)
	if diff := cmp.Diff(cluster(t, "cidr: {pod: 10.1.0.0/16}"), c.Spec.Local); diff != "" {
		t.Errorf("spec.local (-want +got):\n%s", diff)
	}
}

// testDocuments applies the documents' own Configurations, and asks as they do.
func testDocuments(t *testing.T, w *world, namespace string) {
	kind := []string{"kind: Configuration\n"}
	w.Apply(document.Read(t, document.Declarative).Block(t, kind, "REMOTE_CLUSTER_ID", "consumer", "RESOURCE_NAME", "declarative\n  namespace: "+namespace,
		"EXTERNAL_CIDR_REMOTE_CLUSTER", "10.70.0.0/16", "POD_CIDR_REMOTE_CLUSTER", "10.42.0.0/16"))
	byHand := document.Read(t, document.Network).Block(t, kind, "REMOTE_CLUSTER_ID", "peer")
	w.Apply(strings.Replace(byHand, "name: dry-paper", "name: dry-paper\n  namespace: "+namespace, 1))
	w.grant(t, namespace, "dry-paper-pod-10-243-0-0-16", "10.71.0.0/16", ipamv1alpha1.ReasonRemapped)
	w.grant(t, namespace, "dry-paper-external-10-70-0-0-16", "10.72.0.0/16", ipamv1alpha1.ReasonRemapped)
	c := w.want(t, namespace, "dry-paper", networkingv1beta1.ReasonNetworkCIDRsConfigured, "All network CIDRs are configured")
	w.wantRemote(t, c, "cidr: {pod: [10.71.0.0/16], external: [10.72.0.0/16]}")
	if c.Spec.Local == nil || len(c.Spec.Local.CIDR.Pod.List) != 2 {
		t.Errorf("spec.local %+v", c.Spec.Local)
	}
	w.settled(t, namespace, "dry-paper")
	out, err := w.Kubectl("get", "configurations", "-n", namespace, "dry-paper")
	if fields := strings.Fields(out); err != nil || !strings.HasPrefix(out, "NAME        DESIRED POD CIDR   REMAPPED POD CIDR   AGE") || !strings.Contains(out, "10.71.0.0/16") {
		t.Errorf("kubectl prints %q (%v)", fields, err)
	}
	out, err = w.Kubectl("get", "networks.ipam.liqo.io", "-n", namespace, "dry-paper-pod-10-243-0-0-16", "-o=jsonpath={.status.cidr}")
	if err != nil || out != "10.71.0.0/16" {
		t.Errorf("kubectl prints %q (%v)", out, err)
	}
	w.grant(t, namespace, "declarative-pod-10-42-0-0-16", "10.42.0.0/16", ipamv1alpha1.ReasonAllocated)
	w.grant(t, namespace, "declarative-external-10-70-0-0-16", "10.73.0.0/16", ipamv1alpha1.ReasonRemapped)
	w.want(t, namespace, "declarative", networkingv1beta1.ReasonNetworkCIDRsConfigured)
	w.Event(t, namespace, "dry-paper", "NetworkCIDRsConfigured", corev1.EventTypeNormal)
}

func testLists(t *testing.T, w *world, namespace string) {
	w.Apply(manifest(namespace, "c", `remote: {cidr: {pod: ["fd00:10::/64", 10.10.0.0/16, 10.11.0.0/16], external: [10.70.0.0/16]}}`))
	for name, given := range map[string]string{
		"c-pod-10-10-0-0-16": "10.81.0.0/16", "c-pod-fd00-10---64": "fd00:99::/64", "c-pod-10-11-0-0-16": "10.11.0.0/16", "c-external-10-70-0-0-16": "10.82.0.0/16",
	} {
		w.grant(t, namespace, name, given, ipamv1alpha1.ReasonAllocated)
	}
	c := w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkCIDRsConfigured)
	w.wantRemote(t, c, `cidr: {pod: ["fd00:99::/64", 10.81.0.0/16, 10.11.0.0/16], external: [10.82.0.0/16]}`)
	w.settled(t, namespace, "c")
}

func testChange(t *testing.T, w *world, namespace string) {
	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: 10.10.0.0/16, external: 10.20.0.0/16}}"))
	w.grant(t, namespace, "c-pod-10-10-0-0-16", "10.10.0.0/16", ipamv1alpha1.ReasonAllocated)
	kept := w.grant(t, namespace, "c-external-10-20-0-0-16", "10.20.0.0/16", ipamv1alpha1.ReasonAllocated)
	w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkCIDRsConfigured)

	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: [10.11.0.0/16], external: 10.20.0.0/16}}"))
	w.Gone(t, &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c-pod-10-10-0-0-16"}})
	c := w.want(t, namespace, "c", networkingv1beta1.ReasonWaitingForNetworks, "Waiting for all networks to be ready: c-pod-10-11-0-0-16")
	w.wantRemote(t, c, "")
	w.settled(t, namespace, "c")
	w.grant(t, namespace, "c-pod-10-11-0-0-16", "10.81.0.0/16", ipamv1alpha1.ReasonRemapped)
	c = w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkCIDRsConfigured)
	w.wantRemote(t, c, "cidr: {pod: [10.81.0.0/16], external: [10.20.0.0/16]}")
	n := new(ipamv1alpha1.Network)
	if err := w.Get(context.Background(), namespace, kept.Name, n); err != nil || n.UID != kept.UID {
		t.Errorf("the Network that is still wanted was made anew (%v)", err)
	}
}

func testRefused(t *testing.T, w *world, namespace string) {
	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: 10.10.0.0/16}}"))
	w.grant(t, namespace, "c-pod-10-10-0-0-16", "", ipamv1alpha1.ReasonExhausted)
	w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkRefused, "Network c-pod-10-10-0-0-16: says the IPAM")
	w.Event(t, namespace, "c", "NetworkRefused", corev1.EventTypeWarning)
	w.settled(t, namespace, "c")
	w.grant(t, namespace, "c-pod-10-10-0-0-16", "10.10.0.0/16", ipamv1alpha1.ReasonAllocated)
	w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkCIDRsConfigured)

	// A name that is taken.
	w.Apply(fmt.Sprintf("{apiVersion: ipam.liqo.io/v1alpha1, kind: Network, metadata: {namespace: %s, name: d-pod-10-12-0-0-16}, spec: {cidr: 10.99.0.0/16}}", namespace))
	w.Apply(strings.Replace(manifest(namespace, "d", "remote: {cidr: {pod: 10.12.0.0/16}}"), "peer", "other", 1))
	w.want(t, namespace, "d", networkingv1beta1.ReasonNetworkRefused, "Network d-pod-10-12-0-0-16 exists and belongs to somebody else")
	n := new(ipamv1alpha1.Network)
	if err := w.Get(context.Background(), namespace, "d-pod-10-12-0-0-16", n); err != nil || len(n.Labels) > 0 || n.Spec.CIDR != "10.99.0.0/16" {
		t.Errorf("somebody else's Network: %+v (%v)", n, err)
	}
}

// What stands in a status is gone by, so it must be what the IPAM said.
func testForeignStatus(t *testing.T, w *world, namespace string) {
	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: 10.10.0.0/16}}"))
	const network = "c-pod-10-10-0-0-16"
	w.grant(t, namespace, network, "10.71.0.0/16", ipamv1alpha1.ReasonRemapped)
	w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkCIDRsConfigured)
	if _, err := w.Kubectl("-n", namespace, "patch", "configurations.networking.liqo.io", "c", "--subresource=status", "--type=merge",
		"-p", `{"status":{"remote":{"cidr":{"pod":"10.98.0.0/16"}}}}`); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "a status that a hand wrote is repaired", func(ctx context.Context) error {
		var c networkingv1beta1.Configuration
		if err := w.Get(ctx, namespace, "c", &c); err != nil {
			return err
		}
		if diff := cmp.Diff(cluster(t, "cidr: {pod: [10.71.0.0/16]}"), c.Status.Remote); diff != "" {
			return fmt.Errorf("status.remote (-want +got):\n%s", diff)
		}
		return nil
	})

	// A prefix that the IPAM does not stand by is not used.
	n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: network}}
	controlplanetest.EditStatus(t, w.Cluster, n, func(n *ipamv1alpha1.Network) {
		n.Status.CIDR = "10.243.0.0/16"
		meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{
			Type: string(ipamv1alpha1.ConditionAllocated), Status: metav1.ConditionFalse, Reason: string(ipamv1alpha1.ReasonOverlap), Message: "overlaps the pods here",
		})
	})
	w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkRefused, "overlaps the pods here")
}

func testBadInput(t *testing.T, w *world, namespace string) {
	// Clusters before Kubernetes 1.30 have no such policies.
	if _, err := w.Kubectl("delete", "validatingadmissionpolicybinding", "configurations.networking.liqo.io"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, spec, want string }{
		{"no-pod", "remote: {cidr: {external: 10.20.0.0/16}}", "spec.remote.cidr.pod is missing"},
		{"element", "remote: {cidr: {pod: [10.1.0.0/16, nonsense]}}", "spec.remote.cidr.pod[1]: "},
		{"host-bits", "remote: {cidr: {pod: 10.1.2.3/16}}", "write 10.1.0.0/16"},
		{"overlap", "remote: {cidr: {pod: 10.1.0.0/16, external: 10.1.0.0/24}}", "spec.remote.cidr.external: 10.1.0.0/24 overlaps"},
		{"no-strings", "remote: {cidr: {pod: [10.1.0.0/16, 7]}}", "spec.remote.cidr.pod[1]: "},
		{"local", "local: {cidr: {pod: [x]}}, remote: {cidr: {pod: 10.1.0.0/16}}", "spec.local.cidr.pod[0]: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			controlplanetest.Eventually(t, "it is accepted", func(context.Context) error {
				_, err := w.KubectlInput(strings.Replace(manifest(namespace, tt.name, tt.spec), "peer", tt.name, 1), "apply", "-f", "-")
				return err
			})
			w.want(t, namespace, tt.name, networkingv1beta1.ReasonInvalidConfiguration, tt.want)
			w.Event(t, namespace, tt.name, "InvalidConfiguration", corev1.EventTypeWarning)
			w.settled(t, namespace, tt.name)
		})
	}
	t.Run("label", func(t *testing.T) {
		w.Apply(strings.Replace(manifest(namespace, "unlabelled", "remote: {cidr: {pod: 10.1.0.0/16}}"), "liqo.io/remote-cluster-id: peer", "", 1))
		w.want(t, namespace, "unlabelled", networkingv1beta1.ReasonInvalidConfiguration, "liqo.io/remote-cluster-id")
		if _, err := w.Kubectl("-n", namespace, "label", "configurations/unlabelled", "liqo.io/remote-cluster-id=late"); err != nil {
			t.Fatal(err)
		}
		w.want(t, namespace, "unlabelled", networkingv1beta1.ReasonWaitingForNetworks)
	})
}

func testDuplicates(t *testing.T, w *world, namespace string) {
	w.Apply(manifest(namespace, "b", "remote: {cidr: {pod: 10.10.0.0/16}}"))
	w.grant(t, namespace, "b-pod-10-10-0-0-16", "10.10.0.0/16", ipamv1alpha1.ReasonAllocated)
	w.want(t, namespace, "b", networkingv1beta1.ReasonNetworkCIDRsConfigured)
	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: 10.10.0.0/16}}"))
	w.want(t, namespace, "c", networkingv1beta1.ReasonDuplicateConfiguration, "Configuration b, which is older, is for the remote cluster peer, too")
	w.settled(t, namespace, "c")
	// It is another cluster's after all.
	if _, err := w.Kubectl("-n", namespace, "label", "--overwrite", "configurations/b", "liqo.io/remote-cluster-id=other"); err != nil {
		t.Fatal(err)
	}
	w.want(t, namespace, "c", networkingv1beta1.ReasonWaitingForNetworks)
	controlplanetest.Eventually(t, "the label of the Network follows", func(ctx context.Context) error {
		n := new(ipamv1alpha1.Network)
		if err := w.Get(ctx, namespace, "b-pod-10-10-0-0-16", n); err != nil {
			return err
		}
		if id := n.Labels[networkingv1beta1.LabelRemoteClusterID]; id != "other" {
			return errors.New(id)
		}
		return nil
	})
}

func testRestored(t *testing.T, w *world, namespace string) {
	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: 10.10.0.0/16}}"))
	first := w.grant(t, namespace, "c-pod-10-10-0-0-16", "10.81.0.0/16", ipamv1alpha1.ReasonRemapped)
	w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkCIDRsConfigured)
	if _, err := w.Kubectl("-n", namespace, "label", "--overwrite", "networks/c-pod-10-10-0-0-16", "configuration.liqo.io/cidr-type=external", "user=1"); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the label comes back", func(ctx context.Context) error {
		n := new(ipamv1alpha1.Network)
		if err := w.Get(ctx, namespace, "c-pod-10-10-0-0-16", n); err != nil {
			return err
		}
		if n.Labels[networkingv1beta1.LabelCIDRType] != "pod" || n.Labels["user"] != "1" {
			return fmt.Errorf("labels %v", n.Labels)
		}
		return nil
	})
	w.Delete(t, first)
	c := w.want(t, namespace, "c", networkingv1beta1.ReasonWaitingForNetworks)
	w.wantRemote(t, c, "cidr: {pod: [10.81.0.0/16]}")
	w.grant(t, namespace, "c-pod-10-10-0-0-16", "10.81.0.0/16", ipamv1alpha1.ReasonRemapped)
	w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkCIDRsConfigured)
}

func testRecreated(t *testing.T, w *world, namespace string) {
	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: 10.10.0.0/16}}"))
	first := w.grant(t, namespace, "c-pod-10-10-0-0-16", "10.10.0.0/16", ipamv1alpha1.ReasonAllocated)
	c := w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkCIDRsConfigured)
	w.Delete(t, c)
	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: 10.10.0.0/16}}"))
	controlplanetest.Eventually(t, "there is another Network", func(ctx context.Context) error {
		n := new(ipamv1alpha1.Network)
		if err := w.Get(ctx, namespace, first.Name, n); err != nil {
			return err
		}
		if n.UID == first.UID {
			return errors.New("it is still the first")
		}
		return nil
	})
	w.grant(t, namespace, first.Name, "10.10.0.0/16", ipamv1alpha1.ReasonAllocated)
	w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkCIDRsConfigured)
}

func testDeleted(t *testing.T, w *world, namespace string) {
	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: 10.10.0.0/16}}"))
	c := w.want(t, namespace, "c", networkingv1beta1.ReasonWaitingForNetworks)
	if len(c.Finalizers) > 0 {
		t.Errorf("finalizers %v", c.Finalizers)
	}
	w.Delete(t, c)
	w.Gone(t, &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c-pod-10-10-0-0-16"}})
	if err := w.Get(context.Background(), namespace, "c", c); !apierrors.IsNotFound(err) {
		t.Errorf("it came back (%v)", err)
	}
}

// testIPAM has the IPAM itself instead of the test.
func testIPAM(t *testing.T, w *world, namespace string) {
	w.RunManager(t, func(mgr ctrl.Manager) error {
		return prefixes.SetupWithManager(mgr, prefixes.Options{LiqoNamespace: controlplanetest.LiqoNamespace, Pools: cidr.DefaultPools()})
	})
	for name, cidr := range map[string]string{"service-cidr": "10.96.0.0/16", "internal-cidr": "10.80.0.0/16"} {
		w.Apply(fmt.Sprintf("{apiVersion: ipam.liqo.io/v1alpha1, kind: Network, metadata: {namespace: liqo, name: %s, labels: {ipam.liqo.io/network-type: %s}}, spec: {cidr: %s}}", name, name, cidr))
	}
	// Both peers have the pod CIDR of this cluster.
	const same = `remote: {cidr: {pod: [10.243.0.0/16, "fd00:aa::/64"], external: 10.70.0.0/16}}`
	w.Apply(manifest(namespace, "c", same))
	w.Apply(strings.Replace(manifest(namespace, "d", same), "peer", "other", 1))
	c := w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkCIDRsConfigured)
	d := w.want(t, namespace, "d", networkingv1beta1.ReasonNetworkCIDRsConfigured)
	all := append(allPrefixes(t, c.Spec.Local.CIDR), append(allPrefixes(t, c.Status.Remote.CIDR), allPrefixes(t, d.Status.Remote.CIDR)...)...)
	for i, p := range all {
		for _, q := range all[:i] {
			if p.Overlaps(q) {
				t.Errorf("%v and %v overlap", p, q)
			}
		}
	}
	// A peer that is renumbered gets what it asks for, if it is free, although it is part of what it had.
	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: 10.150.0.0/16}}"))
	c = w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkCIDRsConfigured)
	w.wantRemote(t, c, "cidr: {pod: [10.150.0.0/16]}")
	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: [10.150.0.0/17], external: 10.150.128.0/17}}"))
	c = w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkCIDRsConfigured)
	w.wantRemote(t, c, "cidr: {pod: [10.150.0.0/17], external: [10.150.128.0/17]}")
	// What cannot be granted.
	w.Apply(manifest(namespace, "c", "remote: {cidr: {pod: 10.0.0.0/7}}"))
	w.want(t, namespace, "c", networkingv1beta1.ReasonNetworkRefused, "Network c-pod-10-0-0-0-7: ")
}

func allPrefixes(t *testing.T, c networkingv1beta1.ClusterCIDR) []netip.Prefix {
	t.Helper()
	var all []netip.Prefix
	for _, part := range []networkingv1beta1.CIDRs{c.Pod, c.External} {
		ps, err := part.Prefixes()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ps...)
	}
	return all
}
