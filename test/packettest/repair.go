package packettest

import (
	"bytes"
	"encoding/binary"
)

// What changes a packet here leaves it as exact as Spec makes it: whatever is in a
// checksum is summed anew. But for FinishHeader, packets are not fragments.

// FinishHeader sums the header of an IPv4 packet anew, after a change. An IPv6 packet has
// no such sum.
func FinishHeader(b []byte) []byte {
	if b[0]>>4 == 4 {
		header := b[:b[0]&15*4]
		clear(header[10:12])
		binary.BigEndian.PutUint16(header[10:], Checksum(header))
	}
	return b
}

// HeaderValid says whether the sum over an IPv4 header is right; IPv6 has none.
func HeaderValid(b []byte) bool { return b[0]>>4 != 4 || Sum(b[:b[0]&15*4]) == 0xffff }

// Finish sums a TCP or UDP packet anew, after a change.
func Finish(b []byte) []byte {
	FinishHeader(b)
	proto, addresses, t := split(b)
	field := checksumIn(proto, t)
	clear(field)
	check := Checksum(append(pseudo(addresses, proto, len(t)), t...))
	if check == 0 && proto == UDP {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(field, check)
	return b
}

// Unfinish leaves the checksum of a TCP or UDP packet as a kernel does that counts on
// hardware: the sum of the pseudo-header only.
func Unfinish(b []byte) []byte {
	proto, addresses, t := split(b)
	binary.BigEndian.PutUint16(checksumIn(proto, t), Sum(pseudo(addresses, proto, len(t))))
	return b
}

// split returns what follows the headers of IP, its protocol, and the two addresses.
func split(b []byte) (proto uint8, addresses, transport []byte) {
	if b[0]>>4 == 4 {
		return b[9], b[12:20], b[b[0]&15*4:]
	}
	proto, transport = b[6], b[40:]
	for proto == 0 || proto == 43 || proto == 60 { // RFC 8200 section 4.1
		proto, transport = transport[0], transport[8*(1+int(transport[1])):]
	}
	return proto, b[8:40], transport
}

// pseudo is a pseudo-header: the shorter one of IPv4 has the same sum.
func pseudo(addresses []byte, proto uint8, length int) []byte {
	b := append(bytes.Clone(addresses), 0, proto)
	return binary.BigEndian.AppendUint16(b, uint16(length))
}

// checksumIn is the checksum in a transport header.
func checksumIn(proto uint8, transport []byte) []byte {
	if proto == TCP {
		return transport[16:18]
	}
	return transport[6:8]
}

// Cut cuts a super-segment as linux/net/ipv4/tcp_offload.c and udp_offload.c do, in the
// most obvious way: into packets with so much payload each.
func Cut(b []byte, size int) (all [][]byte) {
	const push, fin, reduced = 8, 1, 0x80
	proto, _, t := split(b)
	at := len(b) - len(t)
	headers := at + 8
	if proto == TCP {
		headers = at + int(t[12]>>4)*4
	}
	payload := b[headers:]
	count := max(1, (len(payload)+size-1)/size)
	for i := range count {
		c := append(bytes.Clone(b[:headers]), payload[i*size:min((i+1)*size, len(payload))]...)
		t := c[at:]
		if c[0]>>4 == 4 {
			binary.BigEndian.PutUint16(c[2:], uint16(len(c)))
			binary.BigEndian.PutUint16(c[4:], binary.BigEndian.Uint16(c[4:])+uint16(i))
		} else {
			binary.BigEndian.PutUint16(c[4:], uint16(len(c)-40))
		}
		if proto == TCP {
			binary.BigEndian.PutUint32(t[4:], binary.BigEndian.Uint32(t[4:])+uint32(i*size))
			if i > 0 {
				t[13] &^= reduced
			}
			if i < count-1 {
				t[13] &^= push | fin
			}
		} else {
			binary.BigEndian.PutUint16(t[4:], uint16(len(t)))
		}
		all = append(all, Finish(c))
	}
	return all
}

// Fragments cuts an IPv4 packet without options.
func Fragments(b []byte, mtu int) (all [][]byte) {
	const header, more = 20, 0x2000
	size := (mtu - header) / 8 * 8
	for at := header; at < len(b); at += size {
		end := min(at+size, len(b))
		f := append(bytes.Clone(b[:header]), b[at:end]...)
		field := uint16((at - header) / 8)
		if end < len(b) {
			field |= more
		}
		binary.BigEndian.PutUint16(f[2:], uint16(len(f)))
		binary.BigEndian.PutUint16(f[6:], field)
		all = append(all, FinishHeader(f))
	}
	return all
}

// Decapsulated is RFC 6040 section 4.2, figure 4: the ECN field of a packet that was
// in another one. Not ok: it is to be dropped.
func Decapsulated(inner, outer uint8) (ecn uint8, ok bool) {
	const notECT, ect1, ect0, ce, drop = 0, 1, 2, 3, 255
	ecn = [4][4]uint8{
		notECT: {notECT: notECT, ect0: notECT, ect1: notECT, ce: drop},
		ect0:   {notECT: ect0, ect0: ect0, ect1: ect1, ce: ce},
		ect1:   {notECT: ect1, ect0: ect1, ect1: ect1, ce: ce},
		ce:     {notECT: ce, ect0: ce, ect1: ce, ce: ce},
	}[inner][outer]
	return ecn, ecn != drop
}

// WithECN sets the ECN field of a packet.
func WithECN(b []byte, ecn uint8) []byte {
	if b[0]>>4 == 6 {
		b[1] = b[1]&0xcf | ecn<<4
		return b
	}
	b[1] = b[1]&0xfc | ecn
	return FinishHeader(b)
}
