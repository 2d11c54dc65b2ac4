package gatewayrender

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// copied are the conditions that are those of the object.
var copied = []networkingv1beta1.ConditionType{
	networkingv1beta1.ConditionKeysReady, networkingv1beta1.ConditionPeerKeyReady,
	networkingv1beta1.ConditionDeployed, networkingv1beta1.ConditionEndpointReady,
}

// Outcome is what became of a plan.
type Outcome struct {
	// Plan is the plan.
	Plan Plan
	// Object is the object as it was before; nil if it was not there.
	Object *unstructured.Unstructured
	// Wrote says that the object is another now.
	Wrote bool
	// Refused is why the object is not what the plan says.
	Refused *Problem
}

// objectStatus is what the status of an object is expected to hold.
type objectStatus struct {
	Endpoint         *networkingv1beta1.Endpoint         `json:"endpoint,omitempty"`
	InternalEndpoint *networkingv1beta1.InternalEndpoint `json:"internalEndpoint,omitempty"`
	SecretRef        *corev1.ObjectReference             `json:"secretRef,omitempty"`
	PublicKey        []byte                              `json:"publicKey,omitempty"`
	PublicKeyTime    metav1.Time                         `json:"publicKeyTime,omitzero"`
	Conditions       []metav1.Condition                  `json:"conditions,omitempty"`
}

// observe writes into the gateway's status what it should say.
func (g *gateway) observe(o Outcome) {
	status, unreadable := readStatus(o.Object)
	g.say(g.rendered(o, unreadable))
	g.allPorts(o, status)
	switch {
	case o.Object != nil:
		*g.made = reference(o.Object)
		g.copy(o, status)
	case o.Refused != nil: // nothing new is known
	case o.Plan.Object != nil:
		*g.made = reference(o.Plan.Object) // made just now; its status is still to come
	default:
		*g.made = nil
		g.copy(o, objectStatus{})
	}
}

// rendered is the condition TemplateRendered.
func (g *gateway) rendered(o Outcome, unreadable error) (networkingv1beta1.ConditionType, metav1.ConditionStatus, Problem) {
	const about = networkingv1beta1.ConditionTemplateRendered
	switch {
	case o.Plan.Problem != nil:
		return about, metav1.ConditionFalse, *o.Plan.Problem
	case o.Refused != nil:
		return about, metav1.ConditionFalse, *o.Refused
	case unreadable != nil:
		return about, metav1.ConditionFalse, Problem{networkingv1beta1.ReasonTemplateInvalid, fmt.Sprintf(
			"%s: %s %s has a status that is not one of a gateway: %v", o.Plan.Template, o.Object.GetKind(), o.Object.GetName(), unreadable)}
	}
	return about, metav1.ConditionTrue, Problem{networkingv1beta1.ReasonTemplateRendered,
		fmt.Sprintf("%s %s is as %s says", o.Plan.Object.GetKind(), o.Plan.Object.GetName(), o.Plan.Template)}
}

// allPorts sets the condition AllPortsServed where not all of several ports are served.
func (g *gateway) allPorts(o Outcome, status objectStatus) {
	short := o.Plan.FirstPort
	if e := status.Endpoint; short == nil && e != nil && o.Object.GroupVersionKind() != g.kind.own() && len(e.AllPorts()) < len(g.ports) {
		short = &Problem{networkingv1beta1.ReasonFirstPortOnly, fmt.Sprintf("spec.endpoint.ports has %d entries, but %s %s has %d in its status.endpoint: let %s pass on the others",
			len(g.ports), o.Object.GetKind(), o.Object.GetName(), len(e.AllPorts()), o.Plan.Template)}
	}
	if short == nil {
		meta.RemoveStatusCondition(g.conditions, string(networkingv1beta1.ConditionAllPortsServed))
		return
	}
	g.say(networkingv1beta1.ConditionAllPortsServed, metav1.ConditionFalse, *short)
}

func (g *gateway) say(about networkingv1beta1.ConditionType, status metav1.ConditionStatus, p Problem) {
	meta.SetStatusCondition(g.conditions, metav1.Condition{
		Type: string(about), Status: status, Reason: string(p.Reason), Message: p.Message, ObservedGeneration: g.GetGeneration(),
	})
}

// copy copies the status of the object.
func (g *gateway) copy(o Outcome, status objectStatus) {
	if g.endpoint != nil {
		*g.endpoint = status.Endpoint
	}
	*g.internalEndpoint, *g.keys = status.InternalEndpoint, status.SecretRef
	*g.publicKey, *g.publicKeyTime = status.PublicKey, status.PublicKeyTime
	for _, t := range copied {
		c := meta.FindStatusCondition(status.Conditions, string(t))
		if c == nil {
			meta.RemoveStatusCondition(g.conditions, string(t))
			continue
		}
		now := *c
		now.ObservedGeneration = g.observed(o, c)
		meta.SetStatusCondition(g.conditions, now)
	}
}

// observed is the generation of the gateway that a condition of its object speaks
// of: the newest, if the object is as that one says and the condition speaks of the
// newest object.
func (g *gateway) observed(o Outcome, c *metav1.Condition) int64 {
	asPlanned := o.Plan.Problem == nil && o.Refused == nil && !o.Wrote
	if asPlanned && c.ObservedGeneration == o.Object.GetGeneration() {
		return g.GetGeneration()
	}
	if before := meta.FindStatusCondition(*g.conditions, c.Type); before != nil {
		return before.ObservedGeneration
	}
	return g.GetGeneration() - 1
}

// readStatus reads what an object says of itself.
func readStatus(u *unstructured.Unstructured) (s objectStatus, err error) {
	if u == nil {
		return s, nil
	}
	status, _, err := unstructured.NestedMap(u.Object, "status")
	if err != nil {
		return s, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(status, &s); err != nil {
		return objectStatus{}, err
	}
	if e := s.Endpoint; e != nil {
		e.Protocol = cmp.Or(e.Protocol, corev1.ProtocolUDP) // as the schema would, and then differ
		if e.Port == 0 && len(e.Ports) == 0 {
			s.Endpoint = nil // nowhere yet
		}
	}
	return s, nil
}

// reference refers to an object that was made.
func reference(u *unstructured.Unstructured) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID()}
}

// told are the conditions about which there are events.
var told = []networkingv1beta1.ConditionType{networkingv1beta1.ConditionTemplateRendered, networkingv1beta1.ConditionAllPortsServed}

// news are the conditions in now that say something else than before.
func news(before, now []metav1.Condition) []metav1.Condition {
	var changed []metav1.Condition
	for _, t := range told {
		c, old := meta.FindStatusCondition(now, string(t)), meta.FindStatusCondition(before, string(t))
		if c != nil && (old == nil || old.Reason != c.Reason || old.Message != c.Message) {
			changed = append(changed, *c)
		}
	}
	return slices.Clip(changed)
}
