package underlay

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"strconv"
)

const (
	// DefaultBuffer is what Config.ReadBuffer and Config.WriteBuffer ask for when
	// zero: enough for 40 ms at 1.4 Gbit/s, which covers a garbage collection or
	// a neighbour's time slice. The kernel caps it at net.core.rmem_max and
	// wmem_max; Stats tells what was granted.
	DefaultBuffer = 7 << 20

	// MaxDatagram is the largest payload of one UDP datagram over IPv6. A buffer
	// of this size never truncates.
	MaxDatagram = 65535 - udpHeaderLen

	udpHeaderLen = 8
)

// ErrWoken is what ReadBatch returns, with no datagrams, after Wake.
var ErrWoken = errors.New("underlay: woken")

// Config is what Listen needs.
type Config struct {
	// Addr is the local address. An unspecified or zero address takes IPv4 and
	// IPv6 on one socket where the system has both. Port 0 is any free port.
	Addr netip.AddrPort

	// ReadBuffer and WriteBuffer are the kernel's socket buffers in bytes.
	// Zero is DefaultBuffer. Getting less than that is not an error.
	ReadBuffer, WriteBuffer int

	// GRO lets the kernel deliver runs of equal datagrams as one message. Use it
	// where datagrams are equal because the sender cut them so, as in the WireGuard
	// tunnel. Where one run may be a single encapsulated packet that only looks like
	// several, as in the Geneve tunnel, read messages and look into them, or leave it
	// off: the kernel then splits and completes such packets itself.
	GRO bool

	// GSO sends runs of equal datagrams as one message.
	GSO bool

	// Writers is how many WriteBatch calls may send at the same time; one more waits for
	// the end of another. Zero is one. Linux only.
	Writers int

	// Unpolled keeps the socket out of the runtime's poller, which would wake a
	// thread for each arrival, whether or not anybody waits. For who waits for
	// SyscallConn's descriptor and reads with ReadMessages; Wake has no effect.
	// Linux only.
	Unpolled bool
}

// Datagram is one datagram to send: Head and Body are gathered, either may be empty.
type Datagram struct {
	Addr netip.AddrPort
	// Local is the address to send from. Not valid: the one that the routes prefer,
	// also where this host does not have it (any more). Linux only.
	Local netip.Addr
	// ECN is for the IP header, as in Origin. Linux only.
	ECN        uint8
	Head, Body []byte
}

// Origin is where a datagram came from, and how.
type Origin struct {
	Addr netip.AddrPort // an IPv4 address in its 4-byte form
	// Local is the address of this host that it was sent to: what answers should come
	// from. Not valid where the socket is bound to one address. Linux only.
	Local netip.Addr
	// ECN is the field of that name of its IP header, 0 to 3 (RFC 3168 section 5).
	// Linux only.
	ECN uint8
}

// Message is what the kernel delivers in one piece: a datagram, or, with GRO, a
// run of them.
type Message struct {
	Data []byte // empty for a datagram that was larger than its buffer
	// Segment is the size of each datagram in Data but the last, which may be
	// smaller; len(Data) when there is only one.
	//
	// One datagram that carries an encapsulated UDP super-segment, from a kernel on
	// this machine, looks like a run as well: Segment is then the size of the
	// payloads within. Who expects such datagrams has to look into the first.
	Segment int
	Origin
}

// Stats are counters since Listen and the offloads now in use.
type Stats struct {
	// System calls, and the datagrams they brought.
	Reads         uint64 `json:"reads"`
	ReadDatagrams uint64 `json:"readDatagrams"`
	// Messages that held more than one datagram.
	ReadRuns uint64 `json:"readRuns"`
	// Messages that did not land where they belong and were copied: runs that
	// ReadBatch did not predict, or of datagrams so small that copying is cheaper.
	ReadRepairs uint64 `json:"readRepairs"`
	// Datagrams larger than the caller's buffer: delivered with size 0.
	Truncated uint64 `json:"truncated"`
	// Datagrams the kernel dropped because the read buffer was full. The
	// kernel counts with 32 bits.
	Overruns uint64 `json:"overruns"`

	// System calls, and the datagrams the kernel took.
	Writes         uint64 `json:"writes"`
	WriteDatagrams uint64 `json:"writeDatagrams"`
	// Messages that held more than one datagram.
	WriteRuns uint64 `json:"writeRuns"`
	// Runs the kernel refused and that were sent again one by one.
	WriteReplays uint64 `json:"writeReplays"`
	// Datagrams dropped, and the last reason.
	WriteErrors    uint64 `json:"writeErrors"`
	LastWriteError string `json:"lastWriteError"`

	// Socket buffers as granted, in the unit of Config.
	ReadBuffer  int `json:"readBuffer"`
	WriteBuffer int `json:"writeBuffer"`
	// Offloads in use. GSO is false as well after the kernel refused it for good.
	GRO bool `json:"gro"`
	GSO bool `json:"gso"`
}

// Plus returns what two sockets of one address have done together: sums of all counters and
// buffers. An offload is in use if it is on both.
func (s Stats) Plus(o Stats) Stats {
	s.Reads += o.Reads
	s.ReadDatagrams += o.ReadDatagrams
	s.ReadRuns += o.ReadRuns
	s.ReadRepairs += o.ReadRepairs
	s.Truncated += o.Truncated
	s.Overruns += o.Overruns
	s.Writes += o.Writes
	s.WriteDatagrams += o.WriteDatagrams
	s.WriteRuns += o.WriteRuns
	s.WriteReplays += o.WriteReplays
	s.WriteErrors += o.WriteErrors
	s.LastWriteError = cmp.Or(o.LastWriteError, s.LastWriteError)
	s.ReadBuffer += o.ReadBuffer
	s.WriteBuffer += o.WriteBuffer
	s.GRO = s.GRO && o.GRO
	s.GSO = s.GSO && o.GSO
	return s
}

// listenArgs is the network and address, in package net's words, of a local address.
func listenArgs(a netip.AddrPort) (network, address string) {
	switch {
	case !a.Addr().IsValid() || a.Addr().IsUnspecified():
		// No host at all: package net falls back to IPv4 where there is no IPv6.
		return "udp", net.JoinHostPort("", strconv.Itoa(int(a.Port())))
	case a.Addr().Unmap().Is4():
		return "udp4", netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
	default:
		return "udp6", a.String()
	}
}

func bufferOrDefault(size int) int {
	if size <= 0 {
		return DefaultBuffer
	}
	return size
}
