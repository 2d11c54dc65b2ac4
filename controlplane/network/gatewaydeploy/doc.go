// Package gatewaydeploy turns a WgGatewayServer or WgGatewayClient into a running
// gateway and says in its status what became of it.
//
//	WgGatewayServer a in namespace t
//	  ├─ Secret gw-a                              keys, made once, or the Secret of spec.secretRef
//	  ├─ ServiceAccount a, Role and RoleBinding gw-a   what the gateway may do in t
//	  ├─ RoleBinding liqo-gateway-t-a             in the Liqo namespace
//	  ├─ ClusterRoleBinding liqo-gateway-t-a      what is not in a namespace
//	  ├─ Lease a.t.server.connections.liqo.io     which replica leads
//	  ├─ NetworkPolicy, PodDisruptionBudget gw-a  who gets in, and how many pods may be away (policy.go)
//	  ├─ Deployment gw-a                          spec.deployment
//	  ├─ Service gw-a                             spec.service; a client has none
//	  ├─ Service, ServiceMonitor gw-a-metrics     spec.metrics
//	  └─ Connection gw-a                          its status is the gateway's
//
// One reconciler serves both kinds. It reads (gather), decides (Build, which is
// pure: plan.go and the files named by what they decide) and writes (reconcile.go,
// status.go). What it is not: it renders no template and programs no packet path.
//
// # Ownership
//
// Owner references delete what is in the gateway's namespace. Keys and Connection
// belong to the GatewayServer or GatewayClient, so that they outlive a new
// rendering. Bindings elsewhere carry the gateway's name and namespace as labels;
// those whose gateway is gone are deleted when their event, or the gateway's, comes
// by, which for orphans is when the controller starts. There are no finalizers.
//
// # Keys
//
// A key pair is generated when the Secret gw-<name> does not exist, and by a create
// that fails if somebody else was faster: no key is ever overwritten. It carries the
// label liqo.io/managed, which tells it from a Secret of the user. That one is checked,
// labelled if it holds keys, as long as a gateway refers to it, and otherwise left
// alone. Nothing in the pods
// depends on what a Secret holds, so that a replaced key restarts nothing. No
// message repeats any of it.
//
// # Service account
//
// Roles are bound to the account that spec.deployment names. Where that is none, or
// "default", which every pod of the namespace has unless it asks for another, the
// account is named as the gateway. A service account that somebody else made is
// used if its owner labelled it networking.liqo.io/gateway-resource=true, and not changed.
//
// A token is worth nothing once its account is deleted, even if there is another of
// the same name, and a kubelet does not renew it before most of its hour is over. The
// gateway goes on forwarding by what it knew, but hears of no change and cannot say how
// the tunnel fares. So the template of the pods names the UID of the account, and pods
// are replaced when the account was.
//
// # Which pod leads
//
// The pods of the templates that are shipped elect by the Lease, also where there is one
// replica, and the pod that holds it carries the label networking.liqo.io/active, which
// the Service selects by. A pod that is replaced frees the Lease and goes on forwarding
// until its successor has it. The Lease of a pod that is gone, or whose container is
// down while another pod is ready, is released here, so that nobody waits for it to
// expire.
//
// A template without election, of one replica, has one pod at a time or, while an old
// and a new one overlap, the old one leads until it ends.
//
// # What stays while a pod restarts
//
// The endpoints in the status. A peer that reads an endpoint which comes and goes is
// worse off than one that reads the last one; the condition EndpointReady says when
// it is that.
//
// The node port, too. A Service that is made again or gets its type back asks for the
// port that it had, and takes another one only if that is taken.
package gatewaydeploy
