package hostnet

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Path asks the kernel how it would send a datagram to a port of dst without our
// tunnels: one of them may take dst, by a mistake that is to be mended. The error
// is ErrNoRoute where it would not.
func (c *Conn) Path(dst netip.Addr, port uint16) (Path, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !usable(dst) {
		return Path{}, fmt.Errorf("find path: %v is not the address of a host", dst)
	}
	b, err := c.query(unix.RTM_GETROUTE, attributes(routeHeader{family: family(dst), dstBits: uint8(dst.BitLen())}.encode(), func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.RTA_DST, dst.AsSlice())
		ae.Uint8(unix.RTA_IP_PROTO, unix.IPPROTO_UDP)
		ae.Uint16(unix.RTA_DPORT, swap16(port))
		ae.Uint32(unix.RTA_MARK, PathMark)
	}))
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EAFNOSUPPORT):
		return Path{}, noRoute(dst, kernelSays(err))
	case err != nil:
		return Path{}, fmt.Errorf("find path to %v: %w", dst, kernelSays(err))
	}

	var p Path
	index := 0
	if err := decode(b, unix.SizeofRtMsg, func(a attribute) {
		switch a.typ {
		case unix.RTA_PREFSRC:
			p.Source = a.addr()
		case unix.RTA_OIF:
			index = int(a.uint32())
		case unix.RTA_METRICS:
			a.each(func(a attribute) {
				if a.typ == unix.RTAX_MTU {
					p.MTU = int(a.uint32())
				}
			})
		}
	}); err != nil {
		return Path{}, fmt.Errorf("decode path to %v: %w", dst, err)
	}
	switch typ := decodeRouteHeader(b).typ; typ {
	case unix.RTN_UNICAST:
	case unix.RTN_LOCAL:
		p.Local = true
	default:
		return Path{}, noRoute(dst, fmt.Errorf("the route is of type %d", typ))
	}
	device, _, err := c.readLink("", index)
	if err != nil {
		return Path{}, fmt.Errorf("find device of path to %v: %w", dst, kernelSays(err))
	}
	p.Device = device.Name
	if p.MTU == 0 {
		p.MTU = device.MTU
	}
	if !p.Source.IsValid() {
		return Path{}, noRoute(dst, fmt.Errorf("device %s has no address of this family", p.Device))
	}
	return p, nil
}

func noRoute(dst netip.Addr, why error) error {
	return fmt.Errorf("%w to %v: look at ip route get %v; is the pod network of this node up?: %w", ErrNoRoute, dst, dst, why)
}
