package tunlink

import "encoding/binary"

// vnetLen is the length of a vnet header without the count of buffers, which
// only network cards use.
const vnetLen = 10

// Flags and types of a vnet header (virtio 1.3 section 5.1.6).
const (
	vnetNeedsChecksum = 0x01

	vnetNone  = 0x00
	vnetTCP4  = 0x01
	vnetTCP6  = 0x04
	vnetUDP   = 0x05 // VIRTIO_NET_HDR_GSO_UDP_L4
	vnetECN   = 0x80 // a bit beside the types for TCP
	vnetTypes = 0x7f
)

// vnetHeader stands before each packet that is read from or written to a device
// with IFF_VNET_HDR. The numbers are in the machine's byte order (the "legacy"
// interface, virtio 1.3 section 5.1.6.1), unless TUNSETVNETLE or TUNSETVNETBE say
// otherwise.
//
//	 octets  1      1         2         2          2            2
//	+-------+----------+---------+---------+-----------+-------------+
//	| flags | gso_type | hdr_len | gso_size| csum_start| csum_offset |
//	+-------+----------+---------+---------+-----------+-------------+
type vnetHeader struct {
	flags, gsoType uint8
	// headersLen is that of all headers before the payload; a hint.
	headersLen uint16
	// size is the payload of each segment but the last.
	size uint16
	// checkStart is where the checksum starts to sum, checkOffset where behind
	// that the field stands, which holds the sum of the pseudo-header.
	checkStart, checkOffset uint16
}

// decodeVnet reads the header at the start of b, which has vnetLen bytes.
func decodeVnet(b []byte) vnetHeader {
	_ = b[vnetLen-1]
	return vnetHeader{
		flags: b[0], gsoType: b[1],
		headersLen:  binary.NativeEndian.Uint16(b[2:]),
		size:        binary.NativeEndian.Uint16(b[4:]),
		checkStart:  binary.NativeEndian.Uint16(b[6:]),
		checkOffset: binary.NativeEndian.Uint16(b[8:]),
	}
}

// put writes h into the first vnetLen bytes of b.
func (h vnetHeader) put(b []byte) {
	_ = b[vnetLen-1]
	b[0], b[1] = h.flags, h.gsoType
	binary.NativeEndian.PutUint16(b[2:], h.headersLen)
	binary.NativeEndian.PutUint16(b[4:], h.size)
	binary.NativeEndian.PutUint16(b[6:], h.checkStart)
	binary.NativeEndian.PutUint16(b[8:], h.checkOffset)
}
