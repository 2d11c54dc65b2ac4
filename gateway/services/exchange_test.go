package services_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/gateway/services"
	"github.com/sluice-net/sluice/test/dataplanetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// fabric is two clusters whose gateways are connected.
func fabric(t *testing.T) *dataplanetest.Fabric {
	t.Helper()
	f, err := dataplanetest.NewFabric(dataplanetest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return f
}

// start runs an Exchange on a gateway; stop ends it and waits.
func start(t *testing.T, n services.Network, heard func()) (x *services.Exchange, stop func()) {
	t.Helper()
	x = services.New(services.Options{Network: n, Logger: slog.New(slog.DiscardHandler), Changed: heard})
	x.Hurry()
	return x, run(t, x)
}

// run runs an Exchange until stop.
func run(t *testing.T, x *services.Exchange) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := x.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// service is shop/web-N with so many endpoints, the addresses of which begin with 10.N.
func service(n, endpoints, net int) *networkingv1beta1.ExportedService {
	e := &networkingv1beta1.ExportedService{Spec: networkingv1beta1.ServiceDescription{
		Namespace: "shop", Name: fmt.Sprintf("web-%d", n), Type: networkingv1beta1.ServiceClusterSetIP,
		Ports: []networkingv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
	}}
	s := networkingv1beta1.ServiceSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: e.Spec.Ports}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, networkingv1beta1.ServiceEndpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", net, n>>8, i)}, Ready: true})
	}
	e.Spec.Slices = []networkingv1beta1.ServiceSlice{s}
	return e
}

// checkTraffic carries a packet from a pod of one cluster to one of the other, and back.
func checkTraffic(t *testing.T, f *dataplanetest.Fabric) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pod, err := f.A.AddPod(0, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.B.AddPod(0, 8); err != nil {
		t.Fatal(err)
	}
	if _, err := pod.Ping(ctx, dataplanetest.Through(dataplanetest.RemappedB, dataplanetest.PodAddr(0, 8)), 1000, false); err != nil {
		t.Errorf("traffic of pods: %v", err)
	}
}

// TestExchange: a thousand Services with ten thousand endpoints, a change, a peer that is away for a while.
func TestExchange(t *testing.T) {
	f := fabric(t)
	a, _ := start(t, f.A.Gateway, nil)
	b, stop := start(t, f.B.Gateway, nil)
	var all []*networkingv1beta1.ExportedService
	for i := range 1000 {
		all = append(all, service(i, 10, 1))
	}
	a.Offer(all)
	b.Offer(nil)
	hears := func(x *services.Exchange, n, endpoints int) func() bool {
		return func() bool {
			s := x.Status()
			return s.Heard && s.Told && len(s.Imported) == n && s.ImportedEndpoints == endpoints
		}
	}
	until(t, "the other cluster hears all Services", hears(b, 1000, 10000))
	until(t, "and this one hears that there are none", hears(a, 0, 0))
	if s := a.Status(); s.Exported != 1000 || s.ExportedEndpoints != 10000 || len(s.LeftOut) != 0 {
		t.Errorf("%d Services, %d endpoints, left out %q", s.Exported, s.ExportedEndpoints, s.LeftOut)
	}
	checkTraffic(t, f)

	all[500] = service(500, 11, 2)
	a.Offer(all)
	until(t, "a change arrives", hears(b, 1000, 10001))
	heard, complete := b.Imported()
	if d := heard["shop.web-500"]; !complete || d.Slices[0].Endpoints[10].Addresses[0] != "10.2.1.10" {
		t.Errorf("%+v, %t", d, complete)
	}
	a.Offer(all[1:])
	until(t, "and one that goes", hears(b, 999, 9991))

	stop()
	until(t, "this cluster sees that nobody listens", func() bool { s := a.Status(); return !s.Told && !s.Heard })
	if heard, complete := a.Imported(); !complete || len(heard) != 0 {
		t.Errorf("what was heard went with the peer: %v, %t", heard, complete)
	}
	b, _ = start(t, f.B.Gateway, nil)
	b.Offer(all[:1])
	until(t, "a peer that is back hears all Services", hears(b, 999, 9991))
	until(t, "and is heard", hears(a, 1, 10))
}

// TestNothingBeforeTheFirstOffer: a gateway that does not know its Services yet does not say that it has none.
func TestNothingBeforeTheFirstOffer(t *testing.T) {
	f := fabric(t)
	a, stop := start(t, f.A.Gateway, nil)
	b, _ := start(t, f.B.Gateway, nil)
	a.Offer([]*networkingv1beta1.ExportedService{service(1, 1, 1)})
	until(t, "the other cluster hears the Service", func() bool { return b.Status().Heard })
	stop()
	until(t, "it loses the peer", func() bool { return !b.Status().Heard })
	a, _ = start(t, f.A.Gateway, nil)
	b.Offer(nil)
	until(t, "the peer is back", func() bool { return a.Status().Heard })
	if s := b.Status(); s.Heard || len(s.Imported) != 1 {
		t.Errorf("it hears %+v of a gateway that has told nothing", s)
	}
	a.Offer(nil)
	until(t, "the Service is gone", func() bool { s := b.Status(); return s.Heard && len(s.Imported) == 0 })
}

// TestStandsBy: without an address in the tunnel nothing is known any more, and nothing is written.
func TestStandsBy(t *testing.T) {
	f := fabric(t)
	a, _ := start(t, f.A.Gateway, nil)
	b, _ := start(t, f.B.Gateway, nil)
	a.Offer([]*networkingv1beta1.ExportedService{service(1, 1, 1)})
	b.Offer(nil)
	until(t, "the Service is heard", func() bool { _, all := b.Imported(); return all })
	passive := f.B.Config
	passive.TunnelAddr, passive.PeerTunnelAddr = netip.Addr{}, netip.Addr{}
	if err := f.B.Gateway.Apply(passive); err != nil {
		t.Fatal(err)
	}
	until(t, "it is not held any more", func() bool { _, all := b.Imported(); return !all })
	if err := f.B.Gateway.Apply(f.B.Config); err != nil {
		t.Fatal(err)
	}
	until(t, "the Service is heard again", func() bool { _, all := b.Imported(); return all })
}

// TestStrangers: neither pods nor nodes of either cluster reach the exchange.
func TestStrangers(t *testing.T) {
	f := fabric(t)
	a, _ := start(t, f.A.Gateway, nil)
	b, _ := start(t, f.B.Gateway, nil)
	a.Offer([]*networkingv1beta1.ExportedService{service(1, 1, 1)})
	b.Offer(nil)
	until(t, "the Service is heard", func() bool { return b.Status().Heard })
	own, _ := f.A.Gateway.TunnelAddrs()
	for name, c := range map[string]struct {
		cluster  *dataplanetest.Cluster
		from, to netip.Addr
	}{
		"a pod of this cluster":                      {f.A, dataplanetest.PodAddr(0, 41), own},
		"a pod of the peer":                          {f.B, dataplanetest.PodAddr(0, 42), own},
		"a pod of this cluster, at the node's side":  {f.A, dataplanetest.PodAddr(0, 43), dataplanetest.GatewayAddress},
		"a node of this cluster":                     {f.A, f.A.Config.Nodes[0].Internal[0], own},
		"a node of the peer":                         {f.B, f.B.Config.Nodes[0].Internal[0], own},
		"a node of this cluster, at the node's side": {f.A, f.A.Config.Nodes[0].Internal[0], dataplanetest.GatewayAddress},
	} {
		t.Run(name, func(t *testing.T) {
			host, err := c.cluster.Nodes[0].AddPod(c.from)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if _, err := host.Ping(ctx, dataplanetest.GatewayAddress, 100, false); err != nil {
				t.Errorf("its gateway does not hear it: %v", err)
			}
			// Nobody answers, or the gateway refuses.
			ctx, cancel = context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if conn, err := host.DialContext(ctx, "tcp", netip.AddrPortFrom(c.to, services.Port).String()); err == nil {
				conn.Close()
				t.Error("connected")
			}
		})
	}
	if s := a.Status(); s.Strangers != 0 {
		t.Errorf("%+v", s)
	}
	until(t, "the Services are still heard", func() bool { return b.Status().Heard })
}

// TestNobodyThere: a peer without an exchange is no error.
func TestNobodyThere(t *testing.T) {
	f := fabric(t)
	a, _ := start(t, f.A.Gateway, nil)
	a.Offer(nil)
	const want = "the peer's gateway does not exchange Services: they are off there, or it is of a version that has none"
	until(t, "the status says so", func() bool { return a.Status().Problem == want })
	if s := a.Status(); len(s.Refused) != 0 || s.Heard || s.Told {
		t.Errorf("%+v", s)
	}
}

const greeting = "sluice-services/1\n"

// stream writes the greeting, and returns what compresses the rest.
func stream(w io.Writer) *flate.Writer {
	_, _ = io.WriteString(w, greeting)
	f, _ := flate.NewWriter(w, flate.BestSpeed)
	return f
}

func frame(kind byte, payload string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	return append(b, payload...)
}

// TestHostilePeers: what a peer must not do is refused by name, and traffic goes on.
func TestHostilePeers(t *testing.T) {
	put := func(i int) []byte {
		return frame(1, fmt.Sprintf(`shop.web-%d`+"\n"+`{"namespace":"shop","name":"web-%d","type":"Headless"}`, i, i))
	}
	for name, c := range map[string]struct {
		do   func(net.Conn) error
		want services.Reason
	}{
		"a stream without end": {func(c net.Conn) (err error) {
			for err == nil {
				_, err = c.Write(make([]byte, 1<<16))
			}
			return err
		}, services.ReasonVersion},
		"a giant frame": {func(c net.Conn) error {
			w := stream(c)
			_, err := w.Write([]byte{1, 0x7f, 0xff, 0xff, 0xff})
			for err = errors.Join(err, w.Flush()); err == nil; {
				_, err = w.Write(make([]byte, 1<<16))
			}
			return err
		}, services.ReasonTooLarge},
		"a bomb": {func(c net.Conn) error {
			// Four GiB of zeros, a thousandth of that compressed.
			var err error
			for w, n := stream(c), 0; n < 1<<32 && err == nil; n += 1 << 20 {
				_, err = w.Write(make([]byte, 1<<20))
			}
			return err
		}, services.ReasonMalformed},
		"a million Services": {func(c net.Conn) error {
			w := bufio.NewWriter(stream(c))
			for i := range 1_000_000 {
				if _, err := w.Write(put(i)); err != nil {
					return err
				}
			}
			return nil
		}, services.ReasonTooManyServices},
		"names that are none": {func(c net.Conn) error {
			w := stream(c)
			_, err := w.Write(frame(1, "../../etc\n{}"))
			return errors.Join(err, w.Flush())
		}, services.ReasonMalformed},
		"Services that are none": {func(c net.Conn) error {
			w := stream(c)
			_, err := w.Write(bytes.Join([][]byte{put(1), frame(1, "shop.bad\n[]"), frame(3, "")}, nil))
			err = errors.Join(err, w.Flush())
			_, _ = c.Read(make([]byte, 1)) // until the other end has enough
			return err
		}, services.ReasonInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			f := fabric(t)
			own, _ := f.B.Gateway.TunnelAddrs()
			l, err := f.B.Gateway.ListenTCP(netip.AddrPortFrom(own, services.Port))
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			var mu sync.Mutex
			var open []net.Conn
			wg.Go(func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					mu.Lock()
					open = append(open, conn)
					mu.Unlock()
					wg.Go(func() {
						defer conn.Close()
						_ = c.do(conn) // the other end closes
					})
				}
			})
			a, stop := start(t, f.A.Gateway, nil)
			defer func() {
				stop()
				l.Close()
				mu.Lock()
				for _, conn := range open {
					conn.Close()
				}
				mu.Unlock()
				wg.Wait()
			}()
			until(t, "it is refused", func() bool { return a.Status().Refused[c.want] > 0 })
			checkTraffic(t, f)
			if c.want == services.ReasonInvalid {
				until(t, "the others are heard", func() bool { s := a.Status(); return s.Heard && len(s.Imported) == 1 })
				return
			}
			if _, all := a.Imported(); all {
				t.Error("something of it is believed")
			}
		})
	}
}

// TestPeerKilled: a peer that connects anew is asked anew. The connection over which it told before it was killed is silent,
// and nothing ends it.
func TestPeerKilled(t *testing.T) {
	f := fabric(t)
	x := services.New(services.Options{Network: f.A.Gateway, Logger: slog.New(slog.DiscardHandler)})
	x.Hurry()
	x.Endure()
	own, peer := f.B.Gateway.TunnelAddrs()
	l, err := f.B.Gateway.ListenTCP(netip.AddrPortFrom(own, services.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	run(t, x)
	x.Offer(nil)
	before, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	w := stream(before)
	_, err = w.Write(frame(3, ""))
	if err := errors.Join(err, w.Flush()); err != nil {
		t.Fatal(err)
	}
	until(t, "the peer is heard", func() bool { return x.Status().Heard })
	anew := make(chan net.Conn)
	go func() {
		defer close(anew)
		if c, err := l.Accept(); err == nil {
			anew <- c
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		// As gateways do that start, and often enough that the first connection is no new one any more.
		c, err := f.B.Gateway.DialTCP(ctx, netip.AddrPortFrom(own, 0), netip.AddrPortFrom(peer, services.Port))
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
		if c != nil {
			defer c.Close()
		}
		select {
		case c := <-anew:
			c.Close()
			return
		case <-ctx.Done():
			t.Fatal("it is not asked anew")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestListenerThatSpeaks: who listens and speaks loses the connection.
func TestListenerThatSpeaks(t *testing.T) {
	f := fabric(t)
	a, _ := start(t, f.A.Gateway, nil)
	a.Offer(nil)
	own, peer := f.B.Gateway.TunnelAddrs()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var c net.Conn
	until(t, "the exchange listens", func() (ok bool) {
		var err error
		if c, err = f.B.Gateway.DialTCP(ctx, netip.AddrPortFrom(own, 0), netip.AddrPortFrom(peer, services.Port)); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
		return err == nil
	})
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1024); ; {
		_, err := c.Read(b)
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			t.Fatal("the connection stays")
		}
		if err != nil {
			return
		}
	}
}
