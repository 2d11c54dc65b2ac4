package dropped

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/nat/packet"
)

// Packet is what is kept of one packet. Its JSON form is what `gateway drops` prints.
type Packet struct {
	// Number counts the packets that were kept, from 1, over all reasons.
	Number uint64    `json:"number"`
	Time   time.Time `json:"time"`
	// Direction is "egress", to the peer, or "ingress".
	Direction string `json:"direction"`
	Reason    string `json:"reason"`
	// Node and VNI are those of the node tunnel that an egress packet came through.
	Node string `json:"node,omitempty"`
	VNI  uint32 `json:"vni,omitempty"`
	// Outer: the addresses are those of the datagram on the network, as what is in it
	// belongs to nobody who is known or is not known at all.
	Outer bool `json:"outer,omitempty"`
	// Source and Destination are as they were when the packet was dropped. They are
	// not valid where it has none, such as a frame that is not of IP.
	Source      netip.Addr `json:"source,omitzero"`
	Destination netip.Addr `json:"destination,omitzero"`
	// Protocol is the number of the upper-layer protocol.
	Protocol        uint8  `json:"protocol"`
	SourcePort      uint16 `json:"sourcePort,omitempty"`
	DestinationPort uint16 `json:"destinationPort,omitempty"`
	// TCPFlags is the byte at offset 13 of the TCP header.
	TCPFlags uint8 `json:"tcpFlags,omitempty"`
	// Length is that of the packet in bytes, with its IP header; with Outer that of
	// the UDP payload.
	Length int `json:"length"`
	// Total counts all packets that were dropped for this reason in this direction
	// since the start, up to this one. Zero: not known.
	Total uint64 `json:"total,omitempty"`
}

// SetIP takes the headers of an IP packet. Of one that is not well-formed it takes
// the addresses, if there are so many bytes.
func (p *Packet) SetIP(b []byte) {
	p.Length = len(b)
	if q, ok := packet.Parse(b); ok {
		p.Source, p.Destination, p.Protocol = q.Src(), q.Dst(), q.Proto
		p.SourcePort, p.DestinationPort = q.Ports()
		p.TCPFlags, p.Length = q.TCPFlags(), len(q.Bytes)
		return
	}
	switch {
	case len(b) >= packet.IPv4HeaderLen && b[0]>>4 == 4:
		p.Source, p.Destination, p.Protocol = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])), b[9]
	case len(b) >= packet.IPv6HeaderLen && b[0]>>4 == 6:
		p.Source, p.Destination, p.Protocol = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:])), b[6]
	}
}

// SetOuter takes the addresses of a UDP datagram with a payload of so many bytes.
func (p *Packet) SetOuter(from, to netip.AddrPort, length int) {
	p.Outer, p.Protocol, p.Length = true, packet.ProtoUDP, length
	p.Source, p.SourcePort = from.Addr().Unmap().WithZone(""), from.Port()
	p.Destination, p.DestinationPort = to.Addr().Unmap().WithZone(""), to.Port()
}
