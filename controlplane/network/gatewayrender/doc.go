// Package gatewayrender makes of each GatewayServer and GatewayClient, which name no
// technology, the object that the template they refer to describes, and copies
// that object's status back.
//
//	GatewayServer a ── serverTemplateRef ──> WgGatewayServerTemplate liqo/wireguard-server
//	      │                                        │ rendered
//	      └── owns ──> WgGatewayServer a <─────────┘
//	             <── endpoint, internalEndpoint, secretRef, conditions
//
// One reconciler serves both kinds. It reads (gather), decides (Build and observe,
// which are pure: plan.go, status.go) and writes (reconcile.go). What it is not: it
// runs no gateway and makes no keys; that is the business of the reconciler of the
// kind that a template names.
//
// # Templates
//
// A kind of templates is any kind with spec.objectKind and spec.template whose CRD
// carries the label networking.liqo.io/gatewaytemplate. A reference without kind
// means the default kind, one without namespace the Liqo namespace. Of
// spec.template, metadata (name, namespace, labels, annotations) and spec are
// rendered; see package template. The object is named as the template says, or as
// the gateway, and is in the gateway's namespace, since owner references do not
// reach into others.
//
// # Several tunnels
//
// Of several spec.endpoint.ports, .Spec.Endpoint.Port is the first, and
// .Spec.Endpoint.NodePort the first of spec.endpoint.nodePorts. A template has no
// lists, so where it gives the Service of a WgGatewayServer a UDP port of that number,
// a port is added for each of the others ([gateway.expand]), with their node ports.
// The pod is not replaced for that. The annotation
// networking.liqo.io/tunnel-ports says which ports are tunnels. A template may list
// them itself, by {{ index .Spec.Endpoint.Ports 1 }}. If there is no such port, the
// condition AllPortsServed says so.
//
// # Failures
//
// A template that cannot be rendered changes nothing: the object that was made
// before stays, and the gateway with it. When the template, or the reference to it,
// leads to another kind or name, the object made before is deleted first: two
// gateways with one key fight for their peer.
//
// # Kinds of others
//
// Templates and objects may be of kinds that the controllers know nothing about.
// They are custom resources: a template could otherwise use the rights of the
// controllers for what its author may not do. They are watched as metadata, in a
// cache of their own, so that a kind which cannot be listed holds up nobody, and
// read past the cache. The controllers need rights to them, which whoever installs
// such kinds grants:
//
//	kind: ClusterRole
//	rules:
//	- apiGroups: [example.org]
//	  resources: [mygatewayservertemplates]
//	  verbs: [get, list, watch]
//	- apiGroups: [example.org]
//	  resources: [mygatewayservers]
//	  verbs: [get, list, watch, create, patch, delete]
//
// bound by a ClusterRoleBinding to the service account liqo-controller of the Liqo
// namespace. Without them the condition TemplateRendered says what is missing.
package gatewayrender
