package underlay

import (
	"net"
	"net/netip"
)

// Source returns the address that the kernel would send from to somebody, by its
// routes, or the zero Addr where there is no way. Nothing is sent.
func Source(to netip.Addr) netip.Addr {
	const discard = 9 // any port will do
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, discard)))
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}
