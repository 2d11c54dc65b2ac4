package packettest

import (
	"encoding/binary"
	"net/netip"
)

// TransparentEthernet is the protocol of Ethernet frames in Geneve.
const TransparentEthernet = 0x6558

// Geneve puts the header of RFC 8926 section 3.4, without options, before a frame or, with
// its EtherType as protocol, a packet.
func Geneve(vni uint32, protocol uint16, payload []byte) []byte {
	b := []byte{0, 0, byte(protocol >> 8), byte(protocol), byte(vni >> 16), byte(vni >> 8), byte(vni), 0}
	return append(b, payload...)
}

// VXLAN puts the header of RFC 7348 section 5 before a frame.
func VXLAN(vni uint32, frame []byte) []byte {
	return append([]byte{8, 0, 0, 0, byte(vni >> 16), byte(vni >> 8), byte(vni), 0}, frame...)
}

// Ethernet puts the header of an Ethernet frame before its payload.
func Ethernet(dst, src [6]byte, etherType uint16, payload []byte) []byte {
	b := append(dst[:], src[:]...)
	b = binary.BigEndian.AppendUint16(b, etherType)
	return append(b, payload...)
}

// ARP is an ARP packet for IPv4 over Ethernet.
type ARP struct {
	Op        uint16 // 1 asks, 2 answers
	SenderMAC [6]byte
	SenderIP  netip.Addr
	TargetMAC [6]byte
	TargetIP  netip.Addr
}

// Bytes returns the packet as RFC 826 has it.
func (a ARP) Bytes() []byte {
	b := []byte{0, 1, 8, 0, 6, 4, byte(a.Op >> 8), byte(a.Op)}
	b = append(b, a.SenderMAC[:]...)
	b = append(b, a.SenderIP.AsSlice()...)
	b = append(b, a.TargetMAC[:]...)
	return append(b, a.TargetIP.AsSlice()...)
}

// Solicitation is a Neighbor Solicitation (RFC 4861 section 4.3) of who has this MAC
// address, zero: does not tell it.
func Solicitation(src, dst, target netip.Addr, mac [6]byte) []byte {
	return discovery(src, dst, target, 135, 0, 1, mac)
}

// Flags of a Neighbor Advertisement.
const (
	Router    = 0x80
	Solicited = 0x40
	Override  = 0x20
)

// Advertisement is a Neighbor Advertisement (RFC 4861 section 4.4).
func Advertisement(src, dst, target netip.Addr, flags uint8, mac [6]byte) []byte {
	return discovery(src, dst, target, 136, flags, 2, mac)
}

func discovery(src, dst, target netip.Addr, typ, flags, option uint8, mac [6]byte) []byte {
	body := target.AsSlice()
	if mac != [6]byte{} {
		body = append(append(body, option, 1), mac[:]...)
	}
	return Spec{Src: src, Dst: dst, HopLimit: 255, Proto: ICMPv6, Transport: Message(typ, 0, uint32(flags)<<24, body)}.Bytes()
}
