package release

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/golden"
)

const generated = "# Generated from deploy/chart by `make generate`.\n"

// manifests are the files of deploy/manifests: what the chart makes, for those
// who install with kubectl.
var manifests = []struct {
	template, file string
	head           string
	cleanup        bool
	metrics        bool
	authentication bool
	offloading     bool
	clusterDNS     bool
	services       bool
}{
	{template: "namespace.yaml", file: "00-namespace.yaml"},
	{template: "controller-rbac.yaml", file: "controller-rbac.yaml"},
	{template: "role.yaml", file: "role.yaml"},
	{template: "gateway-rbac.yaml", file: "gateway-rbac.yaml"},
	{template: "controller-policies.yaml", file: "controller-policies.yaml"},
	{template: "user-rbac.yaml", file: "user-rbac.yaml"},
	{template: "peering-user.yaml", file: "peering-user.yaml"},
	{template: "gateway-templates.yaml", file: "gateway-templates.yaml"},
	{template: "fabric-rbac.yaml", file: "fabric-rbac.yaml"},
	{template: "installation.yaml", file: "installation.yaml"},
	{template: "validation.yaml", file: "validation.yaml"},
	{template: "authentication.yaml", file: "authentication/authentication.yaml", authentication: true, head: `#
# For clusters that ask each other for resources: what the controller may do then, and what other clusters may do here.
# The controller needs the argument --authentication as well.
`},
	// Of these two either may be applied with the other.
	{template: "offloading.yaml", file: "offloading/offloading.yaml", offloading: true, services: true, head: `#
# For clusters whose pods run in other clusters: what the controller may do then, and what other clusters may do here.
# It needs the folder authentication and the arguments --authentication and --offloading as well.
`},
	{template: "virtual-kubelet.yaml", file: "offloading/virtual-kubelet.yaml", offloading: true, head: `#
# What virtual kubelets may do, and how they run unless a VirtualNode says otherwise.
`},
	{template: "offloading-scheduling.yaml", file: "offloading/scheduling.yaml", offloading: true, head: `#
# For clusters whose pods run in other clusters: which pods may. It needs an API server that serves the kind
# MutatingAdmissionPolicy of admissionregistration.k8s.io/v1 (Kubernetes 1.36).
`},
	{template: "clusterdns.yaml", file: "clusterdns/clusterdns.yaml", clusterDNS: true, head: `#
# A DNS server for the Services that clusters import from each other. It needs the kind ServiceImport of
# multicluster.x-k8s.io. The DNS server of the cluster must forward clusterset.local to the address of its Service.
`},
	{template: "services.yaml", file: "services/services.yaml", offloading: true, services: true, head: `#
# For clusters that use each other's Services: what the controller may do then, and who may export Services. It needs the
# kinds ServiceExport and ServiceImport as well, which an existing installation of another program may have brought, and the
# argument --services of the controller and of the gateways.
#
#   kubectl create -f deploy/mcs
`},
	{template: "controller.yaml", file: "controller/controller.yaml", head: `#
# The controller of one cluster. What is in the folder above is the same everywhere; this is not: set <CLUSTER_ID> and
# <POD_CIDR>, then apply it.
#
#   kubectl apply --server-side --force-conflicts -f deploy/crds
#   kubectl apply --server-side -f deploy/manifests
#   kubectl apply -f deploy/manifests/controller
`},
	{template: "fabric.yaml", file: "fabric/fabric.yaml", head: `#
# The agent of every node. It needs what is in the folder above.
#
#   kubectl apply --server-side --force-conflicts -f deploy/crds
#   kubectl apply --server-side -f deploy/manifests
#   kubectl apply -f deploy/manifests/fabric
#   kubectl -n liqo-fabric exec <pod> -- fabric status
#
# ../fabric-cleanup removes what it makes on the nodes.
`},
	{template: "podmonitors.yaml", file: "monitoring/podmonitors.yaml", metrics: true, head: `#
# For the Prometheus operator. Those of the agents need what fabric/fabric.yaml says about its metrics.
`},
	{template: "prometheusrule.yaml", file: "monitoring/prometheusrule.yaml", metrics: true, head: `#
# For the Prometheus operator. The dashboard of Grafana is deploy/chart/files/dashboard.json.
`},
	{template: "fabric-cleanup.yaml", file: "fabric-cleanup/fabric-cleanup.yaml", cleanup: true, head: `#
#   kubectl -n liqo-fabric delete daemonset liqo-fabric --cascade=foreground
#   kubectl apply -f deploy/manifests/fabric-cleanup
#   kubectl -n liqo-fabric wait pod -l app.kubernetes.io/name=liqo-fabric-cleanup --timeout=5m \
#     --for=jsonpath='{.status.containerStatuses[0].lastState.terminated.exitCode}'=0
#   kubectl -n liqo-fabric logs -l app.kubernetes.io/name=liqo-fabric-cleanup --prefix
#   kubectl -n liqo-fabric delete daemonset liqo-fabric-cleanup
`},
}

// TestManifests guards that deploy/manifests is what the chart makes, and that its
// README lists its values. With -update it writes them (make generate).
func TestManifests(t *testing.T) {
	c, err := Embedded(Build{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifests {
		files, err := c.render(map[string]any{
			"createNamespace": true,
			"discovery":       map[string]any{"config": map[string]any{"clusterID": "<CLUSTER_ID>"}},
			"ipam":            map[string]any{"podCIDR": "<POD_CIDR>"},
			"networking":      map[string]any{"fabric": map[string]any{"cleanup": m.cleanup}},
			"authentication":  map[string]any{"enabled": m.authentication || m.offloading},
			"offloading":      map[string]any{"enabled": m.offloading},
			"clusterDNS":      map[string]any{"enabled": m.clusterDNS},
			"services":        map[string]any{"enabled": m.services},
			"metrics": map[string]any{
				"enabled": m.metrics, "podMonitor": map[string]any{"enabled": m.metrics}, "prometheusRule": map[string]any{"enabled": m.metrics},
			},
		}, "liqo")
		if err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, filepath.Join("../../deploy/manifests", m.file), generated+m.head+strings.TrimPrefix(files[m.template], "---\n"))
	}
	golden.Compare(t, chartFolder+"/README.md", readme(t, c))
}
