package tunlink

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
)

// Tunnel is one tunnel to a gateway. It is comparable.
type Tunnel struct {
	// Device is the name of the TUN device: persistent, with several queues and vnet
	// headers (IFF_TUN|IFF_NO_PI|IFF_VNET_HDR|IFF_MULTI_QUEUE).
	Device string
	// VNI and Gateway, the gateway's underlay address, make a datagram belong to
	// the tunnel.
	VNI     geneve.VNI
	Gateway netip.Addr
	// Internal is the node's address in the tunnel and GatewayInternal the
	// gateway's, of the same family. The former is answered for, the latter asked for.
	Internal, GatewayInternal netip.Addr
	// MTU is that of the device.
	MTU int
}

// Validate checks what can be checked without the system.
func (t Tunnel) Validate() error {
	switch {
	case t.Device == "" || len(t.Device) >= 16: // IFNAMSIZ, with the zero at the end
		return fmt.Errorf("device name %q: want 1 to 15 bytes", t.Device)
	case t.VNI > geneve.MaxVNI:
		return fmt.Errorf("VNI %d: want at most %d", t.VNI, geneve.MaxVNI)
	case !t.Gateway.IsValid() || t.Gateway.IsUnspecified() || t.Gateway.IsMulticast():
		return fmt.Errorf("gateway %v: want the address of one host", t.Gateway)
	case !t.Internal.IsValid() || !t.GatewayInternal.IsValid():
		return fmt.Errorf("internal addresses %v and %v: want both", t.Internal, t.GatewayInternal)
	case t.Internal.Is4() != t.GatewayInternal.Is4():
		return fmt.Errorf("internal addresses %v and %v: want one address family", t.Internal, t.GatewayInternal)
	case t.MTU < minMTU || t.MTU > maxPacket:
		return fmt.Errorf("MTU %d: want %d to %d", t.MTU, minMTU, maxPacket)
	}
	return nil
}

// minMTU is the least that IPv4 works over (RFC 791 section 3.2).
const minMTU = 68

// tunnelKey is what makes a datagram belong to a tunnel. Geneve carries no
// authentication, so both halves must match (RFC 8926 section 6).
type tunnelKey struct {
	gateway netip.Addr
	vni     geneve.VNI
}

// headLen is the length of the headers before a packet to the gateway: Geneve and Ethernet.
const headLen = geneve.HeaderLen + neighbor.EthernetHeaderLen

// head is those headers; its last two octets are the EtherType.
type head [headLen]byte

// tunnel is a Tunnel in force. It is immutable but for what is learned and counted,
// to which it points and which outlives changes of the configuration.
type tunnel struct {
	Tunnel
	remote  netip.AddrPort
	mac     neighbor.MAC // our own
	device  *device
	learned *learned
	count   *counters
	waiting *atomic.Int64 // bytes held by all tunnels
}

// learned is what the gateway told about itself, valid for one gateway only.
type learned struct {
	// head is what every packet to the gateway begins with; nil: its
	// link-layer address is not known yet.
	head atomic.Pointer[head]
	// encapsulation is the geneve.Encapsulation that was heard last.
	encapsulation atomic.Uint32
	// answered is when the gateway last answered a question of ours, in
	// nanoseconds of the Endpoint's clock; zero: never.
	answered atomic.Int64
	// doubt is set when frames come from another link-layer address than the
	// known one: ask again.
	doubt atomic.Bool

	// When and how far apart the gateway is asked; owned by upkeep.
	backoff neighbor.Backoff

	mu    sync.Mutex
	held  [][]byte // packets that wait for head, each behind its vnet header
	size  int      // bytes in held
	since int64    // when the first of them came, on the Endpoint's clock
}

// counters of one tunnel. Packets and bytes are those inside the tunnel, as large
// as they are on the wire.
type counters struct {
	rxPackets, rxBytes, txPackets, txBytes atomic.Uint64
	rxSupers, txSupers                     atomic.Uint64
	lastSeen                               atomic.Int64 // nanoseconds of the Endpoint's clock; zero: never
	drops                                  dropCounters
}

// newTunnel builds the tunnel that t describes. before is what was in force on the
// same device, or nil.
func newTunnel(t Tunnel, port uint16, d *device, waiting *atomic.Int64, before *tunnel) *tunnel {
	t.Gateway, t.Internal, t.GatewayInternal = t.Gateway.Unmap(), t.Internal.Unmap(), t.GatewayInternal.Unmap()
	n := &tunnel{
		Tunnel:  t,
		remote:  netip.AddrPortFrom(t.Gateway, port),
		mac:     stableMAC(t),
		device:  d,
		learned: &learned{},
		count:   &counters{},
		waiting: waiting,
	}
	if before == nil {
		return n
	}
	n.count = before.count
	same := before.Tunnel
	same.Device, same.MTU = t.Device, t.MTU
	if same == t {
		n.learned = before.learned
	}
	return n
}

// stableMAC is the node's link-layer address in a tunnel: the same after a
// restart, so that what the gateway has learned stays right.
func stableMAC(t Tunnel) neighbor.MAC {
	seed := t.Internal.AsSlice()
	seed = binary.BigEndian.AppendUint32(seed, uint32(t.VNI))
	seed = append(seed, t.GatewayInternal.AsSlice()...)
	return neighbor.StableMAC(append(seed, "node"...))
}

func (t *tunnel) key() tunnelKey { return tunnelKey{t.Gateway, t.VNI} }

// drop counts n packets that go nowhere.
func (t *tunnel) drop(d Drop, n int) { t.count.drops.add(d, n) }

// gatewayMAC is the gateway's link-layer address, zero while it is not known.
func (t *tunnel) gatewayMAC() neighbor.MAC {
	if h := t.learned.head.Load(); h != nil {
		return neighbor.MAC(h[geneve.HeaderLen:])
	}
	return neighbor.MAC{}
}

// resolve notes the gateway's link-layer address and returns the packets that
// have waited for it, or nil.
func (t *tunnel) resolve(mac neighbor.MAC) [][]byte {
	l := t.learned
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubt.Store(false)
	if t.gatewayMAC() != mac {
		h := new(head)
		geneve.PutHeader(h[:], geneve.Geneve, t.VNI, geneve.ProtocolEthernet)
		neighbor.PutEthernet(h[geneve.HeaderLen:], mac, t.mac, neighbor.EtherTypeIPv4)
		l.head.Store(h)
	}
	return t.releaseLocked()
}

// releaseLocked takes the packets that wait.
func (t *tunnel) releaseLocked() [][]byte {
	l := t.learned
	held := l.held
	t.waiting.Add(-int64(l.size))
	l.held, l.size = nil, 0
	return held
}

const (
	// maxHeld bounds what waits for the answer of a gateway, in bytes: a super-segment
	// and some small packets, of each of many tunnels when an agent starts.
	maxHeld = 96 << 10
	// maxWaiting bounds what waits for all of them.
	maxWaiting = 8 << 20
	// holdTime is how long a packet waits: as long as a kernel's would, which asks
	// three times, a second apart (RFC 4861 section 10).
	holdTime = 3 * time.Second
)

// hold keeps a copy of a packet, which stands behind its vnet header, until the
// gateway's address is known. It reports false when there is no room, and
// when the address has become known meanwhile.
func (t *tunnel) hold(b []byte, now int64) (held, resolved bool) {
	l := t.learned
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.head.Load() != nil:
		return false, true
	case l.size+len(b) > maxHeld || t.waiting.Load()+int64(len(b)) > maxWaiting:
		return false, false
	}
	if len(l.held) == 0 {
		l.since = now
	}
	l.held = append(l.held, append([]byte(nil), b...))
	l.size += len(b)
	t.waiting.Add(int64(len(b)))
	return true, false
}

// expire drops what has waited since before a time.
func (t *tunnel) expire(before int64) {
	t.learned.mu.Lock()
	defer t.learned.mu.Unlock()
	if len(t.learned.held) > 0 && t.learned.since < before {
		t.drop(DropUnresolved, len(t.releaseLocked()))
	}
}
