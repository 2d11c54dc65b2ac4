package nat

import (
	"fmt"
	"net/netip"
)

// Mapping pairs two prefixes of the same family and length: the host with given
// host bits in one is the host with the same host bits in the other.
type Mapping struct {
	Inside  netip.Prefix // as used in this cluster
	Outside netip.Prefix // as carried in the tunnel
}

// String returns the mapping as "10.71.0.0/16 (inside) = 10.243.0.0/16 (outside)".
func (m Mapping) String() string {
	return fmt.Sprintf("%s (inside) = %s (outside)", m.Inside, m.Outside)
}

// Config lists the mappings of one peering. The zero Config translates nothing.
type Config struct {
	// Remote are the peer's ranges: Inside is the range under which this
	// cluster uses them, Outside the peer's own. A range that is not remapped
	// has both equal. Neither side may overlap with the same side of
	// another mapping.
	Remote []Mapping
	// Local are single hosts of this cluster that the peer reaches under
	// another address: Inside is the real address, Outside one of our external
	// range. Both are host prefixes (/32 or /128), and no address appears
	// twice on its side. No Inside lies within a Remote's Inside.
	Local []Mapping
}

// validate checks one mapping on its own. The name ("remote", "local") says
// which list it is in.
func (m Mapping) validate(name string) error {
	switch {
	case !m.Inside.IsValid() || !m.Outside.IsValid():
		return fmt.Errorf("%s mapping %s: not a prefix", name, m)
	case m.Inside.Addr().Is4() != m.Outside.Addr().Is4():
		return fmt.Errorf("%s mapping %s: one is IPv4, the other IPv6", name, m)
	case m.Inside.Addr().Is4In6() || m.Outside.Addr().Is4In6():
		return fmt.Errorf("%s mapping %s: IPv4 written as IPv6", name, m)
	case m.Inside.Bits() != m.Outside.Bits():
		return fmt.Errorf("%s mapping %s: prefix lengths differ", name, m)
	case m.Inside != m.Inside.Masked():
		return fmt.Errorf("%s mapping %s: inside has host bits set, want %s", name, m, m.Inside.Masked())
	case m.Outside != m.Outside.Masked():
		return fmt.Errorf("%s mapping %s: outside has host bits set, want %s", name, m, m.Outside.Masked())
	}
	return nil
}

// validate checks all mappings, each on its own and against the others.
func (c Config) validate() error {
	for i, m := range c.Remote {
		if err := m.validate("remote"); err != nil {
			return err
		}
		// Quadratic, off the path: a peering has a handful of ranges, and the
		// message names the first pair in the order in which the user wrote them.
		for _, o := range c.Remote[:i] {
			switch {
			case m == o:
				return fmt.Errorf("remote mapping %s: listed twice", m)
			case m.Inside.Overlaps(o.Inside):
				return fmt.Errorf("remote mapping %s: inside overlaps with %s of mapping %s", m, o.Inside, o)
			case m.Outside.Overlaps(o.Outside):
				return fmt.Errorf("remote mapping %s: outside overlaps with %s of mapping %s", m, o.Outside, o)
			}
		}
	}
	inside := make(map[netip.Addr]Mapping, len(c.Local))
	outside := make(map[netip.Addr]Mapping, len(c.Local))
	for _, m := range c.Local {
		if err := m.validate("local"); err != nil {
			return err
		}
		if !m.Inside.IsSingleIP() {
			return fmt.Errorf("local mapping %s: not single addresses", m)
		}
		if o, ok := inside[m.Inside.Addr()]; ok {
			return fmt.Errorf("local mapping %s: inside address is already in mapping %s", m, o)
		}
		if o, ok := outside[m.Outside.Addr()]; ok {
			return fmt.Errorf("local mapping %s: outside address is already in mapping %s", m, o)
		}
		inside[m.Inside.Addr()], outside[m.Outside.Addr()] = m, m
		for _, r := range c.Remote {
			if r.Inside.Contains(m.Inside.Addr()) {
				return fmt.Errorf("local mapping %s: inside lies within %s of remote mapping %s", m, r.Inside, r)
			}
		}
	}
	return nil
}
