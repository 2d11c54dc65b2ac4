package release

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// handable are the facts of a cluster whose network can be taken over.
func handable(t *testing.T) takeoverFacts {
	t.Helper()
	wanted, err := ourCRDs()
	if err != nil {
		t.Fatal(err)
	}
	pod := func(account, image string, args ...string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{Spec: corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: image, Args: args}}}}
	}
	program := func(name, image string, args ...string) appsv1.Deployment {
		labels := map[string]string{labelName: strings.TrimPrefix(name, "liqo-"), "app.kubernetes.io/component": strings.TrimPrefix(name, "liqo-")}
		return appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: name, Labels: labels}, Spec: appsv1.DeploymentSpec{Template: pod(name, image, args...)}}
	}
	f := takeoverFacts{
		namespace: "liqo", wanted: wanted, live: map[string]apiextensionsv1.CustomResourceDefinition{},
		programs: []appsv1.Deployment{
			program("liqo-webhook", "ghcr.io/liqotech/webhook:v1.2.0"), program("liqo-ipam", "ghcr.io/liqotech/ipam:v1.2.0", "--pools=10.0.0.0/8,172.16.0.0/12"),
			program("liqo-controller-manager", "registry.example.org:5000/liqo-controller-manager:v1.2.0@sha256:00"),
		},
		agents: []appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-fabric", Labels: map[string]string{"app.kubernetes.io/part-of": "liqo"}},
			Spec: appsv1.DaemonSetSpec{Template: pod("liqo-fabric", "ghcr.io/liqotech/fabric:v1.2.0", "--geneve-port=6092")}}},
	}
	for name, d := range wanted {
		if apply.OfNetwork(d.Spec.Group) {
			d = *d.DeepCopy()
			d.Annotations = nil
			f.live[name] = d
		}
	}
	f.adoptFacts = liqoFacts(t).adopted(t, "milan").adopted(t, "oslo")
	network := func(name, kind string, cidr ipamv1alpha1.CIDR) ipamv1alpha1.Network {
		return ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: name, Labels: map[string]string{ipamv1alpha1.LabelNetworkType: kind}},
			Status: ipamv1alpha1.NetworkStatus{CIDR: cidr}}
	}
	f.networks = []ipamv1alpha1.Network{network("pod-cidr", "pod-cidr", "10.243.0.0/16"), network("external-cidr", "external-cidr", "10.70.0.0/16"), network("reserved-1", "reserved", "10.0.0.0/8")}
	f.ips = []ipamv1alpha1.IP{{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "a"}, Status: ipamv1alpha1.IPStatus{IP: "10.70.0.1"}}, {ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "b"}}}
	f.fabrics = []networkingv1beta1.InternalFabric{{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan", Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: "milan"}}}}
	bypass := networkingv1beta1.FirewallConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan-masquerade-bypass",
		Labels: map[string]string{networkingv1beta1.LabelManaged: "true", networkingv1beta1.LabelFirewallCategory: "fabric"}}}
	bypass.Spec.Table.Name = "milan-masquerade-bypass"
	bypass.Spec.Table.Chains = []networkingv1beta1.FirewallChain{{Rules: networkingv1beta1.FirewallRules{NATRules: []networkingv1beta1.NATRule{{To: "10.243.0.0/16"}, {To: "10.70.0.0"}}}}}
	f.firewalls = []networkingv1beta1.FirewallConfiguration{bypass}
	routes := networkingv1beta1.RouteConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan-node-gw",
		Labels: map[string]string{networkingv1beta1.LabelManaged: "true", networkingv1beta1.LabelRouteCategory: "fabric"}}}
	routes.Spec.Table.Name = "milan-node-gw"
	ofGateways := *routes.DeepCopy()
	ofGateways.Name, ofGateways.Spec.Table.Name, ofGateways.Labels[networkingv1beta1.LabelRouteCategory] = "node-1-gw-node", "node-1", "gateway"
	f.routes = []networkingv1beta1.RouteConfiguration{routes, ofGateways}
	return f
}

func TestUsedFields(t *testing.T) {
	objects := []unstructured.Unstructured{{}, {Object: map[string]any{"spec": map[string]any{
		"a": "", "none": nil, "list": []any{map[string]any{"x": int64(0)}, "text"}, "map": map[string]any{"any.key": map[string]any{"y": true}},
	}}}}
	paths := []string{"spec.a", "spec.b", "spec.none", "status.a", "spec.a.c", "spec.list[].x", "spec.list[].z", "spec.map{}.y", "spec.map{}.z", "spec.list[][].x"}
	if diff := cmp.Diff([]string{"spec.a", "spec.list[].x", "spec.map{}.y"}, usedFields(objects, paths)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestTakeoverPlan: what the cluster tells of the values, whose requests are refused, and which CRDs are kept.
func TestTakeoverPlan(t *testing.T) {
	f := handable(t)
	f.tables = []string{"oslo-masquerade-bypass"} // of an earlier takeover
	// Without an account, as in Liqo's chart.
	f.programs = append(f.programs, appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-proxy"}})
	p, err := f.plan(false)
	if err != nil {
		t.Fatal(err)
	}
	want := parse(t, `{adoption: {enabled: true, liqoTables: [milan-masquerade-bypass, oslo-masquerade-bypass]}, networking: {genevePort: 6092}, ipam: {pools: [10.0.0.0/8, 172.16.0.0/12]}}`)
	if got, expect := fmt.Sprint(p.values), fmt.Sprint(want); got != expect {
		t.Errorf("values %s, want %s", got, expect)
	}
	if diff := cmp.Diff([]string{"default", "liqo-controller-manager", "liqo-ipam", "liqo-webhook"}, p.accounts); diff != "" || p.manager != "liqo-controller-manager" || p.agent.Name != "liqo-fabric" {
		t.Errorf("manager %s, agent %s, accounts (-want +got)\n%s", p.manager, p.agent.Name, diff)
	}
	if len(p.originals) != len(f.live) {
		t.Errorf("%d of %d CRDs are kept", len(p.originals), len(f.live))
	}
	future := f.live["ips.ipam.liqo.io"]
	future.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["colour"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	f.objects = map[string][]unstructured.Unstructured{"ips.ipam.liqo.io": {{Object: map[string]any{"spec": map[string]any{"ip": "10.0.0.1"}}}}}
	if _, err = f.plan(false); err != nil {
		t.Errorf("a field of the future that no object has: %v", err)
	}
	ours := f.live["networks.ipam.liqo.io"]
	ours.Annotations = map[string]string{AnnotationVersion: "v1"}
	f.live["networks.ipam.liqo.io"] = ours
	f.firewalls[0].Spec.Table.Chains[0].Rules.NATRules = f.firewalls[0].Spec.Table.Chains[0].Rules.NATRules[1:]
	if p, err = f.plan(false); err != nil || len(p.originals) != len(f.live)-1 {
		t.Errorf("a CRD of an earlier takeover is taken for Liqo's: %d of %d, %v", len(p.originals), len(f.live), err)
	}
	if at(p.values, "networking.fabric.config.fullMasquerade") != true {
		t.Errorf("Liqo hides the addresses of pods: %v", p.values)
	}
	// Where there is no peering yet, only the arguments tell.
	manager := &f.programs[2].Spec.Template.Spec.Containers[0]
	for said, want := range map[string]any{"true": true, "false": nil} {
		manager.Args = []string{"--fabric-full-masquerade-enabled=" + said}
		f.firewalls = nil
		if p, err = f.plan(false); err != nil || at(p.values, "networking.fabric.config.fullMasquerade") != want {
			t.Errorf("Liqo's controller manager is told %s: %v, %v", said, p.values, err)
		}
	}
}

// TestTakeoverRefused: all that is in the way is told, and nothing else.
func TestTakeoverRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*takeoverFacts)
		want   string
	}{
		{"no node agent", func(f *takeoverFacts) { f.agents = nil }, "there is no DaemonSet of Liqo's node agent in namespace liqo"},
		{"no IPAM", func(f *takeoverFacts) { f.programs = f.programs[2:] }, "there is no Deployment of Liqo's IPAM in namespace liqo"},
		{"no controller manager", func(f *takeoverFacts) { f.programs = f.programs[:2] }, "there is no Deployment of Liqo's controller manager"},
		{"another version", func(f *takeoverFacts) { f.programs[2].Spec.Template.Spec.Containers[0].Image = "m:v2.0.0" }, `the version of Liqo here is "v2.0.0", and this program knows 1.0 to 1.2`},
		{"no version", func(f *takeoverFacts) { f.programs[2].Spec.Template.Spec.Containers[0].Image = "r:5000/m@sha256:00" }, `the version of Liqo here is ""`},
		{"an account that others have, too", func(f *takeoverFacts) { f.programs[2].Spec.Template.Spec.ServiceAccountName = "" }, "Deployment liqo/liqo-controller-manager has no service account of its own"},
		{"a gateway of Liqo", func(f *takeoverFacts) { f.gateways[0].ref.name = "wireguard-server" }, "GatewayServer liqo-tenant-milan/milan is Liqo's: hand it over first, with 'liqoctl network adopt --all'"},
		{"a gateway without a template", func(f *takeoverFacts) { f.gateways[0].ref.name = "none" }, "GatewayServer liqo-tenant-milan/milan: there is no WgGatewayServerTemplate liqo/none"},
		{"a handover that was interrupted", func(f *takeoverFacts) {
			f.templates[f.gateways[0].ref].SetAnnotations(map[string]string{annotationTemplateOf: "wireguard-server", annotationSilent: peerAnswered})
		}, "the handover of GatewayServer liqo-tenant-milan/milan is not completed: repeat 'liqoctl network adopt milan'"},
		{"prefixes that overlap", func(f *takeoverFacts) { f.networks[1].Status.CIDR = "10.243.128.0/17" },
			"10.243.128.0/17 of Network liqo/external-cidr overlaps 10.243.0.0/16 of Network liqo/pod-cidr, so one would get another prefix"},
		{"an address twice", func(f *takeoverFacts) { f.ips[1].Status.IP = "10.70.0.1" }, "IP liqo/b and IP liqo/a both have the address 10.70.0.1"},
		{"a fabric of another name", func(f *takeoverFacts) { f.fabrics[0].Name, f.routes = "gw", nil }, `InternalFabric liqo-tenant-milan/gw is not named after its cluster, "milan"`},
		{"a user's rules on nodes", func(f *takeoverFacts) { delete(f.firewalls[0].Labels, networkingv1beta1.LabelManaged) },
			"FirewallConfiguration liqo-tenant-milan/milan-masquerade-bypass was made by somebody for the nodes"},
		{"rules of Liqo's chart", func(f *takeoverFacts) {
			f.firewalls[0].Labels = map[string]string{networkingv1beta1.LabelFirewallCategory: "fabric"}
			f.firewalls[0].Annotations = map[string]string{annotationReleaseName: "liqo"}
		}, "FirewallConfiguration liqo-tenant-milan/milan-masquerade-bypass is of the Helm release liqo, and Sluice's node agents would not apply it: turn it off there"},
		{"the table of another program", func(f *takeoverFacts) { f.firewalls[0].Spec.Table.Name = "kube-proxy" }, `has a table "kube-proxy", which is none of Liqo's`},
		{"our own table", func(f *takeoverFacts) { f.firewalls[0].Spec.Table.Name = "sluice-fabric" }, `has a table "sluice-fabric", which is none of Liqo's`},
		{"an argument as the name of a table", func(f *takeoverFacts) { f.firewalls[0].Spec.Table.Name = "--purge" }, `FirewallConfiguration liqo-tenant-milan/milan-masquerade-bypass has a table "--purge"`},
		{"a user's routes on nodes", func(f *takeoverFacts) { delete(f.routes[0].Labels, networkingv1beta1.LabelManaged) }, "RouteConfiguration liqo-tenant-milan/milan-node-gw was made by somebody for the nodes"},
		{"routes of no gateway", func(f *takeoverFacts) { f.routes[0].Spec.Table.Name = "main" }, `RouteConfiguration liqo-tenant-milan/milan-node-gw has a table "main"`},
		{"a CRD of the future", func(f *takeoverFacts) { delete(f.wanted, "ips.ipam.liqo.io") }, "CRD ips.ipam.liqo.io is none that this program knows"},
		{"a field of the future", func(f *takeoverFacts) {
			d := f.live["ips.ipam.liqo.io"]
			d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["colour"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
			f.objects = map[string][]unstructured.Unstructured{"ips.ipam.liqo.io": {{}, {Object: map[string]any{"spec": map[string]any{"colour": "red"}}}}}
		}, "CRD ips.ipam.liqo.io of Liqo has fields that this program does not know, and objects would lose them (spec.colour)"},
	} {
		f := handable(t)
		tt.change(&f)
		_, err := f.plan(false)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want only %s", tt.name, err, tt.want)
		}
	}
	f := handable(t)
	f.programs[2].Spec.Template.Spec.Containers[0].Image = "m:v2.0.0"
	if p, err := f.plan(true); err != nil || len(p.warnings) != 1 {
		t.Errorf("--skip-validation: %v, %v", p.warnings, err)
	}
	f.agents, f.ips[1].Status.IP = nil, "10.70.0.1"
	if _, err := f.plan(false); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("not all is told at once: %v", err)
	}
}

// TestIsApplied: a CRD with our annotation and without our fields is not ours.
func TestIsApplied(t *testing.T) {
	ours, err := ourCRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*apiextensionsv1.CustomResourceDefinition)
		want   bool
	}{
		{"as it was applied", func(*apiextensionsv1.CustomResourceDefinition) {}, true},
		{"by an earlier liqoctl", func(d *apiextensionsv1.CustomResourceDefinition) { delete(d.Annotations, annotationFields) }, true},
		{"without annotations", func(d *apiextensionsv1.CustomResourceDefinition) { d.Annotations = nil }, false},
		{"without a field", func(d *apiextensionsv1.CustomResourceDefinition) {
			delete(d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties, "conditions")
		}, false},
		{"with a field of another type", func(d *apiextensionsv1.CustomResourceDefinition) {
			cidr := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["remote"].Properties["cidr"].Properties
			cidr["pod"] = apiextensionsv1.JSONSchemaProps{Type: "array"}
		}, false},
	} {
		d := ours["configurations.networking.liqo.io"]
		d = *d.DeepCopy()
		if tt.change(&d); isApplied(&d) != tt.want {
			t.Errorf("%s: %v", tt.name, !tt.want)
		}
	}
}

// TestKeptCRD: what is kept is what somebody said of a CRD.
func TestKeptCRD(t *testing.T) {
	d := handable(t).live["configurations.networking.liqo.io"]
	d.UID, d.ResourceVersion, d.Labels = "u", "7", map[string]string{"of": "liqo"}
	d.Annotations = map[string]string{"a": "b", corev1.LastAppliedConfigAnnotation: "{}", AnnotationVersion: "v1", annotationFields: "s"}
	var got apiextensionsv1.CustomResourceDefinition
	packed, err := packCRD(d)
	if err == nil {
		got, err = unpackCRD(packed)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Labels: d.Labels, Annotations: map[string]string{"a": "b"}}, Spec: d.Spec}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := unpackCRD([]byte("no gzip")); err == nil {
		t.Error("anything is unpacked")
	}
}

// TestAsLists: prefixes as strings become lists, and what has lists stays as it is.
func TestAsLists(t *testing.T) {
	scalar := networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.0.0.0/16"}, Scalar: true}
	list := networkingv1beta1.CIDRs{List: scalar.List}
	var c networkingv1beta1.Configuration
	c.Spec.Remote.CIDR.Pod = list
	if got := asLists(c); got != nil {
		t.Errorf("lists are changed: %+v", got.Spec)
	}
	c.Spec.Local = new(networkingv1beta1.ClusterConfig)
	c.Spec.Local.CIDR.External = scalar
	got := asLists(c)
	if got == nil {
		t.Fatal("a string stays")
	}
	if diff := cmp.Diff(list, got.Spec.Local.CIDR.External); diff != "" || !c.Spec.Local.CIDR.External.Scalar {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestOfThisRelease: what another Helm release has is not ours, in the same namespace, too.
func TestOfThisRelease(t *testing.T) {
	for _, tt := range []struct {
		name, namespace string
		want            bool
	}{{"", "", true}, {"sluice", "liqo", true}, {"liqo", "liqo", false}, {"sluice", "other", false}} {
		o := new(corev1.ConfigMap)
		o.Annotations = map[string]string{annotationReleaseName: tt.name, annotationRelease: tt.namespace}
		if got := ofThisRelease(o, "liqo"); got != tt.want {
			t.Errorf("release %q of namespace %q: %v", tt.name, tt.namespace, got)
		}
	}
}
