package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
)

const (
	// DefaultMTU is the MTU of a Config that has none: an Ethernet MTU of 1500
	// minus IPv6 (40), UDP (8) and WireGuard (32) headers.
	DefaultMTU = 1420
	// minMTU is the smallest datagram that every IPv4 host accepts (RFC 791
	// section 3.2); no tunnel should be smaller.
	minMTU = 576
	// maxMTU is what fits into the largest UDP datagram with WireGuard's header.
	maxMTU = 65507 - keepaliveLen
)

// Config is what the tunnel should be. It is a plain value; Apply copies it.
type Config struct {
	// PrivateKey is this gateway's key. It must be set.
	PrivateKey PrivateKey
	// PeerKey is the peer gateway's key. Zero: not known yet; the tunnel listens,
	// and has no peer.
	PeerKey PublicKey
	// Endpoint is the peer's "host:port" with an address or a name. Empty: the
	// peer contacts us.
	Endpoint string
	// AllowedIPs are the prefixes that the peer may send from and that are routed
	// to it. Empty: none.
	AllowedIPs []netip.Prefix
	// ListenPort is our UDP port. Zero: any that is free.
	ListenPort uint16
	// MTU is the largest packet in the tunnel. Zero: DefaultMTU.
	MTU int
	// Further are tunnels to the same peer besides this one, with the same keys and MTU: see
	// further.go. Empty: none.
	Further []Further
}

// MaxTunnels is how many tunnels a peering may have.
const MaxTunnels = 64

// Further is what a further tunnel has of its own. Its fields are those of Config.
type Further struct {
	Endpoint   string
	ListenPort uint16
	AllowedIPs []netip.Prefix
}

// Validate reports what is wrong with c, as Apply would before it opens anything.
func (c Config) Validate() error {
	_, err := c.normalize()
	return err
}

// normalize returns c with its defaults filled in and its allowed IPs masked,
// sorted and without repetition, or what is wrong with it.
func (c Config) normalize() (Config, error) {
	if c.PrivateKey.IsZero() {
		return c, errors.New("private key: missing")
	}
	if c.PeerKey == c.PrivateKey.Public() {
		return c, fmt.Errorf("peer key: %v is this gateway's own public key", c.PeerKey)
	}
	if err := checkEndpoint(c.Endpoint); err != nil {
		return c, err
	}
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	if c.MTU < minMTU || c.MTU > maxMTU {
		return c, fmt.Errorf("MTU: %d is not between %d and %d", c.MTU, minMTU, maxMTU)
	}
	var err error
	if c.AllowedIPs, err = normalizePrefixes(c.AllowedIPs); err != nil {
		return c, err
	}
	c.Further, err = c.normalizeFurther()
	return c, err
}

// normalizeFurther returns the further tunnels as normalize returns a Config.
func (c Config) normalizeFurther() ([]Further, error) {
	if n := 1 + len(c.Further); n > MaxTunnels {
		return nil, fmt.Errorf("%d tunnels, the most are %d", n, MaxTunnels)
	}
	seen := map[furtherKey]bool{{c.Endpoint, c.ListenPort}: true, {"", c.ListenPort}: true}
	further := slices.Clone(c.Further)
	for i := range further {
		f := &further[i]
		if err := checkEndpoint(f.Endpoint); err != nil {
			return nil, err
		}
		port := furtherKey{"", f.ListenPort}
		if seen[f.key()] || f.ListenPort != 0 && seen[port] {
			return nil, fmt.Errorf("two tunnels with endpoint %q and listen port %d", f.Endpoint, f.ListenPort)
		}
		seen[f.key()], seen[port] = true, true
		var err error
		if f.AllowedIPs, err = normalizePrefixes(f.AllowedIPs); err != nil {
			return nil, err
		}
	}
	return further, nil
}

// normalizePrefixes returns prefixes masked, sorted and without repetition.
func normalizePrefixes(prefixes []netip.Prefix) ([]netip.Prefix, error) {
	allowed := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		if !p.IsValid() {
			return nil, errors.New("allowed IPs: invalid prefix")
		}
		allowed = append(allowed, p.Masked())
	}
	slices.SortFunc(allowed, netip.Prefix.Compare)
	return slices.Compact(allowed), nil
}

// checkEndpoint says what is wrong with a configured endpoint. It may be empty.
func checkEndpoint(s string) error {
	if s == "" {
		return nil
	}
	if _, _, err := splitEndpoint(s); err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	return nil
}

// splitEndpoint splits "host:port"; host is an address without brackets or a name.
func splitEndpoint(s string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%q: port %q is not between 1 and 65535", s, text)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.IsUnspecified() || addr.IsMulticast() {
			return "", 0, fmt.Errorf("%q: no address of a host", s)
		}
		return host, uint16(n), nil
	}
	if !isHostName(host) {
		return "", 0, fmt.Errorf("%q: %q is neither an address nor a host name", s, host)
	}
	return host, uint16(n), nil
}

// isHostName reports whether s can be looked up: letters, digits, hyphens, dots
// and, as real zones have them, underscores; at most 253 bytes (RFC 1035 section
// 2.3.4). A name without any letter is a mistyped address.
func isHostName(s string) bool {
	letter := false
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
			letter = true
		case '0' <= c && c <= '9', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return letter && len(s) <= 253
}

// literalEndpoint returns an endpoint that needs no lookup.
func literalEndpoint(s string) (netip.AddrPort, bool) {
	host, port, err := splitEndpoint(s)
	if err != nil {
		return netip.AddrPort{}, false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr.Unmap(), port), true
}
