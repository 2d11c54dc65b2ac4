package limit

import (
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
	in  *inbox
	out *outbox
	key *receiveKey

	head  [headLen]byte
	ready bool // head is known
}

func newIngress(g *Gateway) *ingress {
	return &ingress{Gateway: g, in: newInbox(g.tunnel), out: newOutbox(g.node, g.cfg.Node), key: newReceiveKey(g.cfg.ReceiveKey)}
}

func (r *ingress) run() error {
	for {
		n, err := r.in.receive()
		if err != nil {
			return err
		}
		r.ready = r.Gateway.head(&r.head)
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
	opened, ok := r.key.open(b[headroom:])
	if !ok {
		r.drop()
		return
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
	const start = headroom + dataHeaderLen - headLen
	datagram := b[start : start+headLen+len(p.Bytes)]
	copy(datagram, r.head[:])
	r.out.add(datagram)
}
