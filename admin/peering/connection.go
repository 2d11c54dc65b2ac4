package peering

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// connection reads the Connection of this end's gateway; nil: there is none.
func (e *end) connection(ctx context.Context) (*networkingv1beta1.Connection, error) {
	var list networkingv1beta1.ConnectionList
	if err := e.list(ctx, "Connections", &list, client.InNamespace(e.namespace)); err != nil {
		return nil, err
	}
	return ofGateway(list.Items, e.role, e.gateway()), nil
}

// ofGateway is the Connection of a gateway: the one that refers to it. What was
// rendered from a template may have another name than the gateway; the Connection
// is then called after the gateway.
func ofGateway(all []networkingv1beta1.Connection, role networkingv1beta1.ConnectionType, gateway string) *networkingv1beta1.Connection {
	for i := range all {
		c := &all[i]
		if c.Spec.Type == role && (c.Spec.GatewayRef.Name == gateway || c.Name == "gw-"+gateway) {
			return c
		}
	}
	return nil
}

// connectionMade waits for the Connection.
func (e *end) connectionMade() *step {
	return &step{
		in: e.Cluster, waiting: "Waiting for Connection to be created", done: "Connection created successfully",
		try: func(ctx context.Context) (missing string, err error) {
			c, err := e.connection(ctx)
			if c == nil && err == nil {
				missing = fmt.Sprintf("there is no Connection gw-%s in namespace %s", e.gateway(), e.namespace)
			}
			return missing, err
		},
		clues: e.gatewayClues,
	}
}

// established waits until the peers answer each other. Both must say so: the one
// whose peer was just replaced does not know it yet.
func (e *end) established() *step {
	s := &step{in: e.Cluster, waiting: "Waiting for Connection to be established", done: "Connection is established", clues: e.connectionClues}
	s.try = func(ctx context.Context) (missing string, err error) {
		own, err := e.connection(ctx)
		if err != nil {
			return "", err
		}
		if missing, err := connectionMissing(own); missing != "" || err != nil {
			return missing, err
		}
		others, err := e.peer.connection(ctx)
		if err != nil {
			return "", err
		}
		if missing, err := connectionMissing(others); missing != "" || err != nil {
			return e.peer.tagged(missing), err
		}
		if m := meta.FindStatusCondition(own.Status.Conditions, string(networkingv1beta1.ConditionMTUMatches)); m != nil && m.Status == metav1.ConditionFalse {
			s.note(progress.Warning, fmt.Sprintf("Connection %s/%s: %s", own.Namespace, own.Name, m.Message))
		}
		return "", nil
	}
	return s
}

// connectionMissing is what a Connection waits for.
func connectionMissing(c *networkingv1beta1.Connection) (missing string, err error) {
	if c == nil {
		return "its Connection has been deleted", nil
	}
	applied := meta.FindStatusCondition(c.Status.Conditions, string(networkingv1beta1.ConditionConfigurationApplied))
	notApplied := applied != nil && applied.Status == metav1.ConditionFalse
	if c.Status.Value == networkingv1beta1.Connected && !notApplied {
		return "", nil
	}
	text := fmt.Sprintf("Connection %s/%s is %s", c.Namespace, c.Name, cmp.Or(string(c.Status.Value), "without status"))
	answers := meta.FindStatusCondition(c.Status.Conditions, string(networkingv1beta1.ConditionPeerAnswers))
	switch {
	case notApplied:
		text += ": " + applied.Message
		if applied.Reason == string(networkingv1beta1.ReasonRefused) {
			return "", &complaint{text}
		}
	case answers != nil && answers.Status == metav1.ConditionFalse:
		text += ": " + answers.Message
	}
	return text, nil
}
