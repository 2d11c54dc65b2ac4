package limit

import (
	"github.com/sluice-net/sluice/bench/transport"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
)

// ingress is the thread from the peer:
//
//	receive -> open -> translate -> encapsulate -> send
//
// All of it happens where the message lies: the headers towards the node take
// the place of the tunnel's, and of the tag of the message before.
type ingress struct {
	*Gateway
	in    *inbox
	out   *outbox
	nonce transport.Nonce

	head  [headLen]byte
	ready bool // head is known

	key       *transport.ReceiveKey
	index     uint32
	confirmed bool // a message for index was genuine
}

func newIngress(g *Gateway) *ingress {
	return &ingress{Gateway: g, in: newInbox(g.tunnel), out: newOutbox(g.node, g.cfg.Node)}
}

func (r *ingress) run() error {
	for {
		n, err := r.in.receive()
		if err != nil {
			return err
		}
		r.ready = r.Gateway.head(&r.head)
		r.key = nil // it may have grown old
		for i := range n {
			buf, size, segment := r.in.message(i)
			for at := 0; at < size; at += segment {
				// headroom before each datagram, the first ones' from the buffer
				r.datagram(buf[at : headroom+min(at+segment, size)])
			}
		}
		r.out.flush()
		if r.out.errors > 0 {
			r.Stats.Refused.Add(uint64(r.out.errors))
			r.out.errors = 0
		}
	}
}

func (r *ingress) drop() { r.Stats.DroppedIngress.Add(1) }

// datagram carries the datagram at b[headroom:].
func (r *ingress) datagram(b []byte) {
	message := b[headroom:]
	index, ok := transport.Receiver(message)
	if !ok {
		r.cfg.Tunnel.Control(message)
		return
	}
	if r.key == nil || index != r.index {
		r.key, r.index, r.confirmed = r.cfg.Tunnel.Receiver(index), index, false
		if r.key == nil {
			r.drop()
			return
		}
	}
	opened, ok := r.key.Open(message, &r.nonce)
	if !ok {
		r.drop()
		return
	}
	if !r.confirmed {
		r.cfg.Tunnel.Confirm(index)
		r.confirmed = true
	}
	if len(opened) == 0 {
		return // a keepalive
	}
	p, ok := packet.Parse(opened)
	if !ok || p.HopLimit() <= 1 {
		r.drop()
		return
	}
	p.DecrementHopLimit()
	nat.ClampMSS(&p, r.cfg.MTU)
	if !r.table.Ingress(&p) {
		r.drop()
		return
	}
	if !r.ready {
		r.ask()
		r.drop()
		return
	}
	const start = headroom + transport.HeaderLen - headLen
	datagram := b[start : start+headLen+len(p.Bytes)]
	copy(datagram, r.head[:])
	r.out.add(datagram)
}
