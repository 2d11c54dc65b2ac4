package v1beta1_test

import "strings"

// bases are objects that are accepted as they are.
var bases = map[string]string{
	"Configuration": `
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: x, namespace: default, labels: {liqo.io/remote-cluster-id: milan}}
spec:
  local: {cidr: {pod: 10.243.0.0/16, external: 10.70.0.0/16}}
  remote: {cidr: {pod: [10.243.0.0/16, "fd00:243::/56"], external: 10.70.0.0/16}}
`,
	"GatewayServer": `
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: x, namespace: default}
spec:
  endpoint: {port: 51840, serviceType: NodePort}
  serverTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServerTemplate, name: wireguard-server, namespace: liqo}
`,
	"GatewayClient": `
apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata: {name: x, namespace: default}
spec:
  endpoint: {addresses: [192.0.2.1], port: 51840, protocol: UDP}
  clientTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayClientTemplate, name: wireguard-client, namespace: liqo}
`,
	"WgGatewayServerTemplate": `
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayServerTemplate
metadata: {name: x, namespace: default}
spec:
  objectKind: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServer}
  template: {metadata: {name: "{{ .Name }}"}, spec: {"?anything": 1}}
`,
	"WgGatewayClientTemplate": `
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayClientTemplate
metadata: {name: x, namespace: default}
spec:
  objectKind: {apiVersion: example.org/v1, kind: Tunnel}
  template: {}
`,
	"PublicKey": `
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata: {name: x, namespace: default}
spec: {publicKey: SU+Ba3jBNgofBrZtVHwad1VJotcVs4TmgpOdFQhx/UE=}
`,
	"Connection": `
apiVersion: networking.liqo.io/v1beta1
kind: Connection
metadata: {name: x, namespace: default}
spec: {type: Server, gatewayRef: {kind: WgGatewayServer, name: server}}
`,
	"InternalNode": `
apiVersion: networking.liqo.io/v1beta1
kind: InternalNode
metadata: {name: x}
spec: {interface: {gateway: {name: liqo.a1b2c3d4e5}, node: {ip: 10.80.0.2}}}
`,
	"InternalFabric": `
apiVersion: networking.liqo.io/v1beta1
kind: InternalFabric
metadata: {name: x, namespace: default}
spec: {mtu: 1340, gatewayIP: "fd00:243::7", interface: {node: {name: liqo.a1b2c3d4e5}, gateway: {ip: 10.80.0.1}}, remoteCIDRs: [10.61.0.0/16]}
`,
	"GeneveTunnel": `
apiVersion: networking.liqo.io/v1beta1
kind: GeneveTunnel
metadata: {name: x, namespace: default}
spec: {id: 1, internalFabricRef: {name: milan}, internalNodeRef: {name: worker-1}}
`,
	"ExportedService": `
apiVersion: networking.liqo.io/v1beta1
kind: ExportedService
metadata: {name: shop.web, namespace: default}
spec: {namespace: shop, name: web, type: ClusterSetIP, ports: [{port: 80, protocol: TCP}], slices: [{addressType: IPv4, ports: [{port: 8080, protocol: TCP}], endpoints: [{addresses: [10.243.1.2], ready: true, serving: true}]}]}
`,
	"ImportedService": `
apiVersion: networking.liqo.io/v1beta1
kind: ImportedService
metadata: {name: shop.web, namespace: default}
spec: {namespace: shop, name: web, type: Headless, exportedAt: "2026-03-01T10:00:00Z"}
`,
	"RouteConfiguration": `
apiVersion: networking.liqo.io/v1beta1
kind: RouteConfiguration
metadata: {name: x, namespace: default}
spec:
  table:
    name: milan
    rules:
    - {dst: 10.80.0.2/32, routes: [{dst: 10.80.0.2/32, dev: liqo.worker1, scope: link}]}
    - {iif: liqo-tunnel, routes: [{dst: 10.243.1.5/32, gw: 10.80.0.2}, {dst: 10.243.1.6/32, gw: 10.80.0.2}]}
`,
	"FirewallConfiguration": `
apiVersion: networking.liqo.io/v1beta1
kind: FirewallConfiguration
metadata: {name: x, namespace: default}
spec:
  table:
    name: mine
    family: IPV4
    chains:
    - name: filter
      type: filter
      hook: forward
      priority: 0
      policy: accept
      rules:
        filterRules:
        - name: ssh
          action: reject
          match: [{op: eq, proto: {value: tcp}, port: {position: dst, value: "22"}, ip: {position: src, value: 10.0.0.0/8}}]
        - action: accept
          match: []
    - name: nat
      type: nat
      hook: postrouting
      priority: 100
      policy: accept
      rules:
        natRules:
        - {name: away, natType: snat, to: 10.70.0.0/16, match: []}
`,
	"Network": `
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: x, namespace: default}
spec: {cidr: 10.70.0.0/16, preAllocated: 1}
`,
	"IP": `
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {name: x, namespace: default}
spec: {ip: 10.0.0.1}
`,
}

const (
	aFilter = "spec.table.chains[0].rules.filterRules[0]"
	aMatch  = aFilter + ".match[0]"
	aNAT    = "spec.table.chains[1].rules.natRules[0]"
)

// by a policy: what the API server says besides the message.
const policy = "ValidatingAdmissionPolicy: "

type values = map[string]string

// itself is the label of a peering of the cluster with itself.
const itself = `{"liqo.io/remote-cluster-id": "here"}`

const refusesItself = policy + "the label liqo.io/remote-cluster-id is 'here', the ID of this cluster itself: set it to that of the remote cluster"

var admissions = []admission{
	{"for this cluster", "Configuration", values{"metadata.labels": itself}, nil, refusesItself},
	{"for this cluster", "GatewayServer", values{"metadata.labels": itself}, nil, refusesItself},
	{"for this cluster", "GatewayClient", values{"metadata.labels": itself}, nil, refusesItself},
	{"for this cluster", "PublicKey", values{"metadata.labels": itself}, nil, refusesItself},
	{"of this cluster later", "Configuration", nil, values{"metadata.labels": itself}, refusesItself},
	{"without a label", "Configuration", values{"metadata.labels": "null"}, nil, ""},

	{"as it is", "Configuration", nil, nil, ""},
	{"without the local side", "Configuration", values{"spec.local": "null"}, nil, ""},
	{"with one pod CIDR", "Configuration", values{"spec.remote.cidr.pod": `"fd00::/56"`}, nil, ""},
	{"without an external CIDR", "Configuration", values{"spec.remote.cidr.external": "null"}, nil, ""},
	{"without spec", "Configuration", values{"spec": "null"}, nil, "spec: Required value"},
	{"without the remote side", "Configuration", values{"spec.remote": "null"}, nil, "spec.remote: Required value"},
	{"without CIDRs", "Configuration", values{"spec.remote": "{}"}, nil, "remote.cidr is missing: the pod and external CIDRs of the remote cluster"},
	{"without a pod CIDR", "Configuration", values{"spec.remote.cidr.pod": "null"}, nil, policy + "spec.remote.cidr.pod is missing: the pod CIDR, or the list of pod CIDRs"},
	{"with an empty list", "Configuration", values{"spec.remote.cidr.pod": "[]"}, nil, policy + "spec.remote.cidr.pod is missing"},
	{"with a CIDR that is none", "Configuration", values{"spec.remote.cidr.pod": `"10.243.0.0"`}, nil, `spec.remote.cidr.pod in body must be of type cidr: "10.243.0.0"`},
	{"with a number", "Configuration", values{"spec.remote.cidr.pod": "10"}, nil, "spec.remote.cidr.pod in body must be of type cidr"},
	{"with a list with an element that is none", "Configuration", values{"spec.remote.cidr.pod[1]": `"10.243.0.0/33"`}, nil, policy + "10.243.0.0/33 is no CIDR: write an IPv4 or IPv6 prefix with no bits set behind its length, such as 10.243.0.0/16"},
	{"with a list with a number", "Configuration", values{"spec.remote.cidr.pod[1]": "7"}, nil, policy + "an entry of spec is no CIDR"},
	{"with bits behind the length", "Configuration", values{"spec.local.cidr.external": `"10.70.0.1/16"`}, nil, policy + "10.70.0.1/16 is no CIDR"},
	{"updated with bits behind the length", "Configuration", nil, values{"spec.local.cidr.external": `"10.70.0.1/16"`}, policy + "10.70.0.1/16 is no CIDR"},

	{"as it is", "GatewayServer", nil, nil, ""},
	{"with a name of 60 characters", "GatewayServer", values{"metadata.name": `"` + strings.Repeat("a", 60) + `"`}, nil, ""},
	{"with a name of 61 characters", "GatewayServer", values{"metadata.name": `"` + strings.Repeat("a", 61) + `"`}, nil, "the Service gw-NAME must be a DNS label: lower-case letters, digits and dashes, at most 60 characters"},
	{"with a dot in its name", "GatewayServer", values{"metadata.name": `"milan.example"`}, nil, "the Service gw-NAME must be a DNS label"},
	{"with a generated name", "GatewayServer", values{"metadata.name": "null", "metadata.generateName": `"milan-"`}, nil, ""},
	{"without a template", "GatewayServer", values{"spec.serverTemplateRef": "null"}, nil, ""},
	{"with no more than the template's name", "GatewayServer", values{"spec.serverTemplateRef": `{"name": "mine"}`}, nil, ""},
	{"with an exotic Service", "GatewayServer", values{"spec.endpoint.serviceType": `"ExternalName"`}, nil, ""},
	{"with fixed ports", "GatewayServer", values{"spec.endpoint": `{"ports": [1, 2], "nodePorts": [30001, 30002], "serviceType": "LoadBalancer", "loadBalancerIP": "fd00::1"}`}, nil, ""},
	{"with an empty load balancer address", "GatewayServer", values{"spec.endpoint.loadBalancerIP": `""`}, nil, ""},
	{"without spec", "GatewayServer", values{"spec": "null"}, nil, "spec: Required value"},
	{"without endpoint", "GatewayServer", values{"spec.endpoint": "null"}, nil, "spec.endpoint: Required value"},
	{"without port", "GatewayServer", values{"spec.endpoint.port": "null"}, nil, "set port, or ports with at least one entry"},
	{"with port and ports", "GatewayServer", values{"spec.endpoint.ports": "[1]"}, nil, "port and ports exclude each other: set one of them"},
	{"with port 0", "GatewayServer", values{"spec.endpoint.port": "0"}, nil, "spec.endpoint.port in body should be greater than or equal to 1"},
	{"with port 65536", "GatewayServer", values{"spec.endpoint.port": "65536"}, nil, "spec.endpoint.port in body should be less than or equal to 65535"},
	{"with a port 0 among others", "GatewayServer", values{"spec.endpoint.port": "null", "spec.endpoint.ports": "[1, 0]"}, nil, "spec.endpoint.ports[1] in body should be greater than or equal to 1"},
	{"with a port twice", "GatewayServer", values{"spec.endpoint.port": "null", "spec.endpoint.ports": "[1, 1]"}, nil, "every entry of ports must be different"},
	{"with node port 65536", "GatewayServer", values{"spec.endpoint.nodePort": "65536"}, nil, "spec.endpoint.nodePort in body should be less than or equal to 65535"},
	{"with a node port without its Service", "GatewayServer", values{"spec.endpoint": `{"port": 1, "nodePort": 30000}`}, nil, "a node port needs serviceType NodePort or LoadBalancer"},
	{"with more node ports than ports", "GatewayServer", values{"spec.endpoint.nodePorts": "[30000, 30001]"}, nil, "nodePorts has more entries than there are ports"},
	{"with a load balancer address without its Service", "GatewayServer", values{"spec.endpoint.loadBalancerIP": `"192.0.2.1"`}, nil, "loadBalancerIP needs serviceType LoadBalancer"},
	{"with a load balancer name", "GatewayServer", values{"spec.endpoint.serviceType": `"LoadBalancer"`, "spec.endpoint.loadBalancerIP": `"gw.example.org"`}, nil, "loadBalancerIP is an IP address"},
	{"with a Service of another kind", "GatewayServer", values{"spec.endpoint.serviceType": `"Headless"`}, nil, `supported values: "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"`},
	{"with an empty template reference", "GatewayServer", values{"spec.serverTemplateRef": "{}"}, nil, "name the template, such as wireguard-server"},
	{"with half a template reference", "GatewayServer", values{"spec.serverTemplateRef.kind": "null"}, nil, "with apiVersion goes the kind of the template, such as WgGatewayServerTemplate"},
	{"with MTU 575", "GatewayServer", values{"spec.mtu": "575"}, nil, "spec.mtu in body should be greater than or equal to 576"},
	{"with MTU 65456", "GatewayServer", values{"spec.mtu": "65456"}, nil, "spec.mtu in body should be less than or equal to 65455"},

	{"as it is", "GatewayClient", nil, nil, ""},
	{"with a name of 60 characters", "GatewayClient", values{"metadata.name": `"` + strings.Repeat("a", 60) + `"`}, nil, ""},
	{"with a name of 61 characters", "GatewayClient", values{"metadata.name": `"` + strings.Repeat("a", 61) + `"`}, nil, "the Service gw-NAME must be a DNS label: lower-case letters, digits and dashes, at most 60 characters"},
	{"with a dot in its name", "GatewayClient", values{"metadata.name": `"milan.example"`}, nil, "the Service gw-NAME must be a DNS label"},
	{"with a generated name", "GatewayClient", values{"metadata.name": "null", "metadata.generateName": `"milan-"`}, nil, ""},
	{"with IPv6 and names", "GatewayClient", values{"spec.endpoint.addresses": `["2001:db8::1", "gw.example.org", "localhost", "a_b.example.org."]`}, nil, ""},
	{"without endpoint", "GatewayClient", values{"spec.endpoint": "null"}, nil, "spec.endpoint: Required value"},
	{"without addresses", "GatewayClient", values{"spec.endpoint.addresses": "null"}, nil, "addresses is empty: set the address or name by which the peer's gateway server is reached"},
	{"with no address", "GatewayClient", values{"spec.endpoint.addresses": "[]"}, nil, "addresses is empty"},
	{"with an empty address", "GatewayClient", values{"spec.endpoint.addresses[0]": `""`}, nil, "an address is an IP address or a DNS name, without a port"},
	{"with an address with a port", "GatewayClient", values{"spec.endpoint.addresses[0]": `"192.0.2.1:51840"`}, nil, "without a port (that is in port)"},
	{"with an address in brackets", "GatewayClient", values{"spec.endpoint.addresses[0]": `"[2001:db8::1]"`}, nil, "without brackets"},
	{"with a URL", "GatewayClient", values{"spec.endpoint.addresses[0]": `"udp://gw.example.org"`}, nil, "an address is an IP address or a DNS name"},
	{"without port", "GatewayClient", values{"spec.endpoint.port": "null"}, nil, "set port, or ports with at least one entry"},
	{"with WireGuard over TCP", "GatewayClient", values{"spec.endpoint.protocol": `"TCP"`}, nil, "endpoint.protocol: WireGuard has only UDP"},
	{"with WireGuard of the default template over TCP", "GatewayClient", values{"spec.endpoint.protocol": `"TCP"`, "spec.clientTemplateRef": "null"}, nil, "WireGuard has only UDP"},
	{"with something else over TCP", "GatewayClient", values{"spec.endpoint.protocol": `"TCP"`, "spec.clientTemplateRef": `{"apiVersion": "example.org/v1", "kind": "TunnelTemplate", "name": "t"}`}, nil, ""},
	{"with an empty template reference", "GatewayClient", values{"spec.clientTemplateRef": "{}"}, nil, "name the template, such as wireguard-client"},
	{"with half a template reference", "GatewayClient", values{"spec.clientTemplateRef.kind": "null"}, nil, "with apiVersion goes the kind of the template, such as WgGatewayClientTemplate"},
	{"with SCTP", "GatewayClient", values{"spec.endpoint.protocol": `"SCTP"`}, nil, `supported values: "TCP", "UDP"`},

	{"as it is", "WgGatewayServerTemplate", nil, nil, ""},
	{"without kind", "WgGatewayServerTemplate", values{"spec.objectKind.kind": "null"}, nil, "objectKind needs apiVersion and kind of the objects that are made from the template"},
	{"without objectKind", "WgGatewayServerTemplate", values{"spec.objectKind": "null"}, nil, "spec.objectKind: Required value"},
	{"without template", "WgGatewayServerTemplate", values{"spec.template": "null"}, nil, "spec.template: Required value"},
	{"as it is", "WgGatewayClientTemplate", nil, nil, ""},
	{"without apiVersion", "WgGatewayClientTemplate", values{"spec.objectKind.apiVersion": `""`}, nil, "such as networking.liqo.io/v1beta1 and WgGatewayClient"},

	{"as it is", "PublicKey", nil, nil, ""},
	{"without key", "PublicKey", values{"spec.publicKey": "null"}, nil, "spec.publicKey: Required value"},
	{"with 31 bytes", "PublicKey", values{"spec.publicKey": `"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="`}, nil, "publicKey must be a WireGuard public key: 32 bytes in base64, 44 characters, as wg pubkey prints it"},
	{"with 33 bytes", "PublicKey", values{"spec.publicKey": `"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"`}, nil, "publicKey must be a WireGuard public key"},
	{"that is empty", "PublicKey", values{"spec.publicKey": `""`}, nil, "publicKey must be a WireGuard public key"},
	{"that is no base64", "PublicKey", values{"spec.publicKey": `"SU+Ba3jBNgofBrZtVHwad1VJotcVs4TmgpOdFQhx!UE="`}, nil, "publicKey must be a WireGuard public key"},

	{"as it is", "Connection", nil, nil, ""},
	{"of no type", "Connection", values{"spec.type": `"Peer"`}, nil, `supported values: "Server", "Client"`},

	{"as it is", "InternalNode", nil, nil, ""},
	{"with a long interface name", "InternalNode", values{"spec.interface.gateway.name": `"liqo.a1b2c3d4e5f"`}, nil, "spec.interface.gateway.name: Too long: may not be more than 15"},
	{"with an impossible interface name", "InternalNode", values{"spec.interface.gateway.name": `"a/b"`}, nil, "spec.interface.gateway.name"},
	{"with a prefix for an address", "InternalNode", values{"spec.interface.node.ip": `"10.80.0.2/32"`}, nil, "spec.interface.node.ip"},

	{"as it is", "InternalFabric", nil, nil, ""},
	{"without address", "InternalFabric", values{"spec.gatewayIP": `""`}, nil, "spec.gatewayIP"},
	{"with a name for an address", "InternalFabric", values{"spec.interface.gateway.ip": `"gateway"`}, nil, "spec.interface.gateway.ip"},
	{"with an address for a prefix", "InternalFabric", values{"spec.remoteCIDRs[0]": `"10.61.0.0"`}, nil, "spec.remoteCIDRs[0] in body must be of type cidr"},

	{"as it is", "GeneveTunnel", nil, nil, ""},
	{"with the last VNI", "GeneveTunnel", values{"spec.id": "16777215"}, nil, ""},
	{"with a VNI of 25 bits", "GeneveTunnel", values{"spec.id": "16777216"}, nil, "spec.id in body should be less than or equal to 16777215"},
	{"with a negative VNI", "GeneveTunnel", values{"spec.id": "-1"}, nil, "spec.id in body should be greater than or equal to 0"},
	{"without a name of the node", "GeneveTunnel", values{"spec.internalNodeRef": `{"kind": "InternalNode"}`}, nil, "internalNodeRef needs the name of the InternalNode"},
	{"without a name of the fabric", "GeneveTunnel", values{"spec.internalFabricRef.name": `""`}, nil, "internalFabricRef needs the name of the InternalFabric"},

	{"as it is", "ExportedService", nil, nil, ""},
	{"of another name", "ExportedService", values{"spec.name": `"shop"`}, nil, "the name must be spec.namespace, a dot and spec.name"},
	{"without a type", "ExportedService", values{"spec.type": "null"}, nil, "spec.type: Required value"},
	{"with port 0", "ExportedService", values{"spec.ports[0].port": "0"}, nil, "spec.ports[0].port in body should be greater than or equal to 1"},
	{"with an endpoint that has no address", "ExportedService", values{"spec.slices[0].endpoints[0].addresses": "[]"}, nil, "spec.slices[0].endpoints[0].addresses in body should have at least 1 items"},
	{"with names for addresses", "ExportedService", values{"spec.slices[0].addressType": `"FQDN"`}, nil, `spec.slices[0].addressType: Unsupported value: "FQDN"`},
	{"as it is", "ImportedService", nil, nil, ""},
	{"of a namespace with a dot", "ImportedService", values{"metadata.name": `"a.b.web"`, "spec.namespace": `"a.b"`}, nil, "spec.namespace in body should match"},
	{"of a protocol that is none", "ImportedService", values{"spec.ports": `[{"port": 80, "protocol": "ICMP"}]`}, nil, `spec.ports[0].protocol: Unsupported value: "ICMP"`},

	{"as it is", "Network", nil, nil, ""},
	{"of IPv6", "Network", values{"spec.cidr": `"fd00:70::/48"`}, nil, ""},
	{"without CIDR", "Network", values{"spec.cidr": "null"}, nil, "spec.cidr: Required value"},
	{"with an address", "Network", values{"spec.cidr": `"10.70.0.0"`}, nil, `spec.cidr in body must be of type cidr: "10.70.0.0"`},
	{"with bits behind the length", "Network", values{"spec.cidr": `"10.70.0.1/16"`}, nil, "cidr must be an IPv4 or IPv6 prefix with no bits set behind its length, such as 10.70.0.0/16"},
	{"of IPv4 in IPv6", "Network", values{"spec.cidr": `"::ffff:10.70.0.0/112"`}, nil, "cidr must be an IPv4 or IPv6 prefix"},
	{"with another CIDR", "Network", nil, values{"spec.cidr": `"10.71.0.0/16"`}, "cidr cannot be changed: make another Network"},
	{"with fewer than no addresses", "Network", values{"spec.preAllocated": "-1"}, nil, "spec.preAllocated in body should be greater than or equal to 0"},
	{"with more addresses set apart", "Network", nil, values{"spec.preAllocated": "2"}, "preAllocated cannot be changed"},
	{"with none set apart any more", "Network", nil, values{"spec.preAllocated": "null"}, "preAllocated cannot be changed"},
	{"with some set apart later", "Network", values{"spec.preAllocated": "null"}, values{"spec.preAllocated": "1"}, "preAllocated cannot be changed"},
	{"with a zero written out", "Network", values{"spec.preAllocated": "null"}, values{"spec.preAllocated": "0"}, ""},

	{"as it is", "IP", nil, nil, ""},
	{"of IPv6", "IP", values{"spec.ip": `"fd00::1"`}, nil, ""},
	{"with a prefix", "IP", values{"spec.ip": `"10.0.0.0/8"`}, nil, "ip must be one IPv4 or IPv6 address, such as 10.0.0.1"},
	{"with a name", "IP", values{"spec.ip": `"db.example.org"`}, nil, "ip must be one IPv4 or IPv6 address"},
	{"of IPv4 in IPv6", "IP", values{"spec.ip": `"::ffff:10.0.0.1"`}, nil, "ip must be one IPv4 or IPv6 address"},
	{"with another address", "IP", nil, values{"spec.ip": `"10.0.0.2"`}, "ip cannot be changed: make another IP"},
	{"with a Network without a name", "IP", values{"spec.networkRef": `{"namespace": "liqo"}`}, nil, "networkRef needs the name of a Network"},
	{"with a Network", "IP", values{"spec.networkRef": `{"name": "external-cidr", "namespace": "liqo"}`}, nil, ""},
}
