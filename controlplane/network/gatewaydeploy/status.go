package gatewaydeploy

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// conditionTypes are the conditions that are this package's.
var conditionTypes = []networkingv1beta1.ConditionType{
	networkingv1beta1.ConditionKeysReady, networkingv1beta1.ConditionPeerKeyReady,
	networkingv1beta1.ConditionDeployed, networkingv1beta1.ConditionEndpointReady,
}

// complaints are the reasons that only the user can cure; the others pass by themselves.
var complaints = []networkingv1beta1.ConditionReason{
	networkingv1beta1.ReasonSecretDeleted, networkingv1beta1.ReasonSecretNotFound, networkingv1beta1.ReasonSecretInvalid, networkingv1beta1.ReasonSecretAmbiguous,
	networkingv1beta1.ReasonPeerKeyInvalid, networkingv1beta1.ReasonPeerKeyAmbiguous,
	networkingv1beta1.ReasonObjectRefused, networkingv1beta1.ReasonDuplicateGateway,
	networkingv1beta1.ReasonNodeNotReady, networkingv1beta1.ReasonServiceTypeUnsupported,
}

const (
	// eventEndpointChanged is the reason of the event that the peer has to be told of.
	eventEndpointChanged = "EndpointChanged"
	// eventGatewayMoved is that of one which only changes what the status shows.
	eventGatewayMoved = "GatewayMoved"
	// eventKeysReplaced is that of one which cuts the connection until the peer is told.
	eventKeysReplaced = "KeysReplaced"
)

// setStatus writes the status, and tells of complaints that come and go by an event.
func (r *reconciler) setStatus(ctx context.Context, g *gateway, p Plan, refusals []refusal) error {
	p.deployed(g, refusals)
	before := slices.Clone(*g.conditions)
	var last *networkingv1beta1.Endpoint
	if g.endpoint != nil {
		last = *g.endpoint
	}
	wrote, err := apply.Status(ctx, r, g.Object, func() {
		if g.endpoint != nil {
			*g.endpoint = p.Endpoint
		}
		*g.internalEndpoint, *g.keys = p.InternalEndpoint, p.Keys
		*g.publicKey, *g.publicKeyTime = p.PublicKey, p.PublicKeyTime
		for _, t := range conditionTypes {
			if c := meta.FindStatusCondition(p.Conditions, string(t)); c != nil {
				meta.SetStatusCondition(g.conditions, *c)
			} else {
				meta.RemoveStatusCondition(g.conditions, string(t))
			}
		}
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // what was read is old: the event of the newer one, or of its end, is on its way
	}
	if err != nil || !wrote {
		return err
	}
	switch {
	case !moved(last, p.Endpoint):
	case r.stillLeads(ctx, g, last, p.Endpoint):
		r.event(g, corev1.EventTypeNormal, eventGatewayMoved,
			"the gateway is on another node, "+where(p.Endpoint)+". Peers do not need it: "+where(last)+" leads to it as long as that node is there")
	default:
		r.event(g, corev1.EventTypeNormal, eventEndpointChanged,
			"peers reach the gateway at "+where(p.Endpoint)+" now, give it to their GatewayClient")
	}
	for _, c := range p.Conditions {
		if kind := eventType(meta.FindStatusCondition(before, c.Type), c); kind != "" {
			r.event(g, kind, c.Reason, c.Message)
		}
	}
	return nil
}

// stillLeads tells whether peers that know of an endpoint which was may go on using
// it: the node port of every node that is ready leads to the gateway, unless the
// Service is for pods on the same node only.
func (r *reconciler) stillLeads(ctx context.Context, g *gateway, before, now *networkingv1beta1.Endpoint) bool {
	s := g.service.Spec
	if !slices.Equal(before.AllPorts(), now.AllPorts()) || s.Type != corev1.ServiceTypeNodePort || s.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		return false
	}
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes); err != nil {
		return false // the cache has ended
	}
	return !slices.ContainsFunc(before.Addresses, func(a string) bool { return !ofReadyNode(nodes.Items, a) })
}

// ofReadyNode tells whether an address is that of a node which is ready.
func ofReadyNode(nodes []corev1.Node, address string) bool {
	return slices.ContainsFunc(nodes, func(n corev1.Node) bool {
		return nodeReady(&n) && slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == address })
	})
}

func (r *reconciler) event(g *gateway, kind, reason, text string) {
	apply.Event(r.events, g.Object, kind, reason, "Reconcile", text)
}

// deployed adds to the condition Deployed what the API server refused, and notes.
func (p *Plan) deployed(g *gateway, refusals []refusal) {
	c := meta.FindStatusCondition(p.Conditions, string(networkingv1beta1.ConditionDeployed))
	if c == nil {
		return
	}
	if len(refusals) > 0 {
		*c = g.condition(networkingv1beta1.ConditionDeployed, false, networkingv1beta1.ReasonObjectRefused, join(refusals))
	}
	c.Message = strings.Join(append([]string{c.Message}, p.Notes...), "; ")
}

// eventType is that of the event about a condition, "" for none: a warning when a
// complaint begins, and once more when it is cured.
func eventType(before *metav1.Condition, now metav1.Condition) string {
	complained := before != nil && isComplaint(before.Reason)
	switch {
	case isComplaint(now.Reason) && (before == nil || before.Reason != now.Reason):
		return corev1.EventTypeWarning
	case complained && now.Status == metav1.ConditionTrue:
		return corev1.EventTypeNormal
	}
	return ""
}

func isComplaint(reason string) bool {
	return slices.Contains(complaints, networkingv1beta1.ConditionReason(reason))
}
