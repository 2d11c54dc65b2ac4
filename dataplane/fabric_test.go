package dataplane_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/dataplane/netstack"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/test/dataplanetest"
)

// newFabric starts a fabric with two nodes in A, one of which speaks VXLAN, and
// one without Ethernet in B, and a pod on each.
func newFabric(t *testing.T) (f *dataplanetest.Fabric, a0, a1, b0 *netstack.Stack) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	f, err := dataplanetest.NewFabric(dataplanetest.Options{
		NodesA: []geneve.Encapsulation{geneve.Geneve, geneve.VXLAN},
		NodesB: []geneve.Encapsulation{geneve.GeneveIP},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			a, b := f.A.Gateway.Status(), f.B.Gateway.Status()
			t.Logf("A: egress %v, ingress %v, tunnel %+v", a.Egress, a.Ingress, a.Tunnel)
			t.Logf("B: egress %v, ingress %v, tunnel %+v", b.Egress, b.Ingress, b.Tunnel)
		}
	})
	pod := func(c *dataplanetest.Cluster, node int) *netstack.Stack {
		p, err := c.AddPod(node, 0)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a0, a1, b0 = pod(f.A, 0), pod(f.A, 1), pod(f.B, 0)
	if err := f.WaitReady(testContext(t, patience)); err != nil {
		t.Fatal(err)
	}
	return f, a0, a1, b0
}

// patience is how long a test waits for what must come.
const patience = time.Minute

func testContext(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// transfer sends size random bytes from one pod to another, which knows the
// first as from, and fails unless they arrive unchanged.
func transfer(t *testing.T, client, server *netstack.Stack, serverAddr, listen netip.AddrPort, from netip.Addr, size int64) {
	t.Helper()
	if err := transferErr(testContext(t, patience), client, server, serverAddr, listen, from, size); err != nil {
		t.Error(err)
	}
}

func transferErr(ctx context.Context, client, server *netstack.Stack, serverAddr, listen netip.AddrPort, from netip.Addr, size int64) error {
	l, err := server.ListenTCP(listen)
	if err != nil {
		return err
	}
	defer l.Close()
	type result struct {
		sum [32]byte
		err error
	}
	received := make(chan result, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			received <- result{err: err}
			return
		}
		defer conn.Close()
		if got := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); got != from {
			err = fmt.Errorf("server sees %s, want %s", got, from)
		}
		h := sha256.New()
		_, copyErr := io.Copy(h, conn)
		received <- result{[32]byte(h.Sum(nil)), errors.Join(err, copyErr)}
	}()
	conn, err := client.DialContext(ctx, "tcp", serverAddr.String())
	if err != nil {
		return fmt.Errorf("dial %s: %w", serverAddr, err)
	}
	h := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(conn, h), rand.Reader, size); err != nil {
		return err
	}
	conn.Close()
	select {
	case r := <-received:
		if r.err != nil {
			return r.err
		}
		if r.sum != [32]byte(h.Sum(nil)) {
			return errors.New("what arrived is not what was sent")
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestFabricCarriesTCPBothWays(t *testing.T) {
	_, a0, a1, b0 := newFabric(t)
	podA0, podA1, podB0 := dataplanetest.PodAddr(0, 0), dataplanetest.PodAddr(1, 0), dataplanetest.PodAddr(0, 0)
	viaA := func(a netip.Addr) netip.Addr { return dataplanetest.Through(dataplanetest.RemappedB, a) }
	viaB := func(a netip.Addr) netip.Addr { return dataplanetest.Through(dataplanetest.RemappedA, a) }
	const size = 4 << 20
	transfer(t, a0, b0, port(viaA(podB0), 80), port(podB0, 80), viaB(podA0), size)
	transfer(t, a1, b0, port(viaA(podB0), 81), port(podB0, 81), viaB(podA1), size)
	transfer(t, b0, a1, port(viaB(podA1), 82), port(podA1, 82), viaA(podB0), size)
}

func TestFabricCarriesIPv6(t *testing.T) {
	_, a0, _, b0 := newFabric(t)
	pod := dataplanetest.PodAddr6(0, 0)
	transfer(t, a0, b0,
		port(dataplanetest.Through(dataplanetest.RemappedB6, pod), 80), port(pod, 80),
		dataplanetest.Through(dataplanetest.RemappedA6, pod), 4<<20)
}

func TestFabricPingAndTrace(t *testing.T) {
	f, a0, _, _ := newFabric(t)
	far := dataplanetest.Through(dataplanetest.RemappedB, dataplanetest.PodAddr(0, 0))
	for what, dst := range map[string]netip.Addr{"the far pod": far, "the gateway": dataplanetest.GatewayAddress} {
		if _, err := a0.Ping(testContext(t, patience), dst, 56, false); err != nil {
			t.Errorf("ping of %s: %v", what, err)
		}
	}
	if _, err := a0.Ping(testContext(t, patience), far, 1340-28, true); err != nil {
		t.Errorf("ping at the MTU: %v", err)
	}
	hops, err := a0.Trace(testContext(t, patience), far, 8)
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{
		netip.MustParseAddr("10.80.0.11"), // the node
		dataplanetest.GatewayAddress,      // our gateway
		dataplanetest.ExternalB.Addr(),    // the far gateway, by its external CIDR
		far,
	}
	var got []netip.Addr
	for _, h := range hops {
		got = append(got, h.Addr)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("route is %v, want %v", got, want)
	}
	if n := f.B.Gateway.Status().Ingress.Verdicts["DropHopLimit"]; n == 0 {
		t.Error("the far gateway counted no expired hop limit")
	}
}

// TestFabricApplyLosesNothing replaces the configuration hundreds of times
// while a UDP stream flows that has no retransmission.
func TestFabricApplyLosesNothing(t *testing.T) {
	f, a0, _, b0 := newFabric(t)
	pod := dataplanetest.PodAddr(0, 0)
	in, err := b0.ListenUDP(port(pod, 9))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := a0.DialUDP(netip.AddrPort{}, port(dataplanetest.Through(dataplanetest.RemappedB, pod), 9))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()

	const packets = 3000
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for _, c := range []*dataplanetest.Cluster{f.A, f.B} {
				cfg := c.Config
				cfg.Sources = dataplane.SourceCheck(i % 2)
				if i%3 == 0 {
					cfg.Filter = filter.Config{Chains: []filter.Chain{forwardChain(ruleFor(filter.Accept, filter.Match{}))}}
				}
				cfg.Tunnel.AllowedIPs = append(cfg.Tunnel.AllowedIPs[:len(cfg.Tunnel.AllowedIPs):len(cfg.Tunnel.AllowedIPs)],
					netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 32))
				if err := c.Gateway.Apply(cfg); err != nil {
					t.Error(err)
				}
			}
		}
	})
	buf := make([]byte, 64)
	for i := range packets {
		// One at a time: what is tested is the exchange of configurations, not
		// the depth of queues.
		if _, err := fmt.Fprintf(out, "%d", i); err != nil {
			t.Fatal(err)
		}
		in.SetReadDeadline(time.Now().Add(patience))
		n, _, err := in.ReadFrom(buf)
		if err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		if got := string(buf[:n]); got != fmt.Sprint(i) {
			t.Fatalf("got packet %s, want %d", got, i)
		}
	}
	close(stop)
	wg.Wait()
}

// TestFabricSurvivesAnUglyWAN lets TCP run over loss, duplicates and reordering.
func TestFabricSurvivesAnUglyWAN(t *testing.T) {
	f, a0, _, b0 := newFabric(t)
	i := 0
	var mu sync.Mutex
	f.Network.Impair(func(src, _ netip.AddrPort, _ []byte) (fate dataplanetest.Fate) {
		if src.Port() != 51840 {
			return fate
		}
		mu.Lock()
		defer mu.Unlock()
		i++
		fate.Drop = i%101 == 0
		fate.Duplicate = i%53 == 0
		if i%37 == 0 {
			fate.Delay = 2 * time.Millisecond
		}
		return fate
	})
	pod := dataplanetest.PodAddr(0, 0)
	transfer(t, a0, b0, port(dataplanetest.Through(dataplanetest.RemappedB, pod), 80), port(pod, 80),
		dataplanetest.Through(dataplanetest.RemappedA, pod), 2<<20)
}
