package underlay

import (
	"net/netip"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestSockaddr(t *testing.T) {
	in4 := func(b string) string { return "\x02\x00" + b } // AF_INET is 2, little or big: only the bytes behind are compared
	in6 := func(b string) string { return "\x0a\x00" + b } // AF_INET6 is 10
	tests := []struct {
		name     string
		addr     string
		ipv4Only bool
		bytes    string // sockaddr as in ip(7) and ipv6(7)
		back     string // "" = addr
	}{
		{"IPv4 on an IPv4 socket", "192.0.2.1:6091", true, in4("\x17\xcb\xc0\x00\x02\x01"), ""},
		{"mapped IPv4 on an IPv4 socket", "[::ffff:192.0.2.1]:6091", true, in4("\x17\xcb\xc0\x00\x02\x01"), "192.0.2.1:6091"},
		{"IPv4 on a dual stack socket", "192.0.2.1:6091", false, in6("\x17\xcb\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01"), ""},
		{"IPv6", "[2001:db8::1]:51820", false, in6("\xca\x6c\x00\x00\x00\x00" + "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"), ""},
		{"IPv6 on an IPv4 socket, for the kernel to refuse", "[2001:db8::1]:1", true, in6("\x00\x01\x00\x00\x00\x00" + "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			addr, back := netip.MustParseAddrPort(tt.addr), netip.MustParseAddrPort(tt.addr)
			if tt.back != "" {
				back = netip.MustParseAddrPort(tt.back)
			}
			s := sockaddr{Flowinfo: 0xdeadbeef, Scope_id: 0xdeadbeef} // dirty: as left by another datagram
			var z zone
			n := putSockaddr(&s, addr, tt.ipv4Only, &z)
			raw := unsafe.Slice((*byte)(unsafe.Pointer(&s)), nameLen)[:n]
			if got := string(raw[2:len(tt.bytes)]); got != tt.bytes[2:] {
				t.Errorf("sockaddr % x, want % x", got, tt.bytes[2:])
			}
			if got := addrPort(&s, &z); got != back {
				t.Errorf("read back as %v, want %v", got, back)
			}
		})
	}
}

func TestSockaddrOfNothingIsRefusedNotGuessed(t *testing.T) {
	var s sockaddr
	var z zone
	if n := putSockaddr(&s, netip.AddrPort{}, true, &z); n != unix.SizeofSockaddrInet6 || s.Family != unix.AF_INET6 {
		t.Errorf("the zero address became family %d, %d bytes: an IPv4 socket would accept it", s.Family, n)
	}
	s = sockaddr{Family: unix.AF_UNIX}
	if got := addrPort(&s, &z); got.IsValid() {
		t.Errorf("a sockaddr of another family was read as %v", got)
	}
}

func TestZones(t *testing.T) {
	var out, in zone
	var s sockaddr
	for _, name := range []string{"lo", "1", "lo"} { // lo has index 1 in every namespace
		addr := netip.MustParseAddrPort("[fe80::1%" + name + "]:9")
		putSockaddr(&s, addr, false, &out)
		if s.Scope_id != 1 {
			t.Errorf("zone %q became %d, want 1", name, s.Scope_id)
		}
		if got, want := addrPort(&s, &in), netip.MustParseAddrPort("[fe80::1%lo]:9"); got != want {
			t.Errorf("zone %q read back as %v, want %v", name, got, want)
		}
	}
	putSockaddr(&s, netip.MustParseAddrPort("[fe80::1%nosuch]:9"), false, &out)
	if s.Scope_id != 0 {
		t.Errorf("an unknown zone became %d, want 0", s.Scope_id)
	}
	s.Scope_id = 1 << 30
	if got, want := addrPort(&s, &in).Addr().Zone(), "1073741824"; got != want {
		t.Errorf("a zone without an interface is %q, want %q", got, want)
	}
}
