package dataplanetest

import (
	"net/netip"

	"github.com/sluice-net/sluice/test/packettest"
)

// Packet describes an IP packet for Build. Zero fields get what a host would
// send: hop limit 64, the length of the payload, right checksums.
type Packet struct {
	Src, Dst netip.AddrPort
	Proto    uint8 // UDP by default
	HopLimit uint8
	// DontFragment and ID are for IPv4 only. Offset (in bytes) makes the last
	// fragment of a datagram, whose Payload is taken as it is.
	DontFragment bool
	ID           uint16
	Offset       int
	// TCPSeq, TCPFlags and TCPOptions are for TCP.
	TCPSeq     uint32
	TCPFlags   uint8
	TCPOptions []byte
	// ICMPType of an ICMP message; Src's port is its identifier.
	ICMPType uint8
	Payload  []byte
}

// Build returns the bytes of p, which package packettest makes: nothing of what the
// tests judge has a part in them.
func Build(p Packet) []byte {
	if p.Proto == 0 {
		p.Proto = packettest.UDP
	}
	s := packettest.Spec{
		Src: p.Src.Addr(), Dst: p.Dst.Addr(), Proto: p.Proto, HopLimit: p.HopLimit,
		DontFragment: p.DontFragment, ID: uint32(p.ID), Transport: p.Payload,
	}
	switch {
	case p.Offset > 0:
		s.Transport = append(make([]byte, p.Offset), p.Payload...)
		s.Part = packettest.Part{Offset: p.Offset, Length: len(p.Payload)}
		s.NoChecksum = true // it is in the first fragment
	case p.Proto == packettest.TCP:
		s.Transport = packettest.Segment{
			SrcPort: p.Src.Port(), DstPort: p.Dst.Port(), Seq: p.TCPSeq, Flags: p.TCPFlags, Options: p.TCPOptions, Payload: p.Payload,
		}.Bytes()
	case p.Proto == packettest.UDP:
		s.Transport = packettest.Datagram(p.Src.Port(), p.Dst.Port(), p.Payload)
	case p.Proto == packettest.ICMP, p.Proto == packettest.ICMPv6:
		s.Transport = packettest.Message(p.ICMPType, 0, uint32(p.Src.Port())<<16, p.Payload)
	}
	return s.Bytes()
}

// ChecksumsValid recomputes every checksum of an unfragmented packet.
func ChecksumsValid(b []byte) bool { return packettest.ChecksumsValid(b) }
