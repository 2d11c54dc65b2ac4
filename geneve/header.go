package geneve

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// HeaderLen is the length of either header without options, in bytes.
const HeaderLen = 8

// DefaultPort is the UDP port on which nodes and gateway speak. It is not the
// port that IANA assigned to Geneve (6081), so that a CNI of the cluster which
// uses that one is not disturbed.
const DefaultPort = 6091

// Protocol types of the payload (IEEE EtherTypes; RFC 8926 section 3.4).
const (
	ProtocolEthernet = 0x6558 // Transparent Ethernet Bridging: an Ethernet frame
	ProtocolIPv4     = 0x0800
	ProtocolIPv6     = 0x86DD
)

// minEtherType is the smallest EtherType; smaller values in an Ethernet frame
// are a length (IEEE 802.3 clause 3.2.6).
const minEtherType = 0x0600

const (
	versionMask    = 0xC0 // octet 0
	optLenMask     = 0x3F // octet 0, in words of four bytes
	flagOAM        = 0x80 // octet 1
	flagCritical   = 0x40 // octet 1
	flagVXLANValid = 0x08 // octet 0, the I flag of RFC 7348

	optionHeaderLen    = 4
	optionTypeCritical = 0x80 // octet 2 of an option
	optionLenMask      = 0x1F // octet 3 of an option, in words of four bytes
)

// Errors of Decode. Decode returns them unwrapped, so == is enough.
var (
	ErrShort          = errors.New("geneve: datagram shorter than its header")
	ErrVersion        = errors.New("geneve: unknown version")
	ErrOptionLength   = errors.New("geneve: option lengths do not add up")
	ErrCriticalOption = errors.New("geneve: unknown critical option")
	ErrProtocol       = errors.New("geneve: payload is neither Ethernet nor IP")
	ErrVXLANFlags     = errors.New("geneve: VXLAN header without a valid VNI")
)

// Encapsulation is how a packet is wrapped. A node is answered in the one that
// it speaks.
type Encapsulation uint8

const (
	// Geneve carries Ethernet frames; what a Linux geneve device speaks.
	Geneve Encapsulation = iota
	// GeneveIP carries IP packets without an Ethernet header.
	GeneveIP
	// VXLAN carries Ethernet frames.
	VXLAN
)

// String returns the name as shown in status and logs.
func (e Encapsulation) String() string {
	switch e {
	case Geneve:
		return "geneve"
	case GeneveIP:
		return "geneve-ip"
	case VXLAN:
		return "vxlan"
	}
	return "unknown"
}

// MarshalText returns the name, for JSON.
func (e Encapsulation) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (e *Encapsulation) UnmarshalText(b []byte) error {
	for _, known := range []Encapsulation{Geneve, GeneveIP, VXLAN} {
		if string(b) == known.String() {
			*e = known
			return nil
		}
	}
	return fmt.Errorf("geneve: unknown encapsulation %q", b)
}

// VNI is a Virtual Network Identifier of 24 bits; it tells the tunnels of one
// gateway apart.
type VNI uint32

// MaxVNI is the largest VNI.
const MaxVNI VNI = 1<<24 - 1

// Header is an encapsulation header.
//
// Geneve, RFC 8926 section 3.4:
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|Ver|  Opt Len  |O|C|    Rsvd.  |          Protocol Type        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|        Virtual Network Identifier (VNI)       |    Reserved   |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	~                    Variable-Length Options                    ~
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// VXLAN, RFC 7348 section 5:
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|R|R|R|R|I|R|R|R|            Reserved                           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                VXLAN Network Identifier (VNI) |   Reserved    |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
type Header struct {
	Encapsulation Encapsulation
	VNI           VNI
	// Protocol is the EtherType of the payload; for VXLAN always
	// ProtocolEthernet.
	Protocol uint16
	// OAM marks a control packet of the tunnel itself (the O bit). Whether
	// there is someone to answer it is the caller's to know.
	OAM bool
}

// Decode reads the header at the start of a UDP payload and returns it with
// the payload behind it, which aliases b. It accepts Geneve and VXLAN; see the
// package comment for how it tells them apart. On error the header is zero.
func Decode(b []byte) (h Header, inner []byte, err error) {
	if len(b) < HeaderLen {
		return Header{}, nil, ErrShort
	}
	vni := VNI(binary.BigEndian.Uint32(b[4:]) >> 8) // reserved octet 7 is ignored by both RFCs
	protocol := binary.BigEndian.Uint16(b[2:])
	if protocol < minEtherType {
		if b[0]&flagVXLANValid == 0 {
			return Header{}, nil, ErrVXLANFlags
		}
		return Header{Encapsulation: VXLAN, VNI: vni, Protocol: ProtocolEthernet}, b[HeaderLen:], nil
	}
	if b[0]&versionMask != 0 {
		return Header{}, nil, ErrVersion // RFC 8926 section 3.4: unknown versions are dropped
	}
	h = Header{VNI: vni, Protocol: protocol, OAM: b[1]&flagOAM != 0}
	switch protocol {
	case ProtocolEthernet:
	case ProtocolIPv4, ProtocolIPv6:
		h.Encapsulation = GeneveIP
	default:
		return Header{}, nil, ErrProtocol
	}
	end := HeaderLen + int(b[0]&optLenMask)*4
	if end > len(b) {
		return Header{}, nil, ErrShort
	}
	if b[1]&flagCritical != 0 || end > HeaderLen {
		if err := checkOptions(b[HeaderLen:end], b[1]&flagCritical != 0); err != nil {
			return Header{}, nil, err
		}
	}
	return h, b[end:], nil
}

// checkOptions walks the options of a received packet, which are whole words, RFC
// 8926 section 3.5:
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|          Option Class         |C|    Type     |R|R|R| Length  |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	~                  Variable-Length Option Data                  ~
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// A set C bit of the header is enough to refuse: either an option is critical, or the
// header contradicts itself.
func checkOptions(b []byte, critical bool) error {
	for len(b) > 0 {
		end := optionHeaderLen + int(b[3]&optionLenMask)*4 // the three R bits are ignored
		if end > len(b) {
			return ErrOptionLength
		}
		critical = critical || b[2]&optionTypeCritical != 0
		b = b[end:]
	}
	if critical {
		return ErrCriticalOption
	}
	return nil
}

// PutHeader writes a header without options into the first HeaderLen bytes of
// b: the hot path of sending. protocol is the EtherType of the payload; VXLAN
// has no such field. Bits of vni above MaxVNI are lost.
func PutHeader(b []byte, e Encapsulation, vni VNI, protocol uint16) {
	first := uint32(protocol)
	if e == VXLAN {
		first = flagVXLANValid << 24
	}
	_ = b[HeaderLen-1] // one bounds check for both words
	binary.BigEndian.PutUint32(b, first)
	binary.BigEndian.PutUint32(b[4:], uint32(vni)<<8)
}
