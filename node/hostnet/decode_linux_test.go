package hostnet

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FuzzDecode reads anything as a message of every kind, as a kernel newer than
// us may send it.
func FuzzDecode(f *testing.F) {
	l := tunnel(KindVXLAN, 1)
	for _, seed := range [][]byte{
		nil, {1, 2, 3},
		addLinkMessage(l).Data, setLinkMessages(3, setLink{want: l, mac: true})[0].Data, setLinkMessages(3, setLink{want: l, mac: true})[1].Data, noLinkLocalMessage(3).Data,
		addressMessage(unix.RTM_NEWADDR, 0, 3, l.addresses()[1]).Data,
		routeMessage(unix.RTM_NEWROUTE, 0, 3, l.routes()[1]).Data,
		addRuleMessage(Rule{Priority: 600}).Data,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = decodeLink(b)
		_, _ = decodeAddress(b)
		if _, _, err := decodeRoute(b); err == nil {
			_ = routeRequest(b)
		}
		_, _, _ = decodeRule(b)
		_, _, _ = decodeOtherRule(b)
		_, _ = decodeNeighbor(b, time.Time{})
	})
}

// What we ask for is what we read back.
func TestDecodeOwnMessages(t *testing.T) {
	for _, kind := range []Kind{KindGeneve, KindVXLAN} {
		for _, gateway := range []string{"192.0.2.1", "2001:db8::1"} {
			l := tunnel(kind, 1)
			l.Gateway = addr(gateway)
			have, name, err := decodeLink(addLinkMessage(l).Data)
			if why := misfit(&l, &have); err != nil || name != string(kind) || why != "" || have.Name != l.Name {
				t.Errorf("%s to %s: %+v, %s, %v", kind, gateway, have, why, err)
			}
			if changes := differences(&l, &have); len(changes) != 1 { // the alias
				t.Errorf("%s to %s: differs in %q", kind, gateway, changes)
			}
		}
	}
	for _, l := range []Link{tunnel(KindVXLAN, 1), tunnel(KindTUN, 2)} {
		for _, r := range l.routes() {
			have, table, err := decodeRoute(routeMessage(unix.RTM_NEWROUTE, 0, 3, r).Data)
			have.Device = l.Name
			if err != nil || table != Table || !have.same(r) {
				t.Errorf("route %v became %v, table %d, %v", r, have, table, err)
			}
		}
		for _, p := range l.addresses() {
			have, err := decodeAddress(addressMessage(unix.RTM_NEWADDR, 0, 3, p).Data)
			if err != nil || have != (linkAddress{3, p, p.Masked()}) {
				t.Errorf("address %v became %v, %v", p, have, err)
			}
		}
	}
	for _, r := range []Rule{{Priority: 600}, {IPv6: true, Priority: 1}} {
		have, ours, err := decodeRule(addRuleMessage(r).Data)
		have.message = ""
		if err != nil || !ours || have != r {
			t.Errorf("rule %v became %v, %t, %v", r, have, ours, err)
		}
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	b := addLinkMessage(tunnel(KindGeneve, 1)).Data
	if allocs := testing.AllocsPerRun(100, func() {
		_ = decode(b, unix.SizeofIfInfomsg, func(a attribute) { a.each(func(attribute) {}) })
	}); allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

func TestDecodeTruncated(t *testing.T) {
	b := addLinkMessage(tunnel(KindGeneve, 1)).Data
	if _, _, err := decodeLink(b[:10]); err == nil {
		t.Error("half a header was decoded")
	}
	binary.NativeEndian.PutUint16(b[unix.SizeofIfInfomsg:], 60000)
	if _, _, err := decodeLink(b); err == nil {
		t.Error("an attribute longer than its message was decoded")
	}
}
