package netstack

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

func TestPing(t *testing.T) {
	a, _ := wire(t, Config{MTU: 1500}, Config{MTU: 1340})
	tests := []struct {
		name         string
		dst          netip.Addr
		size         int
		dontFragment bool
		want         error
	}{
		{"IPv4", addrB4, 56, false, nil},
		{"IPv6", addrB6, 56, false, nil},
		{"mapped IPv4", netip.AddrFrom16(addrB4.As16()), 56, false, nil},
		{"no payload", addrB4, 0, true, nil},
		{"no payload IPv6", addrB6, 0, true, nil},
		{"largest at the MTU", addrB4, 1500 - 28, true, nil},
		{"largest at the MTU IPv6", addrB6, 1500 - 48, true, nil},
		{"above the MTU", addrB4, 1500 - 28 + 1, true, syscall.EMSGSIZE},
		{"above the MTU IPv6", addrB6, 1500 - 48 + 1, true, syscall.EMSGSIZE},
		{"fragments", addrB4, 1500 - 28 + 1, false, nil},
		{"fragments IPv6", addrB6, 1500 - 48 + 1, false, nil},
		{"many fragments", addrB4, 9000, false, nil},
		{"many fragments IPv6", addrB6, 9000, false, nil},
		{"largest there is", addrB4, 65535 - 28, false, nil},
		{"more than there is", addrB4, 65535 - 27, false, syscall.EMSGSIZE},
		{"negative", addrB4, -1, false, syscall.EMSGSIZE},
		{"no address", netip.Addr{}, 1, false, syscall.EMSGSIZE},
	}
	ctx := testContext(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rtt, err := a.Ping(ctx, tt.dst, tt.size, tt.dontFragment)
			if !errors.Is(err, tt.want) || err == nil && rtt <= 0 {
				t.Errorf("%v, %v; want error %v", rtt, err, tt.want)
			}
		})
	}
	lost, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if _, err := a.Ping(lost, netip.MustParseAddr("10.9.9.9"), 1, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody there: %v", err)
	}
}

func TestPingWhole(t *testing.T) {
	const mtu, path = 1340, 1400
	a, b := newStack(t, Config{MTU: mtu}, addrA4), newStack(t, Config{MTU: mtu}, addrB4)
	var largest, returned atomic.Int64
	lost := make(chan struct{}, 1)
	run(t, a, func(pkt []byte) {
		largest.Store(max(largest.Load(), int64(len(pkt))))
		if len(pkt) > path {
			lost <- struct{}{}
			return
		}
		b.Inject(pkt)
	})
	run(t, b, func(pkt []byte) {
		returned.Store(max(returned.Load(), int64(len(pkt))))
		a.Inject(pkt)
	})
	ctx := testContext(t)
	for _, tt := range []struct {
		name string
		dst  netip.Addr
		size int
		want error
	}{
		{"headers only", addrB4, 28, nil},
		{"the MTU", addrB4, mtu, nil},
		{"above the MTU", addrB4, path, nil},
		{"more than the path takes", addrB4, path + 1, context.Canceled},
		{"less than the headers", addrB4, 27, syscall.EMSGSIZE},
		{"more than there is", addrB4, 65536, syscall.EMSGSIZE},
		{"IPv6", addrB6, 1340, syscall.EMSGSIZE},
	} {
		t.Run(tt.name, func(t *testing.T) {
			largest.Store(0)
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if tt.want == context.Canceled {
				go func() {
					<-lost
					cancel()
				}()
			}
			rtt, err := a.PingWhole(ctx, netip.Addr{}, tt.dst, tt.size)
			if !errors.Is(err, tt.want) || err == nil && rtt <= 0 {
				t.Errorf("%v, %v; want error %v", rtt, err, tt.want)
			}
			if got := int(largest.Load()); tt.want != syscall.EMSGSIZE && got != tt.size {
				t.Errorf("the largest packet had %d bytes, want %d", got, tt.size)
			}
		})
	}
	if got := returned.Load(); got > mtu {
		t.Errorf("an answer of %d bytes exceeds the MTU of its sender", got)
	}
}

func TestPingManyAtOnce(t *testing.T) {
	a, _ := wire(t, Config{}, Config{})
	ctx := testContext(t)
	errs := make(chan error, 50)
	for i := range cap(errs) {
		go func() {
			_, err := a.Ping(ctx, addrB4, i, true)
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// router answers what its MTU or a TTL does not let pass, and gives the rest
// to next with the TTL decremented, as a chain of hops would.
type router struct {
	hops []netip.Addr // the zero Addr is a router that answers nothing
	mtu  int          // 0: no limit
	back func(pkt []byte)
	next func(pkt []byte)
}

func (r router) forward(pkt []byte) {
	src, dst, ttl := fields(pkt)
	if r.mtu > 0 && len(pkt) > r.mtu {
		r.tooBig(pkt, src)
		return
	}
	if ttl <= len(r.hops) {
		typ := uint8(header.ICMPv4TimeExceeded)
		if dst.Is6() {
			typ = uint8(header.ICMPv6TimeExceeded)
		}
		if hop := r.hops[ttl-1]; hop.IsValid() {
			r.back(icmpPacket(hop, src, typ, 0, append(make([]byte, 4), pkt...)))
		}
		return
	}
	r.next(pkt)
}

func (r router) tooBig(pkt []byte, src netip.Addr) {
	typ, code, mtu := uint8(header.ICMPv4DstUnreachable), uint8(header.ICMPv4FragmentationNeeded), make([]byte, 4)
	if src.Is6() {
		typ, code = uint8(header.ICMPv6PacketTooBig), 0
	}
	binary.BigEndian.PutUint32(mtu, uint32(r.mtu)) // IPv4 keeps it in the low half
	r.back(icmpPacket(r.hops[0], src, typ, code, append(mtu, pkt[:min(len(pkt), 500)]...)))
}

func fields(pkt []byte) (src, dst netip.Addr, ttl int) {
	if header.IPVersion(pkt) == 4 {
		ip := header.IPv4(pkt)
		return fromAddress(ip.SourceAddress()), fromAddress(ip.DestinationAddress()), int(ip.TTL())
	}
	ip := header.IPv6(pkt)
	return fromAddress(ip.SourceAddress()), fromAddress(ip.DestinationAddress()), int(ip.HopLimit())
}

// routed returns a stack behind routers with these addresses in front of b.
func routed(t *testing.T, hops []netip.Addr, mtu int) *Stack {
	t.Helper()
	a, b := newStack(t, Config{MTU: 1500}, addrA4, addrA6), newStack(t, Config{MTU: 1500}, addrB4, addrB6)
	r := router{hops: hops, mtu: mtu, back: func(pkt []byte) { a.Inject(pkt) }, next: func(pkt []byte) { b.Inject(pkt) }}
	run(t, a, r.forward)
	run(t, b, func(pkt []byte) { a.Inject(pkt) })
	return a
}

func TestTrace(t *testing.T) {
	r4 := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")}
	r6 := []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	tests := []struct {
		name    string
		dst     netip.Addr
		routers []netip.Addr
		maxHops int
		want    []netip.Addr
	}{
		{"IPv4", addrB4, r4, 30, append(r4[:3:3], addrB4)},
		{"IPv6", addrB6, r6, 30, append(r6[:2:2], addrB6)},
		{"next to us", addrB4, nil, 30, []netip.Addr{addrB4}},
		{"stopped early", addrB4, r4, 2, r4[:2]},
		{"no hops", addrB4, r4, 0, nil},
		{"a silent router", addrB4, []netip.Addr{r4[0], {}, r4[2]}, 30, []netip.Addr{r4[0], {}, r4[2], addrB4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			hops, err := routed(t, tt.routers, 0).Trace(testContext(t), tt.dst, tt.maxHops)
			if err != nil {
				t.Fatal(err)
			}
			var got []netip.Addr
			for i, h := range hops {
				got = append(got, h.Addr)
				if h.TTL != i+1 || h.Reached != (h.Addr == tt.dst) || h.Addr.IsValid() != (h.RTT > 0) {
					t.Errorf("hop %d: %+v", i, h)
				}
			}
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("hops (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTraceEnds(t *testing.T) {
	t.Run("by an ICMP error", func(t *testing.T) {
		hop := netip.MustParseAddr("10.0.0.1")
		a := newStack(t, Config{MTU: 1500}, addrA4)
		run(t, a, func(pkt []byte) {
			a.Inject(icmpPacket(hop, addrA4, uint8(header.ICMPv4DstUnreachable), uint8(header.ICMPv4HostUnreachable), append(make([]byte, 4), pkt...)))
		})
		hops, err := a.Trace(testContext(t), addrB4, 30)
		var e *ICMPError
		if !errors.As(err, &e) || *e != (ICMPError{From: hop, Type: 3, Code: 1}) || len(hops) != 1 || hops[0].Addr != hop || hops[0].Reached {
			t.Errorf("%v, %v", hops, err)
		}
	})
	t.Run("by its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		a := newStack(t, Config{MTU: 1500}, addrA4)
		run(t, a, func([]byte) { cancel() })
		if hops, err := a.Trace(ctx, addrB4, 30); !errors.Is(err, context.Canceled) || len(hops) != 0 {
			t.Errorf("%v, %v", hops, err)
		}
	})
	t.Run("by Close", func(t *testing.T) {
		a := newStack(t, Config{MTU: 1500}, addrA4)
		run(t, a, func([]byte) { a.Close() })
		if _, err := a.Trace(testContext(t), addrB4, 30); err == nil {
			t.Error("no error")
		}
		if _, err := a.Ping(testContext(t), addrB4, 30, false); err == nil {
			t.Error("no error")
		}
	})
}

func TestPingIsToldOfErrors(t *testing.T) {
	hop4, hop6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	tests := []struct {
		name string
		hop  netip.Addr
		dst  netip.Addr
		want ICMPError
	}{
		{"Fragmentation Needed", hop4, addrB4, ICMPError{From: hop4, Type: 3, Code: 4, MTU: 1340}},
		{"Packet Too Big", hop6, addrB6, ICMPError{From: hop6, Type: 2, Code: 0, MTU: 1340}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := routed(t, []netip.Addr{tt.hop}, 1340)
			ctx := testContext(t)
			headers := 28
			if tt.dst.Is6() {
				headers = 48
			}
			if _, err := a.Ping(ctx, tt.dst, 1340-headers, true); err != nil {
				t.Errorf("at the MTU: %v", err)
			}
			_, err := a.Ping(ctx, tt.dst, 1341-headers, true)
			var e *ICMPError
			if !errors.As(err, &e) || *e != tt.want || !e.TooBig() {
				t.Errorf("above the MTU: %v, want %+v", err, tt.want)
			}
		})
	}
}

func TestParseICMPErrorRefuses(t *testing.T) {
	good4 := icmpPacket(addrB4, addrA4, 11, 0, append(make([]byte, 4), udpPacket(addrA4, addrB4, 20)...))
	good6 := icmpPacket(addrB6, addrA6, 3, 0, append(make([]byte, 4), udpPacket(addrA6, addrB6, 20)...))
	for _, good := range [][]byte{good4, good6} {
		e, q, ok := parseICMPError(good)
		if !ok || !e.TimeExceeded() || binary.BigEndian.Uint16(q.head[2:]) != 2000 {
			t.Fatalf("%+v %+v %v", e, q, ok)
		}
		for n := range len(good) {
			if _, _, ok := parseICMPError(good[:n]); ok {
				t.Errorf("accepted when cut to %d of %d bytes", n, len(good))
			}
		}
		// A bit flipped anywhere but in the IPv6 header's unprotected fields
		// breaks a checksum.
		for i := range good {
			if header.IPVersion(good) == 6 && i < 8 {
				continue
			}
			bad := append([]byte(nil), good...)
			bad[i] ^= 0x10
			if _, _, ok := parseICMPError(bad); ok {
				t.Errorf("IPv%d accepted with byte %d changed", header.IPVersion(good), i)
			}
		}
	}
	if _, _, ok := parseICMPError(echoPacket(addrB4, addrA4, 1, 100)); ok {
		t.Error("an echo request is no error")
	}
	if _, _, ok := parseICMPError(echoPacket(addrB6, addrA6, 1, 100)); ok {
		t.Error("an echo request is no error")
	}
}
