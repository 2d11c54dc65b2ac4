package virtualkubelet

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

const (
	// labelType has the value typeVirtualNode on each virtual node.
	labelType       = "liqo.io/type"
	typeVirtualNode = "virtual-node"
	// defaultArchitecture is that of a node whose VirtualNode names none.
	defaultArchitecture = "amd64"
)

// nodeLabels are the labels of the Node of a VirtualNode. Those of the spec do not replace what says what the node is.
func nodeLabels(v *offloadingv1beta1.VirtualNode) map[string]string {
	labels := map[string]string{
		corev1.LabelOSStable: "linux", corev1.LabelArchStable: defaultArchitecture,
		"kubernetes.io/role":                                      "agent",
		offloadingv1beta1.LabelStorageAvailable:                   fmt.Sprint(len(v.Spec.StorageClasses) > 0),
		corev1.LabelNodeExcludeBalancers:                          "true",
		"alpha.service-controller.kubernetes.io/exclude-balancer": "true",
	}
	maps.Copy(labels, v.Spec.Labels)
	maps.Copy(labels, identityLabels(v))
	return labels
}

// identityLabels say what a Node is and whose.
func identityLabels(v *offloadingv1beta1.VirtualNode) map[string]string {
	return map[string]string{
		corev1.LabelHostname: v.Name, labelType: typeVirtualNode, "type": "virtual-kubelet",
		networkingv1beta1.LabelRemoteClusterID: string(v.Spec.ClusterID),
	}
}

// ourNode tells whether a Node is a virtual node of a provider. Another one is left alone.
func ourNode(n metav1.Object, provider string) bool {
	l := n.GetLabels()
	return l[labelType] == typeVirtualNode && l[networkingv1beta1.LabelRemoteClusterID] == provider
}

// nodeTaints are the taints of a Node with those that it must have.
func nodeTaints(have []corev1.Taint, v *offloadingv1beta1.VirtualNode) []corev1.Taint {
	out := slices.Clone(have)
	for _, t := range append([]corev1.Taint{{Key: offloadingv1beta1.TaintNotAllowed, Value: "true", Effect: corev1.TaintEffectNoExecute}}, v.Spec.Taints...) {
		if !slices.ContainsFunc(out, func(o corev1.Taint) bool { return o.MatchTaint(&t) && o.Value == t.Value }) {
			out = append(slices.DeleteFunc(out, func(o corev1.Taint) bool { return o.MatchTaint(&t) }), t)
		}
	}
	return out
}

// nodeFacts are what the status of a Node depends on.
type nodeFacts struct {
	address netip.Addr
	port    int32
	version string // of the API server here
	// provider says why the provider's API server does not answer, network why its network does not; empty: they do.
	provider, network string
	now               metav1.Time
}

// resources are what a VirtualNode has, without the entries of a quota that are no resources of a node.
func resources(v *offloadingv1beta1.VirtualNode) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range v.Spec.ResourceQuota.Hard {
		if !strings.HasPrefix(string(name), "requests.") && !strings.HasPrefix(string(name), "limits.") {
			out[name] = q
		}
	}
	return out
}

// resizeFeatures are those that an API server wants a Node to declare before it lets one resize a pod as a whole, or a container
// that starts the others. Whether the provider's nodes have them is for its API server to say.
var resizeFeatures = []string{"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"} // sorted

// declared are the features that a Node declares to an API server of a version. An earlier one would keep none, and the status
// would be written again and again.
func declared(server string) []string {
	if v, err := version.ParseGeneric(server); err != nil || !v.AtLeast(version.MajorMinor(1, 36)) {
		return nil
	}
	return slices.Clone(resizeFeatures)
}

// nodeStatus is the status of the Node of a VirtualNode, which had another one.
func nodeStatus(v *offloadingv1beta1.VirtualNode, had corev1.NodeStatus, f nodeFacts) corev1.NodeStatus {
	out := *had.DeepCopy()
	out.Capacity, out.Allocatable = resources(v), resources(v)
	out.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: f.address.String()}, {Type: corev1.NodeHostName, Address: v.Name}}
	out.DaemonEndpoints.KubeletEndpoint.Port = f.port
	labels := nodeLabels(v)
	out.NodeInfo = corev1.NodeSystemInfo{
		Architecture: labels[corev1.LabelArchStable], OperatingSystem: labels[corev1.LabelOSStable], KubeletVersion: f.version,
	}
	out.Images = v.Spec.Images
	out.DeclaredFeatures = declared(f.version)
	ready, reason, message := corev1.ConditionTrue, "KubeletReady", "the provider's API server answers"
	switch cpu, memory := out.Capacity.Cpu(), out.Capacity.Memory(); {
	case f.provider != "":
		ready, reason, message = corev1.ConditionFalse, "ProviderUnavailable", f.provider
	case f.network != "":
		ready, reason, message = corev1.ConditionFalse, "LiqoNetworkingDown", f.network
	case cpu.Sign() <= 0 || memory.Sign() <= 0:
		ready, reason, message = corev1.ConditionFalse, "NoResources", "spec.resourceQuota.hard of the VirtualNode has no cpu or no memory"
	}
	set := func(t corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) {
		c := corev1.NodeCondition{Type: t, Status: status, Reason: reason, Message: text.Cut(message, text.MaxEvent), LastHeartbeatTime: f.now, LastTransitionTime: f.now}
		i := slices.IndexFunc(out.Conditions, func(o corev1.NodeCondition) bool { return o.Type == t })
		if i < 0 {
			out.Conditions = append(out.Conditions, c)
			return
		}
		if out.Conditions[i].Status == status {
			c.LastTransitionTime = out.Conditions[i].LastTransitionTime
		}
		out.Conditions[i] = c
	}
	set(corev1.NodeReady, ready, reason, message)
	set(corev1.NodeMemoryPressure, corev1.ConditionFalse, "RemoteClusterHasSufficientMemory", "a virtual node has as much as its provider has granted")
	set(corev1.NodeDiskPressure, corev1.ConditionFalse, "RemoteClusterHasNoDiskPressure", "a virtual node has as much as its provider has granted")
	set(corev1.NodePIDPressure, corev1.ConditionFalse, "RemoteClusterHasNoPIDPressure", "a virtual node has as much as its provider has granted")
	if f.network != "" {
		set(corev1.NodeNetworkUnavailable, corev1.ConditionTrue, "LiqoNetworkingDown", f.network)
	} else {
		set(corev1.NodeNetworkUnavailable, corev1.ConditionFalse, "LiqoNetworkingUp", "the network of the peering works")
	}
	return out
}

// heartbeatOnly tells whether two statuses differ in nothing but the time of the last heartbeat.
func heartbeatOnly(a, b corev1.NodeStatus, equal func(a, b any) bool) bool {
	a, b = *a.DeepCopy(), *b.DeepCopy()
	for _, list := range [][]corev1.NodeCondition{a.Conditions, b.Conditions} {
		for i := range list {
			list[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return equal(a, b)
}
