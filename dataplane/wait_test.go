package dataplane_test

import (
	"sync"
	"testing"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/underlay"
)

// fullSocket is a socket whose send buffer is full until it is emptied: a WriteBatch
// waits, and so does who comes after it.
type fullSocket struct {
	*dataplanetest.Socket
	mu      sync.Mutex
	full    chan struct{} // closed by what waits first
	emptied chan struct{}
	once    sync.Once
}

func (s *fullSocket) WriteBatch(ds []underlay.Datagram) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once.Do(func() { close(s.full) })
	<-s.emptied
	return s.Socket.WriteBatch(ds)
}

// What is for the nodes waits for their socket, as where the peer sends more than they take.
// Packets from the nodes do not, although the gateway has answers to give meanwhile, of ARP and
// ICMP.
func TestEgressDoesNotWaitForIngress(t *testing.T) {
	h := newHarness(t, nil)
	s := &fullSocket{full: make(chan struct{}), emptied: make(chan struct{})}
	s.Socket = h.network.Listen(gatewayAddr) // in place of the harness's
	f := newForwarderOn(t, h.network, s)
	old := h.forwarder
	h.forwarder = f
	h.config.Tunnel.ListenPort++
	if err := f.Apply(h.config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.ran = false; h.close(); h.forwarder = old })
	arp := func() {
		h.fromNode(0, frame(neighbor.Broadcast, h.nodeMACs[0], neighbor.EtherTypeARP, packettest.ARP{
			Op: neighbor.ARPRequest, SenderMAC: h.nodeMACs[0], SenderIP: nodeIPs[0], TargetIP: gatewayIP,
		}.Bytes()))
	}
	arp()
	h.egress() // the gateway knows the node's address now
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		h.ingress(udp(remoteOutside, 2, localPod, 1, "x"))
	}()
	<-s.full
	arp()
	h.ipFromNode(0, expiring(localPod, remoteInside))
	h.ipFromNode(0, oversized(localPod, remoteInside))
	h.ipFromNode(0, udp(localPod, 1, remoteInside, 2, "x"))
	if got := h.egress(); len(got) != 1 {
		t.Errorf("%d packets for the peer, want one", len(got))
	}
	if got := h.atNode(0); len(got) != 4 {
		t.Errorf("%d answers, want two to ARP and two ICMP errors", len(got))
	}
	close(s.emptied)
	<-waiting
}
