package hostnet

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Probe finds which kinds of link can be made here, by making one of each and
// removing it again. The kernel loads a module where it has one.
func (c *Conn) Probe() []KindSupport {
	c.mu.Lock()
	defer c.mu.Unlock()
	supports := make([]KindSupport, 0, len(Kinds))
	for _, kind := range Kinds {
		s := KindSupport{Kind: kind, OK: true}
		if err := c.probe(kind); err != nil {
			s.OK, s.Reason = false, err.Error()
		}
		supports = append(supports, s)
	}
	return supports
}

// probeLink is never set up. It takes a port and a VNI that nobody else uses.
func probeLink(kind Kind) Link {
	var random [4]byte
	_, _ = rand.Read(random[:])
	return Link{
		Name: LinkPrefix + hex.EncodeToString(random[:]), Owner: "probe", Kind: kind,
		VNI: 0xfffffe, Port: 1, MTU: 1280, Gateway: netip.AddrFrom4([4]byte{192, 0, 2, 1}),
	}
}

func (c *Conn) probe(kind Kind) error {
	l := probeLink(kind)
	if kind == KindTUN {
		return c.inNamespace(func() error {
			fd, err := openTUN(l.Name)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		})
	}
	// Its MAC address is our mark, should we die before we remove it.
	if err := c.request(addLinkMessage(l)); err != nil {
		if errors.Is(err, unix.EPERM) {
			return errPermission
		}
		return explainAddLink(l, err)
	}
	delete(c.unknown, kind)
	have, _, err := c.readLink(l.Name, 0)
	if err != nil {
		return err
	}
	return c.request(removeLinkMessage(have.Index))
}
