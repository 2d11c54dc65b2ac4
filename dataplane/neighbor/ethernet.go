package neighbor

import (
	"crypto/sha256"
	"encoding/binary"
)

// EthernetHeaderLen is the length of an Ethernet header without tags.
const EthernetHeaderLen = 14

// EtherTypes of the frames that the gateway takes.
const (
	EtherTypeIPv4 uint16 = 0x0800
	EtherTypeARP  uint16 = 0x0806
	EtherTypeIPv6 uint16 = 0x86DD
)

const (
	minEtherType      = 0x0600 // below is the length of an 802.3 frame
	etherTypeCustomer = 0x8100 // 802.1Q tag
	etherTypeService  = 0x88A8 // 802.1ad tag
	etherTypeQinQ     = 0x9100 // the tag used before 802.1ad
)

// MAC is an Ethernet address. It is comparable; the zero MAC means none.
type MAC [6]byte

// Broadcast is the address of all stations.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// String returns the usual form, for example "02:00:5e:10:00:01".
func (m MAC) String() string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 17)
	for i, x := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, digits[x>>4], digits[x&15])
	}
	return string(b)
}

// IsMulticast reports whether m is a group address; Broadcast is one.
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

// IsBroadcast reports whether m is Broadcast.
func (m MAC) IsBroadcast() bool { return m == Broadcast }

// IsZero reports whether m is the zero MAC.
func (m MAC) IsZero() bool { return m == MAC{} }

// isStation tells whether m can be the address of one station.
func (m MAC) isStation() bool { return !m.IsMulticast() && !m.IsZero() }

// StableMAC returns a locally administered unicast address that depends on
// the seed only. A gateway seeds it with its internal addresses and the VNI of
// the tunnel: after a restart, or on another replica, the entries in the nodes'
// neighbor caches are still right.
func StableMAC(seed []byte) MAC {
	sum := sha256.Sum256(seed)
	m := MAC(sum[:6])
	m[0] = m[0]&^1 | 2 // IEEE 802 clause 8.2: not a group, locally administered
	return m
}

// Frame is an Ethernet II frame without a tag:
//
//	 6 octets    6 octets   2 octets
//	+-----------+----------+-----------+- - - - - -
//	|    Dst    |   Src    | EtherType |  Payload
//	+-----------+----------+-----------+- - - - - -
//
// The frame check sequence is not carried in tunnels. Payload may have padding
// behind its own end.
type Frame struct {
	Dst, Src  MAC
	EtherType uint16
	Payload   []byte // aliases the decoded bytes
}

// DecodeFrame returns the frame in b. It refuses tagged frames, because a
// tunnel is one network and the tag would say otherwise, frames with a length
// instead of an EtherType, and frames whose source is not one station.
func DecodeFrame(b []byte) (Frame, bool) {
	if len(b) < EthernetHeaderLen {
		return Frame{}, false
	}
	f := Frame{
		Dst:       MAC(b[0:6]),
		Src:       MAC(b[6:12]),
		EtherType: binary.BigEndian.Uint16(b[12:]),
		Payload:   b[EthernetHeaderLen:],
	}
	switch f.EtherType {
	case etherTypeCustomer, etherTypeService, etherTypeQinQ:
		return Frame{}, false
	}
	if f.EtherType < minEtherType || !f.Src.isStation() {
		return Frame{}, false
	}
	return f, true
}

// PutEthernet writes a header into the first EthernetHeaderLen bytes of b.
func PutEthernet(b []byte, dst, src MAC, etherType uint16) {
	_ = b[EthernetHeaderLen-1]
	copy(b[0:6], dst[:])
	copy(b[6:12], src[:])
	binary.BigEndian.PutUint16(b[12:], etherType)
}
