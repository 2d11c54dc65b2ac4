package control

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/tunnel"
)

func TestSilence(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := netip.MustParseAddrPort("192.0.2.1:51840")
	old := now.Add(-sessionLife)
	const client, server = networkingv1beta1.ConnectionClient, networkingv1beta1.ConnectionServer
	for _, tt := range []struct {
		name    string
		role    networkingv1beta1.ConnectionType
		stats   tunnel.Stats
		keyless bool
		reason  networkingv1beta1.ConditionReason
		says    string
	}{
		{"no key", client, tunnel.Stats{}, true, networkingv1beta1.ReasonPeerKeyMissing, "no usable PublicKey of the peer"},
		{"a name that does not exist", client, tunnel.Stats{LookupError: "no such host"}, false, networkingv1beta1.ReasonEndpointNotFound, "endpoint gw.example:51840 (no such host): correct"},
		{"a name that has not been looked up", client, tunnel.Stats{}, false, networkingv1beta1.ReasonEndpointNotFound, "endpoint gw.example:51840: correct"},
		{"nobody answers", client, tunnel.Stats{Endpoint: at}, false, networkingv1beta1.ReasonNoHandshake, "no answer from 192.0.2.1:51840"},
		{"nobody answers any more", client, tunnel.Stats{Endpoint: at, LastHandshake: old}, false, networkingv1beta1.ReasonNoHandshake, "no answer from 192.0.2.1:51840"},
		{"the name is gone, the address is not", client, tunnel.Stats{Endpoint: at, LookupError: "no such host"}, false, networkingv1beta1.ReasonNoHandshake, "no answer from 192.0.2.1:51840"},
		{"a session without answers", client, tunnel.Stats{Endpoint: at, LastHandshake: old.Add(time.Second)}, false, networkingv1beta1.ReasonNoAnswer, "see its Connection"},
		{"nobody comes", server, tunnel.Stats{}, false, networkingv1beta1.ReasonNoHandshake, "no WireGuard handshake has come in"},
		{"somebody else comes", server, tunnel.Stats{RxHandshakes: 3}, false, networkingv1beta1.ReasonNoHandshake, "none from the key that is expected"},
		{"nobody comes any more", server, tunnel.Stats{RxHandshakes: 3, LastHandshake: old}, false, networkingv1beta1.ReasonNoHandshake, "has not renewed its WireGuard session"},
		{"a session without answers", server, tunnel.Stats{RxHandshakes: 3, LastHandshake: now}, false, networkingv1beta1.ReasonNoAnswer, "see its Connection"},
	} {
		t.Run(string(tt.role)+": "+tt.name, func(t *testing.T) {
			var d Desired
			d.Gateway.Type = tt.role
			d.DataPlane.Tunnel.Endpoint = "gw.example:51840"
			if !tt.keyless {
				d.DataPlane.Tunnel.PeerKey = tunnel.PublicKey{1}
			}
			got := silenceOf(d, tt.stats, now)
			if got.Reason != tt.reason || !strings.Contains(got.Message, tt.says) {
				t.Errorf("got %s: %s\nwant %s: %s", got.Reason, got.Message, tt.reason, tt.says)
			}
		})
	}
}
