package control

import (
	"fmt"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/tunnel"
)

// Silence is why the peer does not answer, as far as one end can tell. Its text is
// the same as long as the cause is.
type Silence struct {
	// Reason is that of the condition PeerAnswers.
	Reason networkingv1beta1.ConditionReason `json:"reason"`
	// Message says what to do.
	Message string `json:"message"`
}

// sessionLife is how long a WireGuard session is valid (paper section 6.1).
const sessionLife = 180 * time.Second

// silenceOf finds the first thing on the way to the peer that is missing.
//
//	no key of the peer                              PeerKeyMissing
//	a client whose peer has no address              EndpointNotFound
//	no session, or one that is too old              NoHandshake
//	a session, and nothing comes back through it    NoAnswer
func silenceOf(d Desired, s tunnel.Stats, now time.Time) Silence {
	client := d.Gateway.Type == networkingv1beta1.ConnectionClient
	switch {
	case d.DataPlane.Tunnel.PeerKey.IsZero():
		return Silence{networkingv1beta1.ReasonPeerKeyMissing,
			"there is no usable PublicKey of the peer: create one with the public key of its gateway, from the Secret in that gateway's status"}
	case client && !s.Endpoint.IsValid():
		why := ""
		if s.LookupError != "" {
			why = " (" + s.LookupError + ")"
		}
		return Silence{networkingv1beta1.ReasonEndpointNotFound,
			fmt.Sprintf("no address is known for the peer's endpoint %s%s: correct spec.endpoint of the GatewayClient, or what the DNS says", d.DataPlane.Tunnel.Endpoint, why)}
	case !s.LastHandshake.IsZero() && now.Sub(s.LastHandshake) < sessionLife:
		return Silence{networkingv1beta1.ReasonNoAnswer,
			"the peer's gateway had a WireGuard session with this one a moment ago and does not answer any more: " +
				"it is being restarted or cannot be reached, or it has nothing in force: see its Connection"}
	}
	return Silence{networkingv1beta1.ReasonNoHandshake, noHandshake(client, s)}
}

// keysMatch is what else may be wrong when nothing seems to be.
const keysMatch = "that in each cluster the PublicKey holds the public key of the other one's gateway, from the Secret in that gateway's status"

func noHandshake(client bool, s tunnel.Stats) string {
	switch {
	case client:
		return fmt.Sprintf("WireGuard gets no answer from %s: check that this is the endpoint in the status of the peer's GatewayServer, that UDP gets there, and %s", s.Endpoint, keysMatch)
	case s.RxHandshakes == 0:
		return "no WireGuard handshake has come in: check that the peer's GatewayClient has the endpoint in the status of this GatewayServer, and that UDP gets here"
	case s.LastHandshake.IsZero():
		return "WireGuard handshakes come in, but none from the key that is expected: check " + keysMatch
	}
	return "the peer has not renewed its WireGuard session: check that its gateway runs, that UDP still gets here, and, if keys were replaced, " + keysMatch
}
