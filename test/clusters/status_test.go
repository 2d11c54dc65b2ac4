package clusters

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// gatewayStatus is what a gateway tells that is of interest here.
type gatewayStatus struct {
	DataPlane struct {
		Tunnel struct {
			Peer          string
			LastHandshake time.Time
		}
		Nodes []struct{ Name string }
	}
}

// status asks the gateway of this end, as a user does with kubectl exec.
func (e *end) status(ctx context.Context) (s gatewayStatus, err error) {
	pods, err := e.gatewayPods(ctx)
	if err != nil {
		return s, err
	}
	if len(pods) != 1 {
		return s, fmt.Errorf("%s has %d gateway pods", e.id, len(pods))
	}
	out, err := e.kubelet.Exec(ctx, e.namespace, pods[0].Name, "status", "--admin-socket=/run/sluice/gateway.sock", "-o", "json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(out), &s)
}

// usesKeys checks that the gateway of this end talks to the one that has the
// private key of its peer's PublicKey.
func (e *end) usesKeys(ctx context.Context) error {
	key := new(networkingv1beta1.PublicKey)
	if err := e.Get(ctx, e.namespace, "gw-publickey", key); err != nil {
		return err
	}
	s, err := e.status(ctx)
	if err != nil {
		return err
	}
	if want := base64.StdEncoding.EncodeToString(key.Spec.PublicKey); s.DataPlane.Tunnel.Peer != want {
		return fmt.Errorf("its peer is %s, want %s", s.DataPlane.Tunnel.Peer, want)
	}
	if s.DataPlane.Tunnel.LastHandshake.IsZero() {
		return errors.New("it had no handshake with its peer yet")
	}
	return nil
}

// explainIfFailed prints what there is of a peering when the test has failed by
// its end.
func (pe *peering) explainIfFailed(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, e := range pe.ends() {
			var text strings.Builder
			for _, args := range [][]string{
				{"get", "pods,services,leases,serviceaccounts,roles,rolebindings", "-n", e.namespace, "-o", "wide", "--show-labels"},
				{"get", "gatewayservers,gatewayclients,configurations,connections,internalfabrics,genevetunnels", "-n", e.namespace, "-o", "yaml"},
				{"get", "internalnodes", "-o", "yaml"},
			} {
				out, err := e.Kubectl(args...)
				fmt.Fprintf(&text, "$ kubectl %s\n%s\n", strings.Join(args, " "), out)
				if err != nil {
					fmt.Fprintf(&text, "%v\n", err)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), attempt)
			defer cancel()
			pods, _ := e.gatewayPods(ctx) // without them there is less to print
			for _, p := range pods {
				out, err := e.kubelet.Exec(ctx, p.Namespace, p.Name, "status", "--admin-socket=/run/sluice/gateway.sock")
				fmt.Fprintf(&text, "$ kubectl exec %s -- gateway status\n%s\n", p.Name, out)
				if err != nil {
					fmt.Fprintf(&text, "%v\n", err)
				}
			}
			t.Logf("--- %s\n%s", e.id, text.String())
		}
	})
}
