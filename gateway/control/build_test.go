package control

import (
	"encoding/base64"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/tunnel"
)

var (
	addr   = netip.MustParseAddr
	prefix = netip.MustParsePrefix
)

// comparable netip values and keys have no exported fields.
var values = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, tunnel.PrivateKey{}, tunnel.PublicKey{})

func prefixes(ss ...string) (ps []netip.Prefix) {
	for _, s := range ss {
		ps = append(ps, prefix(s))
	}
	return ps
}

func mapping(inside, outside string) nat.Mapping {
	return nat.Mapping{Inside: prefix(inside), Outside: prefix(outside)}
}

// load judges the files of dir.
func load(dir string) (Desired, error) { return New(Options{Dir: dir}).Load() }

func TestLoad(t *testing.T) {
	got, err := load("testdata/server")
	if err != nil {
		t.Fatal(err)
	}
	private, err := base64.StdEncoding.DecodeString("fk0HmUu2yPXTNihex5N2/5jkcEm3yjRyMRHVLi4VvB0=")
	if err != nil {
		t.Fatal(err)
	}
	peer, err := tunnel.ParsePublicKey("n2T4fOWskIj28MVKtdDYPttxK4YqcTzqT/HAAwB7mQc=")
	if err != nil {
		t.Fatal(err)
	}
	want := Desired{
		Gateway:  Gateway{Type: networkingv1beta1.ConnectionServer, Kind: "GatewayServer", Namespace: "tenant", Name: "server", ClusterID: "milan"},
		Endpoint: manifests.Problem{File: "gateway.yaml", Line: 13, Object: "GatewayServer tenant/server", Field: "spec.endpoint.port"},
		DataPlane: dataplane.Config{
			MTU: 1340,
			Tunnel: tunnel.Config{
				PrivateKey: tunnel.PrivateKey(private), PeerKey: peer, ListenPort: 51840,
				AllowedIPs: prefixes("10.243.0.0/16", "fd00:243::/64", "10.70.0.0/16", "169.254.18.2/32"),
			},
			TunnelAddr: addr("169.254.18.1"), PeerTunnelAddr: addr("169.254.18.2"),
			Internal: []netip.Addr{addr("10.80.0.1")},
			Nodes: []dataplane.Node{
				{Name: "worker-1", VNI: 7, Underlay: []netip.Addr{addr("172.18.0.2")}, Internal: []netip.Addr{addr("10.80.0.2")}},
				{Name: "worker-2", VNI: 8, Underlay: []netip.Addr{addr("172.18.0.3"), addr("10.243.2.1")}, Internal: []netip.Addr{addr("10.80.0.3")}},
			},
			Routes: []dataplane.Route{
				{Dst: prefix("10.243.1.5/32"), Node: "worker-1"},
				{Dst: prefix("10.243.1.6/32"), Node: "worker-1"},
				{Dst: prefix("10.243.2.0/24"), Node: "worker-2"},
			},
			Remote: []nat.Mapping{
				mapping("10.61.0.0/16", "10.243.0.0/16"),
				mapping("fd00:61::/64", "fd00:243::/64"),
				mapping("10.71.0.0/16", "10.70.0.0/16"),
			},
			LocalPods:     prefixes("10.243.0.0/16"),
			LocalExternal: prefixes("10.70.0.0/16"),
			Addresses:     []dataplane.AddressMapping{{Inside: addr("192.168.1.10"), Outside: addr("10.70.0.5")}},
		},
	}
	got.Warnings = nil // depend on the mode of the files
	if diff := cmp.Diff(want, got, values); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
}

// decode builds a state from the files of testdata/server after edits of the
// form "file: old => new"; a new file is "file: => content".
func decode(t *testing.T, edits ...string) (Desired, error) {
	t.Helper()
	dir := t.TempDir()
	copyFiles(t, "testdata/server", dir)
	for _, e := range edits {
		edit(t, dir, e)
	}
	return load(dir)
}

// objects decodes the files of dir.
func objects(t testing.TB, dir string) manifests.Objects {
	t.Helper()
	files, err := manifests.ReadFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	o, _, err := files.Decode(reader)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func copyFiles(t testing.TB, from, to string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(from, "*.y*ml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(to, filepath.Base(path)), string(data))
	}
}

// write puts a file that only its owner can read, as a Secret should be, in place
// at once: a Runner that watches must not see half of it.
func write(t testing.TB, path, content string) {
	t.Helper()
	whole := path + ".new"
	if err := os.WriteFile(whole, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(whole, path); err != nil {
		t.Fatal(err)
	}
}

func edit(t testing.TB, dir, e string) {
	t.Helper()
	name, change, ok := strings.Cut(e, ": ")
	before, after, ok2 := strings.Cut(change, "=> ")
	if !ok || !ok2 {
		t.Fatalf("bad edit %q", e)
	}
	path := filepath.Join(dir, name)
	before = strings.TrimSuffix(before, " ")
	if before == "" {
		write(t, path, after)
		return
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), before) {
		t.Fatalf("%s does not contain %q", name, before)
	}
	write(t, path, strings.Replace(string(data), before, after, 1))
}

func TestBuildRefuses(t *testing.T) {
	const second = `apiVersion: networking.liqo.io/v1beta1
kind: %KIND%
metadata: {name: other, namespace: tenant, labels: {liqo.io/remote-cluster-id: milan}}
`
	another := func(kind, rest string) string {
		return "other.yaml: => " + strings.Replace(second, "%KIND%", kind, 1) + rest
	}
	const node3 = "spec: {interface: {gateway: {name: liqo.x}, node: {ip: %IP%}}}\nstatus: {nodeIP: {remote: 172.18.0.9}}\n"
	tests := []struct {
		name  string
		edits []string
		want  string // lines
	}{
		{"no gateway", []string{"gateway.yaml: => # nothing\n"},
			"no GatewayServer or GatewayClient: exactly one is needed"},
		{"two gateways", []string{another("GatewayClient", "spec: {endpoint: {addresses: [a.example], port: 1}}\n")},
			`other.yaml:1: GatewayClient tenant/other: is a second gateway (gateway.yaml:2: GatewayServer tenant/server: the other one): a gateway process serves one peering`},
		{"MTU too small for IPv6", []string{"gateway.yaml: mtu: 1340 => mtu: 1279"},
			"gateway.yaml:11: GatewayServer tenant/server: spec.mtu: 1279 is out of range: 1280 to 65455 (IPv6 is in use: fd00:61::/64)"},
		{"MTU too small for IPv4", []string{
			"gateway.yaml: mtu: 1340 => mtu: 575",
			`network.yaml: pod: [10.243.0.0/16, "fd00:243::/64"] => pod: 10.243.0.0/16`, `network.yaml: pod: [10.61.0.0/16, "fd00:61::/64"] => pod: 10.61.0.0/16`},
			"gateway.yaml:11: GatewayServer tenant/server: spec.mtu: 575 is out of range: 576 to 65455"},
		{"MTU too large", []string{"gateway.yaml: mtu: 1340 => mtu: 65456"},
			"gateway.yaml:11: GatewayServer tenant/server: spec.mtu: 65456 is out of range: 1280 to 65455 (IPv6 is in use: fd00:61::/64)"},
		{"port out of range", []string{"gateway.yaml: port: 51840 => port: 70000"},
			"gateway.yaml:13: GatewayServer tenant/server: spec.endpoint.port: 70000 is not a UDP port: 1 to 65535"},
		{"no port", []string{"gateway.yaml: port: 51840 => loadBalancerIP: 1.2.3.4"},
			"gateway.yaml:12: GatewayServer tenant/server: spec.endpoint.port: is required"},
		{"port and ports", []string{"gateway.yaml: port: 51840 => port: 51840\n    ports: [1, 2]"},
			"gateway.yaml:13: GatewayServer tenant/server: spec.endpoint.port: port and ports exclude each other"},
		{"port that stands there twice", []string{"gateway.yaml: port: 51840 => ports: [1, 2, 1]"},
			"gateway.yaml:13: GatewayServer tenant/server: spec.endpoint.ports[2]: 1 stands there twice"},
		{"service type that is none", []string{"gateway.yaml: serviceType: NodePort => serviceType: nodeport"},
			`gateway.yaml:14: GatewayServer tenant/server: spec.endpoint.serviceType: "nodeport" is none of ClusterIP, NodePort, LoadBalancer, ExternalName`},
		{"keys of another tenant", []string{"gateway.yaml: namespace: tenant => namespace: other"},
			`gateway.yaml:22: Secret tenant/keys: metadata.namespace: is "tenant", but that of GatewayServer other/server is "other"
gateway.yaml:35: PublicKey tenant/milan: metadata.namespace: is "tenant", but that of GatewayServer other/server is "other"`},
		{"gateway without its peer's ID", []string{"gateway.yaml: liqo.io/remote-cluster-id: milan => app: x"},
			"gateway.yaml:8: GatewayServer tenant/server: metadata.labels[liqo.io/remote-cluster-id]: is required: the peer's cluster ID"},
		{"peer's ID that is no label value", []string{"gateway.yaml: cluster-id: milan => cluster-id: not a label"},
			`gateway.yaml:9: GatewayServer tenant/server: metadata.labels[liqo.io/remote-cluster-id]: "not a label" is not a label value: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
gateway.yaml:24: Secret tenant/keys: metadata.labels[liqo.io/remote-cluster-id]: is "milan", but the peer of GatewayServer tenant/server is "not a label"
gateway.yaml:37: PublicKey tenant/milan: metadata.labels[liqo.io/remote-cluster-id]: is "milan", but the peer of GatewayServer tenant/server is "not a label"
network.yaml:7: Configuration tenant/milan: metadata.labels[liqo.io/remote-cluster-id]: is "milan", but the peer of GatewayServer tenant/server is "not a label"`},
		{"object of another peer", []string{"network.yaml: cluster-id: milan => cluster-id: rome"},
			`network.yaml:7: Configuration tenant/milan: metadata.labels[liqo.io/remote-cluster-id]: is "rome", but the peer of GatewayServer tenant/server is "milan"`},

		{"no Secret of that name", []string{"gateway.yaml: name: keys => name: missing"},
			`gateway.yaml:16: GatewayServer tenant/server: spec.secretRef.name: there is no Secret "missing"`},
		{"no Secret at all", []string{"gateway.yaml: secretRef:\n    name: keys => serviceLabels: {}", "gateway.yaml: kind: Secret => kind: ConfigMap"},
			`gateway.yaml:2: GatewayServer tenant/server: there is no Secret with data.privateKey: the gateway needs its WireGuard key`},
		{"two Secrets with a key", []string{"gateway.yaml: secretRef:\n    name: keys => serviceLabels: {}",
			"other.yaml: => {apiVersion: v1, kind: Secret, metadata: {name: more, labels: {liqo.io/remote-cluster-id: milan}}, data: {privateKey: aGVsbG8=}}"},
			`other.yaml:1: Secret more: is a second Secret with a private key, besides "keys": name one in spec.secretRef.name of the GatewayServer`},
		{"private key of a wrong length", []string{"gateway.yaml: fk0HmUu2yPXTNihex5N2/5jkcEm3yjRyMRHVLi4VvB0= => aGVsbG8="},
			"gateway.yaml:28: Secret tenant/keys: data[privateKey]: decodes to 5 bytes, but a WireGuard key has 32"},
		{"private key missing in the Secret that is named", []string{"gateway.yaml: privateKey: fk0HmUu2yPXTNihex5N2/5jkcEm3yjRyMRHVLi4VvB0= => other: aGVsbG8="},
			"gateway.yaml:27: Secret tenant/keys: data[privateKey]: is required: the 32 bytes of a WireGuard key in base64, as wg genkey and wg pubkey print them"},
		{"private key encoded twice", []string{"gateway.yaml: fk0HmUu2yPXTNihex5N2/5jkcEm3yjRyMRHVLi4VvB0= => ZmswSG1VdTJ5UFhUTmloZXg1TjIvNWprY0VtM3lqUnlNUkhWTGk0VnZCMD0K"},
			"gateway.yaml:28: Secret tenant/keys: data[privateKey]: is encoded twice: it decodes to the base64 text of a key instead of its 32 bytes. Write the text that wg prints here as it is, without base64 over it (and not under stringData)"},
		{"private key of zeros", []string{"gateway.yaml: fk0HmUu2yPXTNihex5N2/5jkcEm3yjRyMRHVLi4VvB0= => AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
			"gateway.yaml:28: Secret tenant/keys: data[privateKey]: is all zeros"},
		{"public key of another pair", []string{"gateway.yaml: LasZh/BEbmaCMU78j9dRGw7J3di72CPkJ9HvL1yq/1o= => n2T4fOWskIj28MVKtdDYPttxK4YqcTzqT/HAAwB7mQc="},
			"gateway.yaml:29: Secret tenant/keys: data[publicKey]: is not the public key of data[privateKey]"},
		{"own key as the peer's", []string{"gateway.yaml: publicKey: n2T4fOWskIj28MVKtdDYPttxK4YqcTzqT/HAAwB7mQc= => publicKey: LasZh/BEbmaCMU78j9dRGw7J3di72CPkJ9HvL1yq/1o="},
			"gateway.yaml:40: PublicKey tenant/milan: spec.publicKey: is this gateway's own public key: put the peer's there"},
		{"peer key of a wrong length", []string{"gateway.yaml: publicKey: n2T4fOWskIj28MVKtdDYPttxK4YqcTzqT/HAAwB7mQc= => publicKey: aGk="},
			"gateway.yaml:40: PublicKey tenant/milan: spec.publicKey: decodes to 2 bytes, but a WireGuard key has 32"},
		{"two peer keys", []string{another("PublicKey", "spec: {publicKey: aGk=}\n")},
			"other.yaml:1: PublicKey tenant/other: is a second PublicKey (gateway.yaml:31: PublicKey tenant/milan: the other one): the peer has one"},

		{"no Configuration", []string{"network.yaml: => # nothing\n"},
			"gateway.yaml:2: GatewayServer tenant/server: there is no Configuration: the CIDRs of both clusters must be known"},
		{"two Configurations", []string{another("Configuration", "spec: {remote: {cidr: {pod: 10.1.0.0/16}}}\n")},
			"other.yaml:1: Configuration tenant/other: is a second Configuration (network.yaml:1: Configuration tenant/milan: the other one): the peer has one"},
		{"no local CIDRs", []string{"network.yaml: local:\n    cidr:\n      pod: 10.243.0.0/16\n      external: 10.70.0.0/16\n  remote => remote", "network.yaml: kind: IP\nmetadata: => kind: IP\nmetadata:\n  labels: {networking.liqo.io/host-unreachable: \"true\"}"},
			"network.yaml:8: Configuration tenant/milan: spec.local.cidr.pod: is required outside a cluster, or a Network with the label ipam.liqo.io/network-type=pod-cidr: packets are forwarded only from and to local addresses"},
		{"not a prefix", []string{"network.yaml: pod: 10.243.0.0/16 => pod: 10.243.0.0/33"},
			`network.yaml:11: Configuration tenant/milan: spec.local.cidr.pod[0]: "10.243.0.0/33" is not a prefix such as 10.243.0.0/16 or fd00:10::/64
network.yaml:11: Configuration tenant/milan: spec.local.cidr.pod: is required outside a cluster, or a Network with the label ipam.liqo.io/network-type=pod-cidr: packets are forwarded only from and to local addresses`},
		{"host bits", []string{"network.yaml: [10.243.0.0/16, => [10.243.7.0/16,"},
			`network.yaml:15: Configuration tenant/milan: spec.remote.cidr.pod[0]: "10.243.7.0/16" has bits set behind its length: 10.243.0.0/16 is meant?`},
		{"prefix that cannot be routed", []string{"network.yaml: [10.61.0.0/16, => [127.0.0.0/16,"},
			`network.yaml:20: Configuration tenant/milan: status.remote.cidr.pod[0]: "127.0.0.0/16" cannot be routed between clusters`},
		{"same pod CIDR on both sides without a remapped one", []string{
			`network.yaml: pod: [10.61.0.0/16, "fd00:61::/64"] => pod: []`},
			"network.yaml:15: Configuration tenant/milan: spec.remote.cidr.pod[0]: 10.243.0.0/16 overlaps the local pod CIDR 10.243.0.0/16; set status.remote.cidr.pod[0] to a free prefix of length 16"},
		{"remapped to a prefix in use", []string{"network.yaml: external: 10.71.0.0/16 => external: 10.61.0.0/16"},
			"network.yaml:21: Configuration tenant/milan: status.remote.cidr.external[0]: 10.61.0.0/16 overlaps the remote pod CIDR 10.61.0.0/16; set status.remote.cidr.external[0] to a free prefix of length 16"},
		{"remote prefixes that overlap each other", []string{"network.yaml: \"fd00:243::/64\"] => 10.243.128.0/17]", "network.yaml: \"fd00:61::/64\"] => 10.62.128.0/17]"},
			"network.yaml:15: Configuration tenant/milan: spec.remote.cidr.pod[1]: 10.243.128.0/17 overlaps 10.243.0.0/16, another remote CIDR"},
		{"unequal lengths", []string{"network.yaml: external: 10.71.0.0/16 => external: 10.71.0.0/17"},
			"network.yaml:21: Configuration tenant/milan: status.remote.cidr.external[0]: 10.71.0.0/17 cannot stand for 10.70.0.0/16 (spec.remote.cidr.external[0]): family and length must be equal"},
		{"unequal number", []string{`network.yaml: [10.61.0.0/16, "fd00:61::/64"] => 10.61.0.0/16`},
			"network.yaml:20: Configuration tenant/milan: status.remote.cidr.pod: has 1 prefix for 2 in spec.remote.cidr.pod: they belong together one by one"},

		{"internal address in a pod CIDR", []string{"nodes.yml: ip: 10.80.0.1 => ip: 10.61.0.1"},
			"nodes.yml:18: InternalFabric tenant/milan: spec.interface.gateway.ip: 10.61.0.1 lies in the remote pod CIDR 10.61.0.0/16"},
		{"internal address in the tunnel", []string{"nodes.yml: ip: 10.80.0.1 => ip: 169.254.18.1"},
			"nodes.yml:18: InternalFabric tenant/milan: spec.interface.gateway.ip: 169.254.18.1 belongs to the tunnel (169.254.18.0/24)"},
		{"two InternalFabrics", []string{another("InternalFabric", "spec: {gatewayIP: 10.0.0.1, interface: {gateway: {ip: 10.80.0.8}, node: {name: x}}}\n")},
			"other.yaml:1: InternalFabric tenant/other: is a second InternalFabric (nodes.yml:6: InternalFabric tenant/milan: the other one): a gateway has one"},
		{"address of two nodes", []string{another("InternalNode", strings.Replace(node3, "%IP%", "10.80.0.2", 1))},
			"other.yaml:4: InternalNode tenant/other: spec.interface.node.ip: 10.80.0.2 is the address of node worker-1 as well"},
		{"gateway's address as a node's", []string{another("InternalNode", strings.Replace(node3, "%IP%", "10.80.0.1", 1))},
			"other.yaml:4: InternalNode tenant/other: spec.interface.node.ip: 10.80.0.1 is the gateway's own address (InternalFabric)"},
		{"node address that is none", []string{"nodes.yml: local: 172.18.0.2 => local: worker-1.example"},
			`nodes.yml:46: InternalNode worker-1: status.nodeIP.local: "worker-1.example" is not an IP address`},
		{"VNI out of range", []string{"nodes.yml: id: 7 => id: 16777216"},
			"nodes.yml:53: GeneveTunnel tenant/milan-worker-1: spec.id: 16777216 is not a VNI: 0 to 16777215"},
		{"no VNI", []string{"nodes.yml: id: 7\n    internalFabricRef => internalFabricRef"},
			"nodes.yml:52: GeneveTunnel tenant/milan-worker-1: spec.id: is required: the VNI, 0 to 16777215"},
		{"tunnel of another fabric", []string{"nodes.yml: internalFabricRef:\n      name: milan => internalFabricRef:\n      name: rome"},
			`nodes.yml:55: GeneveTunnel tenant/milan-worker-1: spec.internalFabricRef.name: is "rome", but the InternalFabric here is "milan"`},
		{"two tunnels of one node", []string{"nodes.yml: name: worker-2\n- => name: worker-1\n-"},
			`nodes.yml:68: GeneveTunnel tenant/milan-worker-2: spec.internalNodeRef.name: node "worker-1" has a GeneveTunnel already: milan-worker-1`},
		{"nodes that cannot be told apart", []string{"nodes.yml: id: 8 => id: 7", "nodes.yml: local: 172.18.0.2 => local: 172.18.0.3"},
			"nodes.yml:31: InternalNode worker-2: status.nodeIP: 172.18.0.3 with the same VNI is used by node worker-1 as well: their packets could not be told apart"},
		{"route to nowhere", []string{"nodes.yml: dst: 10.243.1.6/32\n          gw: 10.80.0.2 => dst: 10.243.1.6/32"},
			"nodes.yml:90: RouteConfiguration liqo/worker-1-gw-node: spec.table.rules[1].routes[1]: needs gw, the internal address of a node"},
		{"route without a prefix", []string{"nodes.yml: dst: 10.243.1.6/32 => dst: pod"},
			`nodes.yml:90: RouteConfiguration liqo/worker-1-gw-node: spec.table.rules[1].routes[1].dst: "pod" is not a prefix`},
		{"route via no address", []string{"nodes.yml: dst: 10.243.1.6/32\n          gw: 10.80.0.2 => dst: 10.243.1.6/32\n          gw: worker"},
			`nodes.yml:91: RouteConfiguration liqo/worker-1-gw-node: spec.table.rules[1].routes[1].gw: "worker" is not an IP address`},

		{"IP outside the external CIDR", []string{"network.yaml: ip: 10.70.0.5 => ip: 10.99.0.5"},
			"network.yaml:31: IP tenant/printer: status.ip: 10.99.0.5 lies in no local external CIDR: the peer cannot reach it"},
		{"IP on the shared address", []string{"network.yaml: ip: 10.70.0.5 => ip: 10.70.0.0"},
			"network.yaml:31: IP tenant/printer: status.ip: 10.70.0.0 is the first address of 10.70.0.0/16, which stands for nodes and hostNetwork pods"},
		{"two IPs with one address", []string{"other.yaml: => {apiVersion: ipam.liqo.io/v1alpha1, kind: IP, metadata: {name: b}, spec: {ip: 192.168.1.11}, status: {ip: 10.70.0.5}}"},
			"other.yaml:1: IP b: status.ip: 10.70.0.5 is the address of IP printer as well"},
		{"two IPs for one host", []string{"other.yaml: => {apiVersion: ipam.liqo.io/v1alpha1, kind: IP, metadata: {name: b}, spec: {ip: 192.168.1.10}, status: {ip: 10.70.0.6}}"},
			"other.yaml:1: IP b: spec.ip: 192.168.1.10 is mapped by IP printer already"},
		{"IP of two families", []string{"network.yaml: ip: 192.168.1.10 => ip: fd00::1"},
			"network.yaml:31: IP tenant/printer: status.ip: 10.70.0.5 cannot stand for fd00::1: the families differ"},
		{"ExportedService of another name", []string{"other.yaml: => {apiVersion: networking.liqo.io/v1beta1, kind: ExportedService, metadata: {name: web}, spec: {namespace: shop, name: web, type: Headless}}"},
			`other.yaml:1: ExportedService web: metadata.name: must be "shop.web": spec.namespace, a dot and spec.name`},
		{"several mistakes at once", []string{"gateway.yaml: mtu: 1340 => mtu: 1", "nodes.yml: id: 7 => id: -1"},
			`nodes.yml:53: GeneveTunnel tenant/milan-worker-1: spec.id: -1 is not a VNI: 0 to 16777215
gateway.yaml:11: GatewayServer tenant/server: spec.mtu: 1 is out of range: 1280 to 65455 (IPv6 is in use: fd00:61::/64)`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decode(t, tt.edits...)
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// The port of the node tunnels comes from the command line.
func TestBuildRefusesOnePortForTwo(t *testing.T) {
	_, err := New(Options{Dir: "testdata/server", NodePort: 51840}).Load()
	want := "gateway.yaml:13: GatewayServer tenant/server: spec.endpoint.port: UDP port 51840 is asked for twice: by --geneve-port and by the endpoint of the GatewayServer"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A warning may tell what is behind an error.
func TestBuildWarnsOfWhatItRefuses(t *testing.T) {
	for _, tt := range []struct{ name, edit, want string }{
		{"typo in the group", "gateway.yaml: networking.liqo.io/v1beta1 => networking.liqo.com/v1beta1",
			"gateway.yaml:2: GatewayServer tenant/server: networking.liqo.com/v1beta1 GatewayServer is not used by the gateway and ignored; did you mean networking.liqo.io/v1beta1 GatewayServer?"},
		{"other letters in the kind", "gateway.yaml: kind: Secret => kind: secret",
			"gateway.yaml:18: secret tenant/keys: v1 secret is not used by the gateway and ignored; did you mean v1 Secret?"},
	} {
		d, err := decode(t, tt.edit)
		if err == nil || !strings.Contains(d.Warnings.Error(), tt.want) {
			t.Errorf("%s: error %v, warnings:\n%s", tt.name, err, d.Warnings.Error())
		}
	}
}

func TestBuildClient(t *testing.T) {
	client := func(endpoint string) string {
		return "gateway.yaml: kind: GatewayServer => kind: GatewayClient\n#" +
			"\x00gateway.yaml: port: 51840\n    serviceType: NodePort => " + endpoint
	}
	tests := []struct {
		name, endpoint string
		want           string // endpoint
		problem        string
	}{
		{"address", "addresses: [192.0.2.1]\n    port: 51840", "192.0.2.1:51840", ""},
		{"IPv6 address", "addresses: ['2001:db8::1']\n    port: 51840\n    protocol: UDP", "[2001:db8::1]:51840", ""},
		{"name", "addresses: [gw.example.com]\n    port: 30742", "gw.example.com:30742", ""},
		{"first of several", "addresses: [a.example, b.example]\n    ports: [1, 2]", "a.example:1", ""},
		{"no address", "port: 51840", "", "spec.endpoint.addresses: is required: where the GatewayServer of the peer is reached"},
		{"TCP", "addresses: [a.example]\n    port: 1\n    protocol: TCP", "", "spec.endpoint.protocol: is TCP: WireGuard runs over UDP"},
		{"unknown protocol", "addresses: [a.example]\n    port: 1\n    protocol: SCTP", "", `spec.endpoint.protocol: "SCTP" is none of TCP, UDP`},
		{"address with a port", "addresses: ['a.example:51840']\n    port: 1", "", `spec.endpoint.addresses[0]: "a.example:51840" must be without a port: that is spec.endpoint.port`},
		{"not a name", "addresses: ['a b']\n    port: 1", "", `spec.endpoint.addresses[0]: "a b" is neither an IP address nor a DNS name`},
		{"address of no host", "addresses: ['0.0.0.0']\n    port: 1", "", `spec.endpoint.addresses[0]: "0.0.0.0" is not the address of a host`},
		{"mistyped address", "addresses: ['10.0.0.300']\n    port: 1", "", `spec.endpoint.addresses[0]: "10.0.0.300" is neither an IP address nor a DNS name`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := decode(t, strings.Split(client(tt.endpoint), "\x00")...)
			if tt.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tt.problem) {
					t.Fatalf("got %v, want %q", err, tt.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			c := d.DataPlane
			if c.Tunnel.Endpoint != tt.want || c.Tunnel.ListenPort != 0 {
				t.Errorf("endpoint %q, listen port %d, want %q and none", c.Tunnel.Endpoint, c.Tunnel.ListenPort, tt.want)
			}
			if c.TunnelAddr != netip.MustParseAddr("169.254.18.2") || c.PeerTunnelAddr != netip.MustParseAddr("169.254.18.1") {
				t.Errorf("tunnel %s to %s", c.TunnelAddr, c.PeerTunnelAddr)
			}
			if d.Gateway.Type != networkingv1beta1.ConnectionClient {
				t.Errorf("type %s", d.Gateway.Type)
			}
		})
	}
}

// What is not there yet waits; the rest works.
func TestBuildWaits(t *testing.T) {
	tests := []struct {
		name    string
		edits   []string
		warning string
		check   func(dataplane.Config) bool
	}{
		{"for the peer's key", []string{"gateway.yaml: kind: PublicKey\nmetadata: => kind: Connection\nmetadata:", "gateway.yaml: spec:\n  publicKey: n2T4fOWskIj28MVKtdDYPttxK4YqcTzqT/HAAwB7mQc= => spec:\n  type: Server\n  gatewayRef: {}"},
			"gateway.yaml:2: GatewayServer tenant/server: there is no PublicKey of the peer yet: no tunnel until it comes",
			func(c dataplane.Config) bool { return c.Tunnel.PeerKey.IsZero() }},
		{"for a node's address", []string{"nodes.yml: local: 172.18.0.2 => {}"},
			"nodes.yml:45: InternalNode worker-1: status.nodeIP: is not known yet: the node waits",
			func(c dataplane.Config) bool { return len(c.Nodes) == 1 && len(c.Routes) == 1 }},
		{"for a node's tunnel", []string{"nodes.yml: internalNodeRef:\n      name: worker-1 => internalNodeRef:\n      name: worker-3"},
			"nodes.yml:34: InternalNode worker-1: has no GeneveTunnel yet: the node waits",
			func(c dataplane.Config) bool { return len(c.Nodes) == 1 && len(c.Routes) == 1 }},
		{"for a tunnel's node", []string{"nodes.yml: internalNodeRef:\n      name: worker-1 => internalNodeRef:\n      name: worker-3"},
			`nodes.yml:57: GeneveTunnel tenant/milan-worker-1: spec.internalNodeRef.name: there is no InternalNode "worker-3" yet: the tunnel waits`,
			func(c dataplane.Config) bool { return len(c.Nodes) == 1 }},
		{"for the node of routes", []string{"nodes.yml: dst: 10.243.1.5/32\n          gw: 10.80.0.2 => dst: 10.243.1.5/32\n          gw: 10.80.0.9"},
			"nodes.yml:89: RouteConfiguration liqo/worker-1-gw-node: spec.table.rules[1].routes[0].gw: leads to no InternalNode that is known yet; 1 route of this object wait",
			func(c dataplane.Config) bool { return len(c.Routes) == 2 }},
		{"for the address of an IP", []string{"network.yaml: status:\n  ip: 10.70.0.5\n  cidr: 10.70.0.0/16 => # none"},
			"network.yaml:23: IP tenant/printer: status.ip: is not given yet: the address waits",
			func(c dataplane.Config) bool { return len(c.Addresses) == 0 }},
		{"for the InternalFabric", []string{"nodes.yml: kind: InternalFabric => kind: GatewayServer\n  zzz: 1", "nodes.yml: => # none\n"},
			"gateway.yaml:2: GatewayServer tenant/server: there is no InternalFabric yet: the gateway has no address towards the nodes and does not answer their ARP",
			func(c dataplane.Config) bool { return len(c.Internal) == 0 && len(c.Nodes) == 0 }},
		{"and says which route lost", []string{"nodes.yml: dst: 10.243.2.0/24 => dst: 10.243.1.5/32"},
			"nodes.yml:106: RouteConfiguration liqo/worker-2-gw-node: spec.table.rules[0].routes[0].dst: 10.243.1.5/32 is already routed to node worker-1, which stays",
			func(c dataplane.Config) bool { return len(c.Routes) == 2 }},
		{"and warns of routes that the peer cannot use", []string{"nodes.yml: dst: 10.243.1.5/32 => dst: 192.168.1.10/32", "nodes.yml: dst: 10.243.1.6/32 => dst: 192.168.1.11/32"},
			"nodes.yml:90: RouteConfiguration liqo/worker-1-gw-node: spec.table.rules[1].routes[1].dst: lies in no local CIDR and is the address of no IP object: 1 route of this object without effect",
			func(c dataplane.Config) bool { return len(c.Routes) == 3 }},
		{"and warns of another MTU", []string{"nodes.yml: mtu: 1340 => mtu: 1400"},
			"nodes.yml:12: InternalFabric tenant/milan: spec.mtu: is 1400, but the gateway's is 1340, which is used",
			func(c dataplane.Config) bool { return c.MTU == 1340 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := decode(t, tt.edits...)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(d.Warnings.Error(), tt.warning) {
				t.Errorf("warnings:\n%s\nwant among them:\n%s", d.Warnings.Error(), tt.warning)
			}
			if !tt.check(d.DataPlane) {
				t.Errorf("configuration: %+v", d.DataPlane)
			}
		})
	}
}

func TestBuildTakesLocalCIDRsFromNetworks(t *testing.T) {
	d, err := decode(t,
		"network.yaml: local:\n    cidr:\n      pod: 10.243.0.0/16\n      external: 10.70.0.0/16\n  remote => remote",
		`other.yaml: => apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: pod-cidr, labels: {ipam.liqo.io/network-type: pod-cidr}}
spec: {cidr: 10.243.0.0/16}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: external-cidr, labels: {ipam.liqo.io/network-type: external-cidr}}
spec: {cidr: 10.72.0.0/16}
status: {cidr: 10.70.0.0/16}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: milan-pod, labels: {configuration.liqo.io/cidr-type: pod}}
spec: {cidr: 10.243.0.0/16}
`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(prefixes("10.243.0.0/16"), d.DataPlane.LocalPods, values); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(prefixes("10.70.0.0/16"), d.DataPlane.LocalExternal, values); diff != "" {
		t.Errorf("external (-want +got):\n%s", diff)
	}
}
