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

// uapiDiff returns what leads a device from the configuration old to the
// configuration next, and nothing that is not needed: an endpoint that is left
// out keeps the address that the peer roamed to. A nil old is a device in an
// unknown state; it then is set up from scratch. The listen port is not in it,
// because it needs a socket first (see Tunnel.relisten).
func uapiDiff(old *Config, next Config) string {
	var u uapiText
	if old == nil || old.PrivateKey != next.PrivateKey {
		u.line("private_key", hex.EncodeToString(next.PrivateKey[:]))
	}
	samePeer := old != nil && old.PeerKey == next.PeerKey
	switch {
	case old == nil:
		u.line("replace_peers", "true")
	case !samePeer && !old.PeerKey.IsZero():
		u.line("public_key", hex.EncodeToString(old.PeerKey[:]))
		u.line("remove", "true")
	}
	if next.PeerKey.IsZero() {
		return u.String()
	}
	if !samePeer {
		u.line("public_key", hex.EncodeToString(next.PeerKey[:]))
		u.line("protocol_version", "1")
		u.WriteString(peerLines(Config{}, next))
		return u.String()
	}
	if lines := peerLines(*old, next); lines != "" {
		u.line("public_key", hex.EncodeToString(next.PeerKey[:]))
		u.line("update_only", "true")
		u.WriteString(lines)
	}
	return u.String()
}

// peerLines returns the lines that change the peer of old to the peer of next.
// New allowed IPs come before old ones go, so that no packet falls in between
// when one prefix replaces another that overlaps it.
func peerLines(old, next Config) string {
	var u uapiText
	if addr, ok := literalEndpoint(next.Endpoint); ok && old.Endpoint != next.Endpoint {
		u.line("endpoint", addr.String())
	}
	for _, p := range next.AllowedIPs {
		if !slices.Contains(old.AllowedIPs, p) {
			u.line("allowed_ip", p.String())
		}
	}
	for _, p := range old.AllowedIPs {
		if !slices.Contains(next.AllowedIPs, p) {
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
