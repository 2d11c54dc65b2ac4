package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/golden"
)

// forbidden is what a cluster says to who may not read something.
func forbidden(cluster, resource string) error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
	return &access.Error{Cluster: cluster, Err: fmt.Errorf("list %s: the user may not do this: %w", resource, err)}
}

// afterGateways are the checks that need the gateways.
var afterGateways = []string{
	"template", "gateway-pods", "gateway-rights", "objects-applied", "service", "endpoint", "keys", "mtu", "network-policies",
	"reachability", "handshake", "ping", "path-mtu", "mss", "nodes", "firewall", "drops", "services-exchange",
}

// afterIdentity are those of peerings.
var afterIdentity = slices.Concat([]string{"tenant-namespace", "configuration", "cidrs", "gateways"}, afterGateways, []string{"authentication", "virtual-nodes"})

// What could not be read is not judged: neither as if it were well, nor as if it
// were not there.
var unreadCases = []struct {
	name   string
	breaks func(w *world)
	// column is the cluster whose column is compared: its checks that are skipped,
	// and those that failed.
	column          string
	skipped, failed []string
}{
	{"the other cluster is away", func(w *world) {
		w.milan.err = told(remote, "cannot be reached")
		w.milan.Cluster = unasked(remote)
		w.peerings = []*peering{{id: "milan", local: w.client}}
	}, remote, slices.Concat([]string{"permissions", "kubernetes", "crds", "installation", "identity", "versions", "clocks", "networks", "pod-security"}, afterIdentity, []string{"offloaded-namespaces", "offloaded-pods", "services"}),
		[]string{"api-access"}},
	{"the other cluster is away, here", func(w *world) {
		w.milan.err = told(remote, "cannot be reached")
		w.milan.Cluster = unasked(remote)
		w.peerings = []*peering{{id: "milan", local: w.client}}
	}, local, []string{"endpoint"}, nil},
	{"both are away", func(w *world) {
		w.milan.err, w.rome.err = told(remote, "cannot be reached"), told(local, "cannot be reached")
		w.peerings = nil
	}, local, slices.Concat([]string{"permissions", "kubernetes", "crds", "installation", "identity", "versions", "clocks", "networks", "pod-security"}, afterIdentity, []string{"offloaded-namespaces", "offloaded-pods", "services"}),
		[]string{"api-access"}},
	{"no right to read the ID", func(w *world) {
		w.milan.Installation.ClusterID, w.peerings = "", nil
		w.milan.Gaps = []survey.Gap{{What: "the cluster ID", Err: forbidden(remote, "configmaps")}}
	}, remote, slices.Concat([]string{"identity"}, afterIdentity), nil},
	{"no right to read the ID of the only one", func(w *world) {
		w.alone(w.server)
		w.milan.Installation.ClusterID = ""
		w.milan.Gaps = []survey.Gap{{What: "the cluster ID", Err: forbidden("", "configmaps")}}
	}, "", []string{"identity", "endpoint"}, nil},
	{"no right to read anything of a peering", func(w *world) {
		w.server.peer = nil
		w.milan.Gaps = []survey.Gap{gap("GatewayServer"), gap("GatewayClient"), gap("Configuration")}
	}, remote, afterIdentity, nil},
	{"no right to read gateways", func(w *world) {
		w.server.peer.Gateway = nil
		w.milan.Gaps = []survey.Gap{gap("GatewayServer"), gap("GatewayClient")}
	}, remote, slices.Concat([]string{"gateways"}, afterGateways), nil},
	{"no right to read Deployments and DaemonSets", func(w *world) {
		w.milan.Installation.Components = nil
		w.milan.Gaps = []survey.Gap{gap("Deployment"), gap("DaemonSet")}
	}, remote, []string{"installation", "versions", "pod-security"}, nil},
	{"no right to read the template", func(w *world) { w.server.templateErr = forbidden(remote, "wggatewayservertemplates") }, remote, []string{"template"}, nil},
	{"no right to read pods", func(w *world) {
		w.server.pods = read[corev1.Pod]{err: errMayNot}
		w.server.accountErr = errMayNot
		w.server.before, w.server.after, w.server.probe = nil, nil, nil
	}, remote, []string{"gateway-pods", "gateway-rights", "network-policies", "reachability", "drops", "services-exchange"}, nil},
	{"no right to read Connections", func(w *world) {
		w.server.before, w.server.after, w.server.probe, w.server.peer.Connection = nil, nil, nil, nil
		w.server.reportErr = errMayNot
		w.milan.Gaps = []survey.Gap{gap("Connection")}
	}, remote, []string{"objects-applied", "reachability", "drops", "services-exchange"}, nil},
	{"nobody tells the public key", func(w *world) {
		w.server.gateway().Keys.Public, w.server.before, w.server.after, w.server.probe = "", nil, nil, nil
	}, local, []string{"keys"}, nil},
	{"no right to read Networks", func(w *world) {
		w.milan.Networks = survey.Networks{}
		w.milan.Gaps = []survey.Gap{gap("Network")}
	}, remote, []string{"networks", "configuration", "cidrs"}, nil},
	{"no right to read nodes", func(w *world) {
		w.milan.nodes = read[corev1.Node]{err: errMayNot}
		w.policy(networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: []networkingv1.NetworkPolicyIngressRule{{}},
		})
	}, remote, []string{"network-policies"}, nil},
	{"what can be read is enough", func(w *world) { w.milan.Gaps = []survey.Gap{gap("GatewayClient")} }, remote, nil, nil},
	{"Liqo runs in the other cluster", runsLiqo, remote, []string{"gateway-rights", "objects-applied", "nodes", "drops", "services-exchange"}, nil},
	{"Liqo runs in the other cluster, and Deployments may not be read", func(w *world) {
		runsLiqo(w)
		w.milan.Installation.Components = nil
		w.milan.Gaps = []survey.Gap{gap("Deployment"), gap("DaemonSet")}
	}, remote, []string{"crds", "installation", "versions", "pod-security", "template", "gateway-rights", "objects-applied", "nodes", "drops", "services-exchange"}, nil},
	{"no right to read Deployments, and no conditions", func(w *world) {
		w.server.gateway().Conditions, w.milan.Installation.Components = nil, w.milan.Installation.Components[1:]
		w.milan.Gaps = []survey.Gap{gap("Deployment")}
	}, remote, []string{"installation", "template"}, nil},
	{"the template is gone", func(w *world) {
		w.server.templateErr = &access.Error{Cluster: remote, Err: apierrors.NewNotFound(schema.GroupResource{Resource: "wggatewayservertemplates"}, "wireguard")}
		isFalse(&w.server.gateway().Conditions, networkingv1beta1.ConditionTemplateRendered, networkingv1beta1.ReasonTemplateNotFound, "there is none")
	}, remote, []string{"gateway-pods", "objects-applied", "service", "endpoint", "reachability", "handshake", "ping", "path-mtu", "mss", "nodes", "drops", "services-exchange"}, []string{"template"}},
}

// runsLiqo has milan be what Liqo 1.2 makes of it: its components in one namespace, objects
// without our conditions, a gateway that is not asked.
func runsLiqo(w *world) {
	deployment := func(name string) survey.Component {
		return survey.Component{Kind: "Deployment", Namespace: "liqo", Name: name, LiqosProgram: strings.TrimPrefix(name, "liqo-"),
			Version: "v1.2.0", Desired: 1, Ready: 1, Updated: 1}
	}
	w.milan.Installation.Version = "v1.2.0"
	w.milan.Installation.Components = []survey.Component{
		deployment("liqo-controller-manager"), deployment("liqo-crd-replicator"), deployment("liqo-ipam"), deployment("liqo-webhook"),
		{Kind: "DaemonSet", Namespace: "liqo", Name: "liqo-fabric", Version: "v1.2.0", Desired: 2, Ready: 2, Updated: 2},
	}
	w.milan.namespaces.items = []corev1.Namespace{namespace("liqo", "privileged"), namespace("liqo-tenant-rome", "privileged")}
	w.milan.namespaces.items[1].Labels[networkingv1beta1.LabelTenantNamespace] = networkingv1beta1.LabelTrue
	w.milan.agents.items, w.milan.pods.items = nil, nil
	crds := slices.Clone(w.milan.crds.items)
	w.milan.crds.items = slices.DeleteFunc(crds, func(o apiextensionsv1.CustomResourceDefinition) bool {
		return o.Name == "connections.networking.liqo.io"
	})
	for i := range w.milan.Nodes {
		w.milan.Nodes[i].Internal.Status.Conditions = nil
	}
	e := w.server
	e.gateway().Conditions, e.peer.Configuration.Status.Conditions, e.clockAhead = nil, nil, nil
	e.account = []string{"list configurations"}
	givenToLiqo(e)
}

func TestWhatIsNotSeenIsNotJudged(t *testing.T) {
	var b strings.Builder
	for _, tt := range unreadCases {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.breaks(w)
			all := judge(w.facts)
			fmt.Fprintf(&b, "## %s\n", tt.name)
			worst := make(map[string]Status)
			for _, f := range all {
				if f.Cluster == "" || f.Cluster == tt.column {
					worst[f.Check] = Worse(worst[f.Check], f.Status)
				}
				if f.Status != OK {
					b.WriteString(textOf(f))
				}
			}
			b.WriteString("\n")
			var skipped, failed []string
			for _, c := range Checks() {
				switch worst[c] {
				case Skipped:
					skipped = append(skipped, c)
				case Failed:
					failed = append(failed, c)
				}
			}
			if diff := cmp.Diff(tt.failed, failed); diff != "" {
				t.Errorf("failed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.skipped, skipped); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
		})
	}
	golden.Compare(t, "testdata/unread.txt", b.String())
}

// TestOneNamespaceIsRead: what a user may not list everywhere is read in the only namespace that the survey found open.
func TestOneNamespaceIsRead(t *testing.T) {
	const within = "liqo-tenant-rome"
	in := func(namespace string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: "rome"} }
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: within}},
		&authv1beta1.ResourceSlice{ObjectMeta: in(within)}, &authv1beta1.ResourceSlice{ObjectMeta: in("other")},
		&offloadingv1beta1.VirtualNode{ObjectMeta: in(within)}, &offloadingv1beta1.VirtualNode{ObjectMeta: in("other")},
	).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, o ...client.ListOption) error {
			if new(client.ListOptions).ApplyOptions(o).Namespace != within {
				return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no right"))
			}
			return c.List(ctx, into, o...)
		},
	})
	for _, open := range []string{within, ""} {
		p := &clusterReader{&access.Cluster{Client: c, Options: access.Options{Namespace: within}}, &cluster{Cluster: &survey.Cluster{Within: open}}}
		p.readNamespaces(t.Context())
		p.readOffloading(t.Context())
		some := 0
		if open != "" {
			some = 1
		}
		if len(p.namespaces.items) != some || p.namespaces.err == nil {
			t.Errorf("within %q: namespaces %v, %v", open, p.namespaces.items, p.namespaces.err)
		}
		if s := p.offloads.slices; len(s.items) != some || (s.err == nil) != (open != "") {
			t.Errorf("within %q: slices %v, %v", open, s.items, s.err)
		}
		if v := p.offloads.virtualNodes; len(v.items) != some || (v.err == nil) != (open != "") {
			t.Errorf("within %q: virtual nodes %v, %v", open, v.items, v.err)
		}
		if p.offloads.namespaces.err == nil {
			t.Errorf("within %q: namespaces that nobody could read are taken for not offloaded", open)
		}
	}
}
