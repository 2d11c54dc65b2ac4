package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
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
          - {op: eq, proto: {value: tcp}, port: {value: "%[8]d", position: dst}}
          %[4]s
`

// testFirewall lets a user's rules decide what a pod may reach.
func testFirewall(t *testing.T, w *world) {
	w.connect(t)
	sides := w.pairOfServers(t, 2)
	w.talk(t, sides)
	e, from, other := w.peering().client, sides[0].pods[0], sides[0].pods[1]
	at := w.remote(t, w.a, sides[1].pods[0].Addr)
	filter := func(action string) string {
		return fmt.Sprintf(firewallManifest, e.namespace, e.peer, from.Addr, "action: "+action, "filter", "forward", "filterRules", webPort)
	}
	applied := func(s metav1.ConditionStatus) func() error {
		return func() error {
			f := new(networkingv1beta1.FirewallConfiguration)
			if err := e.get(t.Context(), "no-web", f); err != nil {
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
	for _, tt := range []struct {
		action  string
		dropped bool // what the pod sends is, without a word
	}{{"drop", true}, {"reject", false}} {
		e.apply(t, filter(tt.action))
		lab.Eventually(t, patience, "the gateway applies "+tt.action, applied(metav1.ConditionTrue))
		lab.Eventually(t, patience, "the pod meets "+tt.action, func() error {
			err := knock(t.Context(), from, at)
			silent := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
			if err == nil || silent != tt.dropped {
				return fmt.Errorf("a new connection: %v", err)
			}
			return nil
		})
		if _, err := get(t.Context(), other, at); err != nil {
			t.Errorf("%s meets another pod: %v", tt.action, err)
		}
		trace := func(p *kubelab.Pod) []string {
			return w.both("network", "trace", p.Namespace+"/"+p.Name, netip.AddrPortFrom(at, webPort).String())
		}
		w.refuses(t, []string{"the packet stops: filter rule " + e.namespace + "/no-web/web/that-pod: " + tt.action}, trace(from)...)
		if out, _ := w.liqoctl(t, trace(other)...); !strings.Contains(out, "no filter rule matches a TCP connection") {
			t.Errorf("another pod:\n%s", out)
		}
	}
	e.apply(t, fmt.Sprintf(firewallManifest, e.namespace, e.peer, from.Addr, "natType: masquerade", "nat", "postrouting", "natRules", webPort))
	lab.Eventually(t, patience, "what cannot be done is told", applied(metav1.ConditionFalse))
	e.kubectl(t, "delete", "firewallconfiguration", "no-web")
	w.talk(t, sides)
}

// knock opens a connection and closes it. What is rejected is rejected at once, so
// a second of silence is meant.
func knock(ctx context.Context, from *kubelab.Pod, at netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp", netip.AddrPortFrom(at, webPort).String())
	if err == nil {
		conn.Close()
	}
	return err
}
