package dataplane

// egressLoop carries what one socket receives from the nodes to the peer. Its methods are in
// egress.go and what that calls. The kernel spreads the packets of the nodes over the sockets,
// all packets of a flow to one, so that a flow keeps its order although no loop waits for
// another. Everything here belongs to the goroutine in ReadPackets, but for the counters, which
// others may read.
type egressLoop struct {
	*Forwarder
	_       [64]byte // what one loop writes is in no cache line of another one
	index   int      // in Forwarder.loops
	socket  Underlay
	reader  nodeReader
	replies *nodeWriter // by socket: none of them waits
	count   counters
	_       [64]byte
}

func newEgressLoop(f *Forwarder, index int, socket Underlay) *egressLoop {
	return &egressLoop{
		Forwarder: f, index: index, socket: socket,
		reader: newNodeReader(), replies: newNodeWriter(f, socket.TryWriteBatch),
	}
}
