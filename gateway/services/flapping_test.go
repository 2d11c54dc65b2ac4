package services_test

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/gateway/services"
)

// TestFlapping: a peer whose Services change without end is heard, but no faster than the rate of changes allows, and
// traffic passes.
func TestFlapping(t *testing.T) {
	f := fabric(t)
	own, _ := f.B.Gateway.TunnelAddrs()
	l, err := f.B.Gateway.ListenTCP(netip.AddrPortFrom(own, services.Port))
	if err != nil {
		t.Fatal(err)
	}
	var peer sync.WaitGroup
	peer.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		w := stream(c)
		_, err = w.Write(frame(3, ""))
		for i := 0; err == nil; i++ {
			_, err = w.Write(frame(1, fmt.Sprintf(`shop.web`+"\n"+`{"namespace":"shop","name":"web","type":"Headless","exportedAt":"2026-01-01T00:00:%02dZ"}`, i%2)))
			if err == nil && i%100 == 0 {
				err = w.Flush()
			}
		}
	})
	var changes atomic.Int64
	began := time.Now()
	a, stop := start(t, f.A.Gateway, func() { changes.Add(1) })
	defer func() {
		stop()
		l.Close()
		peer.Wait()
	}()
	const beyond = 50 // changes after the burst
	until(t, "it flaps", func() bool { return changes.Load() > services.FrameBurst+beyond })
	n := float64(changes.Load())
	if most := services.FrameBurst + services.FrameRate*time.Since(began).Seconds() + 1; n > most {
		t.Errorf("%.0f changes are heard, want at most %.0f", n, most)
	}
	checkTraffic(t, f)
	if s := a.Status(); !s.Heard || len(s.Imported) != 1 || len(s.Refused) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestPeerThatDoesNotRead: it holds up nobody, and is told all when it connects anew.
func TestPeerThatDoesNotRead(t *testing.T) {
	f := fabric(t)
	a, _ := start(t, f.A.Gateway, nil)
	own, peer := f.B.Gateway.TunnelAddrs()
	var c net.Conn
	until(t, "it listens", func() (ok bool) {
		var err error
		c, err = f.B.Gateway.DialTCP(t.Context(), netip.AddrPortFrom(own, 0), netip.AddrPortFrom(peer, services.Port))
		return err == nil
	})
	defer c.Close()
	// More than fits into the buffers of the connection, which are some MiB.
	var all []*networkingv1beta1.ExportedService
	for i := range 20 {
		all = append(all, service(i, 1000, 1))
	}
	for i := range 200 {
		for j := range all {
			all[j] = service(j, 999+i%2, 1+i%2)
		}
		a.Offer(all)
	}
	b, _ := start(t, f.B.Gateway, nil)
	b.Offer(nil)
	until(t, "it hears all on a new connection", func() bool { s := b.Status(); return s.Heard && len(s.Imported) == len(all) })
}
