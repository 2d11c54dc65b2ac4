package main

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// pathMTU returns the size of packets that the kernel sends to a without
// fragmenting them: the MTU of the link, or of the path where a router has told
// it (ip(7), IP_MTU). Zero: not known. It sends nothing.
func pathMTU(a netip.AddrPort) (mtu int) {
	if !a.IsValid() {
		return 0
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(a))
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	level, option := unix.IPPROTO_IP, unix.IP_MTU
	if a.Addr().Is6() && !a.Addr().Is4In6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	if err := raw.Control(func(fd uintptr) {
		if n, err := unix.GetsockoptInt(int(fd), level, option); err == nil {
			mtu = n
		}
	}); err != nil {
		return 0
	}
	return mtu
}
