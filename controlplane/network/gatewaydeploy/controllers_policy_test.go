package gatewaydeploy

import (
	"context"
	"fmt"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// testPolicies follows nodes that come, and edits.
func (w *world) testPolicies(t *testing.T) {
	s, _ := w.settled(t)
	lets := func(want string) func(*networkingv1.NetworkPolicy) error {
		return func(p *networkingv1.NetworkPolicy) error {
			if got := doors(p); !slices.Contains(got, want) {
				return fmt.Errorf("lets in %q, not %q", got, want)
			}
			return nil
		}
	}
	w.createNode(t, "policy-node", "198.51.100.77")
	w.has(t, s, "198.51.100.77/32")
	n := &networkingv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: "policy-node"}}
	n.Spec.Interface.Gateway.Name, n.Spec.Interface.Node.IP = "liqo.policynode", "10.80.9.9"
	w.Create(t, n)
	controlplanetest.Eventually(t, "the agent reports", func(ctx context.Context) error {
		if err := w.Get(ctx, "", n.Name, n); err != nil {
			return err
		}
		n.Status.NodeIP.Remote = "198.51.100.90"
		return w.Client.Status().Update(ctx, n)
	})
	w.has(t, s, "198.51.100.90/32")
	eventually(t, s, "WireGuard's door", "gw-server", lets("UDP 51840 from anywhere"))
	eventually(t, s, "the door of metrics", "gw-server", lets("TCP 8082 from pods of monitoring"))
	comesBack[networkingv1.NetworkPolicy](t, w, s.ns, "gw-server")
	w.Delete(t, n)

	s.kubectl(t, "patch", "wggatewayserver", "server", "--type=merge", "-p", `{"spec":{"deployment":{"spec":{"replicas":2}}}}`)
	eventually(t, s, "a budget for two", "gw-server", func(b *policyv1.PodDisruptionBudget) error {
		if b.Spec.MaxUnavailable.IntValue() != 1 {
			return fmt.Errorf("%+v", b.Spec)
		}
		return nil
	})
	s.kubectl(t, "patch", "wggatewayserver", "server", "--type=merge", "-p", `{"spec":{"deployment":{"spec":{"replicas":1}}}}`)
	controlplanetest.Eventually(t, "no budget for one", func(ctx context.Context) error {
		_, err := read[policyv1.PodDisruptionBudget](ctx, s, "gw-server")
		return gone(err)
	})

	// Switched off, for all gateways that there are.
	w.stop()
	w.options = Options{LiqoNamespace: controlplanetest.LiqoNamespace}
	w.start(w.t)
	controlplanetest.Eventually(t, "no policy", func(ctx context.Context) error {
		_, err := read[networkingv1.NetworkPolicy](ctx, s, "gw-server")
		return gone(err)
	})
	w.stop()
	w.options = everything
	w.start(w.t)
}

// has waits until nodes are let in from a prefix.
func (w *world) has(t *testing.T, s *space, prefix string) {
	t.Helper()
	eventually(t, s, "a door for "+prefix, "gw-server", func(p *networkingv1.NetworkPolicy) error {
		for _, rule := range p.Spec.Ingress {
			for _, peer := range rule.From {
				if peer.IPBlock != nil && peer.IPBlock.CIDR == prefix {
					return nil
				}
			}
		}
		return fmt.Errorf("lets in %q", doors(p))
	})
}
