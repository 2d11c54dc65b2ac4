package tunnel

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// This file turns configurations into the text of WireGuard's cross-platform
// configuration protocol (https://www.wireguard.com/xplatform/), "set" operation.
// Everything in it is pure.

// uapiText builds lines of the form key=value.
type uapiText struct{ strings.Builder }

func (u *uapiText) line(key, value string) {
	u.WriteString(key)
	u.WriteByte('=')
	u.WriteString(value)
	u.WriteByte('\n')
}

// uapiDiff returns what leads a device from old to next, and nothing that is not
// needed: an endpoint that is left out keeps the address that the peer roamed
// to. A nil old is a device in an unknown state; it then is set up from scratch.
// The listen port is not in it, because it needs a socket first (see
// Tunnel.relisten).
func uapiDiff(old *target, next target) string {
	var u uapiText
	if old == nil || old.PrivateKey != next.PrivateKey {
		u.line("private_key", hex.EncodeToString(next.PrivateKey[:]))
	}
	if old == nil {
		u.line("replace_peers", "true")
		old = new(target)
	}
	before, after := old.peers(), next.peers()
	for _, p := range before {
		if _, stays := byKey(after, p.key); !stays {
			u.line("public_key", hex.EncodeToString(p.key[:]))
			u.line("remove", "true")
		}
	}
	for _, p := range after {
		was, known := byKey(before, p.key)
		lines := peerLines(was, p)
		switch {
		case !known:
			u.line("public_key", hex.EncodeToString(p.key[:]))
			u.line("protocol_version", "1")
			u.WriteString(lines)
		case lines != "":
			u.line("public_key", hex.EncodeToString(p.key[:]))
			u.line("update_only", "true")
			u.WriteString(lines)
		}
	}
	return u.String()
}

// uapiPeer is a peer of a device.
type uapiPeer struct {
	key      PublicKey
	endpoint string         // as configured
	found    netip.AddrPort // where to begin instead, if it is valid
	allowed  []netip.Prefix
}

// peers are those of a device: one, or two while the peer has two keys, of which
// one has the allowed IPs.
func (t *target) peers() []uapiPeer {
	if t.PeerKey.IsZero() {
		return nil
	}
	p := uapiPeer{key: t.PeerKey, endpoint: t.Endpoint, found: t.Found, allowed: t.AllowedIPs}
	if t.Former.IsZero() {
		return []uapiPeer{p}
	}
	former := uapiPeer{key: t.Former, endpoint: t.Endpoint}
	if !t.Moved {
		former.allowed, p.allowed = p.allowed, nil
	}
	return []uapiPeer{p, former}
}

func byKey(peers []uapiPeer, key PublicKey) (uapiPeer, bool) {
	i := slices.IndexFunc(peers, func(p uapiPeer) bool { return p.key == key })
	if i < 0 {
		return uapiPeer{}, false
	}
	return peers[i], true
}

// peerLines returns the lines that change the peer old to the peer next. New
// allowed IPs come before old ones go, so that no packet falls in between when
// one prefix replaces another that overlaps it. What one peer is given another
// one loses.
func peerLines(old, next uapiPeer) string {
	var u uapiText
	addr, ok := literalEndpoint(next.endpoint)
	if old.key != next.key && next.found.IsValid() {
		u.line("endpoint", next.found.String())
	} else if ok && old.endpoint != next.endpoint {
		u.line("endpoint", addr.String())
	}
	for _, p := range next.allowed {
		if !slices.Contains(old.allowed, p) {
			u.line("allowed_ip", p.String())
		}
	}
	for _, p := range old.allowed {
		if !slices.Contains(next.allowed, p) {
			u.line("allowed_ip", "-"+p.String())
		}
	}
	return u.String()
}

// uapiEndpoint returns what moves a known peer to another endpoint.
func uapiEndpoint(peer PublicKey, endpoint netip.AddrPort) string {
	var u uapiText
	u.line("public_key", hex.EncodeToString(peer[:]))
	u.line("update_only", "true")
	u.line("endpoint", endpoint.String())
	return u.String()
}

// uapiListenPort returns what makes the device open its socket again.
func uapiListenPort(port uint16) string {
	var u uapiText
	u.line("listen_port", strconv.Itoa(int(port)))
	return u.String()
}
