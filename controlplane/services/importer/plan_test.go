package importer

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/peeraddress"
	"github.com/sluice-net/sluice/controlplane/services/description"
	"github.com/sluice-net/sluice/reflection"
)

var epoch = time.Unix(1_700_000_000, 0)

func http(port int32) networkingv1beta1.ServicePort {
	return networkingv1beta1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: port}
}

// described is a Service that was exported so long after others.
func described(after time.Duration, addresses ...string) networkingv1beta1.ServiceDescription {
	s := networkingv1beta1.ServiceSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []networkingv1beta1.ServicePort{http(8080)}}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, networkingv1beta1.ServiceEndpoint{Addresses: []string{a}, Ready: true, Serving: true})
	}
	return networkingv1beta1.ServiceDescription{
		Namespace: "shop", Name: "web", Type: networkingv1beta1.ServiceClusterSetIP, SessionAffinity: corev1.ServiceAffinityNone,
		Ports: []networkingv1beta1.ServicePort{http(80)}, ExportedAt: metav1.NewTime(epoch.Add(after)), Slices: []networkingv1beta1.ServiceSlice{s},
	}
}

// from is what a peer says, whose pod CIDR, that of this cluster, is known here by another one.
func from(t testing.TB, peer string, d networkingv1beta1.ServiceDescription) Import {
	t.Helper()
	list := func(c networkingv1beta1.CIDR) networkingv1beta1.CIDRs {
		return networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{c}}
	}
	c := networkingv1beta1.Configuration{}
	c.Spec.Remote.CIDR = networkingv1beta1.ClusterCIDR{Pod: list("10.243.0.0/16"), External: list("10.80.0.0/16")}
	c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: list("10.71.0.0/16"), External: list("10.80.0.0/16")}}
	a, err := reflection.NewAddresses(&c)
	if err != nil {
		t.Fatal(err)
	}
	judge := peeraddress.Judge{
		Cluster: peer, Addresses: a.Pods(),
		Networks: map[netip.Prefix]string{netip.MustParsePrefix("10.71.200.0/24"): "Network service-cidr of this cluster"},
		Taken:    map[netip.Addr]string{netip.MustParseAddr("10.71.9.9"): "Node worker"},
	}
	return Import{
		Object: &networkingv1beta1.ImportedService{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + peer, Name: d.ObjectName()}, Spec: d}, Peer: peer,
		Address: judge.Here, PassedOn: (&peeraddress.Judge{Cluster: peer, Addresses: a.External()}).Here,
	}
}

func facts(imports ...Import) Facts {
	return Facts{Namespace: "shop", Name: "web", Cluster: "turin", Imports: imports, IPs: []string{"10.96.0.9"}}
}

// addresses are those of all slices of a Service, "!" behind those that are not ready.
func addresses(p Plan, service string) (all []string) {
	for _, s := range p.Slices {
		if s.Labels[discoveryv1.LabelServiceName] != service {
			continue
		}
		for _, e := range s.Endpoints {
			mark := ""
			if !*e.Conditions.Ready {
				mark = "!"
			}
			all = append(all, s.Labels[mcsv1beta1.LabelSourceCluster]+" "+strings.Join(e.Addresses, "+")+mark)
		}
	}
	return all
}

func TestBuild(t *testing.T) {
	p := Build(facts(from(t, "rome", described(0, "10.243.1.2"))))
	derived := DerivedName("web")
	want := Plan{
		Import: &mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"liqo.io/managed": "true"},
				Annotations: map[string]string{"multicluster.kubernetes.io/derived-service": derived}},
			Spec: mcsv1beta1.ServiceImportSpec{
				Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.96.0.9"}, IPFamilies: []corev1.IPFamily{"IPv4"}, SessionAffinity: "None", Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
				InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
			},
		},
		Clusters: []mcsv1beta1.ClusterStatus{{Cluster: "rome"}},
		Services: []*corev1.Service{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived, Labels: map[string]string{"liqo.io/managed": "true", "multicluster.kubernetes.io/service-name": "web"}},
			Spec: corev1.ServiceSpec{Type: "ClusterIP", IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack), IPFamilies: []corev1.IPFamily{"IPv4"}, SessionAffinity: "None",
				Ports: []corev1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80, TargetPort: intstr.FromInt32(80)}}},
		}},
		Slices: []*discoveryv1.EndpointSlice{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: p.Slices[0].Name, Labels: map[string]string{
				"liqo.io/managed": "true", "endpointslice.kubernetes.io/managed-by": "endpointslice.services.liqo.io", "kubernetes.io/service-name": derived,
				"multicluster.kubernetes.io/service-name": "web", "multicluster.kubernetes.io/source-cluster": "rome",
			}},
			AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.71.1.2"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}}},
		}},
		Accepted: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", Message: "Part of the ServiceImport of this name"}},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFamiliesAndProtocols follows a Service with two families and SCTP from the objects of one cluster to those of another.
func TestFamiliesAndProtocols(t *testing.T) {
	there := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{
		ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Name: "m3ua", Protocol: corev1.ProtocolSCTP, Port: 2905}},
	}}
	var of []discoveryv1.EndpointSlice
	for family, address := range map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: "10.243.1.2", discoveryv1.AddressTypeIPv6: "fd00:243::7"} {
		of = append(of, discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(string(family))}, AddressType: family,
			Ports:     []discoveryv1.EndpointPort{{Name: new("m3ua"), Protocol: new(corev1.ProtocolSCTP), Port: new(int32(2905))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		})
	}
	d, _ := description.Of(there, of, metav1.NewTime(epoch), nil)
	in := from(t, "rome", d)
	var c networkingv1beta1.Configuration
	c.Spec.Remote.CIDR.Pod.List = []networkingv1beta1.CIDR{"10.243.0.0/16", "fd00:243::/48"}
	c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.71.0.0/16", "fd00:71::/48"}}}}
	a, err := reflection.NewAddresses(&c)
	if err != nil {
		t.Fatal(err)
	}
	in.Address = (&peeraddress.Judge{Cluster: "rome", Addresses: a}).Here
	p := Build(facts(in))
	if got := addresses(p, DerivedName("web")); !slices.Equal(got, []string{"rome 10.71.1.2", "rome fd00:71::7"}) {
		t.Errorf("%q: %s", got, p.Accepted[0].Message)
	}
	port := p.Services[0].Spec.Ports[0]
	for _, s := range p.Slices {
		if *s.Ports[0].Protocol != corev1.ProtocolSCTP || port.Protocol != corev1.ProtocolSCTP || p.Import.Spec.Ports[0].Protocol != corev1.ProtocolSCTP {
			t.Errorf("%+v %+v", s.Ports, port)
		}
	}
	const four, six, both = "SingleStack [IPv4]", "SingleStack [IPv6]", "PreferDualStack []"
	slices.SortFunc(d.Slices, func(a, b networkingv1beta1.ServiceSlice) int {
		return strings.Compare(string(a.AddressType), string(b.AddressType))
	})
	for _, x := range []struct {
		name      string
		endpoints []networkingv1beta1.ServiceSlice
		kind      networkingv1beta1.ServiceType
		ips       []string
		want      string
		imported  string // the families of the ServiceImport
	}{
		{"of both families", d.Slices, "", nil, both, "[]"},
		{"of both families, and there are both addresses", d.Slices, "", []string{"fd00:96::9", "10.96.0.9"}, both, "[IPv6 IPv4]"},
		{"with no endpoints", nil, "", nil, both, "[]"},
		{"of IPv4", d.Slices[:1], "", nil, four, "[]"},
		{"of IPv4, and there is the address of IPv6", d.Slices[:1], "", []string{"10.96.0.9", "fd00:96::9"}, four, "[IPv4]"},
		{"of IPv6", d.Slices[1:], "", nil, six, "[]"},
		{"of IPv6, and the address is one", d.Slices[1:], "", []string{"fd00:96::9"}, six, "[IPv6]"},
		{"of IPv6, and the first address is of IPv4", d.Slices[1:], "", []string{"10.96.0.9"}, both, "[IPv4]"},
		{"headless", d.Slices[:1], networkingv1beta1.ServiceHeadless, nil, both, "[IPv4]"},
		{"headless, of both families", d.Slices, networkingv1beta1.ServiceHeadless, nil, both, "[IPv4 IPv6]"},
		{"headless, with no endpoints", nil, networkingv1beta1.ServiceHeadless, nil, both, "[]"},
	} {
		in := in
		in.Object = in.Object.DeepCopy()
		in.Object.Spec.Slices = x.endpoints
		if x.kind != "" {
			in.Object.Spec.Type = x.kind
		}
		f := facts(in)
		f.IPs, f.Alias = x.ips, true
		p := Build(f)
		if got := fmt.Sprint(p.Import.Spec.IPFamilies); got != x.imported {
			t.Errorf("%s, the ServiceImport has the families %s, want %s", x.name, got, x.imported)
		}
		for _, s := range p.Services {
			if got := fmt.Sprintf("%s %s", *s.Spec.IPFamilyPolicy, s.Spec.IPFamilies); got != x.want {
				t.Errorf("%s, Service %s has addresses by %q, want %q", x.name, s.Name, got, x.want)
			}
		}
	}
}

// TestTraffic follows which endpoints a Service prefers from the objects of one cluster to those of both.
func TestTraffic(t *testing.T) {
	there := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{
		ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal), TrafficDistribution: new(corev1.ServiceTrafficDistributionPreferClose),
	}}
	of := []discoveryv1.EndpointSlice{{
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.243.1.2"}}},
	}}
	d, _ := description.Of(there, of, metav1.NewTime(epoch), nil)
	exporting := Facts{Namespace: "shop", Name: "web", Cluster: "rome", Local: &d, Nodes: map[string]string{"10.243.1.2": "worker"}}
	importing := facts(from(t, "rome", d))
	importing.Nodes = exporting.Nodes // those of another pod with the same address
	for _, test := range []struct {
		facts Facts
		node  string
	}{{exporting, "worker"}, {importing, ""}} {
		p := Build(test.facts)
		in, s, node := p.Import.Spec, p.Services[0].Spec, ""
		if n := p.Slices[0].Endpoints[0].NodeName; n != nil {
			node = *n
		}
		if *in.InternalTrafficPolicy != "Local" || *in.TrafficDistribution != "PreferClose" || *s.InternalTrafficPolicy != "Local" || s.TrafficDistribution != nil || node != test.node {
			t.Errorf("%s: %+v %+v, on node %q", test.facts.Cluster, in, s, node)
		}
	}
	there.Spec.ClusterIP = corev1.ClusterIPNone
	headless, _ := description.Of(there, of, metav1.NewTime(epoch), nil)
	p := Build(facts(from(t, "rome", headless)))
	if in, s := p.Import.Spec, p.Services[0].Spec; in.InternalTrafficPolicy != nil || in.TrafficDistribution != nil || s.InternalTrafficPolicy != nil {
		t.Errorf("headless: %+v %+v", in, s)
	}
}

func TestEndpoints(t *testing.T) {
	local := described(time.Hour, "10.243.0.5")
	away := from(t, "rome", described(0, "10.243.1.2"))
	away.Away = "the network of the peering is down"
	unknown := from(t, "rome", described(0, "10.243.1.2"))
	unknown.Unknown = "the addresses of cluster rome are not known here"
	family := described(0, "fd00::1", "10.243.1.2")
	down, headless := described(time.Hour, "10.243.0.5"), described(0, "10.243.1.2")
	down.Slices[0].Endpoints[0].Ready = false
	headless.Type = networkingv1beta1.ServiceHeadless
	prefer := func(local networkingv1beta1.ServiceDescription, theirs networkingv1beta1.ServiceDescription) Facts {
		f := facts(from(t, "rome", theirs))
		f.Local, f.PreferLocal = &local, true
		return f
	}
	for _, test := range []struct {
		name  string
		facts Facts
		want  []string
		says  string // in the first condition
	}{
		{"of two clusters", facts(from(t, "rome", described(0, "10.243.1.2")), from(t, "milan", described(1, "10.243.0.3"))), []string{"rome 10.71.1.2", "milan 10.71.0.3"}, "Part of"},
		{"of this cluster, too", Facts{Namespace: "shop", Name: "web", Cluster: "turin", Local: &local, Imports: []Import{from(t, "rome", described(0, "10.243.1.2"))}}, []string{"rome 10.71.1.2", "turin 10.243.0.5"}, "Part of"},
		{"of this cluster first, and written first, as there is to be one all the time", prefer(local, described(0, "10.243.1.2")), []string{"turin 10.243.0.5", "rome 10.71.1.2!"}, "no endpoint is used while one of this cluster is ready"},
		{"of this cluster first, where none is ready", prefer(down, described(0, "10.243.1.2")), []string{"rome 10.71.1.2", "turin 10.243.0.5!"}, "Part of"},
		{"headless, which has no order", prefer(local, headless), []string{"rome 10.71.1.2", "turin 10.243.0.5"}, "Part of"},
		{"of a peer that is away", facts(away), []string{"rome 10.71.1.2!"}, "no endpoint is ready: the network of the peering is down"},
		{"of a peer whose addresses are not known", facts(unknown), nil, "not known here"},
		{"that lead elsewhere", facts(from(t, "rome", described(0, "10.96.0.1", "192.0.2.1", "127.0.0.1", "169.254.169.254", "10.243.200.1", "10.80.0.1", "10.243.9.9", "::ffff:10.243.1.1", "x"))), nil,
			"spec.slices[0].endpoints[0] is left out: 10.96.0.1 is in no CIDR of cluster rome"},
		{"many that lead elsewhere", facts(from(t, "rome", described(0, "1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4", "1.1.1.5"))), nil, "and 2 more"},
		{"of a node of this cluster", facts(from(t, "rome", described(0, "10.243.9.9", "10.243.1.2"))), []string{"rome 10.71.1.2"}, "leads to 10.71.9.9 here, an address of Node worker"},
		{"of another family than their slice", facts(from(t, "rome", family)), []string{"rome 10.71.1.2"}, "fd00::1 is not of type IPv4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := Build(test.facts)
			if diff := cmp.Diff(test.want, addresses(p, DerivedName("web"))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if c := p.Accepted[0]; c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, test.says) || len(c.Message) > 1024 {
				t.Errorf("%s: %s, want %q", c.Status, c.Message, test.says)
			}
		})
	}
}

// TestPassedOn has a hub pass on endpoints of other clusters.
func TestPassedOn(t *testing.T) {
	for _, test := range []struct {
		name, cluster, address string
		want                   []string // with the mark of passed endpoints
		says                   string
	}{
		{"of a cluster behind it", "milan", "10.80.0.5", []string{"milan 10.80.0.5 milan"}, ""},
		{"under an address of its pods", "milan", "10.243.0.5", nil, "in no CIDR of cluster rome"},
		{"its own under an address of others", "", "10.80.0.5", nil, "in no CIDR of cluster rome"},
		{"of a peer of this cluster", "naples", "10.80.0.5", nil, "cluster naples is not reached through another one"},
		{"of this cluster", "turin", "10.80.0.5", nil, "cluster turin is not reached through another one"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := described(0, test.address)
			d.Slices[0].Cluster = test.cluster
			in := from(t, "rome", d)
			in.Connected = map[string]bool{"rome": true, "naples": true}
			p := Build(facts(in))
			var got []string
			for _, s := range p.Slices {
				got = append(got, strings.Join([]string{s.Labels[mcsv1beta1.LabelSourceCluster], s.Endpoints[0].Addresses[0], s.Labels["liqo.io/passed-on-from"]}, " "))
			}
			if !slices.Equal(got, test.want) || !strings.Contains(p.Accepted[0].Message, test.says) {
				t.Errorf("%q, %s", got, p.Accepted[0].Message)
			}
			if n := len(p.Clusters); n != 1+len(test.want) {
				t.Errorf("%d clusters: %+v", n, p.Clusters)
			}
		})
	}
}

// TestNamespaceCreated has two peers export a Service of a namespace that is missing; for one of them it is created.
func TestNamespaceCreated(t *testing.T) {
	f := facts(from(t, "rome", described(0, "10.243.1.2")), from(t, "milan", described(1, "10.243.1.3")))
	f.NamespaceMissing, f.Imports[1].Creates = true, true
	p := Build(f)
	want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"liqo.io/imported-from": "milan"}}}
	if diff := cmp.Diff(want, p.Namespace); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := []string{p.Accepted[0].Reason, p.Accepted[1].Reason}; !slices.Equal(got, []string{"NamespaceNotFound", "Accepted"}) {
		t.Errorf("accepted: %q", got)
	}
}

func TestRefused(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, test := range []struct {
		name   string
		change func(*Facts, *networkingv1beta1.ServiceDescription)
		reason networkingv1beta1.ConditionReason
		says   string
	}{
		{"a namespace that is not here", func(f *Facts, _ *networkingv1beta1.ServiceDescription) { f.NamespaceMissing = true }, "NamespaceNotFound", "no namespace shop"},
		{"a namespace that ends", func(f *Facts, _ *networkingv1beta1.ServiceDescription) {
			f.NamespaceEnds, f.Imports[0].Creates = true, true
		}, "NamespaceNotFound", "being deleted"},
		{"a namespace that cannot be created", func(f *Facts, _ *networkingv1beta1.ServiceDescription) {
			f.NamespaceMissing, f.Imports[0].Creates, f.Imports[0].Full = true, true, true
		}, "TooManyNamespaces", "-l liqo.io/imported-from=rome"},
		{"a namespace of Kubernetes", func(f *Facts, _ *networkingv1beta1.ServiceDescription) {
			f.Reserved = "kube-system is a namespace of Kubernetes itself"
		}, "NamespaceReserved", "kube-system"},
		{"no peering", func(f *Facts, _ *networkingv1beta1.ServiceDescription) { f.Imports[0].Peer = "" }, "NoPeering", "no Configuration"},
		{"a peer that calls itself like this cluster", func(f *Facts, _ *networkingv1beta1.ServiceDescription) { f.Imports[0].Peer = "turin" }, "NoPeering", "the ID of this cluster"},
		{"another object's name", func(f *Facts, _ *networkingv1beta1.ServiceDescription) { f.Imports[0].Object.Name = "shop.db" }, "InvalidService", "its name would be shop.web"},
		{"a name of a namespace that is none", func(_ *Facts, d *networkingv1beta1.ServiceDescription) { d.Namespace = "../x" }, "InvalidService", "spec.namespace"},
		{"a name that is too long", func(_ *Facts, d *networkingv1beta1.ServiceDescription) { d.Name = long }, "InvalidService", "spec.name"},
		{"a type that is none", func(_ *Facts, d *networkingv1beta1.ServiceDescription) { d.Type = "ExternalName" }, "InvalidService", "spec.type"},
		{"no port", func(_ *Facts, d *networkingv1beta1.ServiceDescription) { d.Ports = nil }, "InvalidService", "spec.ports is empty"},
		{"port 0", func(_ *Facts, d *networkingv1beta1.ServiceDescription) { d.Ports[0].Port = 0 }, "InvalidService", "spec.ports[0].port"},
		{"two ports of one name", func(_ *Facts, d *networkingv1beta1.ServiceDescription) { d.Ports = append(d.Ports, http(81)) }, "InvalidService", "another port has the name"},
		{"two names of one port", func(_ *Facts, d *networkingv1beta1.ServiceDescription) {
			d.Ports = append(d.Ports, networkingv1beta1.ServicePort{Name: "b", Protocol: "TCP", Port: 80})
		}, "InvalidService", "TCP 80 too"},
		{"a protocol that is none", func(_ *Facts, d *networkingv1beta1.ServiceDescription) { d.Slices[0].Ports[0].Protocol = "ICMP" }, "InvalidService", "spec.slices[0].ports[0].protocol"},
		{"an application protocol that is none", func(_ *Facts, d *networkingv1beta1.ServiceDescription) { d.Ports[0].AppProtocol = new("a b") }, "InvalidService", "appProtocol"},
		{"a host name that is none", func(_ *Facts, d *networkingv1beta1.ServiceDescription) {
			d.Slices[0].Endpoints[0].Hostname = new("not a name")
		}, "InvalidService", "hostname"},
		{"names of hosts", func(_ *Facts, d *networkingv1beta1.ServiceDescription) { d.Slices[0].AddressType = "FQDN" }, "InvalidService", "addressType"},
		{"an affinity of years", func(_ *Facts, d *networkingv1beta1.ServiceDescription) {
			d.SessionAffinityTimeoutSeconds = new(int32(1 << 30))
		}, "InvalidService", "sessionAffinityTimeoutSeconds"},
		{"a traffic policy that is none", func(_ *Facts, d *networkingv1beta1.ServiceDescription) { d.InternalTrafficPolicy = "Planet" }, "InvalidService", "internalTrafficPolicy"},
		{"a traffic distribution that is none", func(_ *Facts, d *networkingv1beta1.ServiceDescription) { d.TrafficDistribution = "Prefer\n" }, "InvalidService", "trafficDistribution"},
		{"a traffic distribution without end", func(_ *Facts, d *networkingv1beta1.ServiceDescription) { d.TrafficDistribution = long }, "InvalidService", "trafficDistribution"},
		{"too many slices", func(_ *Facts, d *networkingv1beta1.ServiceDescription) {
			d.Slices = make([]networkingv1beta1.ServiceSlice, 101)
		}, "InvalidService", "spec.slices has 101 entries"},
		{"too many endpoints", func(_ *Facts, d *networkingv1beta1.ServiceDescription) {
			d.Slices[0].Endpoints = make([]networkingv1beta1.ServiceEndpoint, 1001)
		}, "InvalidService", "1001 endpoints"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := facts(from(t, "rome", described(0, "10.243.1.2")))
			test.change(&f, &f.Imports[0].Object.Spec)
			p := Build(f)
			if c := p.Accepted[0]; c.Status != metav1.ConditionFalse || c.Reason != string(test.reason) || !strings.Contains(c.Message, test.says) {
				t.Errorf("%s %s: %s; want %s: %s", c.Status, c.Reason, c.Message, test.reason, test.says)
			}
			if p.Import != nil || len(p.Services)+len(p.Slices) > 0 {
				t.Errorf("and it is made: %+v", p)
			}
		})
	}
}

func TestSecondObjectOfAPeer(t *testing.T) {
	again := from(t, "rome", described(1, "10.243.1.3"))
	again.Object.Namespace = "elsewhere"
	p := Build(facts(from(t, "rome", described(0, "10.243.1.2")), again))
	if got := addresses(p, DerivedName("web")); !slices.Equal(got, []string{"rome 10.71.1.2"}) || p.Accepted[1].Reason != "NoPeering" {
		t.Errorf("%q %+v", got, p.Accepted[1])
	}
}

// TestFamilies: in a cluster of two families an imported Service has only addresses that lead to endpoints.
func TestFamilies(t *testing.T) {
	for _, test := range []struct {
		name      string
		ips       []string
		endpoints []string
		want      []string
	}{
		{"one of two", []string{"10.96.0.9", "fd00::9"}, []string{"10.243.1.2"}, []string{"10.96.0.9"}},
		{"none, yet", []string{"10.96.0.9", "fd00::9"}, nil, []string{"10.96.0.9", "fd00::9"}},
		{"only another one", []string{"fd00::9"}, []string{"10.243.1.2"}, []string{"fd00::9"}},
		{"no address, yet", nil, []string{"10.243.1.2"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := described(0, test.endpoints...)
			f := facts()
			f.Local, f.IPs = &d, test.ips
			if got := Build(f).Import.Spec.IPs; !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestConflicts(t *testing.T) {
	change := func(of func(*networkingv1beta1.ServiceDescription)) networkingv1beta1.ServiceDescription {
		d := described(time.Hour, "10.243.1.2")
		of(&d)
		return d
	}
	more := networkingv1beta1.ServicePort{Name: "metrics", Protocol: "TCP", Port: 9090}
	six := networkingv1beta1.ServiceSlice{AddressType: discoveryv1.AddressTypeIPv6, Endpoints: []networkingv1beta1.ServiceEndpoint{{Addresses: []string{"fd00:243::7"}, Ready: true}}}
	for _, test := range []struct {
		name   string
		theirs networkingv1beta1.ServiceDescription
		reason string
		ports  int
	}{
		{"none", described(time.Hour), "NoConflicts", 1},
		{"another number", change(func(d *networkingv1beta1.ServiceDescription) { d.Ports[0].Port = 81 }), "PortConflict", 1},
		{"another name", change(func(d *networkingv1beta1.ServiceDescription) { d.Ports[0].Name = "web" }), "PortConflict", 1},
		{"no name", change(func(d *networkingv1beta1.ServiceDescription) {
			d.Ports[0] = networkingv1beta1.ServicePort{Protocol: "TCP", Port: 90}
		}), "PortConflict", 1},
		{"a port more", change(func(d *networkingv1beta1.ServiceDescription) { d.Ports = append(d.Ports, more) }), "PortConflict", 2},
		{"the other port", change(func(d *networkingv1beta1.ServiceDescription) { d.Ports[0] = more }), "PortConflict", 2},
		{"headless", change(func(d *networkingv1beta1.ServiceDescription) { d.Type = "Headless" }), "TypeConflict", 1},
		{"affinity", change(func(d *networkingv1beta1.ServiceDescription) { d.SessionAffinity = "ClientIP" }), "SessionAffinityConflict", 1},
		{"traffic policy", change(func(d *networkingv1beta1.ServiceDescription) { d.InternalTrafficPolicy = "Local" }), "InternalTrafficPolicyConflict", 1},
		{"the default traffic policy", change(func(d *networkingv1beta1.ServiceDescription) { d.InternalTrafficPolicy = "Cluster" }), "NoConflicts", 1},
		{"traffic distribution", change(func(d *networkingv1beta1.ServiceDescription) { d.TrafficDistribution = "PreferClose" }), "TrafficDistributionConflict", 1},
		{"labels", change(func(d *networkingv1beta1.ServiceDescription) { d.Labels = map[string]string{"tier": "front"} }), "LabelsConflict", 1},
		{"annotations", change(func(d *networkingv1beta1.ServiceDescription) { d.Annotations = map[string]string{"owner": "rome"} }), "AnnotationsConflict", 1},
		{"another family", change(func(d *networkingv1beta1.ServiceDescription) { d.Slices = []networkingv1beta1.ServiceSlice{six} }), "IPFamilyConflict", 1},
		{"a family more", change(func(d *networkingv1beta1.ServiceDescription) { d.Slices = append(d.Slices, six) }), "IPFamilyConflict", 1},
		{"a family more without endpoints", change(func(d *networkingv1beta1.ServiceDescription) {
			d.Slices = append(d.Slices, networkingv1beta1.ServiceSlice{AddressType: discoveryv1.AddressTypeIPv6})
		}), "NoConflicts", 1},
		{"a family more of another cluster", change(func(d *networkingv1beta1.ServiceDescription) {
			d.Slices = append(d.Slices, six)
			d.Slices[1].Cluster = "milan"
		}), "NoConflicts", 1},
		{"two things", change(func(d *networkingv1beta1.ServiceDescription) { d.Type, d.Ports[0].Port = "Headless", 81 }), "PortConflict,TypeConflict", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			local := described(0, "10.243.0.5")
			f := facts(from(t, "rome", test.theirs))
			f.Local = &local
			p := Build(f)
			if p.Conflict.Reason != test.reason || (p.Conflict.Status == metav1.ConditionTrue) != (test.reason != "NoConflicts") {
				t.Errorf("%s %s: %s", p.Conflict.Status, p.Conflict.Reason, p.Conflict.Message)
			}
			if test.name == "two things" && !strings.HasSuffix(p.Conflict.Message, "These clusters differ: rome (port, type)") {
				t.Errorf("it says %q", p.Conflict.Message)
			}
			if test.reason == "IPFamilyConflict" && !strings.HasSuffix(p.Conflict.Message, "These clusters differ: rome (ipFamily)") {
				t.Errorf("it says %q", p.Conflict.Message)
			}
			if len(p.Import.Spec.Ports) != test.ports || p.Import.Spec.Ports[0].Port != 80 || p.Import.Spec.Type != mcsv1beta1.ClusterSetIP {
				t.Errorf("%+v", p.Import.Spec)
			}
			if c := p.Accepted[0]; c.Status != metav1.ConditionTrue || strings.Contains(c.Message, "turin is older") != (test.reason != "NoConflicts") {
				t.Errorf("%+v", c)
			}
		})
	}
	t.Run("a port less", func(t *testing.T) {
		local := described(0, "10.243.0.5")
		local.Ports = append(local.Ports, more)
		f := facts(from(t, "rome", described(time.Hour)))
		f.Local = &local
		if p := Build(f); p.Conflict.Reason != "PortConflict" || len(p.Import.Spec.Ports) != 2 {
			t.Errorf("%+v %+v", p.Conflict, p.Import.Spec.Ports)
		}
	})
	t.Run("a port that lost leads nowhere", func(t *testing.T) {
		local := described(0, "10.243.0.5")
		f := facts(from(t, "rome", change(func(d *networkingv1beta1.ServiceDescription) {
			d.Ports = []networkingv1beta1.ServicePort{http(81), more}
			d.Slices[0].Ports = append(d.Slices[0].Ports, more)
		})))
		f.Local = &local
		leads := map[string][]string{}
		for _, s := range Build(f).Slices {
			for _, p := range s.Ports {
				leads[*p.Name] = append(leads[*p.Name], s.Labels[mcsv1beta1.LabelSourceCluster])
			}
		}
		if want := map[string][]string{"http": {"turin"}, "metrics": {"rome"}}; !maps.EqualFunc(leads, want, slices.Equal) {
			t.Errorf("ports lead to %v, want %v", leads, want)
		}
	})
	t.Run("the older one wins, whoever it is", func(t *testing.T) {
		local := described(time.Hour, "10.243.0.5")
		theirs := described(0)
		theirs.Type = networkingv1beta1.ServiceHeadless
		f := facts(from(t, "rome", theirs))
		f.Local = &local
		p := Build(f)
		if p.Import.Spec.Type != mcsv1beta1.Headless || p.Services[0].Spec.ClusterIP != "None" || len(p.Import.Spec.IPs) > 0 || p.Conflict.Reason != "TypeConflict" {
			t.Errorf("%+v %+v", p.Import.Spec, p.Conflict)
		}
		for _, s := range p.Slices {
			if _, ok := s.Labels[corev1.IsHeadlessService]; !ok {
				t.Errorf("%s is not labelled as headless", s.Name)
			}
		}
	})
}

// TestLabels: the ServiceImport has the labels and annotations of the oldest export, and its own ones.
func TestLabels(t *testing.T) {
	older, younger := described(0, "10.243.1.2"), described(time.Hour, "10.243.1.3")
	older.Labels, older.Annotations = map[string]string{"tier": "front"}, map[string]string{"owner": "rome"}
	younger.Labels, younger.Annotations = map[string]string{"tier": "back", "more": ""}, map[string]string{"owner": "milan"}
	p := Build(facts(from(t, "rome", older), from(t, "milan", younger)))
	if diff := cmp.Diff(map[string]string{"tier": "front", "liqo.io/managed": "true"}, p.Import.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"owner": "rome", "multicluster.kubernetes.io/derived-service": DerivedName("web")}, p.Import.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	for _, reserved := range []string{"liqo.io/managed", "multicluster.kubernetes.io/derived-service", "multicluster.x-k8s.io/a", "k8s.io/a", "a b", ""} {
		for _, of := range []*map[string]string{&older.Labels, &older.Annotations} {
			had := *of
			*of = map[string]string{reserved: "x"}
			if c := Build(facts(from(t, "rome", older))).Accepted[0]; c.Reason != "InvalidService" {
				t.Errorf("%q is accepted: %s", reserved, c.Message)
			}
			*of = had
		}
	}
}

func TestAlias(t *testing.T) {
	f := facts(from(t, "rome", described(0, "10.243.1.2")))
	f.Alias = true
	p := Build(f)
	if len(p.Services) != 2 || p.Services[1].Name != "web" || !slices.Equal(addresses(p, "web"), []string{"rome 10.71.1.2"}) {
		t.Errorf("%+v", p)
	}
	for _, test := range []struct {
		label        string
		installation bool
		want         bool
	}{{"", false, false}, {"", true, true}, {"true", false, true}, {"false", true, false}} {
		if got := wantsAlias(test.label, test.installation); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// TestAliasTaken: whoever wants an alias is told why there is none, unless the Service of that name is the one that is exported.
func TestAliasTaken(t *testing.T) {
	f := facts(from(t, "rome", described(0, "10.243.1.2")))
	if p := Build(f); p.Alias != nil {
		t.Errorf("no alias is wanted: %+v", p.Alias)
	}
	f.AliasTaken = true
	p := Build(f)
	if p.Alias == nil || p.Alias.Status != metav1.ConditionFalse || p.Alias.Reason != "NameTaken" || !strings.Contains(p.Alias.Message, "a Service web of its own") || len(p.Services) != 1 {
		t.Errorf("%+v, Services %+v", p.Alias, p.Services)
	}
	f.Local = new(described(0, "10.244.1.2"))
	if p := Build(f); p.Alias != nil {
		t.Errorf("the Service is exported itself: %+v", p.Alias)
	}
}

// TestNamesAreDistinct has many clusters with many slices: a name twice would be one slice with the endpoints of the last.
func TestNamesAreDistinct(t *testing.T) {
	var imports []Import
	for i := range 50 {
		d := described(time.Duration(i), "10.243.1.2")
		d.Slices = slices.Repeat(d.Slices, 20)
		imports = append(imports, from(t, fmt.Sprintf("cluster-%d", i), d))
	}
	f := facts(imports...)
	f.Alias = true
	names := map[string]bool{}
	for _, s := range Build(f).Slices {
		if names[s.Name] {
			t.Fatalf("%s twice", s.Name)
		}
		names[s.Name] = true
	}
	if len(names) != 2*50*20 {
		t.Errorf("%d slices", len(names))
	}
}

// TestFamilyStays: a slice of one family never gets the name of one of the other, whatever is the order in which a peer tells of
// them. An API server refuses to change the family of a slice.
func TestFamilyStays(t *testing.T) {
	four := networkingv1beta1.ServiceSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []networkingv1beta1.ServiceEndpoint{{Addresses: []string{"10.243.1.2"}, Ready: true}}}
	six := networkingv1beta1.ServiceSlice{AddressType: discoveryv1.AddressTypeIPv6, Endpoints: []networkingv1beta1.ServiceEndpoint{{Addresses: []string{"fd00:243::7"}, Ready: true}}}
	had := map[string]discoveryv1.AddressType{}
	for _, said := range [][]networkingv1beta1.ServiceSlice{{four}, {six, four}, {four, six}, {six}} {
		d := described(0)
		d.Slices = said
		f := facts()
		f.Local, f.Alias = &d, true
		p := Build(f)
		if len(p.Slices) != 2*len(said) {
			t.Errorf("%d slices of %d", len(p.Slices), len(said))
		}
		for _, s := range p.Slices {
			if was, known := had[s.Name]; known && was != s.AddressType {
				t.Errorf("%s was of %s and is of %s", s.Name, was, s.AddressType)
			}
			had[s.Name] = s.AddressType
		}
	}
	if len(had) != 4 {
		t.Errorf("%d names for a Service and its alias in two families: %v", len(had), had)
	}
}

// FuzzBuild has a peer say anything: no address leads to where it must not, and whatever is made is what an API server takes.
func FuzzBuild(f *testing.F) {
	f.Add("shop", "web", "http", int32(80), "10.243.1.2", "IPv4", "web-0", "")
	f.Add("shop", "web", "http", int32(80), "10.80.1.2", "IPv4", "web-0", "milan")
	f.Add("kube-system", "kubernetes", "", int32(0), "::ffff:127.0.0.1", "IPv6", "", "turin")
	f.Fuzz(func(t *testing.T, namespace, name, port string, number int32, address, family, host, cluster string) {
		d := described(0, address)
		d.Namespace, d.Name, d.Ports[0].Name, d.Ports[0].Port = namespace, name, port, number
		d.Slices[0].AddressType, d.Slices[0].Endpoints[0].Hostname = discoveryv1.AddressType(family), &host
		d.Slices[0].Cluster = cluster
		in := from(t, "rome", d)
		in.Connected = map[string]bool{"rome": true}
		p := Build(facts(in))
		if p.Import == nil {
			return
		}
		of, theirs := "rome", netip.MustParsePrefix("10.71.0.0/16")
		if cluster != "" {
			of, theirs = cluster, netip.MustParsePrefix("10.80.0.0/16")
		}
		for _, a := range addresses(p, DerivedName("web")) {
			source, text, _ := strings.Cut(a, " ")
			here := netip.MustParseAddr(strings.TrimSuffix(text, "!"))
			if source != of || cluster == "rome" || cluster == "turin" {
				t.Errorf("%s of %q is said to be of %s", here, cluster, source)
			}
			if !theirs.Contains(here) {
				t.Errorf("%s is not the peer's", here)
			}
			if here == netip.MustParseAddr("10.71.9.9") || netip.MustParsePrefix("10.71.200.0/24").Contains(here) {
				t.Errorf("%s is this cluster's", here)
			}
		}
		if n := p.Import.Spec.Ports[0].Port; n < 1 || n > 65535 {
			t.Errorf("port %d", n)
		}
	})
}
