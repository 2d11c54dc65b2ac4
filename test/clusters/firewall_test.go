package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/document"
)

// firewallManifest stops HTTP of one pod at the gateway of one peer.
const firewallManifest = `
apiVersion: networking.liqo.io/v1beta1
kind: FirewallConfiguration
metadata:
  name: no-web
  namespace: %[1]s
  labels:
    networking.liqo.io/firewall-category: gateway
    networking.liqo.io/firewall-unique: %[2]s
spec:
  table:
    name: no-web
    family: IPV4
    chains:
    - name: web
      type: %[5]s
      hook: %[6]s
      priority: 0
      policy: accept
      rules:
        %[7]s:
        - name: that-pod
          match:
          - {op: eq, ip: {value: %[3]s, position: src}}
          - {op: eq, proto: {value: tcp}, port: {value: "80", position: dst}}
          %[4]s
`

// testFirewall lets a user's rules decide what a pod may reach.
func testFirewall(t *testing.T, p *pair) {
	d := document.Read(t, document.Declarative)
	pe := newPeering(t, p, "firewall")
	pe.connect(t, d)
	e, from, other, to := &pe.consumer, p.consumer.pods[0], p.consumer.pods[1], p.provider.pods[0]
	at, err := e.here(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(p *pod) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := p.fetch(ctx, at, "/")
		return time.Since(start), err
	}
	filter := func(action string) string {
		return fmt.Sprintf(firewallManifest, e.namespace, e.peerID, from.addr, "action: "+action, "filter", "forward", "filterRules")
	}
	applied := func(s metav1.ConditionStatus) func(context.Context) error {
		return func(ctx context.Context) error {
			f := new(networkingv1beta1.FirewallConfiguration)
			if err := e.Get(ctx, e.namespace, "no-web", f); err != nil {
				return err
			}
			for _, c := range f.Status.Conditions {
				if c.Type == networkingv1beta1.HostConditionApplied && c.Status == s && c.ObservedGeneration == f.Generation {
					t.Logf("condition of %s: %s: %s", c.Host, c.Reason, c.Message)
					return nil
				}
			}
			return fmt.Errorf("conditions %+v", f.Status.Conditions)
		}
	}
	blocked := func(how func(time.Duration, error) bool) func(context.Context) error {
		return func(context.Context) error {
			if d, err := fetch(from); err == nil || !how(d, err) {
				return fmt.Errorf("after %v: %v", d, err)
			}
			return nil
		}
	}
	for _, tt := range []struct {
		action string
		how    func(time.Duration, error) bool
	}{
		{"drop", func(_ time.Duration, err error) bool {
			return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
		}},
		{"reject", func(d time.Duration, err error) bool { return d < 500*time.Millisecond }},
	} {
		e.Apply(filter(tt.action))
		controlplanetest.Eventually(t, "the gateway applies "+tt.action, applied(metav1.ConditionTrue))
		controlplanetest.Eventually(t, "the pod meets "+tt.action, blocked(tt.how))
		if _, err := fetch(other); err != nil {
			t.Errorf("%s meets another pod: %v", tt.action, err)
		}
	}
	e.Apply(fmt.Sprintf(firewallManifest, e.namespace, e.peerID, from.addr, "natType: masquerade", "nat", "postrouting", "natRules"))
	controlplanetest.Eventually(t, "what cannot be done is told", applied(metav1.ConditionFalse))
	if _, err := e.Kubectl("delete", "firewallconfiguration", "no-web", "-n", e.namespace); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
}
