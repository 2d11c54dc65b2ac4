package doctor

import (
	"testing"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// lose has no ping of either end answered. A Connection says so ten seconds later.
func (w *world) lose() {
	for _, e := range []*end{w.client, w.server} {
		e.probe.Largest = 0
		for i := range e.probe.Pings {
			e.probe.Pings[i].Received = 0
		}
		t := e.tunnel()
		t.RxBytes, t.TxBytes = e.before.DataPlane.Tunnel.RxBytes, e.before.DataPlane.Tunnel.TxBytes+3000
	}
}

// TestLostWithinASession: while both gateways have a session, what their pings through it did
// shows where they get lost, and nobody waits for the next handshake.
func TestLostWithinASession(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lost  func(*world)
		shows bool
		want  string // of reachability, where it shows
	}{
		{"both ways", func(*world) {}, true, "the client sends to 198.51.100.7:32009, but nothing arrives at the server"},
		{"on the way back", func(w *world) { w.server.tunnel().RxBytes += 3000 }, true, "the server answers, but nothing comes back to the client"},
		{"on the way there", func(w *world) { w.client.tunnel().RxBytes += 3000 }, true, "the client sends to 198.51.100.7:32009, but nothing arrives at the server"},
		{"the server has another session", func(w *world) { w.server.tunnel().DropUnknownSession += 20 }, false, ""},
		{"the server was restarted", func(w *world) { w.server.tunnel().LastHandshake = time.Time{} }, false, ""},
		{"the session is too old", func(w *world) { w.client.tunnel().LastHandshake = now.Add(-sessionLife) }, false, ""},
		{"the client knows no address", func(w *world) { w.client.tunnel().TxBytes = w.client.before.DataPlane.Tunnel.TxBytes }, false, ""},
		{"the server cannot be probed", func(w *world) { w.server.probe = nil }, false, ""},
		{"only one side", func(w *world) { w.alone(w.client) }, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.lose()
			tt.lost(w)
			p := w.peerings[0]
			c := &peeringCase{peering: p}
			for _, e := range p.ends() {
				c.ends = append(c.ends, &endCase{end: e})
				if e.peer.Connection.Status.Value != networkingv1beta1.Connected {
					t.Fatal("the Connection is to say so later")
				}
			}
			if got := c.showsWhere(); got != tt.shows {
				t.Fatalf("it shows where packets get lost: %v, want %v", got, tt.shows)
			}
			if !tt.shows {
				return
			}
			if f := reachability(p); len(f) != 1 || f[0].Status != Failed || f[0].Message != tt.want {
				t.Errorf("%+v, want %s", f, tt.want)
			}
		})
	}
}
