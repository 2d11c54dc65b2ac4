package load

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Where things are in a frame over IPv4 without options, and what a tunnel (VXLAN,
// or Geneve without options) puts between the outer UDP header and the inner IP.
const (
	etherTypeAt   = 12
	protocolAt    = 14 + 9
	destinationAt = 14 + 20 + 2
	payloadAt     = 14 + 20 + 8
	tunnelLen     = 8 + 14 + 20 + 8

	headLen     = tunnelLen + destinationAt + 2
	protocolUDP = 17
)

// Where the program keeps what it has read, below the frame pointer.
const (
	headAt   = -96
	numberAt = -104
)

// What a TCX program decides, and fields of what it is given (struct __sk_buff).
const (
	tcxNext       = -1
	tcxDrop       = 2
	skbLen        = 0
	skbGSOSize    = 176
	skbEtherType4 = 0x0800
)

// Registers: the first six are of calls, the next four survive them.
const (
	r0, r1, r2, r3, r4 = 0, 1, 2, 3, 4
	rSkb, rNumber      = 6, 7
	rPayload, rPackets = 8, 9
	rFrame             = 10
)

// Jumps that encode cannot know yet.
const toPass, toFound = 1000, 1001

// sinkProgram counts and drops UDP to Port, within a tunnel or not.
//
// A super-packet is one frame here, with the length of its parts in gso_size. One
// that the sender of the tunnel has put together has a tunnel's header in each
// part, one from before the tunnel has one for all; the division is right for both,
// because the header is smaller than a part.
func sinkProgram(array int, tunnelPort uint16) []instruction {
	p := []instruction{
		{move, rSkb, r1, 0, 0},
		// The head, or nothing that concerns us.
		{set, r2, 0, 0, 0},
		{move, r3, rFrame, 0, 0},
		{addImm, r3, 0, 0, headAt},
		{set, r4, 0, 0, headLen},
		{call, 0, 0, 0, helperLoadBytes},
		{notEqual, r0, 0, toPass, 0},
		{loadHalf, r1, rFrame, headAt + etherTypeAt, 0},
		{notEqual, r1, 0, toPass, network(skbEtherType4)},
		{loadByte, r1, rFrame, headAt + protocolAt, 0},
		{notEqual, r1, 0, toPass, protocolUDP},
		{set, rPayload, 0, 0, payloadAt},
		{loadHalf, r1, rFrame, headAt + destinationAt, 0},
		{equal, r1, 0, toFound, network(Port)},
		{notEqual, r1, 0, toPass, network(tunnelPort)},
		{loadByte, r1, rFrame, headAt + tunnelLen + protocolAt, 0},
		{notEqual, r1, 0, toPass, protocolUDP},
		{loadHalf, r1, rFrame, headAt + tunnelLen + destinationAt, 0},
		{notEqual, r1, 0, toPass, network(Port)},
		{addImm, rPayload, 0, 0, tunnelLen},
	}
	found := len(p)
	p = append(p, []instruction{
		{move, r1, rSkb, 0, 0},
		{move, r2, rPayload, 0, 0},
		{move, r3, rFrame, 0, 0},
		{addImm, r3, 0, 0, numberAt},
		{set, r4, 0, 0, 8},
		{call, 0, 0, 0, helperLoadBytes},
		{notEqual, r0, 0, toPass, 0},
		{loadLong, rNumber, rFrame, numberAt, 0},
		// How many packets it is.
		{set, rPackets, 0, 0, 1},
		{loadWord, r2, rSkb, skbGSOSize, 0},
		{equal, r2, 0, 3, 0},
		{loadWord, rPackets, rSkb, skbLen, 0},
		{addImm, rPackets, 0, 0, -payloadAt},
		{div, rPackets, r2, 0, 0},
		// Two instructions: the address of the array's value.
		{loadImm, r1, unix.BPF_PSEUDO_MAP_VALUE, 0, int32(array)},
		{},
		{addAtomic, r1, rPackets, 0, unix.BPF_ADD},
		{add, rNumber, rPackets, 0, 0},
		{storeLong, r1, rNumber, 8, 0},
		{set, r0, 0, 0, tcxDrop},
		{op: exit},
	}...)
	pass := len(p)
	p = append(p, instruction{set, r0, 0, 0, tcxNext}, instruction{op: exit})
	for i := range p {
		switch p[i].off {
		case toPass:
			p[i].off = int16(pass - i - 1)
		case toFound:
			p[i].off = int16(found - i - 1)
		}
	}
	return p
}

// network is a 16-bit value as a load finds it in a packet.
func network(v uint16) int32 {
	return int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v)))
}
