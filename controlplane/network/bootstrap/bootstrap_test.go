package bootstrap_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

func options() bootstrap.Options {
	return bootstrap.Options{
		LiqoNamespace: controlplanetest.LiqoNamespace,
		ClusterID:     "rome",
		PodCIDRs:      []netip.Prefix{netip.MustParsePrefix("10.243.0.0/16")},
		ExternalCIDR:  bootstrap.Range{Prefix: netip.MustParsePrefix("10.70.0.0/16")},
		InternalCIDR:  bootstrap.Range{Prefix: netip.MustParsePrefix("10.80.0.0/16")},
		ReservedCIDRs: []netip.Prefix{netip.MustParsePrefix("192.168.7.0/24")},
	}
}

// eventOf fails unless there is an event that the object was made again.
func eventOf(c *controlplanetest.Cluster, name string) error {
	got, err := c.Kubectl("get", "events", "-n", "liqo", "--field-selector=reason=MadeAgain,involvedObject.name="+name, "-o", "name")
	if err == nil && got == "" {
		err = fmt.Errorf("no event of %s", name)
	}
	return err
}

func TestInstall(t *testing.T) {
	c := controlplanetest.Start(t)
	ctx := context.Background()

	o := options()
	o.ClusterID, o.PodCIDRs = "", nil
	err := bootstrap.Check(ctx, c.Client, o)
	for _, want := range []string{"set --cluster-id", "set --pod-cidr"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an incomplete installation: got %v, want %q in it", err, want)
		}
	}
	if err := bootstrap.Check(ctx, c.Client, options()); err != nil {
		t.Errorf("a complete one: %v", err)
	}

	c.RunManager(t, func(mgr ctrl.Manager) error { return bootstrap.SetupWithManager(mgr, options()) })
	// The first one is what the API server was started with, and tells.
	want := map[string]string{
		"service-cidr": "10.96.0.0/16", "pod-cidr": "10.243.0.0/16", "external-cidr": "10.70.0.0/16",
		"internal-cidr": "10.80.0.0/16", "reserved-192-168-7-0-24": "192.168.7.0/24",
	}
	complete := func(ctx context.Context) error {
		var m corev1.ConfigMap
		if err := c.Get(ctx, "liqo", bootstrap.ClusterIDConfigMap, &m); err != nil {
			return err
		}
		if m.Data["CLUSTER_ID"] != "rome" {
			return fmt.Errorf("CLUSTER_ID %q", m.Data["CLUSTER_ID"])
		}
		for name, cidr := range want {
			var n ipamv1alpha1.Network
			if err := c.Get(ctx, "liqo", name, &n); err != nil {
				return err
			}
			if string(n.Spec.CIDR) != cidr {
				return fmt.Errorf("%s is %s, want %s", name, n.Spec.CIDR, cidr)
			}
		}
		return nil
	}
	controlplanetest.Eventually(t, "everything is made", complete)

	t.Run("what kubectl shows is what the documents say", func(t *testing.T) {
		for want, args := range map[string][]string{
			"rome":                      {"get", "configmaps", "-n", "liqo", "liqo-clusterid-configmap", "--template", "{{.data.CLUSTER_ID}}"},
			"configmap/liqo-clusterid-": {"get", "configmaps", "-n", "liqo", "-l", "app.kubernetes.io/name=clusterid-configmap", "-o", "name"},
			"10.70.0.0/16":              {"get", "networks.ipam.liqo.io", "-n", "liqo", "-l", "ipam.liqo.io/network-type=external-cidr", "-o=jsonpath={.items[*].spec.cidr}"},
		} {
			got, err := c.Kubectl(args...)
			if err != nil || !strings.HasPrefix(got, want) {
				t.Errorf("kubectl %q: %q, %v; want %q", args, got, err, want)
			}
		}
	})
	t.Run("what is deleted comes back", func(t *testing.T) {
		for _, o := range []client.Object{
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: bootstrap.ClusterIDConfigMap, Namespace: "liqo"}},
			&ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "pod-cidr", Namespace: "liqo"}},
			&ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "service-cidr", Namespace: "liqo"}},
		} {
			c.Delete(t, o)
		}
		controlplanetest.Eventually(t, "it is back", complete)
		for _, name := range []string{bootstrap.ClusterIDConfigMap, "pod-cidr", "service-cidr"} {
			controlplanetest.Eventually(t, "an event tells of "+name, func(context.Context) error {
				return eventOf(c, name)
			})
		}
		if err := eventOf(c, "external-cidr"); err == nil {
			t.Error("an event of what was made once")
		}
	})
	t.Run("what is edited stays", func(t *testing.T) {
		edit := func(name string, args ...string) metav1.ObjectMeta {
			if _, err := c.Kubectl(append([]string{"-n", "liqo"}, args...)...); err != nil {
				t.Fatal(err)
			}
			var n ipamv1alpha1.Network
			c.Read(t, "liqo", name, &n)
			return n.ObjectMeta
		}
		edited := edit("external-cidr", "label", "network", "external-cidr", "theirs=1")
		// Something that wakes the reconciler, and shows when it was awake.
		if _, err := c.Kubectl("-n", "liqo", "delete", "network", "internal-cidr"); err != nil {
			t.Fatal(err)
		}
		controlplanetest.Eventually(t, "it is back", complete)
		var n ipamv1alpha1.Network
		c.Read(t, "liqo", "external-cidr", &n)
		if n.ResourceVersion != edited.ResourceVersion {
			t.Errorf("written again: %v", n.ObjectMeta)
		}
	})
	t.Run("the ID of the cluster is looked at when it changes", func(t *testing.T) {
		for _, id := range []string{"paris", "rome"} {
			before := reconciled(t)
			if _, err := c.Kubectl("-n", "liqo", "patch", "configmap", bootstrap.ClusterIDConfigMap, "--type=merge", "-p", `{"data": {"CLUSTER_ID": "`+id+`"}}`); err != nil {
				t.Fatal(err)
			}
			controlplanetest.Eventually(t, "somebody looks", func(context.Context) error {
				if reconciled(t) == before {
					return fmt.Errorf("nobody does")
				}
				return nil
			})
		}
	})
}

// reconciled is how often the reconciler has looked.
func reconciled(t *testing.T) (n float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "controller_runtime_reconcile_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
