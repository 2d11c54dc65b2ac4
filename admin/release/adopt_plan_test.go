package release

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/template"
	"github.com/sluice-net/sluice/docs"
)

// liqoFacts are those of a cluster with a server for milan and a client for oslo, both of Liqo.
func liqoFacts(t *testing.T) adoptFacts {
	t.Helper()
	text, err := os.ReadFile("testdata/liqo-templates.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, err := decode(string(text))
	if err != nil {
		t.Fatal(err)
	}
	f := adoptFacts{templates: map[templateName]*unstructured.Unstructured{}}
	for _, u := range all {
		f.templates[nameOfTemplate(u)] = u
	}
	chart, err := Embedded(Build{Version: "v1.2.3", Registry: "registry.example.org/sluice"})
	if err != nil {
		t.Fatal(err)
	}
	if f.ours, err = chart.gatewayTemplates(nil, "liqo"); err != nil {
		t.Fatal(err)
	}
	gateway := func(kind, field, peer string, spec any) {
		name := client.ObjectKey{Namespace: "liqo-tenant-" + peer, Name: peer}
		g := liqoGateway{kind: kind, field: field, peer: peer, tunnels: 1}
		g.name, g.templateKind = name, "Wg"+kind+"Template"
		g.vars = template.Vars{Spec: spec, Name: peer, Namespace: name.Namespace, ClusterID: peer}
		g.ref = templateName{g.templateKind, "liqo", "wireguard-" + strings.ToLower(strings.TrimPrefix(kind, "Gateway"))}
		f.gateways = append(f.gateways, g)
	}
	gateway("GatewayServer", "serverTemplateRef", "milan", networkingv1beta1.GatewayServerSpec{Endpoint: networkingv1beta1.ServerEndpoint{Port: 51840}})
	gateway("GatewayClient", "clientTemplateRef", "oslo", networkingv1beta1.GatewayClientSpec{})
	return f
}

func nameOfTemplate(u *unstructured.Unstructured) templateName {
	return templateName{u.GetKind(), u.GetNamespace(), u.GetName()}
}

// adopted are the facts after a gateway has been adopted.
func (f adoptFacts) adopted(t *testing.T, peer string) adoptFacts {
	t.Helper()
	p, err := f.plan(AdoptOptions{Peers: []string{peer}})
	if err != nil || len(p.handovers) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, o := range p.handovers[0].make {
		switch o := o.(type) {
		case *unstructured.Unstructured:
			f.templates[nameOfTemplate(o)] = o
		case *rbacv1.ClusterRoleBinding:
			f.bindings = append(f.bindings, *o)
		case *rbacv1.ClusterRole:
			f.role = o
		}
	}
	for i := range f.gateways {
		if f.gateways[i].peer == peer {
			f.gateways[i].ref.name = p.handovers[0].to
		}
	}
	return f
}

func TestAdoptionPlan(t *testing.T) {
	container := func(name string, u *unstructured.Unstructured) {
		pod, _ := table(u.Object, pathPod)
		pod["containers"] = append(pod["containers"].([]any), map[string]any{"name": name})
	}
	of := func(f adoptFacts, i int) *unstructured.Unstructured { return f.templates[f.gateways[i].ref] }
	for _, tt := range []struct {
		name    string
		options AdoptOptions
		facts   func(t *testing.T, f adoptFacts) adoptFacts
		// want are handovers "GatewayServer a/b: from -> to", what is removed "- Kind name", notes, or the error "! ...".
		want []string
	}{
		{name: "one", options: AdoptOptions{Peers: []string{"milan"}}, want: []string{
			"GatewayServer liqo-tenant-milan/milan: wireguard-server -> sluice-wireguard-server.liqo-tenant-milan.milan",
		}},
		{name: "all", options: AdoptOptions{All: true}, want: []string{
			"GatewayServer liqo-tenant-milan/milan: wireguard-server -> sluice-wireguard-server.liqo-tenant-milan.milan",
			"GatewayClient liqo-tenant-oslo/oslo: wireguard-client -> sluice-wireguard-client.liqo-tenant-oslo.oslo",
		}},
		{name: "again", options: AdoptOptions{Peers: []string{"milan"}},
			facts: func(t *testing.T, f adoptFacts) adoptFacts { return f.adopted(t, "milan") },
			want:  []string{"GatewayServer liqo-tenant-milan/milan: sluice-wireguard-server.liqo-tenant-milan.milan -> sluice-wireguard-server.liqo-tenant-milan.milan"}},
		{name: "back, one of two", options: AdoptOptions{Peers: []string{"milan"}, Back: true},
			facts: func(t *testing.T, f adoptFacts) adoptFacts { return f.adopted(t, "milan").adopted(t, "oslo") },
			want: []string{
				"GatewayServer liqo-tenant-milan/milan: sluice-wireguard-server.liqo-tenant-milan.milan -> wireguard-server",
				"- ClusterRoleBinding sluice-adopted-gateway:liqo-tenant-milan:milan",
				"- WgGatewayServerTemplate liqo/sluice-wireguard-server.liqo-tenant-milan.milan",
			}},
		{name: "back, all", options: AdoptOptions{All: true, Back: true},
			facts: func(t *testing.T, f adoptFacts) adoptFacts { return f.adopted(t, "milan") },
			want: []string{
				"GatewayServer liqo-tenant-milan/milan: sluice-wireguard-server.liqo-tenant-milan.milan -> wireguard-server",
				"GatewayClient liqo-tenant-oslo/oslo is Liqo's",
				"- ClusterRole sluice-adopted-gateway",
				"- ClusterRoleBinding sluice-adopted-gateway:liqo-tenant-milan:milan",
				"- WgGatewayServerTemplate liqo/sluice-wireguard-server.liqo-tenant-milan.milan",
			}},
		{name: "back, interrupted", options: AdoptOptions{Peers: []string{"milan"}, Back: true},
			facts: func(t *testing.T, f adoptFacts) adoptFacts {
				was := f.gateways[0].ref
				f = f.adopted(t, "milan")
				f.gateways[0].ref = was
				return f
			},
			want: []string{
				"GatewayServer liqo-tenant-milan/milan: wireguard-server -> wireguard-server",
				"- ClusterRole sluice-adopted-gateway",
				"- ClusterRoleBinding sluice-adopted-gateway:liqo-tenant-milan:milan",
				"- WgGatewayServerTemplate liqo/sluice-wireguard-server.liqo-tenant-milan.milan",
			}},
		{name: "a peering is gone", options: AdoptOptions{Peers: []string{"oslo"}},
			facts: func(t *testing.T, f adoptFacts) adoptFacts {
				f = f.adopted(t, "milan")
				f.gateways = f.gateways[1:]
				return f
			},
			want: []string{
				"GatewayClient liqo-tenant-oslo/oslo: wireguard-client -> sluice-wireguard-client.liqo-tenant-oslo.oslo",
				"- ClusterRoleBinding sluice-adopted-gateway:liqo-tenant-milan:milan",
				"- WgGatewayServerTemplate liqo/sluice-wireguard-server.liqo-tenant-milan.milan",
			}},
		{name: "by hand", options: AdoptOptions{All: true},
			facts: func(_ *testing.T, f adoptFacts) adoptFacts {
				f.templates[f.gateways[0].ref] = f.ours["WgGatewayServerTemplate"]
				return f
			},
			want: []string{
				"GatewayClient liqo-tenant-oslo/oslo: wireguard-client -> sluice-wireguard-client.liqo-tenant-oslo.oslo",
				"GatewayServer liqo-tenant-milan/milan has Sluice's gateway already, by WgGatewayServerTemplate liqo/wireguard-server, which was made by hand: it stays as it is",
			}},
		{name: "back, by hand", options: AdoptOptions{Peers: []string{"milan"}, Back: true},
			facts: func(_ *testing.T, f adoptFacts) adoptFacts {
				f.templates[f.gateways[0].ref] = f.ours["WgGatewayServerTemplate"]
				return f
			},
			want: []string{"! GatewayServer liqo-tenant-milan/milan: WgGatewayServerTemplate liqo/wireguard-server was made by hand, so nothing tells what it took the place of: set the name of Liqo's template in spec.serverTemplateRef"}},
		{name: "back, all, one by hand", options: AdoptOptions{All: true, Back: true},
			facts: func(t *testing.T, f adoptFacts) adoptFacts {
				f = f.adopted(t, "oslo")
				f.templates[f.gateways[0].ref] = f.ours["WgGatewayServerTemplate"]
				return f
			},
			want: []string{
				"GatewayClient liqo-tenant-oslo/oslo: sluice-wireguard-client.liqo-tenant-oslo.oslo -> wireguard-client",
				"GatewayServer liqo-tenant-milan/milan has Sluice's gateway by WgGatewayServerTemplate liqo/wireguard-server, which was made by hand: it stays as it is",
				"- ClusterRole sluice-adopted-gateway",
				"- ClusterRoleBinding sluice-adopted-gateway:liqo-tenant-oslo:oslo",
				"- WgGatewayClientTemplate liqo/sluice-wireguard-client.liqo-tenant-oslo.oslo",
			}},
		{name: "nobody", want: []string{"! name the peerings by the IDs of their clusters, or all of them with --all; peerings: milan, oslo"}},
		{name: "both", options: AdoptOptions{All: true, Peers: []string{"milan"}}, want: []string{"! name the peerings by the IDs of their clusters, or all of them with --all; peerings: milan, oslo"}},
		{name: "unknown", options: AdoptOptions{Peers: []string{"milan", "rome"}}, want: []string{`! there is no gateway for cluster "rome"; peerings: milan, oslo`}},
		{name: "no peering", options: AdoptOptions{All: true},
			facts: func(_ *testing.T, f adoptFacts) adoptFacts { f.gateways = nil; return f },
			want:  []string{"! this cluster has no gateways: there is no peering to hand over"}},
		{name: "what cannot be", options: AdoptOptions{All: true},
			facts: func(_ *testing.T, f adoptFacts) adoptFacts {
				container("spy", of(f, 1))
				return f
			},
			want: []string{
				"! GatewayClient liqo-tenant-oslo/oslo: WgGatewayClientTemplate liqo/wireguard-client cannot be adopted: its pods have containers that are not Liqo's, which would be lost: spy",
			}},
		{name: "no template", options: AdoptOptions{Peers: []string{"milan"}},
			facts: func(_ *testing.T, f adoptFacts) adoptFacts { delete(f.templates, f.gateways[0].ref); return f },
			want:  []string{"! GatewayServer liqo-tenant-milan/milan: there is no WgGatewayServerTemplate liqo/wireguard-server"}},
		{name: "Liqo's template is gone", options: AdoptOptions{Peers: []string{"milan"}, Back: true},
			facts: func(t *testing.T, f adoptFacts) adoptFacts {
				name := f.gateways[0].ref
				f = f.adopted(t, "milan")
				delete(f.templates, name)
				return f
			},
			want: []string{"! GatewayServer liqo-tenant-milan/milan: there is no WgGatewayServerTemplate liqo/wireguard-server any more, of which WgGatewayServerTemplate liqo/sluice-wireguard-server.liqo-tenant-milan.milan is a copy: install it again"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := liqoFacts(t)
			if tt.facts != nil {
				f = tt.facts(t, f)
			}
			p, err := f.plan(tt.options)
			var got []string
			if err != nil {
				for line := range strings.SplitSeq(err.Error(), "\n") {
					got = append(got, "! "+line)
				}
				p = adoptionPlan{}
			}
			for _, h := range p.handovers {
				got = append(got, h.named()+": "+h.from+" -> "+h.to)
			}
			got = append(got, p.notes...)
			for _, o := range p.remove {
				got = append(got, "- "+describe(o))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestAdoptedTemplate: of Liqo's template everything stays that a living Deployment or Service cannot change, and that others
// find it by; the pod is ours.
// TestAdoptionOfSeveralTunnels: .Spec.Endpoint.Port is nothing then, and a container has no such port.
func TestAdoptionOfSeveralTunnels(t *testing.T) {
	for tunnels, want := range map[int]string{1: "51840 6091 8082 8083", 2: "6091 8082 8083"} {
		f := liqoFacts(t)
		f.gateways[0].tunnels = tunnels
		p, err := f.plan(AdoptOptions{Peers: []string{"milan"}})
		if err != nil || len(p.handovers) != 1 {
			t.Fatalf("%+v, %v", p, err)
		}
		pod, err := renderedPod(p.handovers[0].make[1].(*unstructured.Unstructured), f.gateways[0].vars)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, port := range pod.Containers[0].Ports {
			got = append(got, fmt.Sprint(port.ContainerPort))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("with %d tunnels the container has the ports %s, want %s", tunnels, text, want)
		}
	}
}

func TestAdoptedTemplate(t *testing.T) {
	f := liqoFacts(t)
	for _, g := range f.gateways {
		t.Run(g.kind, func(t *testing.T) {
			theirs, ours := f.templates[g.ref], f.ours[g.templateKind]
			if err := unstructured.SetNestedField(theirs.Object, int64(3), append(slices.Clone(pathDeployment), "replicas")...); err != nil {
				t.Fatal(err)
			}
			before := theirs.DeepCopy()
			got, err := adoptedTemplate("copy", theirs, ours)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before.Object, theirs.Object); diff != "" {
				t.Errorf("Liqo's template was changed (-before +after)\n%s", diff)
			}
			for _, path := range [][]string{
				{"spec", "objectKind"}, {"spec", "template", "metadata"}, {"spec", "template", "spec", "secretRef"},
				append(slices.Clone(pathDeployment), "selector"), append(slices.Clone(pathService), "ports"), append(slices.Clone(pathService), "selector"),
				append(slices.Clone(pathPod), "serviceAccountName"), append(slices.Clone(pathPod), "priorityClassName"),
				append(slices.Clone(pathPod), "imagePullSecrets"),
			} {
				want, _, _ := unstructured.NestedFieldNoCopy(theirs.Object, path...)
				have, _, _ := unstructured.NestedFieldNoCopy(got.Object, path...)
				if diff := cmp.Diff(want, have); diff != "" {
					t.Errorf("%s (-Liqo's +ours)\n%s", strings.Join(path, "."), diff)
				}
			}
			if len(got.GetAnnotations()) != 1 || got.GetLabels()["app.kubernetes.io/managed-by"] != "liqoctl" {
				t.Errorf("Helm would take it for Liqo's: %v, %v", got.GetLabels(), got.GetAnnotations())
			}
			pod, err := renderedPod(got, g.vars)
			if err != nil {
				t.Fatal(err)
			}
			c := pod.Containers[0]
			if len(pod.Containers) != 1 || c.Image != "registry.example.org/sluice/gateway:v1.2.3" || c.SecurityContext.Privileged != nil {
				t.Errorf("containers %+v", pod.Containers)
			}
			if slices.Contains(c.Args, "--leader-election") {
				t.Errorf("nobody moves the mark to a leader: %v", c.Args)
			}
			if server := g.kind == "GatewayServer"; slices.Contains(c.Args, "--geneve-port=6081") == server || slices.Contains(c.Args, "--ping-interval=1s") == server ||
				slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--ping-loss-threshold") }) {
				t.Errorf("what Liqo's containers were told: %v", c.Args)
			}
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
				return v.Name == "wireguard-config" && v.Secret != nil && v.Secret.DefaultMode == nil
			}) || len(pod.Volumes) != 2 {
				t.Errorf("volumes %+v", pod.Volumes)
			}
			labels, _ := table(got.Object, pathPodLabels)
			replicas, _, err := unstructured.NestedInt64(got.Object, append(slices.Clone(pathDeployment), "replicas")...)
			if labels[networkingv1beta1.LabelActive] != "true" || replicas != 1 || err != nil {
				t.Errorf("%d replicas, labels %v, %v", replicas, labels, err)
			}
		})
	}
}

// TestAwaited: what a handover found that was interrupted counts, whatever the peer does now.
func TestAwaited(t *testing.T) {
	for _, back := range []bool{false, true} {
		for _, tt := range []struct {
			noted     string
			connected bool
			want      bool
		}{
			{"", false, false}, {"", true, true},
			{peerAnswered, false, true}, {peerAnswered, true, true},
			{peerWasSilent, false, false}, {peerWasSilent, true, true},
		} {
			f := liqoFacts(t).adopted(t, "milan")
			if tt.noted != "" {
				copied := f.templates[f.gateways[0].ref]
				copied.SetAnnotations(map[string]string{annotationTemplateOf: "wireguard-server", annotationSilent: tt.noted})
			}
			f.gateways[0].connected = tt.connected
			p, err := f.plan(AdoptOptions{Peers: []string{"milan"}, Back: back})
			if err != nil {
				t.Fatal(err)
			}
			h := p.handovers[0]
			h.changed = !back
			if got := h.awaited(); got != tt.want {
				t.Errorf("back %v, noted %q, connected %v: %v", back, tt.noted, tt.connected, got)
			}
		}
	}
}

// TestAnswered: only what a pod that is there can have reported tells of it, and once is enough.
func TestAnswered(t *testing.T) {
	start := metav1.Now().Rfc3339Copy()
	status := func(value networkingv1beta1.ConnectionValue, after time.Duration) networkingv1beta1.ConnectionStatus {
		return networkingv1beta1.ConnectionStatus{Value: value, Latency: networkingv1beta1.ConnectionLatency{Timestamp: metav1.NewTime(start.Add(after))}}
	}
	running := corev1.Pod{Status: corev1.PodStatus{StartTime: &start}}
	leaving := corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &start}, Status: running.Status}
	for _, tt := range []struct {
		name   string
		status networkingv1beta1.ConnectionStatus
		pods   []corev1.Pod
		want   bool
	}{
		{"long ago, by this pod", status(networkingv1beta1.Connected, time.Second), []corev1.Pod{running}, true},
		{"by the pod before", status(networkingv1beta1.Connected, -time.Second), []corev1.Pod{running}, false},
		{"in the second of the start, by either", status(networkingv1beta1.Connected, 0), []corev1.Pod{running}, false},
		{"no answer", status(networkingv1beta1.ConnectionError, time.Second), []corev1.Pod{running}, false},
		{"one of several", status(networkingv1beta1.Connected, time.Second), []corev1.Pod{{}, running}, true},
		{"not started", status(networkingv1beta1.Connected, time.Second), []corev1.Pod{{}}, false},
		{"terminating", status(networkingv1beta1.Connected, time.Second), []corev1.Pod{leaving}, false},
	} {
		if got := answered(tt.status, tt.pods); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestPrintedTemplate: who copies the template from the document gets the same program as by adopt.
func TestPrintedTemplate(t *testing.T) {
	f := liqoFacts(t)
	adopted, err := adoptedTemplate("copy", f.templates[f.gateways[0].ref], f.ours["WgGatewayServerTemplate"])
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(docs.Pages(), "liqo.md")
	if err != nil {
		t.Fatal(err)
	}
	_, printed, _ := strings.Cut(string(text), "\n## The gateway as a template\n")
	_, printed, _ = strings.Cut(printed, "```yaml\n")
	printed, _, _ = strings.Cut(printed, "```\n")
	us, err := decode(printed)
	if err != nil || len(us) != 1 {
		t.Fatalf("%d templates, %v", len(us), err)
	}
	for _, path := range [][]string{append(slices.Clone(pathPod), "securityContext"), append(slices.Clone(pathPod), "volumes"), append(slices.Clone(pathDeployment), "selector")} {
		want, _, _ := unstructured.NestedFieldNoCopy(us[0].Object, path...)
		got, _, _ := unstructured.NestedFieldNoCopy(adopted.Object, path...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-liqo.md +adopt)\n%s", strings.Join(path, "."), diff)
		}
	}
	container := func(u *unstructured.Unstructured) map[string]any {
		_, of, err := templatePod(u)
		if err != nil {
			t.Fatal(err)
		}
		return of[0]
	}
	want, got := container(us[0]), container(adopted)
	// It is for the election, which is off.
	got["args"] = slices.DeleteFunc(got["args"].([]any), func(a any) bool { return a == "--pod-name=$(POD_NAME)" })
	for _, field := range []string{"args", "readinessProbe", "securityContext", "volumeMounts"} {
		if diff := cmp.Diff(want[field], got[field]); diff != "" {
			t.Errorf("%s (-liqo.md +adopt)\n%s", field, diff)
		}
	}
}

// TestAdoptionRole: the rights are those that the document gives to who does it by hand.
func TestAdoptionRole(t *testing.T) {
	text, err := fs.ReadFile(docs.Pages(), "liqo.md")
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	_, rights, _ := strings.Cut(string(text), "\n## Rights\n")
	_, rights, _ = strings.Cut(rights, "```yaml\n")
	rights, _, found := strings.Cut(rights, "---\n")
	if err := yaml.Unmarshal([]byte(rights), &role); err != nil || !found {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rightsOf(role.Rules), rightsOf(adoptionRole().Rules)); diff != "" {
		t.Errorf("(-liqo.md +adopt)\n%s", diff)
	}
}
