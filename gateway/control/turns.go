package control

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/tunnel"
)

// turns notices that several gateways speak with the peer's key, each of which believes
// to lead: every handshake of one takes the session from the other, so that the address
// of the peer goes to and fro. One that moves does not come back.
type turns struct {
	handshake time.Time   // the last one that was seen
	last      []turn      // the handshakes of a turnsWindow, the oldest first
	replaced  []time.Time // when something came by a session of before, likewise
}

// turn is a handshake from an address.
type turn struct {
	from netip.AddrPort
	at   time.Time
}

const (
	// turnsWindow is what counts, and how long it takes until all is well again. A
	// gateway that lost its session asks for another one after some five seconds.
	turnsWindow = time.Minute
	// turnsBack is how often the peer must have come back to an address that it had left.
	turnsBack = 2
)

// observe takes the state of the tunnel. It returns the addresses that take turns, nil
// for none.
func (t *turns) observe(s tunnel.Stats, now time.Time) (taking []netip.AddrPort) {
	if s.LastHandshake.After(t.handshake) && s.Endpoint.IsValid() {
		t.handshake = s.LastHandshake
		t.last = append(t.last, turn{s.Endpoint, now})
	}
	t.last = slices.DeleteFunc(t.last, func(u turn) bool { return now.Sub(u.at) >= turnsWindow })
	back := 0
	for i, u := range t.last {
		known := slices.Contains(taking, u.from)
		if known && t.last[i-1].from != u.from {
			back++
		}
		if !known {
			taking = append(taking, u.from)
		}
	}
	if back < turnsBack {
		return nil
	}
	slices.SortFunc(taking, netip.AddrPort.Compare)
	return taking
}

// replacedFor is for how long a gateway must have gone on sending by a session that the peer
// has replaced. One that was cut off does so until it has read the Lease.
const replacedFor = 5 * time.Second

// observeReplaced takes the state of the tunnel. It tells whether another gateway with the
// peer's key goes on, by a session from before the one that the peer uses.
func (t *turns) observeReplaced(s tunnel.Stats, now time.Time) bool {
	if n := len(t.replaced); !s.LastReplaced.IsZero() && (n == 0 || s.LastReplaced.After(t.replaced[n-1])) {
		t.replaced = append(t.replaced, s.LastReplaced)
	}
	t.replaced = slices.DeleteFunc(t.replaced, func(at time.Time) bool { return now.Sub(at) >= turnsWindow })
	n := len(t.replaced)
	return n > 0 && t.replaced[n-1].Sub(t.replaced[0]) >= replacedFor
}

// replacedText says what that means.
const replacedText = "another gateway with the peer's key goes on sending, by a session from before the present one; the tunnel is not moved by that; " +
	"in the peer's cluster, a gateway pod without the label networking.liqo.io/active does not hear that another one leads: mend its way to the API server, or delete it"

// severalText says what several addresses mean.
func severalText(addrs []netip.AddrPort) string {
	if len(addrs) == 0 {
		return ""
	}
	return fmt.Sprintf("several gateways with the peer's key take turns, from %s: they take the tunnel from each other; "+
		"in the peer's cluster, delete the gateway pods without the label networking.liqo.io/active: one of them does not hear that another one leads", addrText(addrs))
}

func addrText(addrs []netip.AddrPort) string {
	const shown = 4
	text := ""
	for i, a := range addrs[:min(len(addrs), shown)] {
		if i > 0 {
			text += " and "
		}
		text += a.String()
	}
	if len(addrs) > shown {
		text += fmt.Sprintf(" and %d more", len(addrs)-shown)
	}
	return text
}
