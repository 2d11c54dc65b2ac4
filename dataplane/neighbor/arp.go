package neighbor

import (
	"encoding/binary"
	"net/netip"
)

// ARPLen is the length of an ARP packet for IPv4 over Ethernet.
const ARPLen = 28

// Operations of ARP.
const (
	ARPRequest uint16 = 1
	ARPReply   uint16 = 2
)

const (
	hardwareEthernet = 1
	arpPrefix        = hardwareEthernet<<48 | 0x0800<<32 | 6<<24 | 4<<16 // the first six octets
)

// ARP is an ARP packet for IPv4 over Ethernet (RFC 826, "Packet format"):
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|       Hardware type: 1        |     Protocol type: 0x0800     |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|   Length: 6   |   Length: 4   |              Op               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                           SenderMAC                           |
//	+                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                               |           SenderIP            |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                               |           TargetMAC           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
//	|                                                               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                           TargetIP                            |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
type ARP struct {
	Op        uint16
	SenderMAC MAC
	// SenderIP is unspecified (0.0.0.0) in a probe (RFC 5227 section 1.1).
	SenderIP netip.Addr
	// TargetMAC means nothing in a request.
	TargetMAC MAC
	TargetIP  netip.Addr
}

// DecodeARP returns the ARP packet in b, the payload of a frame. It refuses
// other operations than request and reply, and senders that are not one
// station with one address: a router must not believe that an address belongs
// to a group (RFC 1812 section 3.3.2).
func DecodeARP(b []byte) (ARP, bool) {
	if len(b) < ARPLen || binary.BigEndian.Uint64(b)&^0xffff != arpPrefix {
		return ARP{}, false
	}
	a := ARP{
		Op:        binary.BigEndian.Uint16(b[6:]),
		SenderMAC: MAC(b[8:14]),
		SenderIP:  netip.AddrFrom4([4]byte(b[14:18])),
		TargetMAC: MAC(b[18:24]),
		TargetIP:  netip.AddrFrom4([4]byte(b[24:28])),
	}
	if a.Op != ARPRequest && a.Op != ARPReply || !a.SenderMAC.isStation() {
		return ARP{}, false
	}
	if b[14] >= 224 { // RFC 1122 section 3.2.1.3: classes D and E, broadcast
		return ARP{}, false
	}
	return a, true
}

// AppendARP appends a to b. An address that is not IPv4 is written as 0.0.0.0.
func AppendARP(b []byte, a ARP) []byte {
	b = binary.BigEndian.AppendUint64(b, arpPrefix|uint64(a.Op))
	b = append(b, a.SenderMAC[:]...)
	b = append4(b, a.SenderIP)
	b = append(b, a.TargetMAC[:]...)
	return append4(b, a.TargetIP)
}

func append4(b []byte, a netip.Addr) []byte {
	if !a.Is4() {
		return append(b, 0, 0, 0, 0)
	}
	v := a.As4()
	return append(b, v[:]...)
}
