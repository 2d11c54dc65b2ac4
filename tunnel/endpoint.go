package tunnel

import (
	"net/netip"

	"github.com/sluice-net/sluice/underlay"
)

// maxKnownSources bounds the endpoints that are remembered. One peer needs
// one or two; forgetting costs an allocation. Who is not authenticated gets none or one
// that is not remembered.
const maxKnownSources = 256

// endpoint is where a peer is, and which address of ours it sends to. It is
// immutable: wireguard-go keeps and shares it.
type endpoint struct {
	addr  netip.AddrPort
	local netip.Addr // not valid: not known, or the only one
}

// ClearSrc implements conn.Endpoint. It does nothing: where our address is ours no
// more, the socket takes another one.
func (e *endpoint) ClearSrc() {}

// SrcToString implements conn.Endpoint.
func (e *endpoint) SrcToString() string {
	if !e.local.IsValid() {
		return ""
	}
	return e.local.String()
}

// SrcIP implements conn.Endpoint.
func (e *endpoint) SrcIP() netip.Addr { return e.local }

// DstToString implements conn.Endpoint.
func (e *endpoint) DstToString() string { return e.addr.String() }

// DstToBytes implements conn.Endpoint: address and port as they go into the MAC
// of a cookie (WireGuard paper section 5.4.7), which only has to be the same for
// the same source.
func (e *endpoint) DstToBytes() []byte {
	b, _ := e.addr.MarshalBinary() // never fails
	return b
}

// DstIP implements conn.Endpoint.
func (e *endpoint) DstIP() netip.Addr { return e.addr.Addr() }

// sourceCache gives equal sources the same endpoint, so that a datagram from a
// known source allocates nothing. It belongs to who is in accept and has no lock.
type sourceCache struct {
	last  *endpoint
	known map[endpoint]*endpoint
}

// endpoint returns the endpoint of a source, and remembers it.
func (c *sourceCache) endpoint(from underlay.Origin) *endpoint {
	e := c.stranger(from)
	if e == c.last {
		return e
	}
	if c.known == nil || len(c.known) >= maxKnownSources {
		c.known = make(map[endpoint]*endpoint)
	}
	c.known[*e] = e
	c.last = e
	return e
}

// stranger returns the endpoint of a source that may be anybody's, and does not
// remember it.
func (c *sourceCache) stranger(from underlay.Origin) *endpoint {
	at := endpoint{unmap(from.Addr), from.Local}
	if c.last != nil && *c.last == at {
		return c.last
	}
	if e := c.known[at]; e != nil {
		return e
	}
	e := at // here, so that at itself stays on the stack
	return &e
}

// unmap writes an IPv4 address as IPv4, so that one peer has one endpoint
// however its datagrams arrive.
func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
