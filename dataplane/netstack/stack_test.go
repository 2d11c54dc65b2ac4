package netstack

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	addrA4 = netip.MustParseAddr("10.243.0.1")
	addrB4 = netip.MustParseAddr("10.244.0.2")
	addrA6 = netip.MustParseAddr("fd00:a::1")
	addrB6 = netip.MustParseAddr("fd00:b::2")
)

// newStack returns a stack that is closed at the end of the test.
func newStack(t testing.TB, c Config, addrs ...netip.Addr) *Stack {
	t.Helper()
	if c.MTU == 0 {
		c.MTU = 1340
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.SetAddresses(addrs); err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs s until the end of the test.
func run(t testing.TB, s *Stack, output func(pkt []byte)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, output) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// wire returns two running stacks that are each other's network.
func wire(t testing.TB, ca, cb Config) (a, b *Stack) {
	t.Helper()
	a, b = newStack(t, ca, addrA4, addrA6), newStack(t, cb, addrB4, addrB6)
	run(t, a, func(pkt []byte) { b.Inject(pkt) })
	run(t, b, func(pkt []byte) { a.Inject(pkt) })
	return a, b
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestNewRefusesBadConfig(t *testing.T) {
	for _, c := range []Config{{}, {MTU: 575}, {MTU: 65536}, {MTU: 1500, TCPBuffer: 1}, {MTU: 1500, TCPBuffer: -1}} {
		if s, err := New(c); err == nil {
			s.Close()
			t.Errorf("New(%+v) succeeded", c)
		}
	}
}

func TestSetAddresses(t *testing.T) {
	a, b := wire(t, Config{}, Config{})
	ctx := testContext(t)
	other4, other6 := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")
	conn, err := b.ListenUDP(netip.AddrPortFrom(addrB4, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i, addrs := range [][]netip.Addr{{addrB4, other4, other6}, {addrB4}, {other6, addrB4, addrB4, netip.MustParseAddr("::ffff:192.0.2.7")}} {
		if err := b.SetAddresses(addrs); err != nil {
			t.Fatal(err)
		}
		for _, addr := range []netip.Addr{addrB4, addrB6, other4, other6} {
			owned := slices.Contains(b.Addresses(), addr)
			probe, cancel := ctx, context.CancelFunc(func() {})
			if !owned {
				probe, cancel = context.WithTimeout(ctx, 20*time.Millisecond)
			}
			if _, err := a.Ping(probe, addr, 8, true); (err == nil) != owned {
				t.Errorf("step %d: ping %v: %v; owned: %v", i, addr, err, owned)
			}
			cancel()
		}
	}
	// The socket of an address that stayed all the time still works.
	client, err := a.DialUDP(netip.AddrPort{}, netip.AddrPortFrom(addrB4, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, _, err := conn.ReadFrom(make([]byte, 9)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for _, bad := range []string{"0.0.0.0", "::", "127.0.0.1", "::1", "224.0.0.1", "ff02::1", "fe80::1%eth0"} {
		if err := b.SetAddresses([]netip.Addr{netip.MustParseAddr(bad)}); err == nil {
			t.Errorf("SetAddresses(%s) succeeded", bad)
		}
	}
	if err := b.SetAddresses([]netip.Addr{{}}); err == nil {
		t.Error("SetAddresses of the zero Addr succeeded")
	}
}

func TestSetAddressesIsQuiet(t *testing.T) {
	s := newStack(t, Config{}, addrA4, addrA6)
	if err := s.SetAddresses(nil); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().Emitted; n != 0 {
		t.Errorf("%d packets emitted by setting addresses", n)
	}
}

func TestForwardsNothing(t *testing.T) {
	s := newStack(t, Config{}, addrA4, addrA6)
	run(t, s, func(pkt []byte) {
		if isICMP(pkt) && header.IPVersion(pkt) == 4 { // the answer to the marker below
			return
		}
		t.Errorf("came out: %x", pkt)
	})
	replied := make(chan struct{})
	stop := s.ObserveICMP(func([]byte) { close(replied) })
	defer stop()
	s.Inject(udpPacket(addrB4, netip.MustParseAddr("10.9.9.9"), 100))
	s.Inject(udpPacket(addrB6, netip.MustParseAddr("fd09::9"), 100))
	s.Inject(echoPacket(addrB4, addrA4, 1, 1)) // the queue is in order: all before it has been handled
	<-replied
}

func TestQueueIsBounded(t *testing.T) {
	s := newStack(t, Config{QueueBytes: 1}, addrA4) // becomes one largest packet
	if s.Inject(make([]byte, 70_000)) {
		t.Error("a packet longer than IP allows was accepted")
	}
	for range 1000 {
		s.Inject(echoPacket(addrB4, addrA4, 1, 1000))
		s.SendPacket(echoPacket(addrA4, addrB4, 1, 1000))
	}
	st := s.Stats()
	if st.Injected > 64 || st.Injected < 32 || st.Injected+st.InjectDropped != 1001 || st.Emitted+st.EmitDropped != 1000 {
		t.Errorf("%+v", st)
	}
}

func TestRunTwice(t *testing.T) {
	s := newStack(t, Config{}, addrA4)
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan []byte, 1)
	done := make(chan error, 1)
	start := func() {
		go func() { done <- s.Run(ctx, func(pkt []byte) { got <- bytes.Clone(pkt) }) }()
	}
	start()
	s.SendPacket([]byte("first"))
	if p := <-got; string(p) != "first" {
		t.Errorf("%q", p)
	}
	if err := s.Run(ctx, nil); !errors.Is(err, ErrRunning) {
		t.Errorf("second Run: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx = context.Background()
	start()
	s.SendPacket([]byte("second"))
	if p := <-got; string(p) != "second" {
		t.Errorf("%q", p)
	}
	s.Close() // ends Run as well
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s.Inject([]byte("x")) || s.SendPacket([]byte("x")) {
		t.Error("a closed stack took a packet")
	}
}

// Connections in every state must not keep Close waiting.
func TestCloseWithConnections(t *testing.T) {
	a, b := newStack(t, Config{}, addrA4), newStack(t, Config{}, addrB4)
	toNobody := make(chan struct{}, 16)
	run(t, a, func(pkt []byte) {
		if _, dst, _ := fields(pkt); dst != addrB4 {
			toNobody <- struct{}{}
		}
		b.Inject(pkt)
	})
	run(t, b, func(pkt []byte) { a.Inject(pkt) })
	l, err := b.ListenTCP(netip.AddrPortFrom(addrB4, 80))
	if err != nil {
		t.Fatal(err)
	}
	pc, err := b.ListenUDP(netip.AddrPortFrom(addrB4, 80))
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	for i := range 6 {
		c, err := a.DialContext(ctx, "tcp", addrB4.String()+":80")
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			c.Close()
		}
		if i%3 == 0 {
			s, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				s.Close()
			}
		}
	}
	b.Inject(synPacket(netip.MustParseAddr("10.8.8.8"), addrB4, 4444, 80)) // stays half open
	connect := make(chan error, 1)
	go func() {
		_, err := a.DialContext(ctx, "tcp", "10.9.9.9:1") // nobody answers
		connect <- err
	}()
	<-toNobody
	read := make(chan error, 1)
	go func() { _, _, err := pc.ReadFrom(make([]byte, 1)); read <- err }()
	b.Close()
	a.Close()
	if err := <-connect; err == nil {
		t.Error("connected to nobody")
	}
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Errorf("ReadFrom of a closed stack: %v", err)
	}
	for {
		if _, err := l.Accept(); errors.Is(err, net.ErrClosed) {
			break
		} else if err != nil {
			t.Errorf("Accept of a closed stack: %v", err)
			break
		}
	}
}

// setMTU changes the MTU alone.
func setMTU(s *Stack, mtu int) error {
	c, err := s.Prepare(mtu, s.Addresses())
	if err == nil {
		c.Commit()
	}
	return err
}

// What was prepared and is not wanted any more leaves no trace, nor does what failed.
func TestPrepareAndCancel(t *testing.T) {
	s := newStack(t, Config{MTU: 1400})
	old, next := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	if err := s.SetAddresses([]netip.Addr{old}); err != nil {
		t.Fatal(err)
	}
	c, err := s.Prepare(1300, []netip.Addr{next})
	if err != nil {
		t.Fatal(err)
	}
	c.Cancel()
	if _, err := s.Prepare(1300, []netip.Addr{next, netip.MustParseAddr("127.0.0.1")}); err == nil {
		t.Error("a loopback address was taken")
	}
	if got := s.Addresses(); !slices.Equal(got, []netip.Addr{old}) {
		t.Errorf("addresses %v, want %v", got, old)
	}
	if c, err = s.Prepare(1300, []netip.Addr{next}); err != nil {
		t.Fatal(err)
	}
	c.Commit()
	if got := s.Addresses(); !slices.Equal(got, []netip.Addr{next}) {
		t.Errorf("addresses %v, want %v", got, next)
	}
}

func TestSetMTU(t *testing.T) {
	s := newStack(t, Config{MTU: 1500}, addrA4)
	sizes := make(chan int, 16)
	run(t, s, func(pkt []byte) { sizes <- len(pkt) })
	conn, err := s.DialUDP(netip.AddrPort{}, netip.AddrPortFrom(addrB4, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, mtu := range []int{1500, 1340, 1400} {
		if err := setMTU(s, mtu); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(make([]byte, 1500-28)); err != nil {
			t.Fatal(err)
		}
		first := <-sizes
		if mtu != 1500 {
			<-sizes // the second fragment
		}
		if first > mtu || first < mtu-7 { // fragments are cut at multiples of 8
			t.Errorf("mtu %d: packet of %d bytes", mtu, first)
		}
	}
	for _, bad := range []int{-1, 0, 575, 65536} {
		if err := setMTU(s, bad); err == nil {
			t.Errorf("MTU %d succeeded", bad)
		}
	}
}

// Nobody outside may speak as one of our addresses.
func TestOwnSourceFromOutsideIsDropped(t *testing.T) {
	s := newStack(t, Config{}, addrA4, addrB4, addrA6, addrB6)
	for _, pkt := range [][]byte{
		echoPacket(addrA4, addrA4, 1, 10), echoPacket(addrB4, addrA4, 1, 10),
		echoPacket(addrA6, addrA6, 1, 10), echoPacket(addrB6, addrA6, 1, 10),
		synPacket(addrB4, addrA4, 80, 80),
	} {
		s.receive(pkt)
	}
	if n := s.Stats().Emitted; n != 0 {
		t.Errorf("%d packets came out", n)
	}
	if n := s.stack.Stats().ICMP.V4.PacketsSent.EchoReply.Value() + s.stack.Stats().ICMP.V6.PacketsSent.EchoReply.Value(); n != 0 {
		t.Errorf("%d echo replies", n)
	}
}
