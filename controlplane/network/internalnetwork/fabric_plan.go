package internalnetwork

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// defaultMTU is that of a gateway whose spec has none.
const defaultMTU = 1340

// gateway is what is the same in a GatewayServer and a GatewayClient.
type gateway struct {
	Kind      string
	Namespace string
	Name      string
	UID       types.UID
	Created   metav1.Time
	Deleting  bool
	MTU       int
	// PodIP is the address of the active pod, empty if there is none.
	PodIP networkingv1beta1.Address
}

func (g gateway) String() string { return fmt.Sprintf("%s %s/%s", g.Kind, g.Namespace, g.Name) }

// fabricFacts is what decides about one InternalFabric. Its name is the ID of
// the remote cluster.
type fabricFacts struct {
	Key types.NamespacedName
	// Gateways are those for the remote cluster, in all namespaces.
	Gateways []gateway
	// Configurations are those for the remote cluster in the namespace.
	Configurations []networkingv1beta1.Configuration
	// Fabric is nil if there is none.
	Fabric *networkingv1beta1.InternalFabric
	// Address is what the fabric may use, if it is wanted.
	Address grant
}

// fabricPlan is what to do about it.
type fabricPlan struct {
	// Apply is the InternalFabric as it should be.
	Apply *networkingv1beta1.InternalFabric
	// Delete means that it has to go.
	Delete bool
	// Release means that its address is free once it is gone.
	Release bool
	// Conditions are those of the namespace's gateways.
	Conditions []gatewayCondition
}

// gatewayCondition is the condition InternalNetworkReady of one gateway.
type gatewayCondition struct {
	Gateway gateway
	Reason  networkingv1beta1.ConditionReason
	Message string
}

func (c gatewayCondition) status() metav1.ConditionStatus {
	if c.Reason == networkingv1beta1.ReasonInternalFabricReady {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// firstGateway returns the gateway that serves a remote cluster: the oldest of
// those that are not being deleted.
func firstGateway(gs []gateway) (first gateway, ok bool) {
	gs = slices.DeleteFunc(slices.Clone(gs), func(g gateway) bool { return g.Deleting })
	if len(gs) == 0 {
		return gateway{}, false
	}
	return slices.MinFunc(gs, func(x, y gateway) int {
		return cmp.Or(x.Created.Compare(y.Created.Time), strings.Compare(x.String(), y.String()))
	}), true
}

// servedIn tells whether that gateway is in a namespace.
func servedIn(namespace string, gs []gateway) bool {
	first, ok := firstGateway(gs)
	return ok && first.Namespace == namespace
}

// planFabric decides about one InternalFabric.
//
//	gateway of the peer    pod    Configuration   address  InternalFabric             reason
//	---------------------------------------------------------------------------------------------------------
//	none                   -      -               -        deleted, unless a user's   -
//	first in another ns    -      -               -        deleted, unless a user's   DuplicateGateway
//	second in this ns      -      -               -        that of the first          DuplicateGateway
//	first                  yes    ready           yes      applied                    InternalFabricReady
//	first                  none   any             any      kept with its gateway IP   WaitingForGatewayPod
//	first                  yes    none            any      kept without remote CIDRs  WaitingForConfiguration
//	first                  yes    not ready       any      kept with its remote CIDRs WaitingForConfiguration
//	first                  yes    ready           none     kept with its address      that of the address
//
// "Kept" is for an InternalFabric that is there: what is known of the rest is
// applied. Nodes keep their links that way, and a gateway that comes back after
// a moment finds everything in place. A Configuration that is gone is no
// interruption of that kind: its remote CIDRs may belong to somebody else next.
func planFabric(f fabricFacts) fabricPlan {
	first, ok := firstGateway(f.Gateways)
	if !ok || first.Namespace != f.Key.Namespace {
		return fabricPlan{
			Delete: f.Fabric != nil && ofGateway(f.Fabric), Release: f.Fabric == nil,
			Conditions: duplicates(f, first),
		}
	}
	state := gatewayCondition{Gateway: first}
	wait := func(reason networkingv1beta1.ConditionReason, format string, args ...any) {
		if state.Reason == "" { // the first thing to do
			state.Reason, state.Message = reason, fmt.Sprintf(format, args...)
		}
	}
	var old networkingv1beta1.InternalFabricSpec
	if f.Fabric != nil {
		old = f.Fabric.Spec
	}
	spec := networkingv1beta1.InternalFabricSpec{MTU: cmp.Or(first.MTU, defaultMTU), GatewayIP: first.PodIP}
	spec.Interface.Node.Name = keptLinkName(old.Interface.Node.Name, f.Key.String())
	if spec.GatewayIP == "" {
		if spec.GatewayIP = old.GatewayIP; spec.GatewayIP != "" {
			wait(networkingv1beta1.ReasonWaitingForGatewayPod, "No gateway pod is active. The nodes keep their tunnels to %s until one is: see the conditions Deployed and EndpointReady", spec.GatewayIP)
		} else {
			wait(networkingv1beta1.ReasonWaitingForGatewayPod, "No gateway pod is active yet: see the conditions Deployed and EndpointReady")
		}
	}
	cidrs, why := remoteCIDRs(f)
	if why != "" {
		wait(networkingv1beta1.ReasonWaitingForConfiguration, "%s", why)
		if len(f.Configurations) > 0 {
			cidrs = old.RemoteCIDRs
		}
	}
	spec.RemoteCIDRs = cidrs
	if a := f.Address.Addr; a.IsValid() {
		spec.Interface.Gateway.IP = networkingv1beta1.Address(a.String())
	} else {
		spec.Interface.Gateway.IP = old.Interface.Gateway.IP
		wait(f.Address.Reason, "%s", f.Address.Message)
	}
	plan := fabricPlan{}
	if state.Reason == "" || f.Fabric != nil {
		plan.Apply = newFabric(f.Key, first, spec)
	}
	if state.Reason == "" {
		state.Reason = networkingv1beta1.ReasonInternalFabricReady
		state.Message = fmt.Sprintf("The nodes reach the gateway at %s", spec.GatewayIP)
	}
	plan.Conditions = append(duplicates(f, first), state)
	return plan
}

// duplicates returns the conditions of the namespace's gateways other than the
// first for the remote cluster.
func duplicates(f fabricFacts, first gateway) (out []gatewayCondition) {
	for _, g := range f.Gateways {
		if g.Deleting || g.Namespace != f.Key.Namespace || g.UID == first.UID {
			continue
		}
		out = append(out, gatewayCondition{
			Gateway: g, Reason: networkingv1beta1.ReasonDuplicateGateway,
			Message: fmt.Sprintf("%s is for the remote cluster %s as well, and older: delete one of them", first, f.Key.Name),
		})
	}
	return out
}

// remoteCIDRs returns the prefixes behind the gateway, as used in this cluster,
// or why they are not known.
func remoteCIDRs(f fabricFacts) (cidrs []networkingv1beta1.CIDR, why string) {
	if len(f.Configurations) == 0 {
		return nil, fmt.Sprintf("Namespace %s has no Configuration with the label %s=%s: create it", f.Key.Namespace, networkingv1beta1.LabelRemoteClusterID, f.Key.Name)
	}
	for i := range f.Configurations {
		if c := &f.Configurations[i]; isConfigured(c) {
			all := slices.Concat(c.Status.Remote.CIDR.Pod.List, c.Status.Remote.CIDR.External.List)
			for _, p := range all {
				if _, err := p.Prefix(); err != nil {
					return nil, fmt.Sprintf("The status of Configuration %s/%s is not valid: %v", c.Namespace, c.Name, err)
				}
			}
			return all, ""
		}
	}
	c := &f.Configurations[0]
	return nil, fmt.Sprintf("Configuration %s/%s is not ready: see its condition %s", c.Namespace, c.Name, networkingv1beta1.ConditionNetworkCIDRsConfigured)
}

// isConfigured tells whether the status of a Configuration is complete and
// speaks of its newest spec.
func isConfigured(c *networkingv1beta1.Configuration) bool {
	cond := meta.FindStatusCondition(c.Status.Conditions, string(networkingv1beta1.ConditionNetworkCIDRsConfigured))
	return cond != nil && cond.Status == metav1.ConditionTrue && cond.ObservedGeneration == c.Generation && c.Status.Remote != nil
}

func newFabric(key types.NamespacedName, owner gateway, spec networkingv1beta1.InternalFabricSpec) *networkingv1beta1.InternalFabric {
	return &networkingv1beta1.InternalFabric{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: managedLabels(key.Name),
			OwnerReferences: []metav1.OwnerReference{ownerReference(owner.Kind, owner.Name, owner.UID)},
		},
		Spec: spec,
	}
}

// ownerReference makes garbage collection delete what it stands in with the
// object, which is of this group.
func ownerReference(kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: networkingv1beta1.GroupVersion.String(), Kind: kind, Name: name, UID: uid,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
}

// ofGateway tells whether a fabric was made for a gateway, and not by a user for
// purposes of their own.
func ofGateway(f *networkingv1beta1.InternalFabric) bool {
	ref := metav1.GetControllerOf(f)
	return ref != nil && strings.HasPrefix(ref.APIVersion, networkingv1beta1.GroupVersion.Group+"/") &&
		(ref.Kind == kindGatewayServer || ref.Kind == kindGatewayClient)
}
