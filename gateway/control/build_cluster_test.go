package control

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/tunnel"
)

// inCluster returns the objects of testdata/server as an API server gives them:
// without a place in a file, with a Configuration that the controller has looked
// at, and only what concerns the gateway.
func inCluster(t *testing.T) Objects {
	t.Helper()
	o := Objects{Objects: objects(t, "testdata/server"), Cluster: &Cluster{ClusterID: "milan"}}
	forget(o.GatewayServers)
	forget(o.PublicKeys)
	forget(o.Configurations)
	forget(o.InternalFabrics)
	forget(o.InternalNodes)
	forget(o.GeneveTunnels)
	forget(o.RouteConfigurations)
	forget(o.IPs)
	c := o.Configurations[0].Object
	c.Generation = 4
	c.Status.Conditions = []metav1.Condition{{
		Type: string(networkingv1beta1.ConditionNetworkCIDRsConfigured), Status: metav1.ConditionTrue, ObservedGeneration: 4,
		Reason: string(networkingv1beta1.ReasonNetworkCIDRsConfigured),
	}}
	return o
}

func forget[T any](list []manifests.Sourced[T]) {
	for i := range list {
		list[i].Source = manifests.Source{}
	}
}

// The same objects mean the same, wherever they come from.
func TestBuildInCluster(t *testing.T) {
	want, err := load("testdata/server")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Build(inCluster(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.DataPlane, got.DataPlane, values); diff != "" {
		t.Errorf("from files and from a cluster (-files +cluster):\n%s", diff)
	}
	if len(got.Ignored) > 0 || len(got.Warnings) > 0 {
		t.Errorf("ignored %v, warnings %v", got.Ignored, got.Warnings)
	}
}

func TestBuildWaitsInCluster(t *testing.T) {
	inForce, err := load("testdata/server")
	if err != nil {
		t.Fatal(err)
	}
	condition := func(o *Objects) *metav1.Condition { return &o.Configurations[0].Object.Status.Conditions[0] }
	forwards := func(c dataplane.Config) bool {
		return len(c.Remote) == 3 && len(c.LocalPods) == 1 && len(c.Addresses) == 1
	}
	nothing := func(c dataplane.Config) bool {
		return len(c.Remote) == 0 && len(c.LocalPods) == 0 && len(c.LocalExternal) == 0 && len(c.Addresses) == 0 && !c.Tunnel.PeerKey.IsZero()
	}
	tests := []struct {
		name    string
		change  func(*Objects)
		waiting string // nothing can be applied, because
		warning string // or it can, with this warning
		check   func(dataplane.Config) bool
	}{
		{name: "no gateway", change: func(o *Objects) { o.GatewayServers = nil },
			waiting: "the GatewayServer or GatewayClient of this gateway does not exist"},
		{name: "no keys", change: func(o *Objects) { o.Secrets = nil },
			waiting: "there are no keys of this gateway yet: the Secret that the controller makes or that spec.secretRef names must be mounted"},
		{name: "no PublicKey", change: func(o *Objects) { o.PublicKeys = nil },
			warning: "GatewayServer tenant/server: there is no PublicKey of the peer yet: no tunnel until it comes",
			check:   func(c dataplane.Config) bool { return c.Tunnel.PeerKey.IsZero() && len(c.Remote) == 3 }},
		{name: "no InternalFabric", change: func(o *Objects) { o.InternalFabrics = nil },
			warning: "there is no InternalFabric yet", check: forwards},
		{name: "no Configuration", change: func(o *Objects) { o.Configurations = nil },
			warning: "there is no Configuration of the peer yet: nothing is forwarded until it comes", check: nothing},
		{name: "a Configuration that is deleted later", change: func(o *Objects) { o.Configurations, o.Cluster.InForce = nil, inForce.DataPlane },
			warning: "there is no Configuration of the peer yet: nothing is forwarded until it comes", check: nothing},
		{name: "a new Configuration", change: func(o *Objects) {
			o.Configurations[0].Object.Status = networkingv1beta1.ConfigurationStatus{}
		},
			warning: "Configuration tenant/milan: is new: waiting for the controller to say under which CIDRs the peer is reached", check: nothing},
		{name: "a new Configuration that has a condition only", change: func(o *Objects) { o.Configurations[0].Object.Status.Remote = nil },
			warning: "is new", check: nothing},
		{name: "a Configuration without local CIDRs", change: func(o *Objects) { o.Configurations[0].Object.Spec.Local = nil },
			warning: "lacks spec.local: waiting for the controller to fill it in", check: nothing},
		{name: "a Configuration that the controller has not looked at", change: func(o *Objects) {
			o.Configurations[0].Object.Generation = 5
			o.Configurations[0].Object.Spec.Remote.CIDR.Pod.List[0] = "10.99.0.0/16"
			o.Cluster.InForce = inForce.DataPlane
		},
			warning: "has changed: what was in force stays until the controller has looked at it", check: forwards},
		{name: "a Configuration whose CIDRs were refused", change: func(o *Objects) {
			c := condition(o)
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, "NetworkRefused", "no free prefix"
			o.Cluster.InForce = inForce.DataPlane
		},
			warning: "is not ready: NetworkRefused: no free prefix", check: forwards},
		{name: "keys and nodes change although the Configuration waits", change: func(o *Objects) {
			condition(o).ObservedGeneration = 3
			o.Cluster.InForce = inForce.DataPlane
			o.InternalNodes, o.PublicKeys = o.InternalNodes[:1], nil
		},
			warning: "has changed", check: func(c dataplane.Config) bool {
				return forwards(c) && len(c.Nodes) == 1 && c.Tunnel.PeerKey.IsZero()
			}},
		{name: "an InternalNode without an address", change: func(o *Objects) { o.InternalNodes[0].Object.Spec.Interface.Node.IP = "" },
			warning: "InternalNode worker-2: spec.interface.node.ip: is not given yet: it waits",
			check:   func(c dataplane.Config) bool { return len(c.Nodes) == 1 }},
		{name: "an IP of another Network", change: func(o *Objects) { o.IPs[0].Object.Status.IP = "10.99.0.1" },
			warning: "IP tenant/printer: status.ip: 10.99.0.1 lies in no local external CIDR: the peer cannot reach it",
			check:   func(c dataplane.Config) bool { return len(c.Addresses) == 0 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := inCluster(t)
			tt.change(&o)
			d, err := Build(o)
			if tt.waiting != "" {
				if !errors.As(err, new(manifests.Waiting)) || err.Error() != tt.waiting {
					t.Errorf("got %v, want to wait because %s", err, tt.waiting)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(d.Warnings.Error(), tt.warning) {
				t.Errorf("warnings:\n%s\nwant among them:\n%s", d.Warnings.Error(), tt.warning)
			}
			if len(d.Ignored) > 0 {
				t.Errorf("ignored: %v", d.Ignored)
			}
			if !tt.check(d.DataPlane) {
				t.Errorf("configuration: %+v", d.DataPlane)
			}
			if err := d.DataPlane.Validate(); err != nil {
				t.Errorf("the data plane refuses it: %v", err)
			}
		})
	}
}

// Nobody's mistake stops the others.
func TestBuildLeavesOut(t *testing.T) {
	other := tunnel.GeneratePrivateKey().Public()
	tests := []struct {
		name   string
		change func(*Objects)
		want   string
		check  func(dataplane.Config) bool
	}{
		{"a PublicKey of a wrong length", func(o *Objects) { o.PublicKeys[0].Object.Spec.PublicKey = []byte("short") },
			"PublicKey tenant/milan: spec.publicKey: decodes to 5 bytes, but a WireGuard key has 32",
			func(c dataplane.Config) bool { return c.Tunnel.PeerKey.IsZero() && len(c.Remote) == 3 }},
		{"our own PublicKey", func(o *Objects) {
			own := tunnel.PrivateKey(o.Secrets[0].Object.Data[networkingv1beta1.PrivateKeyEntry]).Public()
			o.PublicKeys[0].Object.Spec.PublicKey = own[:]
		}, "PublicKey tenant/milan: spec.publicKey: is this gateway's own public key: put the peer's there",
			func(c dataplane.Config) bool { return c.Tunnel.PeerKey.IsZero() }},
		{"two PublicKeys, before there was one", func(o *Objects) { o.PublicKeys = append(o.PublicKeys, publicKey("b", other)) },
			"PublicKey tenant/milan: is one of several PublicKeys of the peer with different keys: the key in force stays; delete all but the one that the peer uses\n" +
				"PublicKey tenant/b: is one of several PublicKeys of the peer with different keys: the key in force stays; delete all but the one that the peer uses",
			func(c dataplane.Config) bool { return c.Tunnel.PeerKey.IsZero() }},
		{"two PublicKeys, with one in force", func(o *Objects) {
			o.PublicKeys = append(o.PublicKeys, publicKey("b", other))
			o.Cluster.InForce.Tunnel.PeerKey = other
		}, "PublicKey tenant/milan: is one of several PublicKeys of the peer with different keys: the key in force stays; delete all but the one that the peer uses\n" +
			"PublicKey tenant/b: is one of several PublicKeys of the peer with different keys: the key in force stays; delete all but the one that the peer uses",
			func(c dataplane.Config) bool { return c.Tunnel.PeerKey == other }},
		{"one PublicKey twice", func(o *Objects) {
			o.PublicKeys = append(o.PublicKeys, publicKey("b", tunnel.PublicKey(o.PublicKeys[0].Object.Spec.PublicKey)))
		}, "", func(c dataplane.Config) bool { return !c.Tunnel.PeerKey.IsZero() }},
		{"a second Configuration", func(o *Objects) {
			c := o.Configurations[0].Object.DeepCopy()
			c.Name = "z"
			o.Configurations = append(o.Configurations, manifests.Sourced[networkingv1beta1.Configuration]{Object: c})
		}, "Configuration tenant/z: is a second Configuration, besides milan: the peer has one; delete one of them",
			func(c dataplane.Config) bool { return len(c.Remote) == 3 }},
		{"an IP for a host that has one", func(o *Objects) { o.IPs = append(o.IPs, ip("b", "192.168.1.10", "10.70.0.6")) },
			"IP tenant/b: spec.ip: 192.168.1.10 is mapped by IP printer already",
			func(c dataplane.Config) bool { return len(c.Addresses) == 1 }},
		{"an IP that is no address", func(o *Objects) { o.IPs = append(o.IPs, ip("b", "printer", "10.70.0.6")) },
			`IP tenant/b: spec.ip: "printer" is not an IP address`,
			func(c dataplane.Config) bool { return len(c.Addresses) == 1 }},
		{"nodes that cannot be told apart", func(o *Objects) {
			o.GeneveTunnels[1].Object.Spec.ID = 7
			o.InternalNodes[0].Object.Status.NodeIP = o.InternalNodes[1].Object.Status.NodeIP
		}, "InternalNode worker-2: status.nodeIP: 172.18.0.2 with the same VNI is used by node worker-1 as well: their packets could not be told apart",
			func(c dataplane.Config) bool { return len(c.Nodes) == 1 && len(c.Routes) == 2 }},
		{"a node with the address of another", func(o *Objects) { o.InternalNodes[1].Object.Spec.Interface.Node.IP = "10.80.0.3" },
			"InternalNode worker-1: spec.interface.node.ip: 10.80.0.3 is the address of node worker-2 as well",
			func(c dataplane.Config) bool { return len(c.Nodes) == 1 }},
		{"a route to nowhere", func(o *Objects) {
			o.RouteConfigurations[0].Object.Spec.Table.Rules[1].Routes[0].Gw = ""
		}, "RouteConfiguration liqo/worker-1-gw-node: spec.table.rules[1].routes[0]: needs gw, the internal address of a node",
			func(c dataplane.Config) bool { return len(c.Routes) == 2 }},
		{"a tunnel of another fabric", func(o *Objects) { o.GeneveTunnels[0].Object.Spec.InternalFabricRef.Name = "rome" },
			`GeneveTunnel tenant/milan-worker-1: spec.internalFabricRef.name: is "rome", but the InternalFabric here is "milan"`,
			func(c dataplane.Config) bool { return len(c.Nodes) == 1 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := inCluster(t)
			tt.change(&o)
			d, err := Build(o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, d.Ignored.Error()); diff != "" {
				t.Errorf("ignored (-want +got):\n%s", diff)
			}
			if !tt.check(d.DataPlane) {
				t.Errorf("configuration: %+v", d.DataPlane)
			}
			if err := d.DataPlane.Validate(); err != nil {
				t.Errorf("the data plane refuses it: %v", err)
			}
		})
	}
}

func publicKey(name string, key tunnel.PublicKey) manifests.Sourced[networkingv1beta1.PublicKey] {
	k := &networkingv1beta1.PublicKey{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name}}
	k.Spec.PublicKey = key[:]
	return manifests.Sourced[networkingv1beta1.PublicKey]{Object: k}
}

func ip(name, spec, status string) manifests.Sourced[ipamv1alpha1.IP] {
	o := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name}}
	o.Spec.IP, o.Status.IP = ipamv1alpha1.Address(spec), ipamv1alpha1.Address(status)
	return manifests.Sourced[ipamv1alpha1.IP]{Object: o}
}

// What concerns the gateway itself refuses the state in a cluster, too.
func TestBuildRefusesInCluster(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Objects)
		want   string
	}{
		{"a gateway of another peer", func(o *Objects) { o.Cluster.ClusterID = "rome" },
			`GatewayServer tenant/server: metadata.labels[liqo.io/remote-cluster-id]: is "milan", but this gateway was started for "rome": delete its pod once its Deployment says --remote-cluster-id=milan`},
		{"keys of a wrong length", func(o *Objects) {
			o.Secrets = []manifests.Sourced[corev1.Secret]{{Object: &corev1.Secret{Data: map[string][]byte{networkingv1beta1.PrivateKeyEntry: []byte("short")}}, Source: manifests.Source{File: "/keys"}}}
		}, "/keys: Secret: data[privateKey]: decodes to 5 bytes, but a WireGuard key has 32"},
		{"CIDRs that overlap", func(o *Objects) { o.Configurations[0].Object.Status.Remote.CIDR.External.List[0] = "10.61.0.0/16" },
			"Configuration tenant/milan: status.remote.cidr.external[0]: 10.61.0.0/16 overlaps the remote pod CIDR 10.61.0.0/16; set status.remote.cidr.external[0] to a free prefix of length 16"},
		{"CIDRs without a counterpart", func(o *Objects) { o.Configurations[0].Object.Status.Remote.CIDR.External.List = nil },
			"Configuration tenant/milan: status.remote.cidr.external: has 0 prefixes for 1 in spec.remote.cidr.external: they belong together one by one"},
	} {
		o := inCluster(t)
		tt.change(&o)
		if _, err := Build(o); err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
}

// A gateway sends to a node on which it runs by the local address.
func TestBuildKnowsItsNode(t *testing.T) {
	o := inCluster(t)
	o.Cluster.NodeName = "worker-2"
	d, err := Build(o)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(d.DataPlane.Nodes, func(n dataplane.Node) bool { return n.Name == "worker-2" })
	if got := d.DataPlane.Nodes[i].Underlay[0]; got != addr("10.243.2.1") {
		t.Errorf("reached at %s", got)
	}
}

// Following a cluster of a hundred thousand pods must stay possible.
func BenchmarkBuildCluster(b *testing.B) {
	o := largeCluster(1000, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Build(o); err != nil {
			b.Fatal(err)
		}
	}
}

func TestBuildLargeCluster(t *testing.T) {
	began := time.Now()
	d, err := Build(largeCluster(200, 100))
	if err != nil || len(d.DataPlane.Routes) != 20_000 || len(d.Ignored)+len(d.Warnings) > 0 {
		t.Errorf("%d routes, %v, ignored %d, warnings %d", len(d.DataPlane.Routes), err, len(d.Ignored), len(d.Warnings))
	}
	t.Logf("20 000 routes in %v", time.Since(began))
}
