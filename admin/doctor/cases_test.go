package doctor

import (
	"errors"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
)

// testCase breaks something, and says what the check must make of it.
type testCase struct {
	name, check string
	breaks      func(w *world)
	cluster     string
	want        Status
}

const local, remote = access.Local, access.Remote

// Errors as access makes them.
func told(cluster, text string) error { return &access.Error{Cluster: cluster, Err: errors.New(text)} }

var errMayNot = told(remote, "list things: the user of kubeconfig milan.yaml may not do this")

func gap(kind string) survey.Gap { return survey.Gap{What: kind + "s", Kind: kind, Err: errMayNot} }

// silence breaks the connection as both gateways see it.
func (w *world) silence() {
	for _, e := range []*end{w.client, w.server} {
		for _, r := range []*survey.GatewayReport{e.before, e.after} {
			r.Sync.Peer.Value = networkingv1beta1.ConnectionError
			r.DataPlane.Tunnel.LastHandshake = time.Time{}
		}
		e.probe = nil
		e.peer.Connection.Status.Value = networkingv1beta1.ConnectionError
		e.after.DataPlane.Tunnel.RxBytes, e.after.DataPlane.Tunnel.TxBytes = e.before.DataPlane.Tunnel.RxBytes, e.before.DataPlane.Tunnel.TxBytes
	}
}

// tunnel is what WireGuard of an end counted last.
func (e *end) tunnel() *survey.TunnelStats { return &e.after.DataPlane.Tunnel }

func event(namespace, kind, name, reason, message string) corev1.Event {
	return corev1.Event{
		InvolvedObject: corev1.ObjectReference{Namespace: namespace, Kind: kind, Name: name}, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
	}
}

// waiting is a container that does not start.
func (e *end) waiting(reason, message string) {
	p := &e.pods.items[0]
	p.Status.Phase = corev1.PodPending
	p.Status.Conditions[0].Status = corev1.ConditionFalse
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func (w *world) policy(spec networkingv1.NetworkPolicySpec) {
	w.server.policies.items = append(w.server.policies.items, networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.server.peer.Namespace, Name: "restrict"}, Spec: spec,
	})
}

func problem(object, reason string) manifests.Problem {
	return manifests.Problem{Object: object, Reason: reason}
}

var cases = []testCase{
	{"out of date", "api-access", func(w *world) {
		w.milan.err = &access.Error{Cluster: remote, Err: &access.Explanation{Doing: "reach the cluster", What: "the API server https://milan.example.org:6443 does not accept the credentials of kubeconfig milan.yaml",
			Cause: "its client certificate is valid until 2026-01-01T00:00:00Z only, and it is 2026-11-21T12:00:00Z", Advice: "log in again", Err: errors.New("Unauthorized")}}
		w.milan.Cluster = unasked(remote)
		w.peerings = []*peering{{id: "milan", local: w.client}}
	}, remote, Failed},
	{"away", "api-access", func(w *world) {
		w.milan.err = told(remote, "the API server https://milan.example.org:6443 cannot be reached: check that the cluster runs")
		w.milan.Cluster = unasked(remote)
		w.peerings = []*peering{{id: "milan", local: w.client}}
	}, remote, Failed},

	{"lists are refused", "permissions", func(w *world) { w.milan.needed = told(remote, "the user lacks rights: list configurations") }, remote, Failed},
	{"one namespace is seen", "permissions", func(w *world) {
		w.milan.Within, w.milan.needed = "liqo-tenant-rome", told(remote, "the user lacks rights: list configurations")
	}, remote, Warning},
	{"exec is refused", "permissions", func(w *world) { w.rome.wanted = told(local, "the user lacks rights: create pods/exec") }, local, Warning},

	{"old", "kubernetes", func(w *world) { w.milan.Installation.KubernetesVersion = "v1.29.4+k3s1" }, remote, Failed},
	{"does not tell", "kubernetes", func(w *world) { w.milan.Installation.KubernetesVersion = "" }, remote, Skipped},

	{"none", "crds", func(w *world) { w.milan.crds.items = nil }, remote, Failed},
	{"one is missing", "crds", func(w *world) { w.milan.crds.items = w.milan.crds.items[1:] }, remote, Failed},
	{"an older one", "crds", func(w *world) {
		old := w.milan.wantedCRDs[3].DeepCopy() // Connection
		delete(old.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties, "conditions")
		w.milan.crds.items = append([]apiextensionsv1.CustomResourceDefinition{*old}, w.milan.crds.items...)
	}, remote, Failed},
	{"another version", "crds", func(w *world) {
		old := w.milan.wantedCRDs[3].DeepCopy()
		old.Spec.Versions[0].Name = "v1alpha1"
		w.milan.crds.items = append([]apiextensionsv1.CustomResourceDefinition{*old}, w.milan.crds.items...)
	}, remote, Failed},
	{"not served", "crds", func(w *world) {
		bad := w.milan.wantedCRDs[3].DeepCopy()
		bad.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse, Message: "names conflict"}}
		w.milan.crds.items = append([]apiextensionsv1.CustomResourceDefinition{*bad}, w.milan.crds.items...)
	}, remote, Failed},
	{"may not be read", "crds", func(w *world) { w.milan.crds = read[apiextensionsv1.CustomResourceDefinition]{err: errMayNot} }, remote, Skipped},

	{"nothing", "installation", func(w *world) {
		w.milan.Gaps = []survey.Gap{{What: "the cluster ID", Err: &access.Error{Cluster: remote, Err: errors.Join(access.ErrNotInstalled)}}}
	}, remote, Failed},
	{"no controller", "installation", func(w *world) { w.milan.Installation.Components = w.milan.Installation.Components[1:] }, remote, Failed},
	{"no agents", "installation", func(w *world) { w.milan.Installation.Components = w.milan.Installation.Components[:1] }, remote, Warning},
	{"the controller is down", "installation", func(w *world) {
		o := &w.milan.Installation.Components[0]
		o.Ready, o.Pods = 0, []survey.Pod{{Name: "liqo-controller-1", Reason: "CrashLoopBackOff"}}
	}, remote, Failed},
	{"the controller is scaled to zero", "installation", func(w *world) { w.milan.Installation.Components[0].Desired = 0 }, remote, Warning},
	{"three controllers are scaled to zero", "installation", func(w *world) {
		w.milan.Installation.Components[0].Desired, w.milan.Installation.ControllerReplicas = 0, 3
	}, remote, Warning},
	{"some agents are down", "installation", func(w *world) { w.milan.Installation.Components[1].Ready = 1 }, remote, Warning},
	{"agents are refused", "installation", func(w *world) {
		w.milan.Installation.Components[1].Ready, w.milan.Installation.Components[1].Updated = 0, 0
		w.milan.events.items = []corev1.Event{event("liqo-fabric", "DaemonSet", "liqo-fabric", "FailedCreate", `pods "liqo-fabric-x" is forbidden: violates PodSecurity "restricted:latest": host namespaces`)}
	}, remote, Failed},
	{"may not be read", "installation", func(w *world) {
		w.milan.Installation.Components = nil
		w.milan.Gaps = []survey.Gap{gap("Deployment"), gap("DaemonSet")}
	}, remote, Skipped},

	{"the same cluster", "identity", func(w *world) { w.milan.uid = w.rome.uid }, "", Failed},
	{"the same ID", "identity", func(w *world) { w.milan.Installation.ClusterID = "rome" }, "", Failed},
	{"no ID", "identity", func(w *world) {
		w.milan.Installation.ClusterID = ""
		w.milan.Gaps = []survey.Gap{{What: "the cluster ID", Err: told(remote, "ConfigMap liqo/liqo-clusterid-configmap has no CLUSTER_ID")}}
	}, remote, Failed},

	{"an older cluster", "versions", func(w *world) { w.milan.Installation.Components[0].Version = "v1.2.9" }, "", Warning},
	{"an older gateway", "versions", func(w *world) { w.server.after.Version = "v1.3.0" }, "", Warning},

	{"a gateway is behind", "clocks", func(w *world) { d := -75 * time.Second; w.client.clockAhead = &d }, local, Warning},
	{"an API server is ahead", "clocks", func(w *world) { d := 15 * time.Minute; w.milan.clockAhead = &d }, remote, Warning},
	{"nobody tells", "clocks", func(w *world) {
		w.rome.clockAhead, w.milan.clockAhead, w.client.clockAhead, w.server.clockAhead = nil, nil, nil, nil
	}, "", Skipped},

	{"no pod CIDR", "networks", func(w *world) { w.milan.Networks.Pod = nil }, remote, Failed},
	{"not granted", "networks", func(w *world) {
		w.milan.Networks.External[0].CIDR, w.milan.Networks.External[0].Problem = "", "10.70.0.0/16 overlaps Network liqo/pod-cidr"
	}, remote, Failed},
	{"somebody's overlaps a peer's", "networks", func(w *world) {
		w.milan.Networks.Other = []survey.Network{{Name: "office", Desired: "10.71.0.0/16", Problem: "10.71.0.0/16 overlaps 10.71.0.0/16 of Network liqo-tenant-rome/rome-pod-10-243-0-0-16"}}
	}, remote, Failed},
	{"own CIDRs overlap", "networks", func(w *world) { w.milan.Networks.External = network("external-cidr", "10.243.128.0/17") }, remote, Failed},
	{"a node lies within", "networks", func(w *world) { w.milan.nodes.items[1].Status.Addresses[0].Address = "10.80.3.4" }, remote, Failed},
	{"a node among pods", "networks", func(w *world) { w.milan.nodes.items[1].Status.Addresses[0].Address = "10.243.200.4" }, remote, Warning},
	{"a virtual node among pods", "networks", func(w *world) {
		n := w.milan.nodes.items[1]
		n.Name, n.Labels = "rome", map[string]string{networkingv1beta1.LabelNodeType: networkingv1beta1.NodeTypeVirtual}
		n.Spec.PodCIDRs = []string{"10.42.0.0/24"}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.243.0.13"}}
		w.milan.nodes.items = append(w.milan.nodes.items, n)
	}, remote, OK},
	{"pods are elsewhere", "networks", func(w *world) { w.milan.pods.items[0].Status.PodIPs[0].IP = "10.42.0.7" }, remote, Failed},
	{"the nodes' CIDRs are elsewhere", "networks", func(w *world) { w.milan.nodes.items[0].Spec.PodCIDRs = []string{"10.42.0.0/24"} }, remote, Warning},
	{"Services are elsewhere", "networks", func(w *world) { w.milan.apiService.Spec.ClusterIP = "10.43.0.1" }, remote, Failed},
	{"may not be read", "networks", func(w *world) { w.milan.Gaps = []survey.Gap{gap("Network")} }, remote, Skipped},

	{"agents are not admitted", "pod-security", func(w *world) {
		w.milan.namespaces.items[1].Labels[networkingv1beta1.LabelPodSecurity] = "baseline"
		w.milan.Installation.Components[1].Ready = 0
	}, remote, Failed},
	{"agents are not admitted any more", "pod-security", func(w *world) { w.milan.namespaces.items[1].Labels[networkingv1beta1.LabelPodSecurity] = "baseline" }, remote, Warning},

	{"never connected", "tenant-namespace", func(w *world) { w.server.peer = nil }, remote, Failed},
	{"this cluster", "tenant-namespace", func(w *world) {
		w.client.id, w.client.peer = "rome", nil
		w.alone(w.client)
	}, "", Failed},
	{"may not be read", "tenant-namespace", func(w *world) {
		w.server.peer = nil
		w.milan.Gaps = []survey.Gap{gap("GatewayServer")}
	}, remote, Skipped},
	{"the only one that may be read", "tenant-namespace", func(w *world) {
		w.milan.namespaces = read[corev1.Namespace]{w.milan.namespaces.items[2:], errMayNot}
	}, remote, OK},
	{"on its way out", "tenant-namespace", func(w *world) { w.milan.namespaces.items[2].Status.Phase = corev1.NamespaceTerminating }, remote, Failed},

	{"none", "configuration", func(w *world) { w.server.peer.Configuration = nil }, remote, Failed},
	{"not ready", "configuration", func(w *world) {
		isFalse(&w.server.peer.Configuration.Status.Conditions, networkingv1beta1.ConditionNetworkCIDRsConfigured, networkingv1beta1.ReasonNetworkRefused, "10.0.0.0/8 cannot be remapped: no pool is large enough")
	}, remote, Failed},
	{"wrong pods of the peer", "configuration", func(w *world) { w.client.peer.Configuration.Spec.Remote.CIDR.Pod = cidrs("10.42.0.0/16") }, local, Failed},
	{"wrong external CIDR of the peer", "configuration", func(w *world) {
		w.client.peer.Configuration.Spec.Remote.CIDR.External = cidrs("10.42.0.0/16", "10.43.0.0/16")
	}, local, Failed},
	{"wrong local pods", "configuration", func(w *world) { w.client.peer.Configuration.Spec.Local.CIDR.Pod = cidrs("10.42.0.0/16") }, local, Failed},
	{"may not be read", "configuration", func(w *world) { w.milan.Gaps = []survey.Gap{gap("Configuration")} }, remote, Skipped},

	{"with own pods", "cidrs", func(w *world) { w.client.peer.Configuration.Status.Remote.CIDR.Pod = cidrs("10.243.0.0/16") }, local, Failed},
	{"with Services", "cidrs", func(w *world) { w.client.peer.Configuration.Status.Remote.CIDR.External = cidrs("10.100.0.0/16") }, local, Failed},
	{"with nodes", "cidrs", func(w *world) { w.client.peer.Configuration.Status.Remote.CIDR.Pod = cidrs("192.0.0.0/16") }, local, Failed},
	{"with itself", "cidrs", func(w *world) { w.client.peer.Configuration.Status.Remote.CIDR.External = cidrs("10.71.128.0/17") }, local, Failed},
	{"with another peer", "cidrs", func(w *world) {
		other := w.rome.Peers[0]
		other.ID, other.Configuration = "turin", other.Configuration.DeepCopy()
		other.Configuration.Status.Remote.CIDR.External = cidrs("10.73.0.0/16")
		w.rome.Peers = append(w.rome.Peers, other)
	}, local, Failed},
	{"not settled", "cidrs", func(w *world) { w.client.peer.Configuration.Status.Remote = nil }, local, Skipped},

	{"none", "gateways", func(w *world) { w.server.peer.Gateway = nil }, remote, Failed},
	{"on its way out", "gateways", func(w *world) { w.server.gateway().Deleting = true }, remote, Failed},
	{"two servers", "gateways", func(w *world) {
		w.client.gateway().Role, w.client.gateway().Kind = networkingv1beta1.ConnectionServer, "GatewayServer"
	}, "", Failed},
	{"two clients", "gateways", func(w *world) {
		w.server.gateway().Role, w.server.gateway().Kind = networkingv1beta1.ConnectionClient, "GatewayClient"
	}, "", Failed},
	{"one too many", "gateways", func(w *world) { w.server.peer.Surplus = []string{"GatewayServer default/rome"} }, remote, Warning},
	{"several ports", "gateways", func(w *world) {
		isFalse(&w.server.gateway().Conditions, networkingv1beta1.ConditionAllPortsServed, networkingv1beta1.ReasonFirstPortOnly, "the template has one port")
	}, remote, Warning},

	{"not found", "template", func(w *world) {
		isFalse(&w.client.gateway().Conditions, networkingv1beta1.ConditionTemplateRendered, networkingv1beta1.ReasonTemplateNotFound, "there is no WgGatewayClientTemplate liqo/custom: create it")
	}, local, Failed},
	{"gone since", "template", func(w *world) {
		w.client.templateErr = told(local, "read WgGatewayClientTemplate liqo/wireguard: not found")
	}, local, Warning},
	{"no controller has looked", "template", func(w *world) { w.client.gateway().Conditions = nil }, local, Failed},

	{"refused by PodSecurity", "gateway-pods", func(w *world) {
		w.server.pods.items = nil
		w.milan.events.items = []corev1.Event{event("liqo-tenant-rome", "ReplicaSet", "gw-rome-5d4f", "FailedCreate", `pods "gw-rome-5d4f-" is forbidden: violates PodSecurity "restricted:latest": privileged`)}
	}, remote, Failed},
	{"scaled to zero, and once refused", "gateway-pods", func(w *world) {
		w.server.pods.items, w.server.replicas = nil, new(int32(0))
		w.milan.events.items = []corev1.Event{event("liqo-tenant-rome", "ReplicaSet", "gw-rome-5d4f", "FailedCreate", `pods "gw-rome-5d4f-" is forbidden: exceeded quota: none`)}
	}, remote, Failed},
	{"once refused, and admitted now", "gateway-pods", func(w *world) {
		w.server.pods.items, w.server.admitted = nil, true
		w.milan.events.items = []corev1.Event{event("liqo-tenant-rome", "ReplicaSet", "gw-rome-5d4f", "FailedCreate", `pods "gw-rome-5d4f-" is forbidden: exceeded quota: none`)}
	}, remote, Failed},
	{"beyond the quota", "gateway-pods", func(w *world) {
		w.server.pods.items = nil
		w.milan.events.items = []corev1.Event{event("liqo-tenant-rome", "ReplicaSet", "gw-rome-5d4f", "FailedCreate", `pods "gw-rome-5d4f-" is forbidden: exceeded quota: none`)}
	}, remote, Failed},
	{"none, says the condition", "gateway-pods", func(w *world) {
		w.server.pods.items = nil
		isFalse(&w.server.gateway().Conditions, networkingv1beta1.ConditionDeployed, networkingv1beta1.ReasonDeploymentNotReady, "Deployment gw-rome has no ready pod")
	}, remote, Failed},
	{"two lead", "gateway-pods", func(w *world) { w.client.alsoLeads = []string{"gw-milan-cut-off"} }, local, Failed},
	{"two of the peer lead", "gateway-pods", func(w *world) {
		isFalse(&w.server.peer.Connection.Status.Conditions, networkingv1beta1.ConditionPeerUnique, networkingv1beta1.ReasonSeveralPeers, "several gateways with the peer's key take turns, from 192.0.2.1:51840 and 192.0.2.2:51840")
	}, remote, Failed},
	{"none", "gateway-pods", func(w *world) { w.server.pods.items = nil }, remote, Failed},
	{"scaled to zero", "gateway-pods", func(w *world) { w.server.pods.items, w.server.replicas = nil, new(int32) }, remote, Failed},
	{"no room", "gateway-pods", func(w *world) {
		w.server.waiting("", "")
		w.server.pods.items[0].Status.Conditions = append(w.server.pods.items[0].Status.Conditions,
			corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available: 2 Insufficient cpu."})
	}, remote, Failed},
	{"no image", "gateway-pods", func(w *world) { w.server.waiting("ImagePullBackOff", `Back-off pulling image "sluice/gateway:v1.4.0"`) }, remote, Failed},
	{"crashes", "gateway-pods", func(w *world) {
		w.server.waiting("CrashLoopBackOff", "back-off 5m0s restarting failed container")
		c := &w.server.pods.items[0].Status.ContainerStatuses[0]
		c.RestartCount, c.LastTerminationState.Terminated = 7, &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}
		w.server.lastLogs = map[string]string{"gw-rome-1": "gateway: --mode: neither server nor client"}
	}, remote, Failed},
	{"out of memory", "gateway-pods", func(w *world) {
		w.server.waiting("CrashLoopBackOff", "")
		c := &w.server.pods.items[0].Status.ContainerStatuses[0]
		c.RestartCount, c.LastTerminationState.Terminated = 2, &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	}, remote, Failed},
	{"its Secret is missing", "gateway-pods", func(w *world) {
		w.server.waiting("ContainerCreating", "")
		w.milan.events.items = []corev1.Event{event("liqo-tenant-rome", "Pod", "gw-rome-1", "FailedMount", `MountVolume.SetUp failed for volume "wireguard-config" : secret "gw-rome" not found`)}
	}, remote, Failed},
	{"not ready", "gateway-pods", func(w *world) {
		w.server.pods.items[0].Status.Conditions[0].Status = corev1.ConditionFalse
		w.milan.events.items = []corev1.Event{event("liqo-tenant-rome", "Pod", "gw-rome-1", "Unhealthy", "Readiness probe failed: waiting: there is no Configuration")}
	}, remote, Failed},
	{"not ready, on a node whose packets another program takes", "gateway-pods", func(w *world) {
		w.server.pods.items[0].Status.Conditions[0].Status = corev1.ConditionFalse
		w.milan.Nodes[0].Internal.Status.Conditions[0] = metav1.Condition{
			Type: string(networkingv1beta1.ConditionTunnelsReady), Status: metav1.ConditionFalse, Reason: string(networkingv1beta1.ReasonTrafficDiverted),
			Message: `link liqo.rome: packets of pods to 10.71.0.0/16 do not get into it: the rule "50: from 10.243.0.0/16 lookup 999" of another program comes before ours`,
		}
	}, remote, Failed},
	{"nobody leads", "gateway-pods", func(w *world) { delete(w.server.pods.items[0].Labels, networkingv1beta1.LabelActive) }, remote, Failed},
	{"nobody leads, as there is no controller", "gateway-pods", func(w *world) {
		delete(w.server.pods.items[0].Labels, networkingv1beta1.LabelActive)
		w.milan.Installation.Components[0].Desired, w.milan.Installation.Components[0].Ready = 0, 0
	}, remote, Failed},
	{"two lead", "gateway-pods", func(w *world) { w.server.pods.items = append(w.server.pods.items, w.server.pods.items[0]) }, remote, Failed},
	{"the other replica is down", "gateway-pods", func(w *world) {
		other := *w.server.pods.items[0].DeepCopy()
		other.Name = "gw-rome-2"
		delete(other.Labels, networkingv1beta1.LabelActive)
		w.server.pods.items = append(w.server.pods.items, other)
		w.server.pods.items[1].Status.Conditions[0].Status = corev1.ConditionFalse
	}, remote, Warning},
	{"may not be read", "gateway-pods", func(w *world) { w.server.pods = read[corev1.Pod]{err: errMayNot} }, remote, Skipped},

	{"lacks rights", "gateway-rights", func(w *world) {
		w.server.account = []string{"watch configurations.networking.liqo.io in namespace liqo-tenant-rome", "patch connections.networking.liqo.io/status", "a", "b"}
	}, remote, Failed},
	{"may not be asked", "gateway-rights", func(w *world) { w.server.accountErr = errMayNot }, remote, Skipped},

	{"waits", "objects-applied", func(w *world) {
		w.server.after.Sync.Waiting = manifests.Problems{problem("Configuration", "there is no Configuration of rome")}
	}, remote, Failed},
	{"refuses", "objects-applied", func(w *world) {
		w.server.after.Sync.Refused = manifests.Problems{problem("GatewayServer liqo-tenant-rome/rome", "UDP port 51840 is in use")}
	}, remote, Failed},
	{"leaves one out", "objects-applied", func(w *world) {
		w.server.after.Sync.Ignored = manifests.Problems{problem("IP default/x", "10.9.9.9 is in no local external CIDR")}
	}, remote, Warning},
	{"API server away", "objects-applied", func(w *world) {
		w.server.after.Cluster.API.Connected, w.server.after.Cluster.API.Error = false, "dial tcp 10.96.0.1:443: i/o timeout"
	}, remote, Warning},
	{"refuses, says the Connection", "objects-applied", func(w *world) {
		w.server.before, w.server.after, w.server.reportErr = nil, nil, errMayNot
		isFalse(&w.server.peer.Connection.Status.Conditions, networkingv1beta1.ConditionConfigurationApplied, networkingv1beta1.ReasonRefused, "the port is in use")
	}, remote, Failed},
	{"nobody tells", "objects-applied", func(w *world) { w.server.before, w.server.after, w.server.peer.Connection = nil, nil, nil }, remote, Skipped},

	{"none", "service", func(w *world) { w.server.service = nil }, remote, Failed},
	{"no address", "service", func(w *world) {
		w.server.gateway().Endpoint = nil
		isFalse(&w.server.gateway().Conditions, networkingv1beta1.ConditionEndpointReady, networkingv1beta1.ReasonWaitingForLoadBalancer, "Service gw-rome has no address from the load balancer yet")
	}, remote, Failed},
	{"no address, nobody says why", "service", func(w *world) { w.server.gateway().Endpoint = nil }, remote, Failed},
	{"selects nothing", "service", func(w *world) { w.server.service.Spec.Selector = map[string]string{"app": "other"} }, remote, Failed},
	{"TCP", "service", func(w *world) { w.server.service.Spec.Ports[0].Protocol = corev1.ProtocolTCP }, remote, Failed},
	{"may not be read", "service", func(w *world) { w.server.service, w.server.serviceErr = nil, errMayNot }, remote, Skipped},

	{"another port", "endpoint", func(w *world) {
		w.silence()
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"198.51.100.7"}, Port: 31000}
	}, local, Warning},
	{"another address", "endpoint", func(w *world) {
		w.silence()
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"198.51.100.8"}, Ports: []int32{32009, 32010}}
	}, local, Warning},
	{"another address, and nothing arrives", "reachability", func(w *world) {
		w.silence()
		w.client.tunnel().TxInitiations += 2
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"203.0.113.20"}, Port: 31000}
	}, local, Failed},
	{"other ports", "endpoint", func(w *world) {
		w.silence()
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"198.51.100.7"}, Ports: []int32{31000, 31001}}
	}, local, Warning},
	{"fewer tunnels", "endpoint", func(w *world) { w.server.gateway().Endpoint.SetPorts([]int32{32009, 32010}) }, local, Warning},
	{"as many tunnels", "endpoint", func(w *world) {
		w.server.gateway().Endpoint.SetPorts([]int32{32009, 32010})
		w.client.gateway().Endpoint = w.server.gateway().Endpoint
	}, "", OK},
	{"fewer tunnels through a NAT", "endpoint", func(w *world) {
		w.server.gateway().Endpoint.SetPorts([]int32{32009, 32010})
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"203.0.113.20"}, Port: 31000}
		w.client.after.DataPlane.Tunnel.Endpoint = netip.MustParseAddrPort("203.0.113.20:31000")
	}, local, Warning},
	{"a name, and it works", "endpoint", func(w *world) {
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"gw.milan.example.org"}, Port: 32009}
	}, local, Warning},
	{"another address, which a NAT knows", "endpoint", func(w *world) {
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"203.0.113.20"}, Port: 31000}
		w.client.after.DataPlane.Tunnel.Endpoint = netip.MustParseAddrPort("203.0.113.20:31000")
	}, "", OK},
	{"another address, connected, and the gateway cannot be asked", "endpoint", func(w *world) {
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"203.0.113.20"}, Port: 31000}
		w.client.before, w.client.after, w.client.reportErr = nil, nil, errMayNot
	}, local, Skipped},
	{"an address of this cluster", "endpoint", func(w *world) {
		w.silence()
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"10.97.0.12"}, Port: 51840}
		w.server.gateway().Endpoint = w.client.gateway().Endpoint
	}, local, Failed},
	{"an address of a node of this cluster", "endpoint", func(w *world) {
		w.silence()
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"192.0.2.1"}, Port: 32009}
	}, local, Failed},
	{"an address that nodes of both clusters have", "endpoint", func(w *world) {
		w.silence()
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"192.0.2.1"}, Port: 32009}
		w.server.gateway().Endpoint = w.client.gateway().Endpoint
	}, local, Failed},
	{"another address, and the server tells one of a node of this cluster", "endpoint", func(w *world) {
		w.silence()
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"198.51.100.8"}, Port: 32009}
		w.server.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"192.0.2.2"}, Port: 32009}
	}, local, Warning},
	{"an address of a node of this cluster, which forwards", "endpoint", func(w *world) {
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"192.0.2.1"}, Port: 32009}
		w.client.after.DataPlane.Tunnel.Endpoint = netip.MustParseAddrPort("192.0.2.1:32009")
	}, "", OK},
	{"an address behind the tunnel", "endpoint", func(w *world) {
		w.silence()
		w.client.gateway().Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"10.71.0.12"}, Port: 51840}
	}, local, Failed},

	{"Secret deleted, in use", "keys", func(w *world) {
		isFalse(&w.client.gateway().Conditions, networkingv1beta1.ConditionKeysReady, networkingv1beta1.ReasonSecretDeleted, "Secret gw-milan was deleted. Pod gw-milan-1 keeps using the keys that were in it")
	}, local, Warning},
	{"none", "keys", func(w *world) { w.client.peer.PublicKeys = nil }, local, Failed},
	{"two", "keys", func(w *world) {
		w.client.peer.PublicKeys = append(w.client.peer.PublicKeys, w.client.peer.PublicKeys[0])
	}, local, Failed},
	{"short", "keys", func(w *world) { w.client.peer.PublicKeys[0].Spec.PublicKey = []byte("short") }, local, Failed},
	{"the own one", "keys", func(w *world) { w.client.peer.PublicKeys[0].Spec.PublicKey = key(w.client) }, local, Failed},
	{"another one", "keys", func(w *world) { w.client.peer.PublicKeys[0].Spec.PublicKey = make([]byte, 32) }, local, Failed},
	{"another one, and a new Secret", "keys", func(w *world) {
		w.client.peer.PublicKeys[0].Spec.PublicKey = make([]byte, 32)
		w.server.gateway().Keys.Since = now
	}, local, Failed},
	{"no Secret", "keys", func(w *world) {
		w.server.gateway().Keys = nil
		isFalse(&w.server.gateway().Conditions, networkingv1beta1.ConditionKeysReady, networkingv1beta1.ReasonSecretNotFound, "there is no Secret liqo-tenant-rome/mine: create it, or remove spec.secretRef")
	}, remote, Failed},
	{"the peer's not yet in force", "keys", func(w *world) { w.client.tunnel().Peer = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" }, local, Warning},
	{"the own not yet in force", "keys", func(w *world) {
		w.server.tunnel().Self = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	}, remote, Warning},
	{"another one at the peer, seen from one side", "keys", func(w *world) {
		w.client.tunnel().LastInitiation = w.client.after.Time.Add(-5 * time.Second)
		w.alone(w.client)
	}, "", Warning},
	{"may not be read", "keys", func(w *world) { w.milan.Gaps = []survey.Gap{gap("PublicKey")} }, remote, Skipped},

	{"differs", "mtu", func(w *world) {
		w.server.gateway().MTU, w.server.after.DataPlane.MTU, w.server.peer.Fabric.Spec.MTU = 1420, 1420, 1420
	}, "", Failed},
	{"not taken over", "mtu", func(w *world) { w.server.after.DataPlane.MTU = 1280 }, remote, Warning},
	{"the nodes' is another", "mtu", func(w *world) { w.server.peer.Fabric.Spec.MTU = 1420 }, remote, Warning},

	{"no ingress", "network-policies", func(w *world) {
		w.silence()
		w.server.after.DataPlane.Nodes[0].LastSeen = time.Time{}
		w.policy(networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}})
	}, remote, Failed},
	{"no ingress, and it works", "network-policies", func(w *world) { w.policy(networkingv1.NetworkPolicySpec{}) }, remote, Warning},
	{"the client may not get out", "network-policies", func(w *world) {
		w.silence()
		w.policy(networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}})
		w.client.policies, w.server.policies = w.server.policies, read[networkingv1.NetworkPolicy]{}
	}, local, Failed},
	{"one of three tunnels may come in", "network-policies", func(w *world) {
		w.server.gateway().Endpoint.SetPorts([]int32{32009, 32010, 32011})
		for _, port := range []int32{51841, 51842} {
			w.server.service.Spec.Ports = append(w.server.service.Spec.Ports, corev1.ServicePort{Protocol: corev1.ProtocolUDP, Port: port})
		}
		udp := corev1.ProtocolUDP
		w.policy(networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: []networkingv1.NetworkPolicyIngressRule{{
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: &udp, Port: new(intstr.FromInt32(51840))}, {Protocol: &udp, Port: new(intstr.FromInt32(6091))}},
		}}})
	}, remote, Warning},
	{"no pod", "network-policies", func(w *world) { w.server.pods.items = nil }, remote, Skipped},
	{"may not be read", "network-policies", func(w *world) { w.server.policies.err = errMayNot }, remote, Skipped},

	{"one of several tunnels is blocked", "reachability", func(w *world) {
		isFalse(&w.client.peer.Connection.Status.Conditions, networkingv1beta1.ConditionAllTunnelsCarry, networkingv1beta1.ReasonTunnelsLeftOut, "2 of 3 tunnels carry packets; 203.0.113.20:30743: no answer")
	}, local, Warning},
	{"lost on the way there", "reachability", func(w *world) {
		w.silence()
		w.client.tunnel().TxInitiations += 2
		w.client.tunnel().TxBytes += 296
	}, local, Failed},
	{"lost on the way there, just now", "reachability", func(w *world) {
		for _, e := range []*end{w.client, w.server} {
			e.probe.Pings[0].Received = 0
			e.tunnel().RxBytes = e.before.DataPlane.Tunnel.RxBytes
		}
	}, local, Failed},
	{"lost on the way back, just now", "reachability", func(w *world) {
		for _, e := range []*end{w.client, w.server} {
			e.probe.Pings[0].Received = 0
		}
		w.client.tunnel().RxBytes = w.client.before.DataPlane.Tunnel.RxBytes
	}, local, Failed},
	{"lost on the way back", "reachability", func(w *world) {
		w.silence()
		w.client.tunnel().TxInitiations++
		w.server.tunnel().RxInitiations++
		w.server.tunnel().TxResponses++
	}, local, Failed},
	{"of another key", "reachability", func(w *world) {
		w.silence()
		w.client.tunnel().TxInitiations++
		w.server.tunnel().RxInitiations++
	}, remote, Failed},
	{"the client is still", "reachability", func(w *world) { w.silence() }, local, Failed},
	{"no such name", "reachability", func(w *world) {
		w.silence()
		w.client.tunnel().LookupError = "lookup gw.milan.example.org: no such host"
	}, local, Failed},
	{"the client cannot be asked", "reachability", func(w *world) { w.client.before, w.client.after, w.client.reportErr = nil, nil, errMayNot }, local, Skipped},
	{"the server cannot be asked", "reachability", func(w *world) { w.server.before, w.server.after = nil, nil }, remote, Skipped},
	{"the client alone gets nothing back", "reachability", func(w *world) {
		w.silence()
		w.client.tunnel().TxInitiations++
		w.alone(w.client)
	}, "", Failed},
	{"the client alone is still", "reachability", func(w *world) {
		w.silence()
		w.alone(w.client)
	}, "", Failed},
	{"a client of Liqo's server gets nothing back", "reachability", func(w *world) {
		w.silence()
		w.client.tunnel().TxInitiations++
		givenToLiqo(w.server)
	}, local, Failed},
	{"one of several tunnels of Liqo's client is blocked", "reachability", func(w *world) {
		isFalse(&w.server.peer.Connection.Status.Conditions, networkingv1beta1.ConditionAllTunnelsCarry, networkingv1beta1.ReasonTunnelsLeftOut, "2 of 3 tunnels carry packets")
		givenToLiqo(w.client)
	}, remote, Warning},
	{"the server alone hears nothing", "reachability", func(w *world) {
		w.silence()
		w.alone(w.server)
	}, "", Failed},
	{"the server alone does not accept", "reachability", func(w *world) {
		w.silence()
		w.server.tunnel().RxInitiations++
		w.alone(w.server)
	}, "", Failed},

	{"never", "handshake", func(w *world) {
		w.client.tunnel().LastHandshake = time.Time{}
		w.client.after.Sync.Peer.Silence.Message = "WireGuard gets no answer from 198.51.100.7:32009"
	}, local, Failed},
	{"too old", "handshake", func(w *world) { w.server.tunnel().LastHandshake = now.Add(-10 * time.Minute) }, remote, Failed},
	{"nobody can be asked", "handshake", func(w *world) {
		w.client.before, w.client.after, w.client.reportErr, w.server.before, w.server.after = nil, nil, errMayNot, nil, nil
	}, "", Skipped},

	{"no answer", "ping", func(w *world) { w.client.probe.Pings[0].Received = 0 }, local, Failed},
	{"no answer for both", "ping", func(w *world) { w.client.probe.Pings[0].Received, w.server.probe.Pings[0].Received = 0, 0 }, local, Failed},
	{"loss", "ping", func(w *world) { w.client.probe.Pings[0].Received = 7 }, local, Warning},
	{"no answer, says the Connection", "ping", func(w *world) {
		w.client.probe, w.client.after.Sync.Peer.Value, w.client.peer.Connection.Status.Value = nil, networkingv1beta1.ConnectionError, networkingv1beta1.ConnectionError
		w.server.tunnel().RxBytes++
		w.client.tunnel().RxBytes++
	}, local, Failed},
	{"not probed", "ping", func(w *world) { w.client.probe, w.server.probe, w.client.probeErr = nil, nil, errMayNot }, "", Skipped},

	{"too large for the path", "path-mtu", func(w *world) { w.client.probe.Largest = 1280 }, local, Failed},
	{"fragments", "path-mtu", func(w *world) { w.client.probe.Path.MTU, w.client.probe.Path.Inner = 1380, 1320 }, local, Warning},
	{"not probed", "path-mtu", func(w *world) { w.client.probe, w.server.probe, w.client.probeErr = nil, nil, errMayNot }, "", Skipped},

	{"tiny packets", "mss", func(w *world) {
		for _, e := range []*end{w.client, w.server} {
			e.gateway().MTU, e.before.DataPlane.MTU, e.after.DataPlane.MTU, e.peer.Fabric.Spec.MTU = 570, 570, 570, 570
		}
	}, local, Warning},

	{"none yet", "nodes", func(w *world) {
		isFalse(&w.server.gateway().Conditions, networkingv1beta1.ConditionInternalNetworkReady, networkingv1beta1.ReasonInternalCIDRExhausted, "the internal CIDR 10.80.0.0/24 has no free address")
	}, remote, Failed},
	{"no InternalNode", "nodes", func(w *world) { w.milan.Nodes[1].Internal = nil }, remote, Failed},
	{"refused", "nodes", func(w *world) {
		isFalse(&w.milan.Nodes[1].Internal.Status.Conditions, networkingv1beta1.ConditionTunnelsReady, networkingv1beta1.ReasonLinkKindUnavailable, "the kernel has neither geneve nor vxlan, and there is no /dev/net/tun")
	}, remote, Failed},
	{"no translation", "nodes", func(w *world) {
		for i := range w.milan.Nodes {
			isFalse(&w.milan.Nodes[i].Internal.Status.Conditions, networkingv1beta1.ConditionAddressTranslationReady, networkingv1beta1.ReasonNFTablesUnavailable, "the kernel has no nf_tables")
		}
	}, remote, Failed},
	{"no agent", "nodes", func(w *world) {
		w.milan.Nodes[1].Internal.Status.NodeIP = networkingv1beta1.NodeIP{}
		w.milan.agents.items = w.milan.agents.items[:1]
	}, remote, Failed},
	{"no agent any more", "nodes", func(w *world) { w.milan.agents.items = w.milan.agents.items[:1] }, remote, Warning},
	{"no tunnel", "nodes", func(w *world) { w.server.peer.Tunnels = []string{"worker-1"} }, remote, Failed},
	{"not known to the gateway", "nodes", func(w *world) { w.server.after.DataPlane.Nodes = w.server.after.DataPlane.Nodes[:1] }, remote, Failed},
	{"never heard", "nodes", func(w *world) { w.server.after.DataPlane.Nodes[1].LastSeen = time.Time{} }, remote, Failed},
	{"never heard, says its agent", "nodes", func(w *world) {
		w.server.after.DataPlane.Nodes[1].LastSeen = time.Time{}
		w.server.agents = map[string]*survey.FabricReport{"worker-2": {Tunnels: []survey.FabricTunnel{{Problem: "the link liqo.x is down: somebody has set it so"}}}}
	}, remote, Failed},
	{"silent for long", "nodes", func(w *world) { w.server.after.DataPlane.Nodes[1].LastSeen = now.Add(-17 * time.Minute) }, remote, Failed},
	{"no nodes", "nodes", func(w *world) { w.milan.Nodes = nil }, remote, Failed},
	{"the agents may not be read", "nodes", func(w *world) {
		w.milan.agents = read[corev1.Pod]{err: errMayNot}
		w.milan.Nodes[0].Internal.Status.NodeIP = networkingv1beta1.NodeIP{}
	}, remote, Failed},
	{"may not be read", "nodes", func(w *world) { w.milan.Gaps = []survey.Gap{gap("InternalNode")} }, remote, Skipped},

	{"refused", "firewall", func(w *world) {
		w.server.peer.Firewall = []networkingv1beta1.FirewallConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "strict"},
			Status: networkingv1beta1.FirewallConfigurationStatus{Conditions: []networkingv1beta1.HostCondition{
				{Host: "rome", Type: networkingv1beta1.HostConditionApplied, Status: metav1.ConditionFalse, Message: "rule 2: marks cannot be matched: match the address instead"},
				{Host: "other", Type: networkingv1beta1.HostConditionApplied, Status: metav1.ConditionFalse},
			}},
		}}
	}, remote, Warning},
	{"may not be read", "firewall", func(w *world) { w.milan.Gaps = []survey.Gap{gap("FirewallConfiguration")} }, remote, Skipped},

	{"rise", "drops", func(w *world) {
		w.server.before.DataPlane.Egress.Verdicts = map[string]uint64{"Forwarded": 10, "DropSpoofedSource": 5}
		w.server.after.DataPlane.Egress.Verdicts = map[string]uint64{"Forwarded": 10, "DropSpoofedSource": 12, "DropMulticast": 9}
		w.server.tunnel().DropRejected = 3
	}, remote, Warning},
	{"of a gateway that was started anew", "drops", func(w *world) {
		w.server.before.DataPlane.Egress.Verdicts = map[string]uint64{"DropNoMapping": 500}
		w.server.after.DataPlane.Egress.Verdicts = map[string]uint64{"DropNoMapping": 4}
		w.server.after.Started = now.Add(time.Second)
	}, remote, Warning},
	{"overruns", "drops", func(w *world) {
		w.server.after.DataPlane.Sockets["geneve"] = survey.Socket{Overruns: 77, LocalAddr: netip.MustParseAddrPort("0.0.0.0:6091")}
	}, remote, Warning},
	{"pods without a route", "drops", func(w *world) {
		w.server.before.DataPlane.Sources, w.server.after.DataPlane.Sources = "routed", "routed"
		w.server.before.DataPlane.Egress.Fallback, w.server.after.DataPlane.Egress.Fallback = 5, 9
	}, remote, Warning},
	{"sources are not checked", "drops", func(w *world) { w.server.after.DataPlane.Sources = "off" }, remote, Warning},
	{"of a namespace without a RoleBinding", "authentication", func(w *world) {
		w.tenant("False", authv1beta1.ReasonRoleBindingMissing, "no user is bound to ClusterRole liqo-remote-controlplane").Spec.AuthzPolicy = authv1beta1.TolerateNoHandshake
	}, remote, Failed},
	{"with a signature of another key", "authentication", func(w *world) {
		w.tenant("False", authv1beta1.ReasonSignatureInvalid, "the signature is not that of the nonce by the public key")
	}, remote, Failed},
	{"that no controller has seen", "authentication", func(w *world) { w.tenant("False", "", "").Status.Conditions = nil }, remote, Failed},
	{"of a cordoned tenant", "authentication", func(w *world) {
		w.tenant("True", authv1beta1.ReasonTenantCordoned, "").Spec.TenantCondition = authv1beta1.TenantCordoned
	}, remote, Failed},
	{"of a drained tenant", "authentication", func(w *world) {
		w.tenant("False", authv1beta1.ReasonTenantDrained, "").Spec.TenantCondition = authv1beta1.TenantDrained
	}, remote, Failed},
	{"that is ready", "authentication", func(w *world) { w.tenant("True", authv1beta1.ReasonTenantReady, "") }, remote, OK},
	{"of a user who may list and not write", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusReady, "", authv1beta1.ReasonRoleBindingMissing, "denied")
		w.slice()
	}, local, Failed},
	{"of a user who had no rights, and what it asked for is answered", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusReady, "", authv1beta1.ReasonRoleBindingMissing, "denied")
		w.slice()
		w.rome.offloads.slices.items[0].Status.Conditions = []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.SliceAuthentication, Status: authv1beta1.SliceAccepted}}
	}, local, OK},
	{"with a slice of a class on which nothing decides", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusReady, "", authv1beta1.ReasonReplicating, "")
		w.slice()
		w.rome.offloads.slices.items[0].Spec.Class = "gold"
		w.rome.offloads.slices.items[0].Status.Conditions = []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.SliceAuthentication, Status: authv1beta1.SliceAccepted}}
	}, local, Warning},
	{"of a user who had no rights, says an event from before", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusReady, "", authv1beta1.ReasonRoleBindingMissing, "denied")
		w.slice()
		w.client.peer.Foreign.Status.Modules.Authentication.Conditions[0].LastTransitionTime = metav1.NewTime(now)
	}, local, OK},
	{"with a copy whose name is taken", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusReady, "", authv1beta1.ReasonNameTaken, "namespace liqo-tenant-rome of cluster milan has an object of its own")
		w.slice()
	}, local, Failed},
	{"with a copy that a policy there denies", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusReady, "", authv1beta1.ReasonCopyRefused, "cluster milan refuses an object that is copied to its namespace liqo-tenant-rome")
		w.slice()
	}, local, Failed},
	{"of another user, for longer than events are kept", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusNotReady, "the API server of cluster milan: it denies access to its namespace liqo-tenant-rome", "", "")
		w.client.peer.Foreign.Status.Modules.Authentication.Conditions[0].Reason = corev1beta1.ReasonIdentityDenied
	}, local, Failed},
	{"of a handshake, and its rights are gone", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusNotReady, "the API server of cluster milan: it denies access to its namespace liqo-tenant-rome", "", "")
		w.client.peer.Foreign.Status.Modules.Authentication.Conditions[0].Reason = corev1beta1.ReasonIdentityDenied
		w.shookHands()
	}, local, Failed},
	{"with slices of the peer that this cluster denies", "authentication", func(w *world) {
		w.tenant("True", authv1beta1.ReasonTenantReady, "")
		w.denies(authv1beta1.ReasonQuotaExceeded, authv1beta1.ReasonSliceCordoned, authv1beta1.ReasonQuotaExceeded)
	}, remote, Warning},
	{"with slices of a cordoned peer", "authentication", func(w *world) {
		w.tenant("True", authv1beta1.ReasonTenantReady, "") // for which the Tenant stands
		w.denies(authv1beta1.ReasonTenantCordoned)
	}, remote, OK},
	{"of a consumer that the provider has drained", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusReady, "", authv1beta1.ReasonReplicating, "")
		w.denied(authv1beta1.ReasonTenantDrained, "the provider has drained cluster rome")
	}, local, Failed},
	{"of a consumer that the provider has cordoned", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusReady, "", authv1beta1.ReasonReplicating, "")
		w.denied(authv1beta1.ReasonTenantCordoned, "the provider has cordoned cluster rome: no more resources are granted to it")
	}, local, Failed},
	{"with a slice that the provider has cordoned", "authentication", func(w *world) {
		w.denied(authv1beta1.ReasonSliceCordoned, "the provider has cordoned this slice: no more resources are granted for it")
	}, local, Failed},
	{"with a slice over the quota", "authentication", func(w *world) {
		w.denied(authv1beta1.ReasonQuotaExceeded, "8 of cpu are asked for; the quota of cluster rome is 4, of which its other slices have 0")
	}, local, Failed},
	{"with slices that may not be read", "authentication", func(w *world) { w.rome.offloads.slices.err = errMayNot }, local, Skipped},
	{"with several slices over the quota", "authentication", func(w *world) {
		w.denied(authv1beta1.ReasonQuotaExceeded, "8 of cpu are asked for; the quota of cluster rome is 4, of which its other slices have 0")
		w.rome.offloads.slices.items = append(w.rome.offloads.slices.items, w.rome.offloads.slices.items[0], w.rome.offloads.slices.items[0])
	}, local, Failed},
	{"that the controller refuses", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusNotReady, "Secret liqo-tenant-milan/identity: the client certificate of its kubeconfig was valid until 2026-11-21T11:00:00Z", authv1beta1.ReasonReplicating, "")
	}, local, Failed},
	{"of which there are two", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusSomeNotReady, "Secret liqo-tenant-milan/identity: it is used, but Secret liqo-tenant-milan/other, which is newer, is also for cluster milan: delete one of them", "", "")
	}, local, Failed},
	{"that the controller does not tell of", "authentication", func(w *world) { w.rome.Gaps = []survey.Gap{gap("ForeignCluster")} }, local, Skipped},
	{"of a Tenant that is ready, and the controller does not tell", "authentication", func(w *world) {
		w.tenant("True", authv1beta1.ReasonTenantReady, "")
		w.milan.Gaps = []survey.Gap{gap("ForeignCluster")}
	}, remote, OK},
	{"of a Tenant that is cordoned, and the controller does not tell", "authentication", func(w *world) {
		w.tenant("True", authv1beta1.ReasonTenantReady, "").Spec.TenantCondition = authv1beta1.TenantCordoned
		w.milan.Gaps = []survey.Gap{gap("ForeignCluster")}
	}, remote, Failed},
	{"of a handshake, that the controller refuses", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusNotReady, "Secret liqo-tenant-milan/identity: its kubeconfig does not parse", "", "")
		w.shookHands()
	}, local, Failed},
	{"that works again, says a condition, and there was no newer event", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusReady, "", authv1beta1.ReasonAPIServerUnreachable, "cluster milan: connection refused")
	}, local, OK},
	{"that works again, and a slice waits", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusReady, "", authv1beta1.ReasonReplicating, "")
		w.rome.events.items = append(w.rome.events.items, event("liqo-tenant-milan", "Secret", "identity", authv1beta1.ReasonRoleBindingMissing, "an hour ago"))
		w.slice()
	}, local, OK},
	{"whose API server is away", "authentication", func(w *world) {
		w.identity(corev1beta1.StatusReady, "", "", "")
		w.client.peer.Foreign.Status.Conditions = []corev1beta1.Condition{{
			Type: corev1beta1.ConditionAPIServer, Status: corev1beta1.StatusError, Message: "the API server of cluster milan: it does not answer in time",
		}}
	}, local, Failed},
	{"of identities that may not be read", "authentication", func(w *world) { w.server.tenants.err = errMayNot }, remote, Skipped},
	{"that are ready", "virtual-nodes", func(w *world) { w.virtualNode("") }, local, OK},
	{"whose process does not run", "virtual-nodes", func(w *world) {
		v := w.virtualNode("")
		v.Status.Conditions[0].Status, v.Status.Conditions[0].Message = offloadingv1beta1.VirtualNodeCreating, "no pod of Deployment virtual-kubelet is ready yet"
	}, local, Failed},
	{"whose provider is away", "virtual-nodes", func(w *world) { w.virtualNode("the API server of cluster milan does not answer") }, local, Failed},
	{"that a slice waits for", "virtual-nodes", func(w *world) { w.slice() }, local, Failed},
	{"that a slice waits for which is denied", "virtual-nodes", func(w *world) {
		w.denied(authv1beta1.ReasonQuotaExceeded, "8 of cpu are asked for; the quota of cluster rome is 4, of which its other slices have 0")
		w.rome.offloads.slices.items[0].Annotations = map[string]string{authv1beta1.AnnotationCreateVirtualNode: "true"}
	}, local, Failed},
	{"that a slice waits for, says an event of an earlier slice of its name", "virtual-nodes", func(w *world) {
		w.slice()
		w.rome.events.items[0].InvolvedObject.UID = "of another"
	}, local, Failed},
	{"that may not be read", "virtual-nodes", func(w *world) { w.rome.offloads.virtualNodes.err = errMayNot }, local, Skipped},
	{"refused", "services-exchange", func(w *world) {
		w.client.after.Services = &survey.ExchangeState{Problem: "refused what the peer's gateway tells: TooManyServices: more than 2000", Refused: map[string]uint64{"TooManyServices": 2}}
	}, local, Warning},
	{"refused once", "services-exchange", func(w *world) {
		w.client.after.Services = &survey.ExchangeState{Heard: true, Refused: map[string]uint64{"TooManyServices": 2}}
	}, local, OK},
	{"left out", "services-exchange", func(w *world) {
		w.client.after.Services = &survey.ExchangeState{Heard: true, LeftOut: []string{"ExportedService shop.web: 2000 Services of a peering are exported, no more"}}
	}, local, Warning},
	{"off at the peer", "services-exchange", func(w *world) {
		w.client.after.Services = &survey.ExchangeState{Exported: 1, Problem: "the peer's gateway does not exchange Services"}
	}, local, Warning},
	{"off at the peer, and none to exchange", "services-exchange", func(w *world) {
		w.client.after.Services = &survey.ExchangeState{Problem: "the peer's gateway does not exchange Services"}
	}, local, OK},
	{"of a namespace that is not here", "services", func(w *world) {
		w.rome.shared.items = []survey.SharedService{{Namespace: "shop", Name: "web", Problems: []string{"from cluster milan: There is no namespace shop"}}}
	}, local, OK},
	{"of a namespace that cannot be created", "services", func(w *world) {
		w.rome.shared.items = []survey.SharedService{{Namespace: "shop", Name: "web", Missed: true, Problems: []string{"from cluster milan: There is no namespace shop, and 100 were created"}}}
	}, local, Warning},
	{"that differ", "services", func(w *world) {
		w.rome.shared.items = []survey.SharedService{{Namespace: "shop", Name: "web", Exported: true, Problems: []string{"What cluster milan says counts"}}}
	}, local, Warning},
	{"without a ready endpoint", "services", func(w *world) {
		w.rome.shared.items = []survey.SharedService{{Namespace: "shop", Name: "web", Type: "ClusterSetIP", Endpoints: 3}}
	}, local, Warning},
	{"that are well", "services", func(w *world) {
		w.rome.shared.items = []survey.SharedService{{Namespace: "shop", Name: "web", Type: "ClusterSetIP", Ready: 1, Endpoints: 3}}
	}, local, OK},
	{"that may not be read", "services", func(w *world) { w.rome.shared.err = errMayNot }, local, Skipped},
	{"that no provider has", "offloaded-namespaces", func(w *world) {
		s := &w.offload("shop").Status
		s.OffloadingPhase = offloadingv1beta1.OffloadingAllFailed
		c := &s.RemoteNamespacesConditions["milan"][1]
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, offloadingv1beta1.ReasonCreationLoopBackOff, "namespace shop-rome of the cluster cannot be created"
	}, local, Failed},
	{"that are never offloaded", "offloaded-namespaces", func(w *world) { w.offload("kube-system") }, local, Warning},
	{"of a user who may not read them", "offloaded-namespaces", func(w *world) { w.rome.offloads.namespaces.err = errMayNot }, local, Skipped},
	{"that run", "offloaded-pods", func(w *world) {
		w.virtualNode("")
		w.offload("shop")
	}, local, OK},
	{"over the quota", "offloaded-pods", func(w *world) {
		w.virtualNode("")
		w.offload("shop")
		w.rome.offloads.events.items = append(w.rome.offloads.events.items, event("shop", "Pod", w.pending("b", "north").Name, "QuotaExceeded", "requests.cpu: 3 of 2"),
			event("shop", "Pod", w.pending("a", "north").Name, "QuotaExceeded", "requests.cpu: 3 of 2"))
	}, local, Failed},
	{"without a virtual node", "offloaded-pods", func(w *world) {
		w.offload("shop")
		w.pending("a", "")
	}, local, Failed},
	{"of pods that may not be read", "offloaded-pods", func(w *world) { w.rome.offloads.pods.err = errMayNot }, local, Skipped},
	{"cannot be asked", "drops", func(w *world) { w.server.before, w.server.after, w.server.reportErr = nil, nil, errMayNot }, remote, Skipped},
}
