package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Requests to rtnetlink: messages, batches of them, dumps. What is in the
// messages is in the files that make them.

const (
	// batchMessages bounds how many acknowledgements wait in the receive buffer,
	// at under 2 KiB each, while the kernel works on a batch.
	batchMessages = 64
	// batchBytes stays below the send buffer of any kernel.
	batchBytes = 32 << 10
	// dumpRetries is how often a dump is repeated that something changed in the
	// middle of. The last one counts anyway: what changed raises an event.
	dumpRetries = 3
)

// request sends one message and waits for what becomes of it. The caller holds mu.
func (c *Conn) request(m netlink.Message) error {
	return c.batch([]netlink.Message{m})[0]
}

// batch sends messages, which all ask to be acknowledged, in as few system
// calls as possible, and returns what became of each. The kernel works on them in
// order. The caller holds mu.
func (c *Conn) batch(ms []netlink.Message) []error {
	errs := make([]error, len(ms))
	for begin := 0; begin < len(ms); {
		end, size := begin, 0
		for end < len(ms) && end-begin < batchMessages && (end == begin || size+len(ms[end].Data) < batchBytes) {
			size += len(ms[end].Data) + 16
			end++
		}
		c.exchange(ms[begin:end], errs[begin:end])
		begin = end
	}
	return errs
}

// exchange is batch for what fits into one system call.
func (c *Conn) exchange(ms []netlink.Message, errs []error) {
	sent, err := c.nl.SendMessages(ms)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return
	}
	// Acknowledgements come one by one and in order. Those of a request that was
	// given up earlier have other numbers.
	for i := 0; i < len(sent); {
		seq := sent[i].Header.Sequence
		reply, err := c.nl.Receive()
		var oe *netlink.OpError
		switch {
		case err == nil:
			if len(reply) == 0 || reply[0].Header.Sequence != seq {
				continue
			}
		case errors.As(err, &oe) && oe.Sequence != 0:
			if oe.Sequence != seq {
				continue
			}
			errs[i] = err
		default:
			for ; i < len(errs); i++ {
				errs[i] = err
			}
			return
		}
		i++
	}
}

// query sends a request that is answered by one message.
func (c *Conn) query(typ netlink.HeaderType, data []byte) ([]byte, error) {
	var answer []byte
	_, err := c.ask(netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request}, Data: data}, func(b []byte) error {
		answer = b
		return nil
	})
	if err == nil && answer == nil {
		err = errors.New("no answer from the kernel")
	}
	return answer, err
}

// dump sends a request that is answered by any number of messages, and returns
// those that one takes. The caller holds c.mu.
func dump[T any](c *Conn, typ netlink.HeaderType, data []byte, one func([]byte) (value T, take bool, err error)) ([]T, error) {
	for try := 1; ; try++ {
		var values []T
		consistent, err := c.ask(netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Dump}, Data: data}, func(b []byte) error {
			v, take, err := one(b)
			if take && err == nil {
				values = append(values, v)
			}
			return err
		})
		if err != nil || consistent || try == dumpRetries {
			return values, err
		}
	}
}

// ask sends a request and calls f for each message of the answer. The answer is
// inconsistent where something changed while it was made.
func (c *Conn) ask(m netlink.Message, f func([]byte) error) (consistent bool, err error) {
	sent, err := c.nl.Send(m)
	if err != nil {
		return false, err
	}
	consistent = true
	for {
		stale := false // an answer to an earlier request
		var bad error
		for m, err := range c.nl.ReceiveIter() {
			var oe *netlink.OpError
			switch {
			case err != nil && errors.As(err, &oe) && oe.Sequence != 0 && oe.Sequence != sent.Header.Sequence:
				stale = true
			case err != nil:
				return false, err
			case m.Header.Sequence != sent.Header.Sequence:
				stale = true
			case bad == nil:
				consistent = consistent && m.Header.Flags&netlink.DumpInterrupted == 0
				bad = f(m.Data) // The rest of the answer is still to be received.
			}
		}
		if !stale {
			return consistent, bad
		}
	}
}

// attributes encodes what f adds.
func attributes(header []byte, f func(*netlink.AttributeEncoder)) []byte {
	ae := netlink.NewAttributeEncoder()
	f(ae)
	b, err := ae.Encode()
	if err != nil {
		// Only an attribute of more than 64 KiB does that.
		panic(fmt.Sprintf("encode attributes: %v", err))
	}
	return append(header, b...)
}

// nested is AttributeEncoder.Nested for contents that cannot fail.
func nested(ae *netlink.AttributeEncoder, typ uint16, f func(*netlink.AttributeEncoder)) {
	ae.Nested(typ, func(ae *netlink.AttributeEncoder) error {
		f(ae)
		return nil
	})
}

// linkHeader is struct ifinfomsg.
func linkHeader(index int, flags, change uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg, 256)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], change)
	return b
}

// addressHeader is struct ifaddrmsg.
func addressHeader(p netip.Prefix, scope uint8, index int) []byte {
	b := make([]byte, unix.SizeofIfAddrmsg, 64)
	b[0], b[1], b[3] = family(p.Addr()), uint8(p.Bits()), scope
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	return b
}

// routeHeader is struct rtmsg.
type routeHeader struct {
	family, dstBits, srcBits, tos, table, protocol, scope, typ uint8
	flags                                                      uint32
}

func (h routeHeader) encode() []byte {
	b := make([]byte, unix.SizeofRtMsg, 96)
	b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7] = h.family, h.dstBits, h.srcBits, h.tos, h.table, h.protocol, h.scope, h.typ
	binary.NativeEndian.PutUint32(b[8:], h.flags)
	return b
}

func decodeRouteHeader(b []byte) routeHeader {
	return routeHeader{
		family: b[0], dstBits: b[1], srcBits: b[2], tos: b[3], table: b[4], protocol: b[5], scope: b[6], typ: b[7],
		flags: binary.NativeEndian.Uint32(b[8:]),
	}
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// attribute is a struct nlattr with what follows. Values that are too short are zero.
type attribute struct {
	typ   uint16
	value []byte
}

func (a attribute) string() string { return strings.TrimRight(string(a.value), "\x00") }

func (a attribute) uint8() uint8 {
	if len(a.value) < 1 {
		return 0
	}
	return a.value[0]
}

func (a attribute) uint16() uint16 {
	if len(a.value) < 2 {
		return 0
	}
	return binary.NativeEndian.Uint16(a.value)
}

func (a attribute) uint32() uint32 {
	if len(a.value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(a.value)
}

func (a attribute) addr() netip.Addr {
	addr, _ := netip.AddrFromSlice(a.value)
	return addr
}

// each calls f for each attribute inside.
func (a attribute) each(f func(attribute)) { _ = decode(a.value, 0, f) }

var errShort = errors.New("message is shorter than it says")

// decode calls f for each attribute behind a header of the given size. It
// allocates nothing: a dump has hundreds of thousands of them.
func decode(b []byte, header int, f func(attribute)) error {
	if len(b) < header {
		return errShort
	}
	for b = b[header:]; len(b) >= unix.SizeofNlAttr; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			return errShort
		}
		const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
		f(attribute{typ: binary.NativeEndian.Uint16(b[2:]) &^ flags, value: b[unix.SizeofNlAttr:size:size]})
		b = b[min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b)):]
	}
	return nil
}

// swap16 turns a port from or into network byte order, as attribute values of
// kernel devices have it.
func swap16(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}
