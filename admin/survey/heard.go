package survey

import (
	"fmt"
	"slices"
	"time"
)

const (
	// longestSilence is how long a node is silent at most: gateways ask it for its
	// address after half a minute, and then four times in fifteen seconds.
	longestSilence = 45 * time.Second
	// settling is how long a gateway that was just started may not have heard all
	// nodes.
	settling = 10 * time.Second
	// unanswered is how long after an initiation of the peer its response is sent at
	// the latest, refusedFor how long one that got none tells something: the peer
	// tries again after five seconds at the latest.
	unanswered, refusedFor = 2 * time.Second, 30 * time.Second
)

// Unheard says what is wrong between a node and the gateway, as the gateway sees it:
// it asks every node for its address. Empty: nothing is. Known is false where the
// gateway has no such node, although it has others or none at all.
func (r *GatewayReport) Unheard(node string) (problem string, known bool) {
	i := slices.IndexFunc(r.DataPlane.Nodes, func(t NodeTunnel) bool { return t.Name == node })
	if i < 0 {
		return "is not known to the gateway", false
	}
	last := r.DataPlane.Nodes[i].LastSeen
	switch silence := r.Time.Sub(last); {
	case last.IsZero() && r.Time.Sub(r.Started) < settling:
		return "", true // it has hardly been asked
	case last.IsZero():
		return "has never been heard: none of its packets has arrived at the gateway", true
	case silence > longestSilence:
		return fmt.Sprintf("has not been heard for %v", silence.Round(time.Second)), true
	}
	return "", true
}

// refusesHandshakes tells whether somebody begins handshakes that the gateway does not
// accept: they are of another key than it expects, or for another than its own.
func (r *GatewayReport) refusesHandshakes() bool {
	t := r.DataPlane.Tunnel
	return !t.LastInitiation.IsZero() && t.LastInitiation.Sub(t.LastResponse) > unanswered && r.Time.Sub(t.LastInitiation) < refusedFor &&
		r.Time.Sub(t.LastInitiation) > unanswered
}
