package dropped_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/dataplane/dropped"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
)

func TestSetIP(t *testing.T) {
	from, to := netip.MustParseAddrPort("10.243.1.1:1000"), netip.MustParseAddrPort("10.71.1.1:80")
	from6, to6 := netip.MustParseAddrPort("[fd00::1]:1000"), netip.MustParseAddrPort("[fd01::1]:80")
	syn := dataplanetest.Build(dataplanetest.Packet{Proto: packet.ProtoTCP, Src: from, Dst: to, TCPFlags: packet.TCPSyn, Payload: []byte("secret")})
	udp6 := dataplanetest.Build(dataplanetest.Packet{Src: from6, Dst: to6, Payload: []byte("secret")})
	echo := dataplanetest.Build(dataplanetest.Packet{Proto: packet.ProtoICMP, ICMPType: 8, Src: netip.AddrPortFrom(from.Addr(), 7), Dst: netip.AddrPortFrom(to.Addr(), 0)})
	for name, tt := range map[string]struct {
		b    []byte
		want dropped.Packet
	}{
		"TCP":     {append(syn, 0, 0), dropped.Packet{Source: from.Addr(), Destination: to.Addr(), Protocol: 6, SourcePort: 1000, DestinationPort: 80, TCPFlags: packet.TCPSyn, Length: 46}},
		"UDP6":    {udp6, dropped.Packet{Source: from6.Addr(), Destination: to6.Addr(), Protocol: 17, SourcePort: 1000, DestinationPort: 80, Length: 54}},
		"echo":    {echo, dropped.Packet{Source: from.Addr(), Destination: to.Addr(), Protocol: 1, SourcePort: 7, DestinationPort: 7, Length: 28}},
		"cut off": {syn[:22], dropped.Packet{Source: from.Addr(), Destination: to.Addr(), Protocol: 6, Length: 22}},
		"cut 6":   {udp6[:40], dropped.Packet{Source: from6.Addr(), Destination: to6.Addr(), Protocol: 17, Length: 40}},
		"shorter": {syn[:19], dropped.Packet{Length: 19}},
		"no IP":   {[]byte("what strangers send is anything at all"), dropped.Packet{Length: 38}},
		"nothing": {nil, dropped.Packet{}},
	} {
		var got dropped.Packet
		got.SetIP(tt.b)
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
