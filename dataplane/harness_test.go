package dataplane_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// The network of the harness: one gateway, two nodes, and the peer's side of
// the tunnel in the test's hands.
var (
	gatewayAddr = netip.MustParseAddrPort("172.30.0.2:6091")
	nodeAddrs   = []netip.AddrPort{netip.MustParseAddrPort("172.30.0.11:6091"), netip.MustParseAddrPort("172.30.0.12:6091")}
	strangerUDP = netip.MustParseAddrPort("172.30.0.99:6091")

	gatewayIP    = netip.MustParseAddr("10.80.0.1")
	gatewayIP6   = netip.MustParseAddr("fd00:80::1")
	nodeIPs      = []netip.Addr{netip.MustParseAddr("10.80.0.11"), netip.MustParseAddr("10.80.0.12")}
	tunnelIP     = netip.MustParseAddr("169.254.18.1")
	peerTunnelIP = netip.MustParseAddr("169.254.18.2")

	localPod  = netip.MustParseAddr("10.243.1.10") // on node 0
	localPod6 = netip.MustParseAddr("fd00:243:0:1::10")
	unknownIP = netip.MustParseAddr("10.70.0.0")

	remoteInside   = netip.MustParseAddr("10.71.2.20") // as seen here
	remoteOutside  = netip.MustParseAddr("10.243.2.20")
	remoteInside6  = netip.MustParseAddr("fd00:71:0:2::20")
	remoteOutside6 = netip.MustParseAddr("fd00:243:0:2::20")

	mappedHost    = netip.MustParseAddr("192.168.7.7") // behind the cluster
	mappedHostOut = netip.MustParseAddr("10.70.0.7")
	mappedPod     = netip.MustParseAddr("10.243.1.50")
	mappedPodOut  = netip.MustParseAddr("10.70.0.50")
)

const offset = 16 // wireguard-go's headroom

// harness drives a Forwarder by hand: no goroutine runs, so every packet's way
// is deterministic.
type harness struct {
	*testing.T
	forwarder *dataplane.Forwarder
	config    dataplane.Config
	network   *dataplanetest.Network
	gateway   *dataplanetest.Socket
	nodes     []*dataplanetest.Socket
	nodeMACs  []neighbor.MAC
	gatewayID neighbor.MAC // the gateway's MAC on node 0's tunnel
	bufs      [][]byte     // of the tunnel
	sizes     []int
	arrived   [][]byte // buffers of atNode
	ran       bool     // its Run owns ReadPackets
}

func newHarness(t *testing.T, change func(*dataplane.Config)) *harness {
	h := &harness{T: t, network: dataplanetest.NewNetwork(), config: harnessConfig()}
	if change != nil {
		change(&h.config)
	}
	h.gateway = h.network.Listen(gatewayAddr)
	h.forwarder = newForwarderOn(t, h.network, h.gateway)
	t.Cleanup(h.close)
	if err := h.forwarder.Apply(h.config); err != nil {
		t.Fatal(err)
	}
	for i, a := range nodeAddrs {
		h.nodes = append(h.nodes, h.network.Listen(a))
		h.nodeMACs = append(h.nodeMACs, neighbor.MAC{2, 0, 0, 0, 0, byte(i + 1)})
	}
	for range 128 {
		h.bufs = append(h.bufs, make([]byte, 65535))
	}
	for range 64 {
		h.arrived = append(h.arrived, make([]byte, 65535))
	}
	h.sizes = make([]int, len(h.bufs))
	for i := range nodeAddrs {
		h.resolve(i)
	}
	return h
}

// run starts the Forwarder and returns what stops it and waits. Afterwards it
// cannot be used any more.
func (h *harness) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := h.running(ctx)
	return func() {
		h.Helper()
		cancel()
		if err := <-done; err != nil {
			h.Errorf("Run: %v", err)
		}
	}
}

// close releases what a Forwarder holds that never ran: by a Run that ends at
// once.
func (h *harness) close() {
	if !h.ran {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := h.forwarder.Run(ctx); err != nil {
			h.Errorf("Run: %v", err)
		}
	}
}

// read waits for n datagrams at a node's socket.
func (h *harness) read(s *dataplanetest.Socket, n int) (out []encapsulated) {
	h.Helper()
	for len(out) < n {
		bufs, sizes, from := [][]byte{make([]byte, 65535)}, make([]int, 1), make([]underlay.Origin, 1)
		if _, err := s.ReadBatch(bufs, sizes, from); err != nil {
			h.Fatal(err)
		}
		out = append(out, h.decapsulated(bufs[0][:sizes[0]], from[0]))
	}
	return out
}

// newForwarder builds a Forwarder that is not configured.
func newForwarder(t *testing.T, network *dataplanetest.Network, addr netip.AddrPort) *dataplane.Forwarder {
	t.Helper()
	return newForwarderOn(t, network, network.Listen(addr))
}

func newForwarderOn(t *testing.T, network *dataplanetest.Network, u dataplane.Underlay) *dataplane.Forwarder {
	t.Helper()
	f, err := dataplane.New(dataplane.Options{
		Underlays: []dataplane.Underlay{u},
		Tunnel: tunnel.Options{Listen: func(port uint16) (tunnel.Socket, error) {
			return network.Listen(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)), nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func harnessConfig() dataplane.Config {
	key := tunnel.GeneratePrivateKey()
	return dataplane.Config{
		MTU:            1340,
		TunnelAddr:     tunnelIP,
		PeerTunnelAddr: peerTunnelIP,
		Internal:       []netip.Addr{gatewayIP, gatewayIP6},
		Nodes: []dataplane.Node{
			{Name: "node-0", Underlay: []netip.Addr{nodeAddrs[0].Addr()}, VNI: 7, Internal: nodeIPs[:1]},
			{Name: "node-1", Underlay: []netip.Addr{nodeAddrs[1].Addr()}, VNI: 8, Internal: nodeIPs[1:]},
		},
		Routes: []dataplane.Route{
			{Dst: netip.MustParsePrefix("10.243.1.0/24"), Node: "node-0"},
			{Dst: netip.MustParsePrefix("10.243.2.0/24"), Node: "node-1"},
			{Dst: netip.MustParsePrefix("10.243.2.99/32"), Node: "node-0"},
			{Dst: netip.MustParsePrefix("fd00:243:0:1::/64"), Node: "node-0"},
			{Dst: netip.MustParsePrefix("192.168.7.0/24"), Node: "node-1"},
		},
		Remote: []nat.Mapping{
			{Inside: netip.MustParsePrefix("10.71.0.0/16"), Outside: netip.MustParsePrefix("10.243.0.0/16")},
			{Inside: netip.MustParsePrefix("fd00:71::/48"), Outside: netip.MustParsePrefix("fd00:243::/48")},
			{Inside: netip.MustParsePrefix("10.73.0.0/16"), Outside: netip.MustParsePrefix("10.70.0.0/16")},
		},
		LocalPods:     []netip.Prefix{netip.MustParsePrefix("10.243.0.0/16"), netip.MustParsePrefix("fd00:243::/48")},
		LocalExternal: []netip.Prefix{netip.MustParsePrefix("10.70.0.0/16")},
		Addresses: []dataplane.AddressMapping{
			{Inside: mappedHost, Outside: mappedHostOut},
			{Inside: mappedPod, Outside: mappedPodOut},
		},
		Tunnel: tunnel.Config{PrivateKey: key, ListenPort: 51840},
	}
}

// resolve lets node i ask for the gateway's MAC, which teaches the gateway the
// node's.
func (h *harness) resolve(i int) {
	h.Helper()
	h.fromNode(i, frame(neighbor.Broadcast, h.nodeMACs[i], neighbor.EtherTypeARP, packettest.ARP{
		Op: neighbor.ARPRequest, SenderMAC: h.nodeMACs[i], SenderIP: nodeIPs[i], TargetIP: gatewayIP,
	}.Bytes()))
	h.egress()
	got := h.atNode(i)
	if len(got) != 1 {
		h.Fatalf("node %d got %d answers to its ARP request, want 1", i, len(got))
	}
	f, _ := neighbor.DecodeFrame(got[0].payload)
	want := packettest.ARP{Op: neighbor.ARPReply, SenderMAC: f.Src, SenderIP: gatewayIP, TargetMAC: h.nodeMACs[i], TargetIP: nodeIPs[i]}
	if !bytes.Equal(got[0].payload, frame(h.nodeMACs[i], f.Src, neighbor.EtherTypeARP, want.Bytes())) {
		h.Fatalf("node %d got %x, want an ARP reply for %s", i, got[0].payload, gatewayIP)
	}
	if i == 0 {
		h.gatewayID = f.Src
	}
}

func frame(dst, src neighbor.MAC, etherType uint16, payload []byte) []byte {
	return packettest.Ethernet(dst, src, etherType, payload)
}

// inGeneve puts the header of a node's tunnel before a frame.
func inGeneve(vni uint32, frame []byte) []byte {
	return packettest.Geneve(vni, packettest.TransparentEthernet, frame)
}

// fromNode sends a frame from node i in Geneve.
func (h *harness) fromNode(i int, frame []byte) { h.datagram(h.nodes[i], inGeneve(uint32(7+i), frame)) }

func (h *harness) datagram(from *dataplanetest.Socket, b []byte) {
	if _, err := from.WriteBatch([]underlay.Datagram{{Addr: gatewayAddr, Body: b}}); err != nil {
		h.Fatal(err)
	}
}

// ipFromNode sends an IP packet from node i.
func (h *harness) ipFromNode(i int, ip []byte) {
	et := neighbor.EtherTypeIPv4
	if len(ip) > 0 && ip[0]>>4 == 6 {
		et = neighbor.EtherTypeIPv6
	}
	// The gateway's MAC differs by tunnel; a node without ARP uses its own.
	h.fromNode(i, frame(h.nodeMACs[i], h.nodeMACs[i], et, ip))
}

// egress returns what the tunnel gets of everything that was sent so far. A
// marker behind it makes sure that ReadPackets returns.
func (h *harness) egress() [][]byte {
	h.Helper()
	const markerPort = 4242
	h.ipFromNode(0, dataplanetest.Build(dataplanetest.Packet{
		Src: netip.AddrPortFrom(localPod, markerPort), Dst: netip.AddrPortFrom(remoteInside, markerPort),
	}))
	var out [][]byte
	for {
		n, _, err := h.forwarder.ReadPackets(h.bufs, h.sizes, offset)
		if err != nil {
			h.Fatal(err)
		}
		for i := range n {
			b := append([]byte(nil), h.bufs[i][offset:offset+h.sizes[i]]...)
			if p, ok := packet.Parse(b); ok && p.Proto == packet.ProtoUDP {
				if _, dst := p.Ports(); dst == markerPort {
					return out
				}
			}
			out = append(out, b)
		}
	}
}

// ingress hands packets to the gateway as the tunnel would.
func (h *harness) ingress(packets ...[]byte) {
	var bufs [][]byte
	for _, p := range packets {
		bufs = append(bufs, append(make([]byte, offset), p...))
	}
	h.forwarder.WritePackets(bufs, nil, offset, func() {})
}

// encapsulated is what a node received.
type encapsulated struct {
	header  geneve.Header
	payload []byte // frame, or IP packet for GeneveIP
	from    underlay.Origin
}

// decapsulated takes a datagram for a node apart, whose header must be exact.
func (h *harness) decapsulated(b []byte, from underlay.Origin) encapsulated {
	h.Helper()
	head, payload, err := geneve.Decode(b)
	if err != nil {
		h.Fatalf("a node got %x: %v", b, err)
	}
	want := packettest.Geneve(uint32(head.VNI), head.Protocol, payload)
	if head.Encapsulation == geneve.VXLAN {
		want = packettest.VXLAN(uint32(head.VNI), payload)
	}
	if !bytes.Equal(b, want) {
		h.Fatalf("a node got %x, want %x", b, want)
	}
	return encapsulated{head, payload, from}
}

// ip returns the IP packet in it.
func (e encapsulated) ip() []byte {
	if e.header.Encapsulation == geneve.GeneveIP {
		return e.payload
	}
	return e.payload[neighbor.EthernetHeaderLen:]
}

// atNode returns what arrived at node i since the last call.
func (h *harness) atNode(i int) []encapsulated {
	h.Helper()
	sizes, from := make([]int, len(h.arrived)), make([]underlay.Origin, len(h.arrived))
	// Something to read is always there, so that ReadBatch does not block.
	h.datagram2(h.nodes[i], h.nodes[i].LocalAddr(), []byte("end"))
	n, err := h.nodes[i].ReadBatch(h.arrived, sizes, from)
	if err != nil {
		h.Fatal(err)
	}
	var out []encapsulated
	for j := range n {
		b := bytes.Clone(h.arrived[j][:sizes[j]])
		if string(b) == "end" {
			continue
		}
		out = append(out, h.decapsulated(b, from[j]))
	}
	return out
}

func (h *harness) datagram2(from *dataplanetest.Socket, to netip.AddrPort, b []byte) {
	if _, err := from.WriteBatch([]underlay.Datagram{{Addr: to, Body: b}}); err != nil {
		h.Fatal(err)
	}
}

// egressVerdicts and ingressVerdicts return the counters by name, without the
// harness's own traffic.
func (h *harness) egressVerdicts() map[string]uint64  { return h.forwarder.Status().Egress.Verdicts }
func (h *harness) ingressVerdicts() map[string]uint64 { return h.forwarder.Status().Ingress.Verdicts }

func udp(src netip.Addr, sport uint16, dst netip.Addr, dport uint16, payload string) []byte {
	return dataplanetest.Build(dataplanetest.Packet{
		Src: netip.AddrPortFrom(src, sport), Dst: netip.AddrPortFrom(dst, dport), Payload: []byte(payload),
	})
}

// describe is a packet in one line, for comparing.
func describe(b []byte) string {
	p, ok := packet.Parse(b)
	if !ok {
		return fmt.Sprintf("malformed %x", b)
	}
	s, d := p.Ports()
	return fmt.Sprintf("%s:%d > %s:%d proto %d ttl %d len %d valid %v", p.Src(), s, p.Dst(), d, p.Proto, p.HopLimit(), len(p.Bytes), dataplanetest.ChecksumsValid(b))
}
