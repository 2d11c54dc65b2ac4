package underlay

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control messages, cmsg(3): a struct cmsghdr (length including the header in
// the kernel's size_t, level, type), the data, and padding to the size of a word.

const (
	cmsgWord      = int(unsafe.Sizeof(uintptr(0)))
	cmsgHeaderLen = (unix.SizeofCmsghdr + cmsgWord - 1) &^ (cmsgWord - 1)
)

// ecnMask is the ECN field in a type of service or a traffic class (RFC 3168 section 5).
const ecnMask = 3

// control is what the control messages of one message say.
type control struct {
	segment int        // UDP_GRO or UDP_SEGMENT: the size of each datagram of a run but the last, 0: no run
	local   netip.Addr // IP_PKTINFO or IPV6_PKTINFO: our address
	ecn     uint8      // of IP_TOS or IPV6_TCLASS
}

// tellOrigin has the kernel tell with each datagram what Origin has besides the
// sender's address. A socket of AF_INET6 is told of IPv4, too: the address as an
// IPv4-mapped one, by the option for IPv6, but the type of service by that for IPv4
// (udpv6_recvmsg, net/ipv6/udp.c). None of it is vital.
func tellOrigin(fd int, ipv4Only, local bool) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
	if !ipv4Only {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1)
	}
	switch {
	case !local:
	case ipv4Only:
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	default:
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	}
}

// readControl reads the control messages in b. What it does not know it skips, and
// where b makes no sense it stops: b is the kernel's work, but a wrong length must
// still not become a wrong slice.
func readControl(b []byte) (c control) {
	for len(b) >= cmsgHeaderLen {
		length := cmsgLength(b)
		if length < uint64(cmsgHeaderLen) || length > uint64(len(b)) {
			return c
		}
		level := int32(binary.NativeEndian.Uint32(b[cmsgWord:]))
		kind := int32(binary.NativeEndian.Uint32(b[cmsgWord+4:]))
		c.take(level, kind, b[cmsgHeaderLen:length])
		b = b[min(len(b), (int(length)+cmsgWord-1)&^(cmsgWord-1)):]
	}
	return c
}

// take reads the data of one control message.
func (c *control) take(level, kind int32, data []byte) {
	switch {
	case level == unix.SOL_UDP && kind == unix.UDP_GRO && len(data) >= 4:
		if size := int32(binary.NativeEndian.Uint32(data)); size > 0 {
			c.segment = int(size)
		}
	case level == unix.SOL_IP && kind == unix.IP_TOS && len(data) >= 1:
		c.ecn = data[0] & ecnMask
	case level == unix.SOL_IPV6 && kind == unix.IPV6_TCLASS && len(data) >= 4:
		c.ecn = uint8(binary.NativeEndian.Uint32(data)) & ecnMask
	case level == unix.SOL_IP && kind == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
		// struct in_pktinfo: the interface, the address to answer from, that of the header.
		c.local = host(netip.AddrFrom4([4]byte(data[4:8])))
	case level == unix.SOL_IPV6 && kind == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
		c.local = host(netip.AddrFrom16([16]byte(data[:16])).Unmap())
	}
}

// host returns a if it can be the source of a datagram.
func host(a netip.Addr) netip.Addr {
	if a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return netip.Addr{}
	}
	return a
}

// putControl writes the control messages for a message to an address into b, and
// returns their length, 0 for none.
func putControl(b *[controlLen]byte, c control, to netip.Addr) (n int) {
	ipv4 := to.Is4() || to.Is4In6()
	if c.segment > 0 { // a uint16 to the kernel; no datagram is longer
		binary.NativeEndian.PutUint16(putCmsg(b, &n, unix.SOL_UDP, unix.UDP_SEGMENT, 2), uint16(c.segment))
	}
	switch {
	case !c.local.IsValid():
	case ipv4 && c.local.Is4():
		data := putCmsg(b, &n, unix.SOL_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		clear(data) // any interface
		a := c.local.As4()
		copy(data[4:8], a[:])
	case !ipv4 && c.local.Is6():
		data := putCmsg(b, &n, unix.SOL_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
		clear(data)
		a := c.local.As16()
		copy(data, a[:])
	}
	switch {
	case c.ecn == 0:
	case ipv4:
		binary.NativeEndian.PutUint32(putCmsg(b, &n, unix.SOL_IP, unix.IP_TOS, 4), uint32(c.ecn&ecnMask))
	default:
		binary.NativeEndian.PutUint32(putCmsg(b, &n, unix.SOL_IPV6, unix.IPV6_TCLASS, 4), uint32(c.ecn&ecnMask))
	}
	return n
}

// putCmsg writes the header of a control message with size bytes of data at b[*n:],
// moves n behind it, and returns where the data go.
func putCmsg(b *[controlLen]byte, n *int, level, kind int32, size int) []byte {
	m := b[*n:]
	putCmsgLength(m, uint64(cmsgHeaderLen+size))
	binary.NativeEndian.PutUint32(m[cmsgWord:], uint32(level))
	binary.NativeEndian.PutUint32(m[cmsgWord+4:], uint32(kind))
	*n += unix.CmsgSpace(size)
	return m[cmsgHeaderLen : cmsgHeaderLen+size]
}

func cmsgLength(b []byte) uint64 {
	if cmsgWord == 4 {
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func putCmsgLength(b []byte, n uint64) {
	if cmsgWord == 4 {
		binary.NativeEndian.PutUint32(b, uint32(n))
		return
	}
	binary.NativeEndian.PutUint64(b, n)
}
