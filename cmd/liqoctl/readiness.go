package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// missingOf says what the controllers have not made of an object yet. Empty: it is
// ready for the next step of a peering.
func missingOf(obj client.Object) string {
	switch o := obj.(type) {
	case *networkingv1beta1.Configuration:
		c := meta.FindStatusCondition(o.Status.Conditions, string(networkingv1beta1.ConditionNetworkCIDRsConfigured))
		switch {
		case c == nil || c.ObservedGeneration != o.Generation:
			return "the controllers have not seen it: do they run?"
		case c.Status != metav1.ConditionTrue:
			return conditionText(c)
		}
	case *networkingv1beta1.GatewayServer:
		if e := o.Status.Endpoint; e == nil || len(e.Addresses) == 0 {
			return why(o.Status.Conditions, "it has no address")
		}
		return missingOfGateway(o.Status.Conditions, o.Status.InternalEndpoint, o.Status.SecretRef != nil)
	case *networkingv1beta1.GatewayClient:
		return missingOfGateway(o.Status.Conditions, o.Status.InternalEndpoint, o.Status.SecretRef != nil)
	}
	return ""
}

func missingOfGateway(conditions []metav1.Condition, inside *networkingv1beta1.InternalEndpoint, keys bool) string {
	switch {
	case !keys:
		return why(conditions, "it has no keys")
	case inside == nil || inside.IP == "":
		return why(conditions, "it has no pod that serves")
	}
	return ""
}

// expected are conditions that stay False until the other cluster has done its
// part.
var expected = map[networkingv1beta1.ConditionType]bool{
	networkingv1beta1.ConditionPeerKeyReady: true, networkingv1beta1.ConditionInternalNetworkReady: true, networkingv1beta1.ConditionAllPortsServed: true,
}

// why says why something is missing, in the words of the conditions.
func why(conditions []metav1.Condition, missing string) string {
	for i := range conditions {
		c := &conditions[i]
		if c.Status == metav1.ConditionFalse && !expected[networkingv1beta1.ConditionType(c.Type)] {
			return missing + ": " + conditionText(c)
		}
	}
	if len(conditions) == 0 {
		return missing + ": the controllers have not seen it: do they run?"
	}
	return missing
}

func conditionText(c *metav1.Condition) string { return fmt.Sprintf("%s (%s)", c.Message, c.Reason) }
