package hostnet

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Networks finds what this host reaches without a router: its own addresses,
// their networks and its point-to-point neighbors, on links that are up and not
// ours. A tunnel that took one of them would cut it off. They are sorted, each
// with the first of its devices.
func (c *Conn) Networks() ([]Network, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var networks []Network
	links := make(map[int]networkLink)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		header := make([]byte, unix.SizeofIfAddrmsg)
		header[0] = family
		addresses, err := dump(c, unix.RTM_GETADDR, header, func(b []byte) (a linkAddress, take bool, err error) {
			a, err = decodeAddress(b)
			ip := a.prefix.Addr()
			return a, b[0] == family && a.prefix.Bits() > 0 && !c.ours.has(a.index) && !ip.IsLinkLocalUnicast() && !ip.IsLoopback(), err
		})
		if err != nil {
			return nil, fmt.Errorf("read addresses: %w", err)
		}
		for _, a := range addresses {
			l, known := links[a.index]
			if !known {
				if l, err = c.networkLink(a.index); err != nil {
					return nil, fmt.Errorf("find the device of %v: %w", a.prefix, err)
				}
				links[a.index] = l
			}
			networks = l.append(networks, a)
		}
	}
	slices.SortFunc(networks, func(a, b Network) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), a.Prefix.Bits()-b.Prefix.Bits(), cmp.Compare(a.Device, b.Device))
	})
	return slices.CompactFunc(networks, func(a, b Network) bool { return a.Prefix == b.Prefix }), nil
}

// networkLink is a link as far as the networks behind it matter.
type networkLink struct {
	name     string // empty: they do not
	loopback bool
}

func (c *Conn) networkLink(index int) (networkLink, error) {
	b, err := c.query(unix.RTM_GETLINK, linkHeader(index, 0, 0))
	if errors.Is(err, unix.ENODEV) {
		return networkLink{}, nil // gone since
	}
	if err != nil {
		return networkLink{}, kernelSays(err)
	}
	l, _, err := decodeLink(b)
	if err != nil || !l.Up || l.marked() {
		return networkLink{}, err
	}
	return networkLink{l.Name, binary.NativeEndian.Uint32(b[8:])&unix.IFF_LOOPBACK != 0}, nil
}

func (l networkLink) append(networks []Network, a linkAddress) []Network {
	if l.name == "" {
		return networks
	}
	networks = append(networks, Network{host(a.prefix.Addr()), l.name})
	// Loopback is no network: no route takes the other addresses of a prefix there.
	if !l.loopback {
		networks = append(networks, Network{a.network, l.name})
	}
	return networks
}
