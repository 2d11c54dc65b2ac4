package peering

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func serverIn(namespace, name string, age time.Duration) *gateway {
	return serverGateway(&networkingv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
	}})
}

func configurationIn(namespace string) networkingv1beta1.Configuration {
	return networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}}
}

func tenant(name string, age time.Duration) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
		Labels: map[string]string{networkingv1beta1.LabelTenantNamespace: "true", networkingv1beta1.LabelRemoteClusterID: "milan"},
	}}
}

func TestTenantNamespace(t *testing.T) {
	const own = "liqo-tenant-milan"
	for _, tt := range []struct {
		name    string
		given   string
		found   found
		want    string
		wantErr string
	}{
		{name: "nothing at all", want: own},
		{name: "the user named one", given: "mine", found: found{namespaces: []corev1.Namespace{tenant(own, 0)}}, want: "mine"},
		{name: "a labelled one", found: found{namespaces: []corev1.Namespace{tenant("suppliers", 0)}}, want: "suppliers"},
		{name: "several labelled, one with the usual name", found: found{namespaces: []corev1.Namespace{tenant("a", time.Hour), tenant(own, 0)}}, want: own},
		{name: "several labelled: the oldest", found: found{namespaces: []corev1.Namespace{tenant("a", 0), tenant("b", time.Hour)}}, want: "b"},
		{name: "a gateway elsewhere counts more than a label", found: found{namespaces: []corev1.Namespace{tenant(own, 0)}, servers: []*gateway{serverIn("default", "s", 0)}}, want: "default"},
		{name: "a gateway counts more than a Configuration", found: found{
			servers: []*gateway{serverIn("default", "s", 0)}, configurations: []networkingv1beta1.Configuration{configurationIn("old")},
		}, want: "default"},
		{name: "a Configuration", found: found{configurations: []networkingv1beta1.Configuration{configurationIn("default")}}, want: "default"},
		{name: "gateways in two, one of them labelled", found: found{
			namespaces: []corev1.Namespace{tenant("b", 0)}, servers: []*gateway{serverIn("a", "s", 0), serverIn("b", "s", 0)},
		}, want: "b"},
		{name: "gateways in two", found: found{servers: []*gateway{serverIn("a", "s", 0), serverIn("b", "s", 0)}},
			wantErr: "there are objects for cluster milan in several namespaces, a, b: choose one with --namespace, and delete what is in the others"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tenantNamespace("milan", tt.given, "--namespace", &tt.found)
			if got != tt.want || text(err) != tt.wantErr {
				t.Errorf("got %q, %v; want %q, %q", got, err, tt.want, tt.wantErr)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNamespaceProblem(t *testing.T) {
	ending := tenant("a", 0)
	ending.DeletionTimestamp = new(metav1.Now())
	ending.Status.Conditions = []corev1.NamespaceCondition{{Type: "NamespaceContentRemaining", Status: corev1.ConditionTrue, Message: "Some resources are remaining: pods. has 1"}}
	others := tenant("b", 0)
	fine := tenant("c", 0)
	for _, tt := range []struct {
		name string
		n    *corev1.Namespace
		peer string
		want string
	}{
		{"to be made", nil, "milan", ""},
		{"there", &fine, "milan", ""},
		{"without labels", &corev1.Namespace{}, "milan", ""},
		{"ending", &ending, "milan", "namespace a is being deleted: run the command again when it is gone; NamespaceContentRemaining: Some resources are remaining: pods. has 1"},
		{"another peer's", &others, "rome", "namespace b belongs to the peering with cluster milan (label liqo.io/remote-cluster-id), not with rome: choose another with --namespace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := namespaceProblem(tt.n, tt.peer, "--namespace"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestMovedFrom(t *testing.T) {
	have := networkingv1beta1.ServerEndpoint{Port: 51840, ServiceType: "NodePort", NodePort: 30742}
	several := networkingv1beta1.ServerEndpoint{Ports: []int32{51840, 51841}, ServiceType: "NodePort", NodePorts: []int32{30742}}
	for _, tt := range []struct {
		name  string
		have  networkingv1beta1.ServerEndpoint
		flags ServerFlags
		want  bool
	}{
		{"no flags", have, ServerFlags{}, false},
		{"the same", have, ServerFlags{ServiceType: "NodePort", Port: 51840, NodePort: 30742}, false},
		{"a template is no endpoint", have, ServerFlags{Template: TemplateFlags{Name: "fast"}}, false},
		{"another type", have, ServerFlags{ServiceType: "LoadBalancer"}, true},
		{"another port", have, ServerFlags{Port: 51841}, true},
		{"another node port", have, ServerFlags{NodePort: 30743}, true},
		{"an address", have, ServerFlags{LoadBalancerIP: "192.0.2.1"}, true},
		{"the first of several", several, ServerFlags{Port: 51840, NodePort: 30742}, false},
		{"none of several", several, ServerFlags{Port: 51839}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.flags.movedFrom(tt.have); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSuccessor(t *testing.T) {
	old := &networkingv1beta1.GatewayServer{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
		Spec: networkingv1beta1.GatewayServerSpec{
			MTU: 1400, Endpoint: networkingv1beta1.ServerEndpoint{Port: 51000, ServiceType: "NodePort", NodePort: 30742},
			SecretRef: corev1.LocalObjectReference{Name: "mine"}, ServiceLabels: map[string]string{"x": "y"},
		},
	}
	ref := ServerTemplate("fast", "liqo")
	for _, tt := range []struct {
		name  string
		flags Options
		want  networkingv1beta1.ServerEndpoint
		mtu   int
	}{
		{"another type has no node port", Options{Server: ServerFlags{ServiceType: "LoadBalancer"}}, networkingv1beta1.ServerEndpoint{Port: 51000, ServiceType: "LoadBalancer"}, 1400},
		{"another port keeps the node port", Options{Server: ServerFlags{Port: 51840}}, networkingv1beta1.ServerEndpoint{Port: 51840, ServiceType: "NodePort", NodePort: 30742}, 1400},
		{"all", Options{MTU: 1300, Server: ServerFlags{ServiceType: "LoadBalancer", Port: 1, NodePort: 30001, LoadBalancerIP: "192.0.2.1"}},
			networkingv1beta1.ServerEndpoint{Port: 1, ServiceType: "LoadBalancer", NodePort: 30001, LoadBalancerIP: "192.0.2.1"}, 1300},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.flags.successor(old, ref)
			want := &networkingv1beta1.GatewayServer{
				TypeMeta: typeMeta("GatewayServer"), ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n", Labels: map[string]string{"a": "b"}},
				Spec: networkingv1beta1.GatewayServerSpec{ServerTemplateRef: ref, MTU: tt.mtu, Endpoint: tt.want, SecretRef: old.Spec.SecretRef, ServiceLabels: old.Spec.ServiceLabels},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestChangedClient(t *testing.T) {
	server := &networkingv1beta1.Endpoint{Addresses: []string{"172.19.0.8", "fd00::8"}, Port: 32009}
	same := networkingv1beta1.Endpoint{Addresses: []string{"172.19.0.8", "fd00::8"}, Port: 32009, Protocol: "UDP"}
	other := networkingv1beta1.Endpoint{Addresses: []string{"203.0.113.7"}, Port: 51840, Protocol: "UDP"}
	ref := ClientTemplate("", "liqo")
	for _, tt := range []struct {
		name     string
		have     networkingv1beta1.Endpoint
		flags    ClientFlags
		works    bool
		want     networkingv1beta1.Endpoint
		wantKept bool
	}{
		{name: "as the server tells", have: same, want: same},
		{name: "as the server tells, connected", have: same, works: true, want: same},
		{name: "the server moved", have: other, want: same},
		{name: "somebody chose another address, and it is right", have: other, works: true, want: other, wantKept: true},
		{name: "flags say another", have: same, flags: ClientFlags{Address: "203.0.113.7", Port: 51840}, works: true, want: other},
		{name: "flags say the same as it is", have: other, flags: ClientFlags{Address: "203.0.113.7", Port: 51840}, want: other},
		{name: "flags say another port only", have: same, flags: ClientFlags{Port: 51840}, want: networkingv1beta1.Endpoint{Addresses: same.Addresses, Port: 51840, Protocol: "UDP"}},
		{name: "one of several ports", have: networkingv1beta1.Endpoint{Addresses: same.Addresses, Ports: []int32{32009, 32010}}, want: networkingv1beta1.Endpoint{Addresses: same.Addresses, Ports: []int32{32009, 32010}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := networkingv1beta1.GatewayClientSpec{MTU: 1300, ClientTemplateRef: ref, Endpoint: tt.have}
			o := Options{Client: tt.flags}
			kept := o.changedClient(&spec, ref, server, tt.works)
			want := networkingv1beta1.GatewayClientSpec{MTU: 1300, ClientTemplateRef: ref, Endpoint: tt.want}
			if diff := cmp.Diff(want, spec); diff != "" || kept != tt.wantKept {
				t.Errorf("kept %v, want %v; (-want +got):\n%s", kept, tt.wantKept, diff)
			}
		})
	}
}

func TestConfigurationMissing(t *testing.T) {
	cond := func(status metav1.ConditionStatus, reason networkingv1beta1.ConditionReason, generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: string(networkingv1beta1.ConditionNetworkCIDRsConfigured), Status: status, Reason: string(reason), Message: "because", ObservedGeneration: generation}}
	}
	for _, tt := range []struct {
		name      string
		status    networkingv1beta1.ConfigurationStatus
		want      string
		complaint bool
	}{
		{name: "done", status: networkingv1beta1.ConfigurationStatus{Conditions: cond("True", "NetworkCIDRsConfigured", 2)}},
		{name: "done, by controllers without conditions", status: networkingv1beta1.ConfigurationStatus{Remote: new(networkingv1beta1.ClusterConfig)}},
		{name: "nobody looked", want: "Configuration n/c has no status: no controller has looked at it yet"},
		{name: "done for an older spec", status: networkingv1beta1.ConfigurationStatus{Conditions: cond("True", "NetworkCIDRsConfigured", 1)},
			want: "Configuration n/c: no controller has looked at its newest version yet"},
		{name: "under way", status: networkingv1beta1.ConfigurationStatus{Conditions: cond("False", networkingv1beta1.ReasonWaitingForNetworks, 2)}, want: "Configuration n/c: because"},
		{name: "refused", status: networkingv1beta1.ConfigurationStatus{Conditions: cond("False", networkingv1beta1.ReasonNetworkRefused, 2)}, want: "Configuration n/c: because", complaint: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", Generation: 2}, Status: tt.status}
			missing, err := configurationMissing(c)
			check(t, missing, err, tt.want, tt.complaint)
		})
	}
}

func check(t *testing.T, missing string, err error, want string, wantComplaint bool) {
	t.Helper()
	var c *complaint
	if errors.As(err, &c) != wantComplaint || missing+text(err) != want {
		t.Errorf("got %q, %v; want %q, as a complaint: %v", missing, err, want, wantComplaint)
	}
}

func TestConnectionMissing(t *testing.T) {
	answers := metav1.Condition{Type: string(networkingv1beta1.ConditionPeerAnswers), Status: "False", Reason: "NoHandshake", Message: "no handshake"}
	waits := metav1.Condition{Type: string(networkingv1beta1.ConditionConfigurationApplied), Status: "False", Reason: "WaitingForObjects", Message: "no PublicKey"}
	refused := metav1.Condition{Type: string(networkingv1beta1.ConditionConfigurationApplied), Status: "False", Reason: "Refused", Message: "two prefixes"}
	for _, tt := range []struct {
		name       string
		value      networkingv1beta1.ConnectionValue
		conditions []metav1.Condition
		want       string
		complaint  bool
	}{
		{name: "connected", value: "Connected"},
		{name: "nothing yet", want: "Connection n/c is without status"},
		{name: "no answer", value: "Connecting", conditions: []metav1.Condition{answers}, want: "Connection n/c is Connecting: no handshake"},
		{name: "objects are missing", value: "Connecting", conditions: []metav1.Condition{answers, waits}, want: "Connection n/c is Connecting: no PublicKey"},
		{name: "connected by what was before", value: "Connected", conditions: []metav1.Condition{refused}, want: "Connection n/c is Connected: two prefixes", complaint: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			missing, err := connectionMissing(&networkingv1beta1.Connection{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, Status: networkingv1beta1.ConnectionStatus{Value: tt.value, Conditions: tt.conditions},
			})
			check(t, missing, err, tt.want, tt.complaint)
		})
	}
}

func TestConditionMissing(t *testing.T) {
	for _, tt := range []struct {
		name       string
		conditions []metav1.Condition
		want       string
		complaint  bool
	}{
		{name: "none", want: "GatewayServer n/s has no condition Deployed: no controller has looked at it yet"},
		{name: "true", conditions: []metav1.Condition{{Type: "Deployed", Status: "True", ObservedGeneration: 2}}},
		{name: "true for an older spec", conditions: []metav1.Condition{{Type: "Deployed", Status: "True", ObservedGeneration: 1}},
			want: "GatewayServer n/s: the controllers have not seen its newest version yet"},
		{name: "false", conditions: []metav1.Condition{{Type: "Deployed", Status: "False", ObservedGeneration: 2, Reason: "DeploymentNotReady", Message: "no pod."}}, want: "GatewayServer n/s: no pod"},
		{name: "false until somebody cures it", conditions: []metav1.Condition{{Type: "Deployed", Status: "False", ObservedGeneration: 2, Reason: "ObjectRefused", Message: "no"}}, want: "GatewayServer n/s: no", complaint: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := serverIn("n", "s", 0)
			g.server.Generation, g.server.Status.Conditions = 2, tt.conditions
			missing, err := conditionMissing(g, networkingv1beta1.ConditionDeployed)
			check(t, missing, err, tt.want, tt.complaint)
		})
	}
}

func TestKindProblem(t *testing.T) {
	crd := func(version string, fields ...string) *apiextensionsv1.CustomResourceDefinition {
		spec := apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
		for _, f := range fields {
			spec.Properties[f] = apiextensionsv1.JSONSchemaProps{}
		}
		return &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: version, Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
			}},
		}}}}
	}
	open := crd("v1beta1")
	open.Spec.Versions[0].Schema.OpenAPIV3Schema.XPreserveUnknownFields = new(true)
	open.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = nil
	needed := neededKind{networkingv1beta1.GroupVersion, "things", []string{"spec.a", "spec.b"}}
	for _, tt := range []struct {
		name string
		crd  *apiextensionsv1.CustomResourceDefinition
		want string
	}{
		{"all there", crd("v1beta1", "a", "b", "c"), ""},
		{"anything goes", open, ""},
		{"a field lacks", crd("v1beta1", "a"), "the CRD things.networking.liqo.io is old: it lacks spec.b"},
		{"another version", crd("v1alpha1", "a", "b"), "the CRD things.networking.liqo.io is of another age: it serves v1alpha1, not v1beta1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := kindProblem(tt.crd, needed); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestOwnNetwork(t *testing.T) {
	network := func(typ, name string, cidr networkingv1beta1.CIDR) ipamv1alpha1.Network {
		return ipamv1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: name, Labels: map[string]string{ipamv1alpha1.LabelNetworkType: typ}},
			Status:     ipamv1alpha1.NetworkStatus{CIDR: ipamv1alpha1.CIDR(cidr)},
		}
	}
	pod, more, external := network("pod-cidr", "pod-cidr", "10.243.0.0/16"), network("pod-cidr", "pod-cidr-2", "fd00::/48"), network("external-cidr", "external-cidr", "10.70.0.0/16")
	for _, tt := range []struct {
		name     string
		networks []ipamv1alpha1.Network
		want     string
		wantErr  string
	}{
		{name: "one each", networks: []ipamv1alpha1.Network{external, pod}, want: `"10.243.0.0/16" "10.70.0.0/16"`},
		{name: "several", networks: []ipamv1alpha1.Network{pod, external, more}, want: `["10.243.0.0/16","fd00::/48"] "10.70.0.0/16"`},
		{name: "none", networks: []ipamv1alpha1.Network{pod}, wantErr: "there is no Network with the label ipam.liqo.io/network-type=external-cidr in namespace liqo: not ready yet"},
		{name: "one without prefix", networks: []ipamv1alpha1.Network{pod, network("external-cidr", "external-cidr", "")}, wantErr: "no prefix is in the status of Network liqo/external-cidr: not ready yet: see 'kubectl -n liqo describe network external-cidr'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ownNetwork("liqo", tt.networks)
			if tt.wantErr != "" {
				if !strings.HasPrefix(text(err), tt.wantErr) || !errors.Is(err, ErrNotReady) {
					t.Errorf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			p, _ := got.CIDR.Pod.MarshalJSON()
			e, _ := got.CIDR.External.MarshalJSON()
			if s := string(p) + " " + string(e); s != tt.want || err != nil {
				t.Errorf("got %s, %v; want %s", s, err, tt.want)
			}
		})
	}
}

func TestPublicKey(t *testing.T) {
	private := make([]byte, 32)
	private[0] = 1
	other := make([]byte, 32)
	for _, tt := range []struct {
		name    string
		data    map[string][]byte
		wantWhy string
	}{
		{"both", map[string][]byte{"privateKey": private, "publicKey": other}, ""},
		{"the private one alone", map[string][]byte{"privateKey": private}, ""},
		{"a short public key", map[string][]byte{"privateKey": private, "publicKey": other[:31]}, "has in data.publicKey 31 bytes"},
		{"nothing", nil, "has neither data.publicKey nor a data.privateKey of 32 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key, why := publicKey(tt.data)
			if !strings.HasPrefix(why, tt.wantWhy) || (tt.wantWhy == "") != (len(key) == 32) {
				t.Errorf("got %x, %q; want %q", key, why, tt.wantWhy)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options Options
		want    string
	}{
		{"nothing", Options{}, ""},
		{"all", Options{MTU: 1340, Server: ServerFlags{ServiceType: "LoadBalancer", Port: 51840, NodePort: 30742, LoadBalancerIP: "fd00::1"}, Client: ClientFlags{Address: "gw.milan.example.com", Port: 1}}, ""},
		{"a small MTU", Options{MTU: 575}, "--mtu 575: must be from 576 to 65455"},
		{"an unknown type", Options{Server: ServerFlags{ServiceType: "ExternalName"}}, `--gw-server-service-type "ExternalName": must be LoadBalancer, NodePort or ClusterIP`},
		{"ports", Options{Server: ServerFlags{Port: 65536}, Client: ClientFlags{Port: -1}}, "--gw-server-service-port 65536: must be from 1 to 65535\n--gw-client-port -1: must be from 1 to 65535"},
		{"a node port of a ClusterIP", Options{Server: ServerFlags{ServiceType: "ClusterIP", NodePort: 30742}}, "--gw-server-service-nodeport 30742: a Service of type ClusterIP has no node port; use --gw-server-service-type NodePort"},
		{"a load balancer's name", Options{Server: ServerFlags{LoadBalancerIP: "lb"}}, `--gw-server-service-loadbalancerip "lb": must be an IP address`},
		{"an address with a port", Options{Client: ClientFlags{Address: "192.0.2.1:51840"}}, `--gw-client-address "192.0.2.1:51840": must be an IP address or a DNS name, without a port (that is --gw-client-port)`},
		{"a mistyped address", Options{Client: ClientFlags{Address: "192.0.2.300"}}, `--gw-client-address "192.0.2.300": must be an IP address or a DNS name, without a port (that is --gw-client-port)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := text(tt.options.Validate()); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestParseTemplateType(t *testing.T) {
	gvr, err := parseTemplateType("networking.liqo.io/v1beta1/WgGatewayServerTemplates")
	if err != nil || gvr.Resource != "wggatewayservertemplates" || gvr.Group != "networking.liqo.io" || gvr.Version != "v1beta1" {
		t.Errorf("got %v, %v", gvr, err)
	}
	for _, s := range []string{"", "wggatewayservertemplates", "a/b", "a//b", "a/b/c/d"} {
		if _, err := parseTemplateType(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

func TestDetectRoles(t *testing.T) {
	server, client := []*gateway{serverIn("n", "s", 0)}, []*gateway{clientGateway(new(networkingv1beta1.GatewayClient))}
	for _, tt := range []struct {
		name          string
		local, remote found
		want          networkingv1beta1.ConnectionType // of the local one
	}{
		{"nothing", found{}, found{}, "Client"},
		{"as connect makes them", found{clients: client}, found{servers: server}, "Client"},
		{"the other way", found{servers: server}, found{clients: client}, "Server"},
		{"only the local one is left", found{servers: server}, found{}, "Server"},
		{"only the remote one is left", found{}, found{clients: client}, "Server"},
		{"only the remote server is left", found{}, found{servers: server}, "Client"},
		{"clients on both sides", found{clients: client}, found{clients: client}, "Client"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(here, there, new(Options))
			p[0].found, p[1].found = tt.local, tt.remote
			p.detectRoles()
			if p[0].role != tt.want || p[1].role != otherRole(tt.want) {
				t.Errorf("local is %s, remote %s; want local %s", p[0].role, p[1].role, tt.want)
			}
		})
	}
}
