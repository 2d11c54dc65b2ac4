package release_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/release"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// testPrevious upgrades from the chart of the version before, with a gateway, to
// what cannot run, back, and on. It leaves the installation, and the peering.
func testPrevious(t *testing.T, s *site) {
	chart, err := release.Folder("testdata/previous-chart.tgz", release.Build{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := release.Prepare(t.Context(), s.access, chart, "", rome())
	if err != nil {
		t.Fatal(err)
	}
	// The controller is that of today, and needs rights that the chart of yesterday has not given it.
	s.Apply(nextRights)
	s.apply(t, p, nil)
	labels := map[string]string{networkingv1beta1.LabelRemoteClusterID: "milan", networkingv1beta1.LabelTenantNamespace: networkingv1beta1.LabelTrue, "app.kubernetes.io/managed-by": "liqoctl"}
	s.Namespace(t, "liqo-tenant-milan", labels)
	s.Apply(`
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec: {endpoint: {port: 51840, serviceType: ClusterIP}}
`)
	gateway := func(ctx context.Context) (d appsv1.Deployment, err error) {
		return d, s.Get(ctx, "liqo-tenant-milan", "gw-milan", &d)
	}
	controlplanetest.Eventually(t, "the gateway of the version before is there", func(ctx context.Context) error {
		d, err := gateway(ctx)
		if err == nil && d.Status.AvailableReplicas == 0 {
			err = context.DeadlineExceeded
		}
		return err
	})
	before, err := gateway(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	var lines []string
	if p, err = s.prepare(t, "", rome()); err != nil {
		t.Fatal(err)
	}
	s.apply(t, p, &lines)
	after, err := gateway(t.Context())
	if err != nil || after.Generation == before.Generation {
		t.Errorf("the gateway is that of the version before: generation %d, %v", after.Generation, err)
	}
	if !slices.Contains(lines, "Gateway liqo-tenant-milan/milan is up to date") {
		t.Errorf("nothing says that the gateway was waited for: %q; %+v", lines, after.Status)
	}
	if err := s.Get(t.Context(), "liqo", "liqo-controller", new(networkingv1.NetworkPolicy)); err != nil {
		t.Error(err)
	}

	s.stuckGateway(t)
	if err := release.Rollback(s.access); err != nil {
		t.Fatal(err)
	}
	o := rome()
	o.Values = release.Values{"controllerManager": release.Values{"replicas": 3}}
	s.install(t, o)
	if err := s.Get(t.Context(), "liqo", "liqo-controller", new(policyv1.PodDisruptionBudget)); err != nil {
		t.Error(err)
	}
	lines = nil
	if p, err = s.prepare(t, "", o); err != nil {
		t.Fatal(err)
	}
	if s.apply(t, p, &lines); slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Gateway ") }) {
		t.Errorf("a gateway that is as it should be is told of: %q", lines)
	}
	for _, kind := range []string{"clusterrolebinding", "clusterrole"} {
		if _, err := s.Kubectl("delete", kind, "next-version"); err != nil {
			t.Fatal(err)
		}
	}
}

const nextRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: next-version}
rules:
- {apiGroups: [networking.k8s.io, policy], resources: [networkpolicies, poddisruptionbudgets], verbs: [create, delete, get, list, patch, watch]}
- {apiGroups: [core.liqo.io], resources: [foreignclusters, foreignclusters/status], verbs: [create, delete, get, list, patch, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: next-version}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: next-version}
subjects: [{kind: ServiceAccount, name: liqo-controller, namespace: liqo}]
`

// stuckGateway upgrades to an image of gateways that does not exist: the gateway
// that there is goes on, and the installation says what it waits for.
func (s *site) stuckGateway(t *testing.T) {
	t.Helper()
	o := rome()
	o.Values = release.Values{"networking": release.Values{"gatewayTemplates": release.Values{"container": release.Values{"gateway": release.Values{"image": release.Values{"version": "none"}}}}}}
	p, err := s.prepare(t, "", o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = p.Apply(ctx, func(e progress.Event) {
		t.Logf("%d %s", e.Kind, e.Text)
		if strings.Contains(e.Text, "gateway liqo-tenant-milan/milan") && strings.Contains(e.Text, "0 of 1 pods are up to date and ready") {
			cancel()
		}
	})
	if want := "while waiting for gateway liqo-tenant-milan/milan to be up to date: 0 of 1 pods are up to date and ready"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	var d appsv1.Deployment
	if err := s.Get(t.Context(), "liqo-tenant-milan", "gw-milan", &d); err != nil || d.Status.AvailableReplicas == 0 {
		t.Errorf("the gateway that there was is gone: %d, %v", d.Status.AvailableReplicas, err)
	}
}

// apply does what was planned, and must succeed.
func (s *site) apply(t *testing.T, p *release.Plan, lines *[]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), controlplanetest.Patience)
	defer cancel()
	if _, err := p.Apply(ctx, s.log(t, lines)); err != nil {
		t.Fatal(err)
	}
}

// testMonitors asks for objects of kinds that the cluster does not have, and for
// those that it has.
func testMonitors(t *testing.T, s *site) {
	o := rome()
	o.Metrics = true
	o.Values = release.Values{"metrics": release.Values{"podMonitor": release.Values{"enabled": true}, "prometheusRule": release.Values{"enabled": true}}}
	_, err := s.prepare(t, "", o)
	if want := "the cluster does not know the kinds PodMonitor and PrometheusRule (monitoring.coreos.com): install the Prometheus operator first"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	o.Values = release.Values{"metrics": release.Values{"grafanaDashboard": release.Values{"enabled": true}}}
	s.install(t, o)
	if _, err := s.Kubectl("-n", "liqo", "get", "configmap", "sluice-dashboard"); err != nil {
		t.Error(err)
	}
	o = rome()
	o.ResetValues = true
	s.install(t, o)
	if out, err := s.Kubectl("-n", "liqo", "get", "configmap", "--selector=grafana_dashboard=1", "--output=name"); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("the dashboard is still there: %s%v", out, err)
	}
}
