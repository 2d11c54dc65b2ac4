package dataplane_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/netstack"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/tunnel"
)

// giveTunnels has a gateway of a fabric have so many tunnels, of which A is the server.
func giveTunnels(t *testing.T, c *dataplanetest.Cluster, server bool, tunnels int) {
	t.Helper()
	c.Config.Further, c.Config.Tunnel.Further = nil, nil
	for i := 1; i < tunnels; i++ {
		at := func(host int) netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 18, byte(4*i + host)}) }
		port := 51840 + i
		own, peer, f := at(2), at(1), tunnel.Further{Endpoint: fmt.Sprintf("192.0.2.1:%d", port)}
		if server {
			own, peer, f = at(1), at(2), tunnel.Further{ListenPort: uint16(port)}
		}
		f.AllowedIPs = append([]netip.Prefix{netip.PrefixFrom(peer, 32)}, c.Config.Tunnel.AllowedIPs...)
		c.Config.Further = append(c.Config.Further, dataplane.TunnelEnds{Own: own, Peer: peer})
		c.Config.Tunnel.Further = append(c.Config.Tunnel.Further, f)
	}
	if err := c.Gateway.Apply(c.Config); err != nil {
		t.Fatal(err)
	}
}

// until waits until something is so.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// echo sends back what a pod receives on a port, until the pod ends.
func echo(t *testing.T, pod *netstack.Stack, at netip.AddrPort) {
	t.Helper()
	c, err := pod.ListenUDP(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b[:n], from)
		}
	}()
}

// The gateways reach each other by each of several tunnels, and flows go by all of them, both
// ways, until one has failed.
func TestSeveralTunnels(t *testing.T) {
	for _, sockets := range []int{1, 3} {
		t.Run(fmt.Sprint(sockets), func(t *testing.T) {
			f, err := dataplanetest.NewFabric(dataplanetest.Options{Sockets: sockets})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}()
			a, err := f.A.AddPod(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			b, err := f.B.AddPod(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			echo(t, b, netip.AddrPortFrom(dataplanetest.PodAddr(0, 0), 7))
			ctx := testContext(t, patience)
			if err := f.WaitReady(ctx); err != nil {
				t.Fatal(err)
			}
			const tunnels = 4
			giveTunnels(t, f.A, true, tunnels)
			giveTunnels(t, f.B, false, tunnels)
			for _, e := range f.B.Config.Further {
				until(t, "an answer by "+e.Peer.String(), func() bool {
					attempt, cancel := context.WithTimeout(ctx, time.Second) // the tunnel may not be open yet
					defer cancel()
					_, err := f.B.Gateway.Ping(attempt, e.Peer)
					return err == nil
				})
			}
			for _, e := range f.A.Config.Further { // by the session that the client has made
				if _, err := f.A.Gateway.Ping(ctx, e.Peer); err != nil {
					t.Errorf("%s: %v", e.Peer, err)
				}
			}
			usable := []bool{true, true, true, true}
			f.A.Gateway.SetUsable(usable)
			f.B.Gateway.SetUsable(usable)

			peer := dataplanetest.Through(dataplanetest.RemappedB, dataplanetest.PodAddr(0, 0))
			answers := func() {
				t.Helper()
				for range 64 {
					c, err := a.DialUDP(netip.AddrPort{}, netip.AddrPortFrom(peer, 7))
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					if _, err := c.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
					if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
						t.Fatal(err)
					}
					if _, err := c.Read(make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
				}
			}
			sent := func(c *dataplanetest.Cluster) (n []uint64) {
				s := c.Gateway.Tunnel()
				for _, s := range append([]tunnel.Stats{s}, s.Further...) {
					n = append(n, s.TxPackets)
				}
				return n
			}
			before := sent(f.A)
			answers()
			for i, n := range sent(f.A) {
				if n == before[i] {
					t.Errorf("tunnel %d of A has carried nothing: %v, %v", i, before, sent(f.A))
				}
			}
			f.A.Gateway.SetUsable([]bool{false, true, true, false})
			before = sent(f.A)
			answers()
			if _, err := f.A.Gateway.PingPeer(ctx, 1000); err != nil {
				t.Error(err)
			}
			after := sent(f.A)
			if after[0] != before[0] || after[3] != before[3] || after[1] == before[1] || after[2] == before[2] {
				t.Errorf("with two tunnels: %v, %v", before, after)
			}
			if s := f.A.Gateway.Status(); s.Ingress.Packets == 0 || s.Ingress.Verdicts[dataplane.DropSpoofedSource.String()] != 0 {
				t.Errorf("%+v", s.Ingress)
			}
		})
	}
}

func TestFurtherAddresses(t *testing.T) {
	h := newHarness(t, nil)
	own, peer := netip.MustParseAddr("169.254.18.5"), netip.MustParseAddr("169.254.18.6")
	cfg := h.config
	cfg.Tunnel.Further = []tunnel.Further{{ListenPort: 51841}}
	for _, ends := range [][]dataplane.TunnelEnds{nil, {{Own: cfg.TunnelAddr, Peer: peer}}, {{Peer: peer}}, {{Own: own, Peer: peer}, {Own: peer, Peer: own}}} {
		if cfg.Further = ends; cfg.Validate() == nil {
			t.Errorf("%v is taken for one further tunnel", ends)
		}
	}
	cfg.Further = []dataplane.TunnelEnds{{Own: own, Peer: peer}}
	if err := h.forwarder.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		src, dst netip.Addr
		want     dataplane.Verdict
	}{
		{peer, own, dataplane.Delivered},
		{peerTunnelIP, tunnelIP, dataplane.Delivered},
		{peerTunnelIP, own, dataplane.DropSpoofedSource},
		{peer, tunnelIP, dataplane.DropSpoofedSource},
		{own, own, dataplane.DropSpoofedSource},
	} {
		before := h.ingressVerdicts()[tt.want.String()]
		h.ingress(udp(tt.src, 1, tt.dst, 2, "x"))
		if h.ingressVerdicts()[tt.want.String()] != before+1 {
			t.Errorf("from %s to %s: %v", tt.src, tt.dst, h.ingressVerdicts())
		}
	}
}

// What is told of a drop counts those of further tunnels, too.
func TestDropsOfFurtherTunnels(t *testing.T) {
	h := newHarness(t, nil)
	broken := make([]byte, 20)
	h.forwarder.WritePackets([][]byte{broken}, nil, 0, func() {})
	h.forwarder.FurtherIngress(1).WritePackets([][]byte{broken, broken}, nil, 0, func() {})
	var totals []uint64
	for _, p := range h.forwarder.Dropped(0) {
		totals = append(totals, p.Total)
	}
	if !slices.Equal(totals, []uint64{1, 2, 3}) {
		t.Errorf("%v in all", totals)
	}
}
