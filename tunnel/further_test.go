package tunnel

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// wire counts the data messages between two hosts by the port of the second one.
type wire struct {
	mu      sync.Mutex
	server  string
	counts  map[uint16]int
	blocked map[uint16]bool
}

func (w *wire) drop(from, to netip.AddrPort, m []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	port := to.Port()
	if from.Addr().String() == w.server {
		port = from.Port()
	}
	if classify(m) == messageData && to.Addr().String() == w.server && len(m) > keepaliveLen {
		w.counts[port]++
	}
	return w.blocked[port]
}

// take returns how many messages there were on each port since the last time.
func (w *wire) take() map[uint16]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.counts
	w.counts = make(map[uint16]int)
	return taken
}

func (w *wire) block(ports ...uint16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocked = make(map[uint16]bool)
	for _, p := range ports {
		w.blocked[p] = true
	}
}

// bundle is a client a and a server b with several tunnels.
type bundle struct {
	a, b *gateway
	net  *memNet
	wire *wire
}

// ends are the addresses that one tunnel alone has at its ends.
func ends(place int) (client, server netip.Prefix) {
	at := func(host int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 18, byte(4*place + host)}), 32)
	}
	return at(2), at(1)
}

// newBundle returns two gateways that run, with a tunnel for each port.
func newBundle(t *testing.T, readers int, ports ...uint16) bundle {
	n := newMemNet()
	w := &wire{server: "192.0.2.2", counts: make(map[uint16]int)}
	n.setDrop(w.drop)
	gateway := func(host, inner string) *gateway {
		var g *gateway
		options, _ := withReaders(Options{Listen: n.listen(host)}, readers-1)
		options.Further = func(int) Writer { return g.overlay }
		g = newGateway(t, host, inner, options)
		return g
	}
	x := bundle{gateway("192.0.2.1", "10.1.0.1"), gateway("192.0.2.2", "10.2.0.1"), n, w}
	connect(t, x.a, x.b)
	x.apply(t, ports...)
	x.a.run(t)
	x.b.run(t)
	x.settle()
	return x
}

// settle waits until the further tunnels are as configured, and keeps their peers: see keepPeers.
func (x *bundle) settle() {
	synctest.Wait()
	for _, g := range []*gateway{x.a, x.b} {
		keepPeers(g)
		for _, f := range g.runningFurther(true) {
			keepPeers(&gateway{Tunnel: f, config: g.config})
		}
	}
}

// apply has both ends have a tunnel for each port.
func (x *bundle) apply(t *testing.T, ports ...uint16) {
	t.Helper()
	x.b.apply(t, func(c *Config) {
		c.ListenPort, c.Further = ports[0], nil
		for i, p := range ports[1:] {
			client, _ := ends(i + 1)
			c.Further = append(c.Further, Further{ListenPort: p, AllowedIPs: append([]netip.Prefix{client}, c.AllowedIPs...)})
		}
	})
	x.a.apply(t, func(c *Config) {
		at := func(p uint16) string { return x.b.host + ":" + strconv.Itoa(int(p)) }
		c.Endpoint, c.Further = at(ports[0]), nil
		for i, p := range ports[1:] {
			_, server := ends(i + 1)
			c.Further = append(c.Further, Further{Endpoint: at(p), AllowedIPs: append([]netip.Prefix{server}, c.AllowedIPs...)})
		}
	})
}

// tcp returns a packet of a flow, with a number in the sequence number.
func tcp(src, dst string, flow uint16, number uint32) []byte {
	p := ipPacket(src, dst, 0, 100)
	p[9] = 6
	binary.BigEndian.PutUint16(p[20:], flow)
	binary.BigEndian.PutUint16(p[22:], 443)
	binary.BigEndian.PutUint32(p[24:], number)
	return p
}

// flows sends packets of several flows and checks that all of them arrive, each flow in its order.
func (x *bundle) flows(t *testing.T, flows, each int) {
	t.Helper()
	go func() {
		for n := range uint32(each) {
			for f := range uint16(flows) {
				x.a.overlay.out <- tcp(x.a.inner, x.b.inner, f, n)
			}
		}
	}()
	next := make(map[uint16]uint32)
	for range flows * each {
		p := receive(t, x.b.overlay.in, "a packet")
		flow, number := binary.BigEndian.Uint16(p[20:]), binary.BigEndian.Uint32(p[24:])
		if number != next[flow] {
			t.Fatalf("flow %d: got packet %d, want %d", flow, number, next[flow])
		}
		next[flow]++
	}
}

// greet sends what has to go by each tunnel whatever carries the rest, and so gives it a session.
func (x *bundle) greet(t *testing.T, tunnels int) {
	t.Helper()
	for i := 1; i < tunnels; i++ {
		client, server := ends(i)
		x.a.overlay.own <- ipPacket(client.Addr().String(), server.Addr().String(), uint32(i), 100)
		if id := packetID(receive(t, x.b.overlay.in, "what goes by one tunnel alone")); id != uint32(i) {
			t.Fatalf("got %d, want %d", id, i)
		}
	}
}

func TestFlowsGoBySeveralTunnels(t *testing.T) {
	for _, readers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			x := newBundle(t, readers, 51820, 51821, 51822, 51823)
			x.flows(t, 64, 10)
			if got := x.wire.take(); len(got) != 1 || got[51820] < 640 {
				t.Errorf("before the others are usable, messages by port: %v", got)
			}
			x.greet(t, 4)
			if got := x.wire.take(); got[51821] != 1 || got[51822] != 1 || got[51823] != 1 || len(got) != 3 {
				t.Errorf("packets of one tunnel alone, by port: %v", got)
			}
			x.a.SetUsable([]bool{true, true, true, true})
			x.flows(t, 64, 10)
			got := x.wire.take()
			for port := uint16(51820); port < 51824; port++ {
				if got[port] == 0 || got[port]%10 != 0 { // a flow is not divided
					t.Errorf("messages by port: %v", got)
				}
			}
			s := x.a.Stats()
			if total := s.Total(); len(s.Further) != 3 || total.TxPackets != 640+3+640 || total.TxBytes <= s.TxBytes || s.LeftOut {
				t.Errorf("%+v", s)
			}
			for _, f := range x.b.Stats().Further {
				if f.RxPackets == 0 || f.Problem != "" || !f.LeftOut { // nobody has told b
					t.Errorf("the server's: %+v", f)
				}
			}
		})
	}
}

// Flows of a tunnel that does not work go by the others, and those of the first one, too.
func TestTunnelsThatDoNotWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBundle(t, 1, 51820, 51821, 51822)
		x.flows(t, 8, 1)
		x.greet(t, 3)
		for _, c := range []struct {
			blocked []uint16
			usable  []bool
			by      int
		}{
			{nil, []bool{true, true, true}, 3},
			{[]uint16{51822}, []bool{true, true, false}, 2},
			{[]uint16{51820}, []bool{false, true, true}, 2},
			{[]uint16{51820, 51821}, []bool{false, false, true}, 1},
			{nil, []bool{true, true}, 2},
			{nil, []bool{false, false, false}, 1}, // by the first one
			{nil, nil, 1},
		} {
			x.wire.block(c.blocked...)
			x.a.SetUsable(c.usable)
			x.wire.take()
			x.flows(t, 64, 5)
			if got := x.wire.take(); len(got) != c.by {
				t.Errorf("%v: messages by port: %v", c, got)
			}
		}
	})
}

// Changes of the ports leave alone what stays.
func TestFurtherTunnelsFollowTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBundle(t, 1, 51820, 51821, 51822)
		x.flows(t, 8, 1)
		x.greet(t, 3)
		handshake := func(place int) time.Time { return x.a.Stats().Further[place].LastHandshake }
		before := handshake(1)
		time.Sleep(10 * time.Second)
		for _, ports := range [][]uint16{
			{51820, 51822},               // its place changes
			{51820, 51823, 51822},        // and again
			{51823, 51820, 51822},        // the first one takes the port of another, and that one its
			{51820},                      // none
			{51820, 51822, 51821, 51823}, // more than before
		} {
			x.apply(t, ports...)
			x.settle()
			time.Sleep(furtherRetry + time.Second)
			x.settle()
			x.greet(t, len(ports))
			if len(ports) == 3 && ports[0] == 51820 && !handshake(1).Equal(before) {
				t.Errorf("%v: a tunnel that stays has another session", ports)
			}
			x.a.SetUsable([]bool{true, true, true, true})
			x.wire.take()
			x.flows(t, 64, 2)
			if got := x.wire.take(); len(got) != len(ports) {
				t.Errorf("%v: messages by port: %v", ports, got)
			}
			if open := x.net.open(); open != 2*len(ports) {
				t.Errorf("%v: %d sockets are open", ports, open)
			}
		}
		// Another key holds for all of them.
		key := GeneratePrivateKey()
		x.b.apply(t, func(c *Config) { c.PrivateKey = key })
		x.a.apply(t, func(c *Config) { c.PeerKey = key.Public() })
		x.settle()
		time.Sleep(10 * time.Second)
		x.greet(t, 4)
		x.flows(t, 64, 2)
		for _, s := range append(x.a.Stats().Further, x.a.Stats()) {
			if s.Peer != key.Public() {
				t.Errorf("the peer of a tunnel is %v", s.Peer)
			}
		}
	})
}

// Two tunnels that run never have one Writer, which takes one batch at a time, whatever places
// they had before.
func TestFurtherTunnelsDoNotShareAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBundle(t, 1, 51820)
		x.a.opts.Further = func(number int) Writer { return &numberedWriter{memOverlay: x.a.overlay, number: number} }
		for _, ports := range [][]uint16{
			{51820, 51821, 51822},
			{51820, 51822, 51823}, // one that stays has another place
			{51820, 51823},
			{51820, 51824, 51823, 51825},
		} {
			x.apply(t, ports...)
			x.settle()
			used := make(map[int]bool)
			for _, f := range x.a.runningFurther(true) {
				number := f.opts.Overlay.(*sink).Writer.(*numberedWriter).number
				if used[number] {
					t.Errorf("%v: two tunnels have Writer %d", ports, number)
				}
				used[number] = true
			}
		}
	})
}

// numberedWriter is a Writer that knows its number.
type numberedWriter struct {
	*memOverlay
	number int
}

// A port that cannot be had is no reason to refuse a configuration.
func TestFurtherPortInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBundle(t, 1, 51820)
		held, err := x.net.listen("192.0.2.2")(51821)
		if err != nil {
			t.Fatal(err)
		}
		x.apply(t, 51820, 51821)
		x.settle()
		x.a.SetUsable([]bool{true})
		x.flows(t, 64, 2)
		if s := x.b.Stats(); len(s.Further) != 1 || s.Further[0].Problem == "" || !s.Further[0].LeftOut || s.Further[0].Peer != x.a.key.Public() {
			t.Errorf("%+v", s.Further)
		}
		held.Close()
		time.Sleep(furtherRetry + time.Second)
		x.settle()
		if s := x.b.Stats(); s.Further[0].Problem != "" || s.Further[0].ListenPort != 51821 {
			t.Errorf("%+v", s.Further)
		}
		x.greet(t, 2)
	})
}

func TestFurtherConfig(t *testing.T) {
	key, peer := GeneratePrivateKey(), GeneratePrivateKey().Public()
	for _, tt := range []struct {
		name   string
		change func(*Config)
		ok     bool
	}{
		{"a server's", func(c *Config) { c.ListenPort, c.Further = 1, []Further{{ListenPort: 2}, {ListenPort: 3}} }, true},
		{"a client's", func(c *Config) { c.Endpoint, c.Further = "192.0.2.1:1", []Further{{Endpoint: "192.0.2.1:2"}} }, true},
		{"one port twice", func(c *Config) { c.ListenPort, c.Further = 1, []Further{{ListenPort: 2}, {ListenPort: 2}} }, false},
		{"that of the first one", func(c *Config) { c.ListenPort, c.Further = 1, []Further{{ListenPort: 1}} }, false},
		{"the same with an endpoint", func(c *Config) {
			c.ListenPort, c.Further = 1, []Further{{ListenPort: 1, Endpoint: "192.0.2.1:1"}}
		}, false},
		{"one endpoint twice", func(c *Config) { c.Endpoint, c.Further = "192.0.2.1:1", []Further{{Endpoint: "192.0.2.1:1"}} }, false},
		{"an endpoint without a port", func(c *Config) { c.Further = []Further{{ListenPort: 2, Endpoint: "192.0.2.1"}} }, false},
		{"no prefix", func(c *Config) { c.Further = []Further{{ListenPort: 2, AllowedIPs: []netip.Prefix{{}}}} }, false},
		{"as many as there may be", func(c *Config) { c.Further = ports(MaxTunnels - 1) }, true},
		{"too many", func(c *Config) { c.Further = ports(MaxTunnels) }, false},
	} {
		c := Config{PrivateKey: key, PeerKey: peer}
		tt.change(&c)
		if err := c.Validate(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: newMemNet().listen("192.0.2.1")})
	if err := a.Apply(Config{PrivateKey: key, Further: ports(1)}); err == nil {
		t.Error("further tunnels without a Writer")
	}
}

func ports(n int) (further []Further) {
	for i := range n {
		further = append(further, Further{ListenPort: uint16(1000 + i)})
	}
	return further
}

func TestFlowHash(t *testing.T) {
	v4 := func(change func(p []byte)) []byte {
		p := tcp("10.0.0.1", "10.0.0.2", 1, 1)
		change(p)
		return p
	}
	v6 := func(change func(p []byte)) []byte {
		p := make([]byte, 60)
		p[0], p[6] = 0x60, 17
		change(p)
		return p
	}
	base4, base6 := v4(func([]byte) {}), v6(func([]byte) {})
	for _, tt := range []struct {
		name string
		a, b []byte
		same bool
	}{
		{"payload", base4, v4(func(p []byte) { p[40] = 7 }), true},
		{"TTL and identification", base4, v4(func(p []byte) { p[8], p[5] = 3, 3 }), true},
		{"source", base4, v4(func(p []byte) { p[15] = 7 }), false},
		{"destination", base4, v4(func(p []byte) { p[19] = 7 }), false},
		{"source port", base4, v4(func(p []byte) { p[21] = 7 }), false},
		{"destination port", base4, v4(func(p []byte) { p[23] = 7 }), false},
		{"protocol", base4, v4(func(p []byte) { p[9] = 17 }), false},
		{"options before the ports", v4(func(p []byte) { p[0], p[21] = 0x46, 7 }), v4(func(p []byte) { p[0], p[21] = 0x46, 8 }), true},
		{"ports of fragments", v4(func(p []byte) { p[6], p[21] = 0x20, 7 }), v4(func(p []byte) { p[7], p[21] = 9, 8 }), true},
		{"type of ICMP", v4(func(p []byte) { p[9], p[20] = 1, 8 }), v4(func(p []byte) { p[9], p[20] = 1, 0 }), true},
		{"IPv6 payload", base6, v6(func(p []byte) { p[50] = 7 }), true},
		{"IPv6 source", base6, v6(func(p []byte) { p[23] = 7 }), false},
		{"IPv6 ports", base6, v6(func(p []byte) { p[43] = 7 }), false},
		{"IPv6 extension header", v6(func(p []byte) { p[6], p[43] = 44, 7 }), v6(func(p []byte) { p[6], p[43] = 44, 8 }), true},
	} {
		if same := flowHash(tt.a) == flowHash(tt.b); same != tt.same {
			t.Errorf("%s: the same flow: %v", tt.name, same)
		}
	}
	for n := range base6 { // nothing is read that is not there
		flowHash(base4[:n:n]) // which is longer
		flowHash(base6[:n:n])
	}
}
