package hostnet

import (
	"strings"
	"testing"
)

func TestAlias(t *testing.T) {
	longest := with(func(l *Link) {
		l.Owner, l.VNI, l.Port = strings.Repeat("o", MaxOwner), 1<<24-1, 65535
		l.Gateway = addr("fdff:ffff:ffff:ffff:ffff:ffff:ffff:fffe")
	})
	if err := longest.check(); err != nil {
		t.Error(err)
	}
	for _, l := range []Link{milan(), longest, with(func(l *Link) { l.VNI = 0 })} {
		l.Kind = KindTUN
		have := ActualLink{Kind: KindTUN, Alias: l.alias()}
		have.decodeAlias()
		if have.Owner() != l.Owner || have.VNI != l.VNI || have.Gateway != l.Gateway || have.Port != l.Port || len(have.Alias) > 255 {
			t.Errorf("%q became %+v", l.alias(), have)
		}
	}
	longest.Owner += "o"
	if err := longest.check(); err == nil {
		t.Error("an owner that is too long for an alias is possible")
	}
}

// A Geneve link that was Liqo's says which MAC address it keeps.
func TestAliasWithMAC(t *testing.T) {
	const right = "sluice: InternalFabric t/milan (MAC 4a:1b:00:5e:10:07)"
	l := with(func(l *Link) { l.MAC = MAC{0x4a, 0x1b, 0, 0x5e, 0x10, 7} })
	if l.alias() != right {
		t.Errorf("alias %q", l.alias())
	}
	for _, tt := range []struct {
		kind  Kind
		alias string
		kept  bool
	}{
		{KindGeneve, right, true},
		{KindVXLAN, right, false},
		{KindGeneve, strings.TrimPrefix(right, "s"), false},
		{KindGeneve, right + ")", false},
		{KindGeneve, right + " (MAC 4a:1b:00:5e:10:07)", false},
		{KindGeneve, strings.Replace(right, "4a", "4A", 1), false},
		{KindGeneve, strings.Replace(right, "4a", "4b", 1), false}, // a group's
		{KindGeneve, strings.Replace(right, ":07", ":07:08:09", 1), false},
		{KindGeneve, strings.Replace(right, "4a:1b:00:5e:10:07", "00:00:00:00:00:00", 1), false},
		{KindGeneve, strings.Replace(right, "4a:1b:00:5e:10:07", "4a-1b-00-5e-10-07", 1), false},
		{KindGeneve, "", false},
	} {
		have := ActualLink{Kind: tt.kind, Alias: tt.alias}
		have.decodeAlias()
		if (have.KeptMAC == l.MAC) != tt.kept || (have.KeptMAC != MAC{}) != tt.kept || tt.kept && have.Owner() != l.Owner {
			t.Errorf("%s with alias %q keeps %v, of %q", tt.kind, tt.alias, have.KeptMAC, have.Owner())
		}
	}
}

// What we have not written exactly so says nothing.
func TestAliasIsStrict(t *testing.T) {
	const right = "sluice: InternalFabric t/milan (VNI 7, gateway 10.0.0.1:6091)"
	for _, tt := range []struct {
		kind  Kind
		alias string
	}{
		{KindVXLAN, right},
		{KindTUN, strings.TrimPrefix(right, "s")},
		{KindTUN, strings.TrimSuffix(right, ")")},
		{KindTUN, right + ")"},
		{KindTUN, right + " "},
		{KindTUN, strings.Replace(right, "7", "07", 1)},
		{KindTUN, strings.Replace(right, "7", "16777216", 1)},
		{KindTUN, strings.Replace(right, "7", "-7", 1)},
		{KindTUN, strings.Replace(right, ", gateway", ",  gateway", 1)},
		{KindTUN, strings.Replace(right, "10.0.0.1:6091", "10.0.0.1", 1)},
		{KindTUN, strings.Replace(right, "10.0.0.1:6091", "10.0.0.1:0", 1)},
		{KindTUN, strings.Replace(right, "10.0.0.1:6091", "0.0.0.0:6091", 1)},
		{KindTUN, strings.Replace(right, "10.0.0.1:6091", "[::ffff:10.0.0.1]:6091", 1)},
		{KindTUN, strings.Replace(right, "10.0.0.1:6091", "[fe80::1%eth0]:6091", 1)},
		{KindTUN, strings.Replace(right, "10.0.0.1:6091", "[fd00:0::1]:6091", 1)},
		{KindTUN, "sluice: InternalFabric t/milan"},
		{KindTUN, "sluice:  (VNI "},
		{KindTUN, ""},
	} {
		l := ActualLink{Kind: tt.kind, Alias: tt.alias}
		if l.decodeAlias(); l.VNI != 0 || l.Port != 0 || l.Gateway.IsValid() {
			t.Errorf("%s with alias %q became %+v", tt.kind, tt.alias, l)
		}
	}
}
