package neighbor_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/nat/packet"
)

var byValue = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestARPAnswer(t *testing.T) {
	asker, own := neighbor.MAC{2, 0, 0, 0, 0, 1}, neighbor.MAC{2, 0, 0, 0, 0, 2}
	a, b := netip.MustParseAddr("10.80.0.11"), netip.MustParseAddr("10.80.0.1")
	got := neighbor.ARP{Op: neighbor.ARPRequest, SenderMAC: asker, SenderIP: a, TargetIP: b}.Answer(own)
	want := neighbor.ARP{Op: neighbor.ARPReply, SenderMAC: own, SenderIP: b, TargetMAC: asker, TargetIP: a}
	if diff := cmp.Diff(want, got, byValue); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestSolicitationAnswer(t *testing.T) {
	asker, own := neighbor.MAC{2, 0, 0, 0, 0, 1}, neighbor.MAC{2, 0, 0, 0, 0, 2}
	a, b := netip.MustParseAddr("fd00:80::11"), netip.MustParseAddr("fd00:80::1")
	want := neighbor.Advertisement{Src: b, Dst: a, Target: b, TargetMAC: own, Router: true, Solicited: true, Override: true}
	dst, got := neighbor.Solicitation{Src: a, Dst: neighbor.SolicitedNode(b), Target: b, SourceMAC: asker}.Answer(own, asker)
	if diff := cmp.Diff(want, got, byValue); diff != "" || dst != asker {
		t.Errorf("to %s (-want +got)\n%s", dst, diff)
	}
	// Duplicate address detection: nobody in particular asks.
	want.Dst, want.Solicited = netip.MustParseAddr("ff02::1"), false
	dst, got = neighbor.Solicitation{Src: netip.IPv6Unspecified(), Dst: neighbor.SolicitedNode(b), Target: b}.Answer(own, asker)
	if diff := cmp.Diff(want, got, byValue); diff != "" || dst != (neighbor.MAC{0x33, 0x33, 0, 0, 0, 1}) {
		t.Errorf("to %s (-want +got)\n%s", dst, diff)
	}
}

func TestRequest(t *testing.T) {
	own := neighbor.MAC{2, 0, 0, 0, 0, 2}
	r := neighbor.Request{Src: netip.MustParseAddr("10.80.0.1"), Target: netip.MustParseAddr("10.80.0.11"), MAC: own}
	dst, etherType, length := r.Frame()
	a, ok := neighbor.DecodeARP(r.Append(nil))
	if !ok || a.Op != neighbor.ARPRequest || a.SenderIP != r.Src || a.TargetIP != r.Target || a.SenderMAC != own ||
		dst != neighbor.Broadcast || etherType != neighbor.EtherTypeARP || length != len(r.Append(nil)) {
		t.Errorf("%+v to %s as %#x, %d bytes", a, dst, etherType, length)
	}
	r = neighbor.Request{Src: netip.MustParseAddr("fd00:80::1"), Target: netip.MustParseAddr("fd00:80::11"), MAC: own}
	dst, etherType, length = r.Frame()
	p, _ := packet.Parse(r.Append(nil))
	ns, ok := neighbor.DecodeSolicitation(p)
	if !ok || ns.Src != r.Src || ns.Target != r.Target || ns.SourceMAC != own ||
		dst != (neighbor.MAC{0x33, 0x33, 0xff, 0, 0, 0x11}) || etherType != neighbor.EtherTypeIPv6 || length != len(p.Bytes) {
		t.Errorf("%+v to %s as %#x, %d bytes", ns, dst, etherType, length)
	}
}

func TestBackoff(t *testing.T) {
	var b neighbor.Backoff
	var probes []int
	for s := range 100 {
		if now := int64(s) * int64(time.Second); b.Due(now) {
			b.Probed(now)
			probes = append(probes, s)
		}
	}
	if diff := cmp.Diff([]int{0, 1, 3, 7, 15, 31, 63, 95}, probes); diff != "" {
		t.Errorf("probed in these seconds (-want +got)\n%s", diff)
	}
}
