package manager_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/authentication/resourceslice"
	"github.com/sluice-net/sluice/controlplane/cidr"
	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
	"github.com/sluice-net/sluice/controlplane/network/gatewaydeploy"
	"github.com/sluice-net/sluice/controlplane/offloading"
	"github.com/sluice-net/sluice/controlplane/services"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// whole is a cluster with all roles, policies and CRDs that an installation with everything
// enabled has. What runs in it runs all controllers.
func whole(t *testing.T) (c *controlplanetest.Cluster, run func() (stop func())) {
	t.Helper()
	c = controlplanetest.Start(t)
	if err := c.Install(deploy.MultiCluster()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"authentication", "offloading", "services"} {
		c.ApplyManifest(t, name, name+".yaml")
	}
	c.ApplyManifest(t, "offloading", "virtual-kubelet.yaml")
	return c, func() (stop func()) {
		return c.RunManager(t, func(mgr ctrl.Manager) error {
			prefix := func(s string) netip.Prefix { return netip.MustParsePrefix(s) }
			return manager.SetupWithManager(mgr, manager.Options{
				LiqoNamespace: controlplanetest.LiqoNamespace, Pools: cidr.DefaultPools(),
				Bootstrap: bootstrap.Options{
					ClusterID: "rome", PodCIDRs: []netip.Prefix{prefix("10.243.0.0/16")}, ServiceCIDRs: []netip.Prefix{prefix("10.96.0.0/16")},
					ExternalCIDR: bootstrap.Range{Prefix: prefix("10.70.0.0/16")}, InternalCIDR: bootstrap.Range{Prefix: prefix("10.80.0.0/16")},
				},
				Gateways:       gatewaydeploy.Options{NetworkPolicies: true, MetricsNamespace: "monitoring", DisruptionBudgets: true},
				Authentication: &authentication.Options{APIServer: issue.APIServer{URL: c.Config.Host, CA: c.Config.CAData}, Slices: resourceslice.Options{DefaultClass: true}},
				Offloading:     &offloading.Options{PodSecurity: "baseline", MaxNamespaces: 4, LimitsEnforcement: offloadingv1beta1.NoLimitsEnforcement},
				Services:       new(services.Options),
			})
		})
	}
}

// tenantNamespace is that of a peer.
func tenantNamespace(peer string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "liqo-tenant-" + peer, Labels: map[string]string{"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": peer},
	}}
}
