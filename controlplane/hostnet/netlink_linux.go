package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

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
	ms, err := c.ask(netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request}, Data: data})
	if err != nil {
		return nil, err
	}
	if len(ms) == 0 {
		return nil, errors.New("no answer from the kernel")
	}
	return ms[0].Data, nil
}

// dump sends a request that is answered by any number of messages.
func (c *Conn) dump(typ netlink.HeaderType, data []byte) ([]netlink.Message, error) {
	for try := 1; ; try++ {
		ms, err := c.ask(netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Dump}, Data: data})
		if err != nil || try == dumpRetries || !interrupted(ms) {
			return ms, err
		}
	}
}

func interrupted(ms []netlink.Message) bool {
	for _, m := range ms {
		if m.Header.Flags&netlink.DumpInterrupted != 0 {
			return true
		}
	}
	return false
}

func (c *Conn) ask(m netlink.Message) ([]netlink.Message, error) {
	sent, err := c.nl.Send(m)
	if err != nil {
		return nil, err
	}
	for {
		ms, err := c.nl.Receive()
		var oe *netlink.OpError
		switch {
		case err != nil && errors.As(err, &oe) && oe.Sequence != 0 && oe.Sequence != sent.Header.Sequence:
			continue // of an earlier request
		case err != nil:
			return nil, err
		case len(ms) > 0 && ms[0].Header.Sequence != sent.Header.Sequence:
			continue
		}
		return ms, nil
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
	family, dstBits, tos, table, protocol, scope, typ uint8
	flags                                             uint32
}

func (h routeHeader) encode() []byte {
	b := make([]byte, unix.SizeofRtMsg, 96)
	b[0], b[1], b[3], b[4], b[5], b[6], b[7] = h.family, h.dstBits, h.tos, h.table, h.protocol, h.scope, h.typ
	binary.NativeEndian.PutUint32(b[8:], h.flags)
	return b
}

func decodeRouteHeader(b []byte) routeHeader {
	return routeHeader{
		family: b[0], dstBits: b[1], tos: b[3], table: b[4], protocol: b[5], scope: b[6], typ: b[7],
		flags: binary.NativeEndian.Uint32(b[8:]),
	}
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// decode calls f for each attribute behind a header of the given size.
func decode(b []byte, header int, f func(*netlink.AttributeDecoder)) error {
	if len(b) < header {
		return errors.New("message is shorter than its header")
	}
	ad, err := netlink.NewAttributeDecoder(b[header:])
	if err != nil {
		return err
	}
	for ad.Next() {
		f(ad)
	}
	return ad.Err()
}

// within calls f for each attribute inside the current one.
func within(ad *netlink.AttributeDecoder, f func(*netlink.AttributeDecoder)) {
	ad.Nested(func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			f(ad)
		}
		return nil
	})
}

// address decodes 4 or 16 bytes; anything else is the zero Addr.
func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// swap16 turns a port from or into network byte order, as attribute values of
// kernel devices have it.
func swap16(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}
