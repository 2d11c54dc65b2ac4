package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/nat/packet"
)

var (
	flowShared = netip.MustParseAddr("10.70.0.0")
	flowRemote = netip.MustParseAddr("10.243.2.20")
	flowNode   = netip.MustParseAddr("10.80.0.11")
)

// wire describes one packet of a flow, as the peer sees it.
type wire struct {
	proto     uint8
	flags     uint8 // TCP
	local     uint16
	remote    uint16
	host      uint16 // distinguishes remote hosts
	reply     bool   // from remote to local
	id        uint16 // of a fragment
	offset    int    // in bytes; above zero makes a later fragment
	more      bool
	localAddr netip.Addr // flowShared by default
}

// packet returns w and its key.
func (w wire) packet(t testing.TB) (packet.Packet, flowKey) {
	t.Helper()
	local, remote := w.localAddr, flowRemote.As4()
	if !local.IsValid() {
		local = flowShared
	}
	binary.BigEndian.PutUint16(remote[2:], w.host)
	src, dst := local, netip.AddrFrom4(remote)
	sport, dport := w.local, w.remote
	if w.reply {
		src, dst, sport, dport = dst, src, dport, sport
	}
	b := make([]byte, 44) // the payload of a fragment is a multiple of 8
	b[0], b[8], b[9] = 0x45, 64, w.proto
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	binary.BigEndian.PutUint16(b[4:], w.id)
	flags := uint16(w.offset / 8)
	if w.more {
		flags |= 0x2000
	}
	binary.BigEndian.PutUint16(b[6:], flags)
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	if w.offset == 0 {
		switch w.proto {
		case packet.ProtoTCP, packet.ProtoUDP:
			binary.BigEndian.PutUint16(b[20:], sport)
			binary.BigEndian.PutUint16(b[22:], dport)
			binary.BigEndian.PutUint16(b[24:], uint16(len(b)-20)) // UDP length; TCP does not mind
			if w.proto == packet.ProtoTCP {
				b[32], b[33] = 5<<4, w.flags
			}
		case packet.ProtoICMP:
			b[20] = 8 // echo; the identifier is the local "port"
			binary.BigEndian.PutUint16(b[24:], w.local)
		}
	}
	p, ok := packet.Parse(b)
	if !ok {
		t.Fatalf("%+v makes no valid packet: %x", w, b)
	}
	return p, flowKeyOf(&p, local, netip.AddrFrom4(remote), w.reply)
}

// flowClock drives a flowTable by hand.
type flowClock struct {
	testing.TB
	table *flowTable
	now   int64
}

func newFlowClock(t testing.TB, limit int) *flowClock {
	return &flowClock{TB: t, table: newFlowTable(limit), now: int64(time.Hour)}
}

func (c *flowClock) advance(d time.Duration) { c.now += int64(d) }

func (c *flowClock) open(w wire, node string) Verdict {
	c.Helper()
	p, k := w.packet(c)
	return c.table.open(k, &p, flowOrigin{node, flowNode}, c.now)
}

// reply returns the node that the reply goes to, "" for none.
func (c *flowClock) reply(w wire) string {
	c.Helper()
	w.reply = true
	p, k := w.packet(c)
	f, ok := c.table.reply(k, &p, c.now)
	if ok && f.inside != flowNode {
		c.Errorf("reply restores %s, want %s", f.inside, flowNode)
	}
	return f.node
}

// connect sends the three packets of a handshake; w is its SYN.
func (c *flowClock) connect(w wire, node string) Verdict {
	c.Helper()
	if v := c.open(w, node); v != Forwarded {
		return v
	}
	w.flags = packet.TCPSyn | packet.TCPAck
	c.reply(w)
	w.flags = packet.TCPAck
	return c.open(w, node)
}

// known tells whether there is a live flow, and leaves it as it is.
func (c *flowClock) known(w wire) bool {
	c.Helper()
	_, k := w.packet(c)
	_, ok := c.table.peek(k, c.now)
	return ok
}

var (
	tcpSYN  = wire{proto: packet.ProtoTCP, flags: packet.TCPSyn, local: 1000, remote: 80}
	tcpACK  = wire{proto: packet.ProtoTCP, flags: packet.TCPAck, local: 1000, remote: 80}
	tcpFIN  = wire{proto: packet.ProtoTCP, flags: packet.TCPFin | packet.TCPAck, local: 1000, remote: 80}
	tcpRST  = wire{proto: packet.ProtoTCP, flags: packet.TCPRst, local: 1000, remote: 80}
	udpFlow = wire{proto: packet.ProtoUDP, local: 1000, remote: 53}
)

func TestFlowTimeouts(t *testing.T) {
	tests := []struct {
		name string
		flow wire
		run  func(c *flowClock) // what happens before the silence
		want time.Duration
	}{
		{name: "UDP", flow: udpFlow, want: timeoutUDP},
		{name: "UDP that was answered", flow: udpFlow, run: func(c *flowClock) { c.reply(udpFlow) }, want: timeoutUDP},
		{name: "ICMP echo", flow: wire{proto: packet.ProtoICMP, local: 77}, want: timeoutICMP},
		{name: "a protocol that nothing is known about", flow: wire{proto: 47}, want: timeoutOther},
		{name: "TCP that was never answered", flow: tcpSYN, want: timeoutTCPTransitory},
		{name: "TCP that repeats its SYN", flow: tcpSYN, run: func(c *flowClock) { c.open(tcpSYN, "a") }, want: timeoutTCPTransitory},
		{name: "TCP that was answered", flow: tcpSYN, run: func(c *flowClock) {
			c.reply(wire{proto: packet.ProtoTCP, flags: packet.TCPSyn | packet.TCPAck, local: 1000, remote: 80})
			c.open(tcpACK, "a")
		}, want: timeoutTCP},
		{name: "TCP that is half open", flow: tcpSYN, run: func(c *flowClock) { c.reply(tcpACK) }, want: timeoutTCPTransitory},
		{name: "TCP whose SYN is repeated after an answer", flow: tcpSYN, run: func(c *flowClock) { c.reply(tcpACK); c.open(tcpSYN, "a") }, want: timeoutTCPTransitory},
		{name: "TCP found in mid-connection, after a restart of the gateway", flow: tcpACK, run: func(c *flowClock) { c.reply(tcpACK); c.open(tcpACK, "a") }, want: timeoutTCP},
		{name: "TCP that the local side closes", flow: tcpSYN, run: func(c *flowClock) { c.connect(tcpSYN, "a"); c.open(tcpFIN, "a") }, want: timeoutTCPTransitory},
		{name: "TCP that the remote side closes", flow: tcpSYN, run: func(c *flowClock) { c.connect(tcpSYN, "a"); c.reply(tcpFIN) }, want: timeoutTCPTransitory},
		{name: "TCP that is reset", flow: tcpSYN, run: func(c *flowClock) { c.connect(tcpSYN, "a"); c.reply(tcpRST) }, want: timeoutTCPTransitory},
		{name: "TCP closed and used again", flow: tcpSYN, run: func(c *flowClock) {
			c.connect(tcpSYN, "a")
			c.open(tcpFIN, "a")
			c.connect(tcpSYN, "a")
		}, want: timeoutTCP},
		{name: "TCP closed and half open again", flow: tcpSYN, run: func(c *flowClock) {
			c.connect(tcpSYN, "a")
			c.open(tcpFIN, "a")
			c.open(tcpSYN, "a")
			c.open(tcpACK, "a")
		}, want: timeoutTCPTransitory},
		{name: "acknowledgments after the close do not reopen it", flow: tcpSYN, run: func(c *flowClock) {
			c.connect(tcpSYN, "a")
			c.open(tcpFIN, "a")
			c.reply(tcpACK)
			c.open(tcpACK, "a")
		}, want: timeoutTCPTransitory},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newFlowClock(t, 1024)
			if v := c.open(tt.flow, "a"); v != Forwarded {
				t.Fatal(v)
			}
			c.advance(time.Second)
			if tt.run != nil {
				tt.run(c)
			} else {
				c.open(tt.flow, "a")
			}
			c.advance(tt.want - 1)
			if !c.known(tt.flow) {
				t.Errorf("forgotten before %s", tt.want)
			}
			c.advance(1)
			if c.known(tt.flow) || c.reply(tt.flow) != "" {
				t.Errorf("still known after %s", tt.want)
			}
		})
	}
}

func TestFlowTrafficKeepsItAlive(t *testing.T) {
	for _, direction := range []string{"out", "in"} {
		c := newFlowClock(t, 1024)
		c.open(udpFlow, "a")
		for range 10 {
			c.advance(timeoutUDP - 1)
			if direction == "in" {
				c.reply(udpFlow)
			} else {
				c.open(udpFlow, "a")
			}
		}
		if !c.known(udpFlow) {
			t.Errorf("a flow with packets %s is forgotten", direction)
		}
	}
}

// An ICMP error about a flow does not keep it alive (RFC 5508 REQ-4).
func TestFlowErrorIsNoSignOfLife(t *testing.T) {
	c := newFlowClock(t, 1024)
	c.open(udpFlow, "a")
	_, k := udpFlow.packet(t)
	for range 3 {
		c.advance(timeoutUDP / 3)
		c.table.peek(k, c.now)
	}
	if c.known(udpFlow) {
		t.Error("errors kept the flow alive")
	}
}

func TestFlowConflict(t *testing.T) {
	tests := []struct {
		name   string
		before func(c *flowClock)
		open   wire
		node   string
		want   Verdict
		then   string // where a reply goes afterwards
	}{
		{name: "the same node again", open: udpFlow, node: "a", want: Forwarded, then: "a"},
		{name: "another node, flow is live", open: udpFlow, node: "b", want: DropFlowConflict, then: "a"},
		{
			name: "another node, flow has expired", open: udpFlow, node: "b", want: Forwarded, then: "b",
			before: func(c *flowClock) { c.advance(timeoutUDP) },
		},
		{
			name: "a SYN on an established connection", open: tcpSYN, node: "b", want: DropFlowConflict, then: "a",
			before: func(c *flowClock) { c.open(tcpSYN, "a"); c.reply(tcpACK) },
		},
		{
			name: "a SYN on a connection that closes", open: tcpSYN, node: "b", want: Forwarded, then: "b",
			before: func(c *flowClock) { c.connect(tcpSYN, "a"); c.open(tcpFIN, "a") },
		},
		{
			name: "a SYN on a connection that was refused", open: tcpSYN, node: "b", want: Forwarded, then: "b",
			before: func(c *flowClock) { c.open(tcpSYN, "a"); c.reply(tcpRST) },
		},
		{
			name: "data on a connection that closes", open: tcpACK, node: "b", want: DropFlowConflict, then: "a",
			before: func(c *flowClock) { c.open(tcpSYN, "a"); c.open(tcpFIN, "a") },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newFlowClock(t, 1024)
			c.open(udpFlow, "a")
			if tt.before != nil {
				tt.before(c)
			}
			if got := c.open(tt.open, tt.node); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if got := c.reply(tt.open); got != tt.then {
				t.Errorf("reply goes to %q, want %q", got, tt.then)
			}
		})
	}
}

// The flow that takes over starts from nothing: it has not been answered.
func TestFlowTakenOverIsNotEstablished(t *testing.T) {
	c := newFlowClock(t, 1024)
	c.open(tcpSYN, "a")
	c.reply(tcpACK)
	c.open(tcpFIN, "a")
	c.open(tcpSYN, "b")
	c.advance(timeoutTCPTransitory)
	if c.known(tcpSYN) {
		t.Error("an unanswered SYN lives as long as a connection")
	}
}

func TestFlowsAreToldApart(t *testing.T) {
	base := udpFlow
	others := map[string]wire{
		"local port":    {proto: base.proto, local: base.local + 1, remote: base.remote},
		"remote port":   {proto: base.proto, local: base.local, remote: base.remote + 1},
		"remote host":   {proto: base.proto, local: base.local, remote: base.remote, host: 1},
		"protocol":      {proto: packet.ProtoTCP, local: base.local, remote: base.remote},
		"local address": {proto: base.proto, local: base.local, remote: base.remote, localAddr: flowNode},
	}
	for what, w := range others {
		c := newFlowClock(t, 1024)
		c.open(base, "a")
		if c.known(w) {
			t.Errorf("flows that differ in the %s are one", what)
		}
	}
}

// Many flows of one kind push out their own kind, and never a connection that works:
// neither those of others nor those of the same node and of the same remote host.
func TestFlowFloodEvictsNoConnection(t *testing.T) {
	const limit = 1024
	floods := map[string]func(c *flowClock, i int){
		"a scan": func(c *flowClock, i int) {
			c.open(wire{proto: packet.ProtoTCP, flags: packet.TCPSyn, local: 9, remote: uint16(i), host: uint16(i >> 4)}, "b")
		},
		"half-open connections": func(c *flowClock, i int) {
			w := wire{proto: packet.ProtoTCP, flags: packet.TCPSyn, local: 9, remote: uint16(i)}
			c.open(w, "a")
			w.flags = packet.TCPSyn | packet.TCPAck
			c.reply(w)
		},
		"UDP that is answered": func(c *flowClock, i int) {
			w := wire{proto: packet.ProtoUDP, local: 9, remote: uint16(i)}
			c.open(w, "a")
			c.reply(w)
		},
		"connections of another host": func(c *flowClock, i int) {
			c.connect(wire{proto: packet.ProtoTCP, flags: packet.TCPSyn, local: 9, remote: uint16(i), host: 1}, "b")
		},
	}
	for name, flood := range floods {
		t.Run(name, func(t *testing.T) {
			c := newFlowClock(t, limit)
			var connections []wire
			// So few that no shard refuses one of them, however they are spread.
			for i := range limit / 20 {
				w := wire{proto: packet.ProtoTCP, flags: packet.TCPSyn, local: uint16(i), remote: 443}
				if v := c.connect(w, "a"); v != Forwarded {
					t.Fatal(v)
				}
				connections = append(connections, w)
			}
			for i := range 20 * limit {
				c.advance(time.Millisecond)
				flood(c, i)
				if got := c.table.status().Entries; got > limit {
					t.Fatalf("%d flows in a table for %d", got, limit)
				}
			}
			for i, w := range connections {
				if got := c.reply(w); got != "a" {
					t.Fatalf("connection %d goes to %q after the flood", i, got)
				}
			}
			if v := c.open(wire{proto: packet.ProtoUDP, local: 1, remote: 53, host: 2}, "c"); v != Forwarded {
				t.Errorf("another node's flow with another host: %s", v)
			}
		})
	}
}

// What one remote host and one node may have of the table, and that the share is
// given back.
func TestFlowShares(t *testing.T) {
	const limit = 16384
	for _, tt := range []struct {
		name string
		flow func(i int) wire
		want int
	}{
		{"of a remote host", func(i int) wire {
			return wire{proto: packet.ProtoTCP, flags: packet.TCPSyn, local: uint16(i), remote: 80}
		}, limit / 4},
		{"of a node", func(i int) wire {
			return wire{proto: packet.ProtoTCP, flags: packet.TCPSyn, local: uint16(i), remote: 80, host: uint16(i)}
		}, limit / 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newFlowClock(t, limit)
			for range 2 {
				refused := 0
				for i := range limit {
					if v := c.connect(tt.flow(i), "a"); v == DropFlowTableFull {
						refused++
					} else if v != Forwarded {
						t.Fatal(v)
					}
				}
				if got := c.table.status().Entries; got != tt.want || refused != limit-tt.want {
					t.Errorf("%d connections are kept and %d refused, want %d and %d", got, refused, tt.want, limit-tt.want)
				}
				c.advance(timeoutTCP)
				c.table.sweep(c.now, func(string) bool { return true })
			}
			for i := range c.table.shards {
				s := &c.table.shards[i]
				if len(s.holding) != 0 || len(s.idle) != len(s.holders)-1 || s.holders[ofShard].flows != 0 {
					t.Fatalf("an empty shard has %d holders, %d of %d free", len(s.holding), len(s.idle), len(s.holders))
				}
			}
		})
	}
}

// A flow that was not answered gets some time to be, even where all others were.
func TestFlowWaitsForItsAnswer(t *testing.T) {
	const limit = 16384
	c := newFlowClock(t, limit)
	for i := range 4 * limit {
		w := wire{proto: packet.ProtoUDP, local: uint16(i), remote: 53, host: uint16(i >> 3)}
		c.open(w, fmt.Sprint("node-", i%4))
		c.reply(w)
	}
	w := wire{proto: packet.ProtoTCP, flags: packet.TCPSyn, local: 1, remote: 80}
	c.open(w, "a")
	for i := range limit / 32 {
		c.open(wire{proto: packet.ProtoUDP, local: uint16(i), remote: 54, host: uint16(i >> 3)}, "b")
	}
	if c.reply(w) != "a" {
		t.Error("a SYN was forgotten before its answer")
	}
}

// The flow that was silent for longest goes first.
func TestFlowEvictsTheLeastRecentlyUsed(t *testing.T) {
	const limit = 1024
	c := newFlowClock(t, limit)
	flow := func(i int) wire { return wire{proto: packet.ProtoUDP, local: uint16(i), remote: 53, host: uint16(i)} }
	busy := func(i int) bool { return i%8 == 0 }
	for i := range limit / 4 {
		c.open(flow(i), "a")
		c.reply(flow(i))
	}
	for i := range 8 * limit {
		c.advance(10 * time.Millisecond)
		if i%32 == 0 {
			for j := range limit / 4 {
				if busy(j) && c.open(flow(j), "a") == Forwarded {
					c.reply(flow(j))
				}
			}
		}
		w := wire{proto: packet.ProtoUDP, local: uint16(i), remote: 54, host: uint16(i)}
		c.open(w, "a")
		c.reply(w)
	}
	for i := range limit / 4 {
		if c.known(flow(i)) != busy(i) {
			t.Fatalf("flow %d: known is %v, in use is %v", i, c.known(flow(i)), busy(i))
		}
	}
}

// Many short connections, one after the other, leave flows behind that are
// still closing. They must not keep new ones out.
func TestFlowClosedConnectionsMakeRoom(t *testing.T) {
	const limit = 256
	c := newFlowClock(t, limit)
	refused := 0
	for i := range 40 * limit {
		c.advance(time.Millisecond)
		w := wire{proto: packet.ProtoTCP, flags: packet.TCPSyn, local: uint16(i), remote: 80}
		if c.open(w, "a") != Forwarded {
			refused++
			continue
		}
		c.reply(w)
		w.flags = packet.TCPFin | packet.TCPAck
		c.open(w, "a")
		c.reply(w)
	}
	if refused > 0 {
		t.Errorf("%d of %d short connections were refused", refused, 40*limit)
	}
}

func TestFlowFragmentsFollowTheirDatagram(t *testing.T) {
	c := newFlowClock(t, 1024)
	c.open(udpFlow, "a")
	first := wire{proto: packet.ProtoUDP, local: 1000, remote: 53, id: 7, more: true}
	later := wire{proto: packet.ProtoUDP, id: 7, offset: 24, more: true}
	last := wire{proto: packet.ProtoUDP, id: 7, offset: 48}
	stranger := wire{proto: packet.ProtoUDP, id: 8, offset: 24}
	if got := c.reply(later); got != "" {
		t.Errorf("a later fragment without its first goes to %q", got)
	}
	for _, w := range []wire{first, later, last} {
		if got := c.reply(w); got != "a" {
			t.Errorf("fragment at %d goes to %q", w.offset, got)
		}
	}
	if got := c.reply(stranger); got != "" {
		t.Errorf("a fragment of another datagram goes to %q", got)
	}
	c.advance(timeoutFragment)
	if got := c.reply(last); got != "" {
		t.Errorf("a fragment that comes after %s goes to %q", timeoutFragment, got)
	}
	if !c.known(udpFlow) {
		t.Error("the flow went with its fragments")
	}
}

// A sender may use an identification again before the old datagram is
// forgotten; the later fragments belong to the newer one (RFC 6864 section 4).
func TestFlowFragmentIDUsedAgain(t *testing.T) {
	c := newFlowClock(t, 1024)
	other := wire{proto: packet.ProtoUDP, local: 2000, remote: 53}
	c.open(udpFlow, "a")
	c.open(other, "b")
	c.reply(wire{proto: packet.ProtoUDP, local: 1000, remote: 53, id: 7, more: true})
	c.reply(wire{proto: packet.ProtoUDP, local: 2000, remote: 53, id: 7, more: true})
	if got := c.reply(wire{proto: packet.ProtoUDP, id: 7, offset: 24}); got != "b" {
		t.Errorf("the later fragment goes to %q, want the node of the newer datagram", got)
	}
}

// A stream of fragmented datagrams makes an entry for each: they must not keep
// new flows out.
func TestFlowFragmentsMakeRoom(t *testing.T) {
	const limit = 256
	c := newFlowClock(t, limit)
	c.open(udpFlow, "a")
	for id := range 8 * limit {
		c.reply(wire{proto: packet.ProtoUDP, local: 1000, remote: 53, id: uint16(id), more: true})
		c.reply(wire{proto: packet.ProtoUDP, id: uint16(id), offset: 24})
	}
	for i := range limit / 2 {
		if v := c.open(wire{proto: packet.ProtoUDP, local: uint16(i), remote: 99}, "a"); v != Forwarded {
			t.Fatalf("flow %d: %s", i, v)
		}
	}
	if c.reply(udpFlow) != "a" {
		t.Error("the flow of the fragments was pushed out by them")
	}
}

func TestFlowSweep(t *testing.T) {
	c := newFlowClock(t, 1024)
	gone := wire{proto: packet.ProtoUDP, local: 1, remote: 1}
	stays := wire{proto: packet.ProtoUDP, local: 2, remote: 1}
	old := wire{proto: packet.ProtoICMP, local: 3}
	c.open(old, "a")
	c.open(gone, "b")
	c.open(stays, "a")
	c.advance(timeoutICMP)
	c.table.sweep(c.now, func(node string) bool { return node == "a" })
	if diff := cmp.Diff(FlowStatus{Entries: 1, Capacity: 1024}, c.table.status()); diff != "" {
		t.Errorf("after the sweep (-want +got)\n%s", diff)
	}
	if !c.known(stays) {
		t.Error("the live flow of a live node was swept")
	}
}

// TestFlowConcurrentUse is for the race detector; what it checks by itself is
// the bound.
func TestFlowConcurrentUse(t *testing.T) {
	const limit = 512
	c := newFlowClock(t, limit)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 4000 {
				w := wire{proto: packet.ProtoUDP, local: uint16(i), remote: uint16(worker), id: uint16(i)}
				p, k := w.packet(t)
				c.table.open(k, &p, flowOrigin{fmt.Sprint("node-", worker), flowNode}, c.now+int64(i))
				w.reply, w.more = true, i%3 == 0
				p, k = w.packet(t)
				if f, ok := c.table.reply(k, &p, c.now+int64(i)); ok && f.node != fmt.Sprint("node-", worker) {
					t.Errorf("worker %d found the flow of %s", worker, f.node)
				}
				c.table.peek(k, c.now)
			}
		})
	}
	wg.Go(func() {
		for i := range 200 {
			c.table.sweep(c.now+int64(i), func(node string) bool { return node != "node-3" || i%2 == 0 })
			if got := c.table.status().Entries; got > limit {
				t.Errorf("%d flows in a table for %d", got, limit)
			}
		}
	})
	wg.Wait()
}
