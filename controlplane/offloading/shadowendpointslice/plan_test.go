package shadowendpointslice

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/peeraddress"
	"github.com/sluice-net/sluice/reflection"
)

// rome has the pod CIDR of this cluster, which knows it by another one, and an external CIDR that it knows as it is.
func rome(t testing.TB) Facts {
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
	return Facts{Judge: peeraddress.Judge{
		Cluster: "rome", Addresses: a,
		Networks: map[netip.Prefix]string{netip.MustParsePrefix("10.80.200.0/24"): "Network service-cidr of this cluster"},
		Taken:    map[netip.Addr]string{netip.MustParseAddr("10.71.9.9"): "Node worker", netip.MustParseAddr("10.80.1.1"): "the API server"},
	}}
}

func owner() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop-rome", Name: "web-1", UID: "u", Labels: map[string]string{
		discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", "liqo.io/managed": "false", "of": "rome",
	}}
}

func asked(endpoints ...discoveryv1.Endpoint) *offloadingv1beta1.EndpointSliceTemplate {
	return &offloadingv1beta1.EndpointSliceTemplate{
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), AppProtocol: new("kubernetes.io/h2c")}},
	}
}

func at(addresses ...string) discoveryv1.Endpoint { return discoveryv1.Endpoint{Addresses: addresses} }

func TestBuild(t *testing.T) {
	e := at("10.243.1.2", "10.80.0.7")
	e.Conditions = discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true)}
	e.NodeName, e.Zone, e.Hostname = new("worker"), new("north"), new("web-0")
	e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "north"}}}
	e.DeprecatedTopology = map[string]string{corev1.LabelHostname: "worker"}
	e.TargetRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "RemotePod", Namespace: "shop", Name: "web-0", UID: "1", FieldPath: "x", ResourceVersion: "2"}
	got, problems, err := Build(owner(), asked(e), rome(t))
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-rome", Name: "web-1",
			Labels: map[string]string{
				discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice.reflection.liqo.io", "liqo.io/managed": "true",
				"liqo.io/managed-by": "shadowendpointslice", "offloading.liqo.io/origin": "rome",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "offloading.liqo.io/v1beta1", Kind: "ShadowEndpointSlice", Name: "web-1", UID: "u", Controller: new(true),
			}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.71.1.2", "10.80.0.7"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true)},
			Hostname: new("web-0"), NodeName: new("rome"), TargetRef: &corev1.ObjectReference{Kind: "RemotePod", Namespace: "shop", Name: "web-0", UID: "1"},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP), AppProtocol: new("kubernetes.io/h2c")}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	t.Run("the consumer is away", func(t *testing.T) {
		f := rome(t)
		f.Away = "the network of the peering is down"
		got, _, err := Build(owner(), asked(e), f)
		if err != nil || len(got.Endpoints) != 1 || *got.Endpoints[0].Conditions.Ready || *got.Endpoints[0].Conditions.Serving {
			t.Errorf("%+v, %v", got, err)
		}
		if !*e.Conditions.Ready {
			t.Error("what is asked for was changed")
		}
	})
	t.Run("headless", func(t *testing.T) {
		o := owner()
		o.Labels[corev1.IsHeadlessService] = ""
		if got, _, err := Build(o, asked(), rome(t)); err != nil || !hasKey(got.Labels, corev1.IsHeadlessService) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func hasKey(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

func TestEndpointsRefused(t *testing.T) {
	with := func(change func(*discoveryv1.Endpoint)) discoveryv1.Endpoint {
		e := at("10.243.1.2")
		change(&e)
		return e
	}
	ref := func(kind, namespace, name, uid string) discoveryv1.Endpoint {
		return with(func(e *discoveryv1.Endpoint) {
			e.TargetRef = &corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}
			e.TargetRef.UID = "1"
			if uid != "" {
				e.TargetRef.UID = "not a UID/"
			}
		})
	}
	for name, c := range map[string]struct {
		e    discoveryv1.Endpoint
		want string
	}{
		"an address of this cluster's pods by which the consumer is not known": {at("10.71.1.2"), ".addresses[0]: 10.71.1.2 is in no CIDR of cluster rome that this cluster knows"},
		"an address of the world":           {at("192.0.2.1"), ".addresses[0]: 192.0.2.1 is in no CIDR of cluster rome that this cluster knows"},
		"loopback":                          {at("127.0.0.1"), ".addresses[0]: 127.0.0.1 is in no CIDR of cluster rome that this cluster knows"},
		"the metadata of a cloud":           {at("169.254.169.254"), ".addresses[0]: 169.254.169.254 is in no CIDR of cluster rome that this cluster knows"},
		"the second address":                {at("10.243.1.2", "127.0.0.1"), ".addresses[1]: 127.0.0.1 is in no CIDR of cluster rome that this cluster knows"},
		"a node":                            {at("10.243.9.9"), ".addresses[0]: 10.243.9.9 leads to 10.71.9.9 here, an address of Node worker"},
		"the API server":                    {at("10.80.1.1"), ".addresses[0]: 10.80.1.1 leads to 10.80.1.1 here, an address of the API server"},
		"a Service":                         {at("10.80.200.1"), ".addresses[0]: 10.80.200.1 leads to 10.80.200.1 here, which is in 10.80.200.0/24, Network service-cidr of this cluster"},
		"the other family":                  {at("fd00::1"), ".addresses[0]: fd00::1 is not of type IPv4"},
		"an address in the clothes of IPv6": {at("::ffff:10.243.1.2"), ".addresses[0]: ::ffff:10.243.1.2 is not of type IPv4"},
		"a zone":                            {at("fe80::1%eth0"), `.addresses[0]: "fe80::1%eth0" is not an address`},
		"no address":                        {at(strings.Repeat("x", 200)), `.addresses[0]: "` + strings.Repeat("x", 97) + `..." is not an address`},
		"none":                              {at(), ".addresses has 0 entries: 1 to 100 are allowed"},
		"too many":                          {at(make([]string, 101)...), ".addresses has 101 entries: 1 to 100 are allowed"},
		"a host name":                       {with(func(e *discoveryv1.Endpoint) { e.Hostname = new("a.b") }), `.hostname: "a.b" is not a host name`},
		"a pod of this cluster":             {ref("Pod", "kube-system", "dns", ""), `.targetRef.kind: "Pod" is not RemotePod or alike: the endpoint is nothing of this cluster`},
		"a kind that is none":               {ref("Remote/x", "shop", "web", ""), `.targetRef.kind: "Remote/x" is not RemotePod or alike: the endpoint is nothing of this cluster`},
		"the namespace of a target":         {ref("RemotePod", "..", "web", ""), `.targetRef.namespace: ".." is not the name of a namespace`},
		"the name of a target":              {ref("RemotePod", "shop", "a/b", ""), `.targetRef.name: "a/b" is not the name of an object`},
		"the UID of a target":               {ref("RemotePod", "shop", "web", "bad"), ".targetRef.uid is not a UID"},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems, err := Build(owner(), asked(at("10.243.0.1"), c.e), rome(t))
			if err != nil || len(got.Endpoints) != 1 || got.Endpoints[0].Addresses[0] != "10.71.0.1" {
				t.Fatalf("the other endpoint: %+v, %v", got, err)
			}
			if diff := cmp.Diff([]string{"spec.template.endpoints[1]" + c.want}, problems); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("of many some are named", func(t *testing.T) {
		var all []discoveryv1.Endpoint
		for range 9 {
			all = append(all, at("127.0.0.1"))
		}
		if _, problems, _ := Build(owner(), asked(all...), rome(t)); len(problems) != 6 || problems[5] != "and 4 more" {
			t.Errorf("%q", problems)
		}
	})
	t.Run("a link-local address stays one even where the network says otherwise", func(t *testing.T) {
		f := rome(t)
		c := networkingv1beta1.Configuration{}
		c.Spec.Remote.CIDR.Pod.List = []networkingv1beta1.CIDR{"169.254.0.0/16"}
		c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: c.Spec.Remote.CIDR}
		var err error
		if f.Addresses, err = reflection.NewAddresses(&c); err != nil {
			t.Fatal(err)
		}
		if got, problems, err := Build(owner(), asked(at("169.254.169.254")), f); err != nil || len(got.Endpoints) > 0 || len(problems) != 1 {
			t.Errorf("%+v, %q, %v", got, problems, err)
		}
	})
}

func TestSlicesRefused(t *testing.T) {
	type template = offloadingv1beta1.EndpointSliceTemplate
	port := func(change func(*discoveryv1.EndpointPort)) func(*metav1.ObjectMeta, *template) {
		return func(_ *metav1.ObjectMeta, s *template) { change(&s.Ports[0]) }
	}
	for name, c := range map[string]struct {
		change func(*metav1.ObjectMeta, *template)
		want   string
	}{
		"of no Service": {func(m *metav1.ObjectMeta, _ *template) { delete(m.Labels, discoveryv1.LabelServiceName) },
			`the label kubernetes.io/service-name is "", which is not the name of a Service`},
		"names": {func(_ *metav1.ObjectMeta, s *template) { s.AddressType = discoveryv1.AddressTypeFQDN },
			`spec.template.addressType is "FQDN": only IPv4 and IPv6 are allowed`},
		"too many endpoints": {func(_ *metav1.ObjectMeta, s *template) { s.Endpoints = make([]discoveryv1.Endpoint, 1001) },
			"spec.template.endpoints has 1001 entries: 1000 are allowed"},
		"too many ports": {func(_ *metav1.ObjectMeta, s *template) { s.Ports = make([]discoveryv1.EndpointPort, 101) },
			"spec.template.ports has 101 entries: 100 are allowed"},
		"no port":        {port(func(p *discoveryv1.EndpointPort) { p.Port = nil }), "spec.template.ports[0].port must be between 1 and 65535"},
		"port 0":         {port(func(p *discoveryv1.EndpointPort) { p.Port = new(int32(0)) }), "spec.template.ports[0].port must be between 1 and 65535"},
		"port -1":        {port(func(p *discoveryv1.EndpointPort) { p.Port = new(int32(-1)) }), "spec.template.ports[0].port must be between 1 and 65535"},
		"port 65536":     {port(func(p *discoveryv1.EndpointPort) { p.Port = new(int32(65536)) }), "spec.template.ports[0].port must be between 1 and 65535"},
		"name of a port": {port(func(p *discoveryv1.EndpointPort) { p.Name = new("a b") }), `spec.template.ports[0].name: "a b" is not the name of a port`},
		"protocol":       {port(func(p *discoveryv1.EndpointPort) { p.Protocol = new(corev1.Protocol("ICMP")) }), `spec.template.ports[0].protocol: there is no protocol "ICMP"`},
		"application":    {port(func(p *discoveryv1.EndpointPort) { p.AppProtocol = new("a b") }), `spec.template.ports[0].appProtocol: "a b" is not the name of a protocol`},
		"one name twice": {func(_ *metav1.ObjectMeta, s *template) { s.Ports = append(s.Ports, s.Ports[0]) }, `spec.template.ports[1].name: another port has the name "http" too`},
	} {
		t.Run(name, func(t *testing.T) {
			o, s := owner(), asked(at("10.243.0.1"))
			c.change(&o, s)
			if got, _, err := Build(o, s, rome(t)); got != nil || err == nil || err.Error() != c.want {
				t.Errorf("%+v, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestAway(t *testing.T) {
	cluster := func(network, server corev1beta1.ConditionStatus) *corev1beta1.ForeignCluster {
		c := new(corev1beta1.ForeignCluster)
		c.Status.Modules.Networking.Conditions = []corev1beta1.Condition{
			{Type: corev1beta1.ConditionNetworkConfiguration, Status: corev1beta1.StatusReady}, {Type: corev1beta1.ConditionNetworkConnection, Status: network},
		}
		if server != "" {
			c.Status.Conditions = []corev1beta1.Condition{{Type: corev1beta1.ConditionAPIServer, Status: server}}
		}
		return c
	}
	for name, c := range map[string]struct {
		of   *corev1beta1.ForeignCluster
		want string
	}{
		"nothing is known":            {nil, "there is no ForeignCluster of it"},
		"no network":                  {new(corev1beta1.ForeignCluster), "the network of the peering is down"},
		"connecting":                  {cluster(corev1beta1.StatusPending, ""), "the network of the peering is down"},
		"connected":                   {cluster(corev1beta1.StatusEstablished, ""), ""},
		"its API server answers":      {cluster(corev1beta1.StatusEstablished, corev1beta1.StatusEstablished), ""},
		"its API server answers none": {cluster(corev1beta1.StatusEstablished, corev1beta1.StatusError), "its API server does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := away(c.of); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestRead reads what an API server may have let through.
func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		template any
		want     string
	}{
		"a number that is too large": {map[string]any{"ports": []any{map[string]any{"port": int64(1) << 40}}}, "spec.template cannot be read"},
		"a text":                     {"x", "spec.template is no object"},
		"more than is kept":          {map[string]any{"addressType": strings.Repeat("x", maxSize)}, "it is larger than 256 KiB"},
		"an endpoint":                {map[string]any{"endpoints": []any{map[string]any{"addresses": []any{"10.243.1.2"}}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := newShadow()
			o.SetName("web-1")
			o.SetUID("u")
			o.SetLabels(owner().Labels)
			o.SetAnnotations(map[string]string{"large": "x"})
			o.Object["spec"] = map[string]any{"template": c.template}
			trimmed, err := trim(o)
			if err != nil {
				t.Fatal(err)
			}
			kept := trimmed.(*unstructured.Unstructured)
			if kept.GetName() != "web-1" || kept.GetUID() != "u" || kept.GetLabels()[discoveryv1.LabelServiceName] != "web" || hasKey(kept.GetAnnotations(), "large") {
				t.Errorf("kept %+v", kept.Object)
			}
			got, err := read(kept)
			switch {
			case c.want == "" && (err != nil || got.Endpoints[0].Addresses[0] != "10.243.1.2"):
				t.Errorf("%+v, %v", got, err)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)):
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// FuzzBuild has anything asked for: what comes of it leads to the consumer, and is what an API server takes.
func FuzzBuild(f *testing.F) {
	for _, e := range []discoveryv1.Endpoint{at("10.243.1.2"), at("127.0.0.1", "10.243.9.9"), at("::ffff:10.243.1.2")} {
		text, err := json.Marshal(asked(e))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "web")
	}
	facts := rome(f)
	theirs := []netip.Prefix{netip.MustParsePrefix("10.71.0.0/16"), netip.MustParsePrefix("10.80.0.0/16")}
	f.Fuzz(func(t *testing.T, text []byte, service string) {
		var s offloadingv1beta1.EndpointSliceTemplate
		if json.Unmarshal(text, &s) != nil {
			return
		}
		o := owner()
		o.Labels[discoveryv1.LabelServiceName] = service
		got, problems, err := Build(o, &s, facts)
		if err != nil {
			if got != nil {
				t.Errorf("refused (%v), and made", err)
			}
			return
		}
		if len(got.Endpoints) < len(s.Endpoints) != (len(problems) > 0) {
			t.Errorf("%d of %d endpoints, problems %q", len(got.Endpoints), len(s.Endpoints), problems)
		}
		for _, e := range got.Endpoints {
			for _, text := range e.Addresses {
				a := netip.MustParseAddr(text)
				if !theirs[0].Contains(a) && !theirs[1].Contains(a) {
					t.Errorf("%s is not the consumer's", a)
				}
				if facts.Taken[a] != "" || netip.MustParsePrefix("10.80.200.0/24").Contains(a) {
					t.Errorf("%s is this cluster's", a)
				}
			}
			if *e.NodeName != "rome" || e.TargetRef != nil && !strings.HasPrefix(e.TargetRef.Kind, "Remote") || e.Zone != nil || e.Hints != nil {
				t.Errorf("%+v", e)
			}
		}
		for _, p := range got.Ports {
			if *p.Port < 1 || *p.Port > 65535 {
				t.Errorf("port %d", *p.Port)
			}
		}
	})
}
