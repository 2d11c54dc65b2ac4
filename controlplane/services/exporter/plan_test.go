package exporter

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

var exportedAt = metav1.NewTime(time.Unix(1_700_000_000, 0))

func endpoints(addresses ...string) (es []discoveryv1.Endpoint) {
	for _, a := range addresses {
		es = append(es, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return es
}

func slice(name string, addresses ...string) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}, Endpoints: endpoints(addresses...),
	}
}

// facts are those of a Service with two pods, in a cluster with two peers.
func facts() Facts {
	return Facts{
		Export: &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: exportedAt}},
		Service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		},
		Slices:   []discoveryv1.EndpointSlice{slice("web-b", "10.243.0.2"), slice("web-a", "10.243.0.1")},
		Peers:    []Peer{{ID: "milan", Namespace: "liqo-tenant-milan"}, {ID: "rome", Namespace: "liqo-tenant-rome"}},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.243.0.0/16")},
		Taken:    map[netip.Addr]string{netip.MustParseAddr("10.243.9.9"): "Node worker"},
	}
}

func TestBuild(t *testing.T) {
	got := Build(facts())
	port := networkingv1beta1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}
	at := port
	at.Port = 8080
	want := &networkingv1beta1.ExportedService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "shop.web", Labels: map[string]string{
			"liqo.io/managed": "true", "liqo.io/remote-cluster-id": "milan",
		}},
		Spec: networkingv1beta1.ServiceDescription{
			Namespace: "shop", Name: "web", Type: "ClusterSetIP", SessionAffinity: "None", ExportedAt: exportedAt,
			Ports: []networkingv1beta1.ServicePort{port},
			Slices: []networkingv1beta1.ServiceSlice{{AddressType: "IPv4", Ports: []networkingv1beta1.ServicePort{at}, Endpoints: []networkingv1beta1.ServiceEndpoint{
				{Addresses: []string{"10.243.0.1"}, Ready: true, Serving: true}, {Addresses: []string{"10.243.0.2"}, Ready: true, Serving: true},
			}}},
		},
	}
	if len(got.Exported) != 2 || got.Exported[1].Namespace != "liqo-tenant-rome" {
		t.Fatalf("exported: %+v", got.Exported)
	}
	if diff := cmp.Diff(want, got.Exported[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConditions(t *testing.T) {
	many := func(n int) (addresses []string) {
		for i := range n {
			addresses = append(addresses, fmt.Sprintf("10.243.%d.%d", 1+i/256, i%256))
		}
		return addresses
	}
	for _, test := range []struct {
		name                         string
		change                       func(*Facts)
		to                           string // the peers that are told
		endpoints                    int
		valid, ready, reason, saying string
	}{
		{"a Service with pods", func(*Facts) {}, "milan rome", 2, "True", "True", "Exported", "Exported to milan, rome"},
		{"no Service", func(f *Facts) { f.Service = nil }, "", 0, "False", "False", "NoService", "There is no Service web in namespace shop"},
		{"an ExternalName", func(f *Facts) { f.Service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName} }, "", 0, "False", "False", "InvalidServiceType", "ExternalName"},
		{"a namespace of Kubernetes", func(f *Facts) { f.Reserved = "kube-system is a namespace of Kubernetes itself" }, "", 0, "False", "False", "NamespaceReserved", "not exported"},
		{"no peers", func(f *Facts) { f.Peers = nil }, "", 0, "True", "False", "Pending", "connected to no other one"},
		{"one peer only", func(f *Facts) { f.Export.Annotations = map[string]string{"liqo.io/export-to": "rome, naples"} }, "rome", 2, "True", "True", "Exported", "not connected to naples"},
		{"nobody", func(f *Facts) { f.Export.Annotations = map[string]string{"liqo.io/export-to": ""} }, "", 0, "True", "False", "Pending", "liqo.io/export-to names no cluster"},
		{"one peer may not see it", func(f *Facts) { f.Peers[0].Denied = true }, "rome", 2, "True", "True", "Exported", "Exported to rome; Not to milan: the annotation liqo.io/export-services"},
		{"no peer may see it", func(f *Facts) { f.Peers[0].Denied, f.Peers[1].Denied = true, true }, "", 0, "True", "False", "Pending", "Not to milan, rome"},
		{"a hostile annotation", func(f *Facts) {
			f.Export.Annotations = map[string]string{"liqo.io/export-to": "rome," + strings.Repeat("x", 1<<18) + strings.Repeat(",y", 1<<10)}
		}, "rome", 2, "True", "True", "Exported", "Exported to rome"},
		{"endpoints elsewhere", func(f *Facts) {
			f.Slices = append(f.Slices, slice("web-c", "192.0.2.1", "10.96.0.1", "10.243.9.9", "169.254.169.254", "127.0.0.1"))
		}, "milan rome", 2, "True", "True", "Exported", "5 endpoints are left out; 192.0.2.1 is in no pod CIDR of this cluster; 10.96.0.1"},
		{"an address of a node among those of pods", func(f *Facts) { f.Slices = []discoveryv1.EndpointSlice{slice("a", "10.243.9.9")} }, "milan rome", 0, "True", "True", "Exported", "Node worker"},
		{"names of hosts", func(f *Facts) { f.Slices[0].AddressType = discoveryv1.AddressTypeFQDN }, "milan rome", 1, "True", "True", "Exported", "Exported"},
		{"more endpoints than allowed", func(f *Facts) { f.Slices = []discoveryv1.EndpointSlice{slice("a", many(1200)...)} }, "milan rome", 1000, "True", "True", "Exported", "200 endpoints are left out"},
		{"one peer is full", func(f *Facts) { f.Peers[0].Services = 2000 }, "rome", 2, "True", "False", "Failed", "milan is already offered 2000 Services, the maximum; Exported to rome"},
		{"one peer has too many endpoints", func(f *Facts) { f.Peers[0].Endpoints = 19_999 }, "rome", 2, "True", "False", "Failed", "milan would be offered 20001 endpoints"},
		{"headless without ports", func(f *Facts) { f.Service.Spec.ClusterIP, f.Service.Spec.Ports = "None", nil }, "milan rome", 2, "True", "True", "Exported", "Exported"},
		{"an address and no ports", func(f *Facts) { f.Service.Spec.Ports = nil }, "", 0, "False", "False", "InvalidServiceType", "no ports"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := facts()
			test.change(&f)
			p := Build(f)
			var to []string
			for _, e := range p.Exported {
				to = append(to, e.Labels["liqo.io/remote-cluster-id"])
				n := 0
				for _, s := range e.Spec.Slices {
					n += len(s.Endpoints)
				}
				if n != test.endpoints {
					t.Errorf("%d endpoints, want %d", n, test.endpoints)
				}
			}
			if got := strings.Join(to, " "); got != test.to {
				t.Errorf("told: %q, want %q", got, test.to)
			}
			valid, ready := meta.FindStatusCondition(p.Conditions, "Valid"), meta.FindStatusCondition(p.Conditions, "Ready")
			if string(valid.Status) != test.valid || string(ready.Status) != test.ready {
				t.Errorf("conditions %+v", p.Conditions)
			}
			c := ready
			if test.valid == "False" {
				c = valid
			}
			if c.Reason != test.reason || !strings.Contains(c.Message, test.saying) || len(c.Message) > 1024 {
				t.Errorf("%s: %s, want %s: %s", c.Reason, c.Message, test.reason, test.saying)
			}
			if c := meta.FindStatusCondition(p.Conditions, "OptionsRead"); c == nil || c.Message != networkingv1beta1.ExportOptions(f.Export.Annotations) || len(c.Message) > 1000 {
				t.Errorf("the options that were read: %+v", c)
			}
			// What makes room for it at a peer wakes nobody.
			if p.Full != (test.reason == "Failed") {
				t.Errorf("looks again: %v", p.Full)
			}
		})
	}
	if p := Build(Facts{}); len(p.Exported) > 0 || len(p.Conditions) > 0 {
		t.Errorf("without a ServiceExport: %+v", p)
	}
}

// TestLabels: peers are told of the labels and annotations that a ServiceExport names, but for those that mean something
// there, or that no API server takes.
func TestLabels(t *testing.T) {
	f := facts()
	f.Export.Spec.ExportedLabels = map[string]string{
		"tier": "front", "app.kubernetes.io/name": "web", "kubernetes.io/service-name": "web", "liqo.io/managed": "false", "shop": strings.Repeat("x", 64),
	}
	f.Export.Spec.ExportedAnnotations = map[string]string{"shop.example/owner": "the team of the shop", "kubectl.kubernetes.io/last-applied-configuration": "{}", "long": strings.Repeat("x", 1025)}
	p := Build(f)
	for _, e := range p.Exported {
		if diff := cmp.Diff(map[string]string{"tier": "front", "app.kubernetes.io/name": "web"}, e.Spec.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"shop.example/owner": "the team of the shop"}, e.Spec.Annotations); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
		if err := e.Spec.Check(); err != nil {
			t.Errorf("a peer refuses it: %v", err)
		}
	}
	ready := meta.FindStatusCondition(p.Conditions, "Ready")
	for _, says := range []string{"an exported label is left out: kubernetes.io/service-name is reserved", "liqo.io/managed is reserved", "shop: ", "an exported annotation is left out: kubectl.kubernetes.io", "long has 1025 bytes"} {
		if !strings.Contains(ready.Message, says) {
			t.Errorf("%q does not say %q", ready.Message, says)
		}
	}
	f.Export.Spec.ExportedLabels = map[string]string{}
	for i := range 40 {
		f.Export.Spec.ExportedLabels[fmt.Sprintf("label-%02d", i)] = ""
	}
	p = Build(f)
	if n := len(p.Exported[0].Spec.Labels); n != 32 || p.Exported[0].Spec.Check() != nil {
		t.Errorf("%d labels of 40: %v", n, p.Exported[0].Spec.Check())
	}
	if m := meta.FindStatusCondition(p.Conditions, "Ready").Message; !strings.Contains(m, "label-32 is one of more than 32") {
		t.Errorf("it says %q", m)
	}
}

func TestPeersOf(t *testing.T) {
	c := func(namespace, id string, age time.Duration) networkingv1beta1.Configuration {
		return networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "c", Labels: map[string]string{"liqo.io/remote-cluster-id": id}, CreationTimestamp: metav1.NewTime(exportedAt.Add(-age)),
		}}
	}
	ends := c("e", "naples", 0)
	ends.DeletionTimestamp = new(exportedAt)
	milan := c("m", "milan", 0)
	milan.Annotations = map[string]string{networkingv1beta1.AnnotationExportServices: "shop/db"}
	turin := c("t", "turin", 0)
	turin.Annotations = map[string]string{networkingv1beta1.AnnotationExportServices: "shop/db, tier=public", networkingv1beta1.AnnotationPassOnServices: "shop"}
	got := peersOf([]networkingv1beta1.Configuration{c("b", "rome", 0), c("a", "rome", time.Hour), milan, turin, c("x", "", 0), ends},
		types.NamespacedName{Namespace: "shop", Name: "web"}, map[string]string{"tier": "public"})
	if diff := cmp.Diff([]Peer{{ID: "milan", Namespace: "m", Denied: true}, {ID: "rome", Namespace: "a"}, {ID: "turin", Namespace: "t", PassOn: true}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
