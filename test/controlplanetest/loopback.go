package controlplanetest

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
)

// Loopback is a network 127.N.0.0/16 that one cluster has to itself on this
// machine. Nodes have addresses in it. A pod has its address
// from the pod CIDR, as everywhere, and the process that plays it listens on
// Pod of that address: this is all there is of a CNI.
type Loopback struct {
	n    byte
	lock net.Listener
}

// loopbackLockPort marks a network as taken: one listener holds it.
const loopbackLockPort = 6092

// ReserveLoopback takes a network that nobody uses, until the test ends.
func ReserveLoopback(tb testing.TB) *Loopback {
	tb.Helper()
	var err error
	for n := byte(100); n < 250; n++ { // low networks are where people and demos start
		l := &Loopback{n: n}
		if l.lock, err = net.Listen("tcp4", fmt.Sprintf("%s:%d", l.addr(255, 1), loopbackLockPort)); err == nil {
			tb.Cleanup(func() { l.lock.Close() })
			return l
		}
	}
	tb.Fatalf("no network 127.N.0.0/16 is free: %v", err)
	return nil
}

// Node is the address of a node, counted from 0.
func (l *Loopback) Node(i int) netip.Addr { return l.addr(255, byte(1+i)) }

// Pod is where the process listens that plays the pod with address ip.
func (l *Loopback) Pod(ip netip.Addr) netip.Addr {
	b := ip.As4()
	return l.addr(b[2], b[3])
}

func (l *Loopback) addr(x, y byte) netip.Addr { return netip.AddrFrom4([4]byte{127, l.n, x, y}) }
