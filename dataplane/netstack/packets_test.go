package netstack

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// ipPacket puts an IP header of the family of src before payload.
func ipPacket(src, dst netip.Addr, transport tcpip.TransportProtocolNumber, payload []byte) []byte {
	if src.Is4() {
		b := make([]byte, header.IPv4MinimumSize, header.IPv4MinimumSize+len(payload))
		ip := header.IPv4(b)
		ip.Encode(&header.IPv4Fields{
			TotalLength: uint16(cap(b)), TTL: 64, Protocol: uint8(transport),
			SrcAddr: toAddress(src), DstAddr: toAddress(dst),
		})
		ip.SetChecksum(^ip.CalculateChecksum())
		return append(b, payload...)
	}
	b := make([]byte, header.IPv6MinimumSize, header.IPv6MinimumSize+len(payload))
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(payload)), HopLimit: 64, TransportProtocol: transport,
		SrcAddr: toAddress(src), DstAddr: toAddress(dst),
	})
	return append(b, payload...)
}

// icmpPacket is an ICMP message with body behind type, code and checksum.
func icmpPacket(src, dst netip.Addr, typ, code uint8, body []byte) []byte {
	m := append([]byte{typ, code, 0, 0}, body...)
	transport, pseudo := header.ICMPv4ProtocolNumber, uint16(0)
	if src.Is6() {
		transport = header.ICMPv6ProtocolNumber
		pseudo = header.PseudoHeaderChecksum(transport, toAddress(src), toAddress(dst), uint16(len(m)))
	}
	binary.BigEndian.PutUint16(m[2:], ^checksum.Checksum(m, pseudo))
	return ipPacket(src, dst, transport, m)
}

func echoPacket(src, dst netip.Addr, id uint16, size int) []byte {
	typ := uint8(header.ICMPv4Echo)
	if src.Is6() {
		typ = uint8(header.ICMPv6EchoRequest)
	}
	body := binary.BigEndian.AppendUint16(nil, id)
	return icmpPacket(src, dst, typ, 0, append(body, make([]byte, 2+size)...))
}

func udpPacket(src, dst netip.Addr, size int) []byte {
	u := header.UDP(make([]byte, header.UDPMinimumSize+size))
	u.Encode(&header.UDPFields{SrcPort: 1000, DstPort: 2000, Length: uint16(len(u))})
	pseudo := header.PseudoHeaderChecksum(header.UDPProtocolNumber, toAddress(src), toAddress(dst), uint16(len(u)))
	u.SetChecksum(^checksum.Checksum(u, pseudo))
	return ipPacket(src, dst, header.UDPProtocolNumber, u)
}

func synPacket(src, dst netip.Addr, srcPort, dstPort uint16) []byte {
	tcp := header.TCP(make([]byte, header.TCPMinimumSize))
	tcp.Encode(&header.TCPFields{
		SrcPort: srcPort, DstPort: dstPort, SeqNum: 1, DataOffset: header.TCPMinimumSize,
		Flags: header.TCPFlagSyn, WindowSize: 1000,
	})
	pseudo := header.PseudoHeaderChecksum(header.TCPProtocolNumber, toAddress(src), toAddress(dst), uint16(len(tcp)))
	tcp.SetChecksum(^checksum.Checksum(tcp, pseudo))
	return ipPacket(src, dst, header.TCPProtocolNumber, tcp)
}
