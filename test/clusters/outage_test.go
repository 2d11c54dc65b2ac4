package clusters

import (
	"context"
	"fmt"
	"testing"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/document"
)

// outage is for how long both API servers are away.
const outage = 35 * time.Second

// testOutage takes the API servers away while pods talk. Nothing may come of it.
func testOutage(t *testing.T, p *pair) {
	d := document.Read(t, document.Declarative)
	pe := newPeering(t, p, "outage")
	pe.connect(t, d)
	pods := pe.gatewayPods(t)
	at, err := pe.consumer.here(t.Context(), p.provider.pods[1])
	if err != nil {
		t.Fatal(err)
	}
	s, m := p.consumer.pods[0].stream(t, at), p.consumer.pods[0].ping(t, at)
	controlplanetest.Eventually(t, "numbers go to and fro", s.lives)
	s.longest()
	m.longest()

	for _, x := range p.sides() {
		x.StopAPIServer()
	}
	deadline := time.After(outage)
	for away := true; away; {
		select {
		case <-deadline:
			away = false
		case <-time.After(2 * time.Second):
			ctx, cancel := context.WithTimeout(t.Context(), attempt)
			if _, err := p.consumer.pods[1].fetch(ctx, at, "/bytes"); err != nil { // a new connection
				t.Errorf("during the outage: %v", err)
			}
			cancel()
		}
	}
	if err := p.each(func(x *side) error { return x.StartAPIServer() }); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	for _, e := range pe.ends() {
		controlplanetest.Eventually(t, "the Connection of "+e.id+" is written again", func(ctx context.Context) error {
			c := new(networkingv1beta1.Connection)
			if err := e.Get(ctx, e.namespace, "gw-"+e.gateway, c); err != nil {
				return err
			}
			if c.Status.Value != networkingv1beta1.Connected {
				t.Errorf("the Connection of %s became %s", e.id, c.Status.Value)
			}
			if c.Status.Latency.Timestamp.Time.Before(back) {
				return fmt.Errorf("written %v before", back.Sub(c.Status.Latency.Timestamp.Time))
			}
			return nil
		})
	}
	resumed := time.Since(back)
	gap, err := s.longest()
	if err != nil || gap > outage/4 {
		t.Errorf("the connection was silent for %v (%v)", gap, err)
	}
	t.Logf("API servers away for %v: silence of a TCP connection at most %v, of pings %v; status written %v after",
		outage, gap.Round(time.Millisecond), m.longest().Round(time.Millisecond), resumed.Round(10*time.Millisecond))
	pe.samePods(t, pods)

	// The controllers are back as well: what is deleted now is made again.
	pe.provider.comesBack(t, "deployment", "gw-server")
	controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
}
