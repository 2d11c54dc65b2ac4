package tunlink

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/underlay"
)

var (
	gateway    = netip.MustParseAddr("192.0.2.1")
	nodeIP     = netip.MustParseAddr("10.80.0.2")
	gatewayIP  = netip.MustParseAddr("10.80.0.1")
	nodeIP6    = netip.MustParseAddr("fd00:80::2")
	gatewayIP6 = netip.MustParseAddr("fd00:80::1")
	gatewayMAC = neighbor.MAC{2, 0, 0, 0, 0, 1}

	pod4, remote4 = netip.MustParseAddr("10.243.1.2"), netip.MustParseAddr("10.70.3.4")
	pod6, remote6 = netip.MustParseAddr("fd00:243::1:2"), netip.MustParseAddr("fd00:70::3:4")
)

const testMTU = 1400

// allOffloads are those of a new kernel.
var allOffloads = offloadSteps[0]

// harness is a worker whose device is one end of a pair of sockets and whose
// socket is a slice.
type harness struct {
	testing.TB
	*worker
	tunnel *tunnel
	kernel int // the other end of the device
	sent   sentDatagrams
	buf    []byte
}

// sentDatagrams stands for the socket.
type sentDatagrams struct {
	keep bool
	all  [][]byte
	to   []netip.AddrPort
	ecn  []uint8
}

func (s *sentDatagrams) WriteBatch(ds []underlay.Datagram) (int, error) {
	if !s.keep {
		return len(ds), nil
	}
	for _, d := range ds {
		s.all = append(s.all, append(bytes.Clone(d.Head), d.Body...))
		s.to = append(s.to, d.Addr)
		s.ecn = append(s.ecn, d.ECN)
	}
	return len(ds), nil
}

// newHarness builds a worker with one tunnel, whose gateway is known if resolved is set.
func newHarness(t testing.TB, resolved bool, change func(*Tunnel)) *harness {
	t.Helper()
	e, err := New(Options{GSO: true, GRO: true, Queues: 1})
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorker(e, 0)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16<<20)
	}
	t.Cleanup(func() {
		w.close()
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	d := &device{name: "liqo.test", offloads: allOffloads}
	d.queues = []*queue{{fd: fds[0], device: d, id: idSocket + 1}}
	cfg := Tunnel{Device: d.name, VNI: 7, Gateway: gateway, Internal: nodeIP, GatewayInternal: gatewayIP, MTU: testMTU}
	if change != nil {
		change(&cfg)
	}
	h := &harness{TB: t, worker: w, tunnel: newTunnel(cfg, geneve.DefaultPort, d, &e.waiting, nil), kernel: fds[1], buf: make([]byte, 1<<17)}
	d.tunnel.Store(h.tunnel)
	w.queues[idSocket+1] = d.queues[0]
	e.snap.Store(&snapshot{tunnels: map[tunnelKey]*tunnel{h.tunnel.key(): h.tunnel}, sorted: []*tunnel{h.tunnel}})
	e.workers = []*worker{w}
	h.sent.keep = true
	w.tx.conn, w.now = &h.sent, e.clock()
	if resolved {
		h.tunnel.resolve(gatewayMAC)
	}
	return h
}

// again is h as if it were new, for t: fuzzing needs many.
func (h *harness) again(t testing.TB) *harness {
	old := h.tunnel
	h.TB, h.tunnel = t, newTunnel(old.Tunnel, old.remote.Port(), old.device, old.waiting, nil)
	old.device.tunnel.Store(h.tunnel)
	h.ep.snap.Store(&snapshot{tunnels: map[tunnelKey]*tunnel{h.tunnel.key(): h.tunnel}, sorted: []*tunnel{h.tunnel}})
	for i := range h.ep.drops {
		h.ep.drops[i].Store(0)
	}
	h.rx.forget()
	h.taken()
	h.atKernel()
	h.tunnel.resolve(gatewayMAC)
	return h
}

// fromKernel gives the device a packet and lets the worker read it.
func (h *harness) fromKernel(v vnetHeader, ip []byte) {
	h.Helper()
	b := make([]byte, vnetLen, vnetLen+len(ip))
	v.put(b)
	if _, err := unix.Write(h.kernel, append(b, ip...)); err != nil {
		h.Fatal(err)
	}
	h.drain(h.tunnel.device.queues[0])
	h.tx.flush()
}

// taken returns what was sent to the gateway since the last call.
func (h *harness) taken() [][]byte {
	all := h.sent.all
	h.sent.all, h.sent.to = nil, nil
	return all
}

// fromGateway lets the worker deal with a message from the gateway. segment is the size of
// the datagrams in it, 0 if it is one.
func (h *harness) fromGateway(b []byte, segment int) {
	h.Helper()
	if segment == 0 || segment > len(b) {
		segment = len(b)
	}
	h.message(h.ep.snap.Load(), &underlay.Message{Data: b, Segment: segment, Origin: underlay.Origin{Addr: netip.AddrPortFrom(gateway, 6091)}})
	h.deliver()
	h.tx.flush()
}

// delivered is what the kernel got from the device.
type delivered struct {
	vnet vnetHeader
	ip   []byte
}

// atKernel returns what was written to the device since the last call.
func (h *harness) atKernel() (all []delivered) {
	h.Helper()
	for {
		n, err := unix.Read(h.kernel, h.buf)
		if err == unix.EAGAIN {
			return all
		}
		if err != nil || n < vnetLen {
			h.Fatalf("read %d bytes of what was written to the device: %v", n, err)
		}
		all = append(all, delivered{decodeVnet(h.buf), bytes.Clone(h.buf[vnetLen:n])})
	}
}

func (h *harness) drops() map[string]uint64 {
	m := h.tunnel.count.drops.named()
	for name, n := range h.ep.drops.named() {
		m[name] += n
	}
	return m
}

// encapsulated is ip as the gateway sends it to the node of h.
func (h *harness) encapsulated(e geneve.Encapsulation, ip []byte) []byte {
	etherType := neighbor.EtherTypeIPv4
	if len(ip) > 0 && ip[0]>>4 == 6 {
		etherType = neighbor.EtherTypeIPv6
	}
	return h.framed(e, gatewayMAC, h.tunnel.mac, etherType, ip)
}

func (h *harness) framed(e geneve.Encapsulation, src, dst neighbor.MAC, etherType uint16, payload []byte) []byte {
	vni, frame := uint32(h.tunnel.VNI), packettest.Ethernet(dst, src, etherType, payload)
	switch e {
	case geneve.GeneveIP:
		return packettest.Geneve(vni, etherType, payload)
	case geneve.VXLAN:
		return packettest.VXLAN(vni, frame)
	}
	return packettest.Geneve(vni, packettest.TransparentEthernet, frame)
}

func mustParse(t testing.TB, b []byte) packet.Packet {
	t.Helper()
	p, ok := packet.Parse(b)
	if !ok {
		t.Fatalf("Parse refuses %x", b[:min(len(b), 80)])
	}
	return p
}

// unfinish replaces the transport checksum by the sum of the pseudo-header, as a
// kernel leaves it to a device, and returns what such a device is told.
func unfinish(t testing.TB, b []byte) vnetHeader {
	t.Helper()
	p := mustParse(t, b)
	at := tcpChecksum
	if p.Proto == packet.ProtoUDP {
		at = udpChecksum
	}
	packettest.Unfinish(b)
	return vnetHeader{flags: vnetNeedsChecksum, checkStart: uint16(p.TransportOffset), checkOffset: uint16(at)}
}

// super turns a packet into a super-segment of the kernel with that payload per segment.
func super(t testing.TB, b []byte, size int) vnetHeader {
	t.Helper()
	v, p := unfinish(t, b), mustParse(t, b)
	v.size, v.gsoType, v.headersLen = uint16(size), vnetUDP, uint16(p.TransportOffset+packet.UDPHeaderLen)
	if p.Proto == packet.ProtoTCP {
		v.gsoType = vnetTCP4
		if p.Version == 6 {
			v.gsoType = vnetTCP6
		}
		if p.TCPFlags()&packet.TCPCwr != 0 {
			v.gsoType |= vnetECN
		}
		v.headersLen = uint16(p.TransportOffset + int(p.Transport()[tcpOffset]>>4)*4)
	}
	return v
}

// cutAsKernel returns the packets that a kernel makes of what was written to a device.
func cutAsKernel(t testing.TB, d delivered) (all [][]byte) {
	t.Helper()
	if d.vnet.gsoType == vnetNone {
		if d.vnet.flags&vnetNeedsChecksum == 0 {
			return [][]byte{d.ip}
		}
		ip := bytes.Clone(d.ip)
		if want := unfinish(t, ip); d.vnet != want || !bytes.Equal(ip, d.ip) {
			t.Fatalf("vnet header %+v of %x, want %+v of %x", d.vnet, d.ip, want, ip)
		}
		return [][]byte{packettest.Finish(ip)}
	}
	p := mustParse(t, d.ip)
	if len(p.Bytes) != len(d.ip) {
		t.Fatalf("the header says %d bytes of %d", len(p.Bytes), len(d.ip))
	}
	ip := bytes.Clone(d.ip)
	if want := super(t, ip, int(d.vnet.size)); d.vnet != want || !bytes.Equal(ip, d.ip) {
		t.Fatalf("vnet header %+v, want %+v, of %x, want %x", d.vnet, want, d.ip[:d.vnet.headersLen], ip[:want.headersLen])
	}
	if !packettest.HeaderValid(d.ip) {
		t.Fatal("wrong header checksum")
	}
	return packettest.Cut(d.ip, int(d.vnet.size))
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// tcp is a TCP packet from the far pod to the near one.
func tcp(v6 bool, change func(*packettest.Spec, *packettest.Segment)) []byte {
	spec := packettest.Spec{Src: remote4, Dst: pod4, Proto: packet.ProtoTCP, DontFragment: true}
	if v6 {
		spec.Src, spec.Dst = remote6, pod6
	}
	seg := packettest.Segment{SrcPort: 80, DstPort: 1000, Seq: 1, Ack: 1, Flags: packet.TCPAck, Payload: make([]byte, 1000)}
	if change != nil {
		change(&spec, &seg)
	}
	spec.Transport = seg.Bytes()
	return spec.Bytes()
}

// udp is a UDP packet from the far pod to the near one.
func udp(v6 bool, payload []byte, change func(*packettest.Spec)) []byte {
	spec := packettest.Spec{Src: remote4, Dst: pod4, Proto: packet.ProtoUDP, DontFragment: true}
	if v6 {
		spec.Src, spec.Dst = remote6, pod6
	}
	if change != nil {
		change(&spec)
	}
	spec.Transport = packettest.Datagram(53, 1000, payload)
	return spec.Bytes()
}

// message is one datagram from the gateway.
func message(b []byte) *underlay.Message {
	return &underlay.Message{Data: b, Segment: len(b), Origin: underlay.Origin{Addr: netip.AddrPortFrom(gateway, geneve.DefaultPort)}}
}
