package dataplane

import "github.com/sluice-net/sluice/underlay"

// egressLoop carries what one socket receives from the nodes to the peer. Its methods are in
// egress.go and what that calls. The kernel spreads the packets of the nodes over the sockets,
// all packets of a flow to one, so that a flow keeps its order although no loop waits for
// another. Everything here belongs to the goroutine in ReadPackets, but for the counters, which
// others may read.
type egressLoop struct {
	*Forwarder
	_        [64]byte // what one loop writes is in no cache line of another one
	index    int      // in Forwarder.loops
	socket   Underlay
	reader   nodeReader
	received burst
	replies  *nodeWriter // by socket: none of them waits
	count    counters
	_        [64]byte
}

func newEgressLoop(f *Forwarder, index int, socket Underlay) *egressLoop {
	return &egressLoop{
		Forwarder: f, index: index, socket: socket,
		reader: newNodeReader(), replies: newNodeWriter(f, index, socket.TryWriteBatch),
	}
}

// ingressLoop carries batches of the tunnel to the nodes. Its methods are in ingress.go and
// what that calls. Loops work on their batches at the same time, whatever flows these are of.
// What must keep its order waits for its turn: sending, packets for the gateway itself, and
// fragments that are known by the first one of their datagram. Everything here belongs to the
// goroutine in WritePackets, but for the counters, which others may read.
type ingressLoop struct {
	*Forwarder
	_       [64]byte // as above
	index   int      // in nodeState.sent
	turn    func()   // waits until it is the turn of the batch at hand
	toNodes *nodeWriter
	count   counters
	_       [64]byte
}

func newIngressLoop(f *Forwarder, index int, socket Underlay) *ingressLoop {
	l := &ingressLoop{Forwarder: f, index: index}
	l.toNodes = newNodeWriter(f, index, func(ds []underlay.Datagram) (int, error) {
		l.turn()
		return socket.WriteBatch(ds)
	})
	return l
}
