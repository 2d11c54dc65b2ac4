package underlay

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sockaddr is room for a struct sockaddr_in or sockaddr_in6.
type sockaddr = unix.RawSockaddrInet6

// zone is a link-local zone in both of its forms. The two ends of a socket keep the last one
// they saw, because package net's own lookup costs a netlink dump.
type zone struct {
	index uint32
	name  string
}

// putSockaddr writes a into s, for a socket of AF_INET or of AF_INET6, and returns
// the length the kernel wants. An address of the wrong family or the
// zero address is written as it is: the kernel refuses it with the proper error.
func putSockaddr(s *sockaddr, a netip.AddrPort, ipv4Only bool, z *zone) uint32 {
	ip := a.Addr()
	if ipv4Only && (ip.Is4() || ip.Is4In6()) {
		s4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(s))
		s4.Family, s4.Addr = unix.AF_INET, ip.Unmap().As4()
		putPort(&s4.Port, a.Port())
		return unix.SizeofSockaddrInet4
	}
	*s = sockaddr{Family: unix.AF_INET6}
	putPort(&s.Port, a.Port())
	if ip.IsValid() {
		s.Addr = ip.As16() // IPv4 becomes ::ffff:a.b.c.d
	}
	if name := ip.Zone(); name != "" {
		s.Scope_id = z.byName(name)
	}
	return unix.SizeofSockaddrInet6
}

// addrPort reads what the kernel wrote into s. Anything but IPv4 and IPv6, which
// the kernel has no reason to write, is the zero value.
func addrPort(s *sockaddr, z *zone) netip.AddrPort {
	switch s.Family {
	case unix.AF_INET:
		s4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(s))
		return netip.AddrPortFrom(netip.AddrFrom4(s4.Addr), port(&s4.Port))
	case unix.AF_INET6:
		ip := netip.AddrFrom16(s.Addr).Unmap()
		if s.Scope_id != 0 && ip.Is6() {
			ip = ip.WithZone(z.byIndex(s.Scope_id))
		}
		return netip.AddrPortFrom(ip, port(&s.Port))
	}
	return netip.AddrPort{}
}

// The port lies in network order in a field that Go sees as a number.

func putPort(p *uint16, v uint16) {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(p))[:], v)
}

func port(p *uint16) uint16 {
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(p))[:])
}

// byName is the interface index of a zone, 0 when there is none: the kernel then refuses
// a link-local address.
func (z *zone) byName(name string) uint32 {
	if z.name == name {
		return z.index
	}
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n)
	}
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return 0
	}
	*z = zone{index: uint32(ifi.Index), name: name}
	return z.index
}

// byIndex is the name of a zone, its number when the interface is gone.
func (z *zone) byIndex(index uint32) string {
	if z.index == index {
		return z.name
	}
	name := strconv.FormatUint(uint64(index), 10)
	if ifi, err := net.InterfaceByIndex(int(index)); err == nil {
		name = ifi.Name
	}
	*z = zone{index: index, name: name}
	return name
}
