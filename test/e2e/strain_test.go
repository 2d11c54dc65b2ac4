package e2e

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/sluice-net/sluice/bench/record"
	"github.com/sluice-net/sluice/test/lab"
)

var (
	strain  = flag.Bool("e2e.strain", false, "also measure bad wires, floods, partitions and rotations, which takes ten minutes")
	soak    = flag.Duration("e2e.soak", 0, "how long to do at random what gateways have to bear")
	figures = flag.String("e2e.figures", "", "a file to which the measured tables are added, in Markdown")
)

// table is what a test has measured.
type table struct {
	title, about string
	head         []string
	rows         [][]string
}

func (m *table) add(cells ...string) { m.rows = append(m.rows, cells) }

// publish logs the table, and adds it to the file of figures.
func (m *table) publish(t *testing.T) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", m.title, m.about)
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(m.head)
	line(slices.Repeat([]string{"---"}, len(m.head)))
	for _, r := range m.rows {
		line(r)
	}
	t.Log(b.String())
	if *figures == "" {
		return
	}
	f, err := os.OpenFile(*figures, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if at, err := f.Seek(0, io.SeekEnd); err == nil && at == 0 {
		fmt.Fprint(f, "# Under strain\n\n")
		for _, c := range record.Circumstances() {
			fmt.Fprintf(f, "- %s: %s\n", c.Name, c.Value)
		}
	}
	if _, err := f.WriteString(b.String()); err != nil {
		t.Fatal(err)
	}
}

func wantStrain(t *testing.T) {
	if !*strain {
		t.Skip("SKIPPED: takes minutes; -e2e.strain runs it")
	}
}

// smallWorld has one node in each cluster.
func smallWorld(t *testing.T) *world {
	node := []lab.NodeSpec{{Encapsulation: lab.VXLAN}}
	topo := lab.New(t, append(tools, "ethtool")...).NewTopology(node, node)
	return &world{Topology: topo, A1: topo.A.Nodes[0], B1: topo.B.Nodes[0]}
}

// TestBadWires measures the gateways, and in the same run what one would run instead,
// over wires that lose, delay, reorder and duplicate.
func TestBadWires(t *testing.T) {
	wantStrain(t)
	const rounds = 2
	wires := []lab.Impairment{
		{},
		{Loss: 0.001},
		{Loss: 0.01},
		{Loss: 0.05},
		{Reorder: 0.01},
		{Duplicate: 0.01},
		{Delay: 5 * time.Millisecond, Jitter: 5 * time.Millisecond},
		{Delay: 20 * time.Millisecond},
		{Delay: 20 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.001, Reorder: 0.001, Duplicate: 0.001},
	}
	type measured struct{ rates, trips []float64 }
	results := map[bool][]measured{true: make([]measured, len(wires)), false: make([]measured, len(wires))}
	for range rounds {
		for _, ours := range []bool{true, false} {
			t.Run(map[bool]string{true: "gateways", false: "stock"}[ours], func(t *testing.T) {
				w := smallWorld(t)
				wire := w.Wire()
				if ours {
					w.startGateways(t)
				} else {
					binary := lab.Build(t, lab.WireGuardPackage)
					w.A.StartStock(binary)
					w.B.StartStock(binary)
				}
				lab.Eventually(t, lab.Patience, "the first answer", func() error {
					if r := w.A1.Pod.Ping(w.fromA(w.B1.PodAddr), "-c1 -W1"); r.Received == 0 {
						return fmt.Errorf("none")
					}
					return nil
				})
				server := w.B1.Pod.StartIperf()
				defer server.Stop(lab.Patience)
				for i, how := range wires {
					wire.Impair(how)
					got := &results[ours][i]
					r, err := w.A1.Pod.Iperf(lab.Iperf{To: w.fromA(w.B1.PodAddr), Streams: 4, Duration: 4 * time.Second})
					if err != nil || r.BitsPerSecond == 0 {
						t.Errorf("%v: %v", how, err)
					}
					got.rates = append(got.rates, r.BitsPerSecond/1e6)
					ping := w.A1.Pod.Ping(w.fromA(w.B1.PodAddr), "-c100 -i0.01 -W2")
					if ping.Received == 0 {
						t.Errorf("%v: no ping of %d is answered", how, ping.Sent)
					}
					for _, trip := range ping.RTTs {
						got.trips = append(got.trips, float64(trip)/float64(time.Millisecond))
					}
				}
			})
		}
	}
	m := table{
		title: "Bad wires",
		about: "Four TCP streams from pod to pod, and pings, over a wire that passes through a process of the test: what it costs is the same for both. " +
			"Stock is kernel tunnels, nftables and stock wireguard-go. Medians.",
		head: []string{"wire", "TCP Mbit/s", "stock", "ratio", "round trip ms", "stock"},
	}
	for i, how := range wires {
		ours, stock := results[true][i], results[false][i]
		rate, other := record.Median(ours.rates), record.Median(stock.rates)
		m.add(how.String(), fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.0f", other), fmt.Sprintf("%.2f", rate/other),
			fmt.Sprintf("%.2f", record.Median(ours.trips)), fmt.Sprintf("%.2f", record.Median(stock.trips)))
	}
	m.publish(t)
}

// TestHandshakeFlood sends 50 000 handshake initiations each second, from forged
// addresses and with a right first MAC, so that nothing but the server's load tells
// them from a client's. The same flood, dropped by the kernel in front of the gateway,
// says what the flood itself costs.
func TestHandshakeFlood(t *testing.T) {
	wantStrain(t)
	const perSecond, rounds = 50_000, 3
	w := smallWorld(t)
	w.startGateways(t)
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	// Replies to the forged addresses have a way out, as on the Internet.
	w.A.Gateway.IP("route add 198.18.0.0/15 via %s", w.B.WAN)
	const dropped = 9
	w.A.Gateway.Nft(fmt.Sprintf("table inet flood { chain in { type filter hook prerouting priority -300; udp dport %d drop; }; }", dropped))
	w.B.Gateway.Nft("table inet flood { chain in { type filter hook prerouting priority -300; ip daddr 198.18.0.0/15 drop; }; }")

	rates := map[string][]float64{}
	var sent float64
	for range rounds {
		for _, c := range []struct {
			name string
			port int
		}{{"none", 0}, {"dropped by the kernel", dropped}, {"at the server", lab.WireGuardPort}} {
			stop := func() uint64 { return 0 }
			if c.port != 0 {
				stop = startHandshakes(t, w, c.port, perSecond)
			}
			const length = 4 * time.Second
			r, err := w.A1.Pod.Iperf(lab.Iperf{To: w.fromA(w.B1.PodAddr), Duration: length})
			if err != nil {
				t.Errorf("flood %s: %v", c.name, err)
			}
			if n := stop(); n > 0 {
				sent = float64(n) / length.Seconds()
			}
			rates[c.name] = append(rates[c.name], r.BitsPerSecond/1e6)
		}
	}
	wantAnswers(t, w.A1.Pod, w.fromA(w.B1.PodAddr), "-c3 -i0.1 -W5")
	m := table{
		title: "Flood of handshakes",
		about: fmt.Sprintf("One TCP stream from pod to pod beside %.0f handshake initiations a second at the server, from forged addresses with a right first MAC. "+
			"The generator shares the machine: the flood that the kernel drops is what to compare with. Medians of %d.", sent, rounds),
		head: []string{"flood", "TCP Mbit/s", "share"},
	}
	base := record.Median(rates["dropped by the kernel"])
	for _, name := range []string{"none", "dropped by the kernel", "at the server"} {
		m.add(name, fmt.Sprintf("%.0f", record.Median(rates[name])), fmt.Sprintf("%.2f", record.Median(rates[name])/base))
	}
	m.publish(t)
}

// startHandshakes sends initiations from the link of gateway b to a port of gateway a.
// The returned function ends that and says how many there were.
func startHandshakes(t *testing.T, w *world, port, perSecond int) (stop func() uint64) {
	t.Helper()
	frames := handshakes(t, w, port)
	var out io.WriteCloser
	if err := w.B.Gateway.Do(func() (err error) { out, err = lab.OpenPacketSocket("wan0"); return err }); err != nil {
		t.Fatal(err)
	}
	var n atomic.Uint64
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		pace := time.NewTicker(time.Millisecond)
		defer pace.Stop()
		begun := time.Now()
		for {
			select {
			case <-done:
				return
			case now := <-pace.C:
				for want := uint64(now.Sub(begun).Seconds() * float64(perSecond)); n.Load() < want; n.Add(1) {
					f := frames[rand.IntN(len(frames))]
					binary.BigEndian.PutUint16(f[14+14:], uint16(rand.Uint32())) // its source, of 198.18.0.0/16
					setIPv4Checksum(f[14:])
					_, _ = out.Write(f)
				}
			}
		}
	})
	return func() uint64 {
		close(done)
		work.Wait()
		out.Close()
		return n.Load()
	}
}

// handshakes are frames with handshake initiations that nobody has made who knows a key.
func handshakes(t *testing.T, w *world, port int) (frames [][]byte) {
	t.Helper()
	mac := func(h *lab.Host) (hw net.HardwareAddr) {
		err := h.Do(func() error {
			i, err := net.InterfaceByName("wan0")
			if err == nil {
				hw = i.HardwareAddr
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return hw
	}
	var key device.NoisePublicKey
	copy(key[:], w.A.Keys.PublicBytes())
	var macs device.CookieGenerator // of the upstream implementation
	macs.Init(key)
	to, r := w.A.WAN.As4(), rand.NewChaCha8([32]byte{})
	for range 1024 {
		f := slices.Concat(mac(w.A.Gateway), mac(w.B.Gateway), []byte{8, 0})
		f = append(f, 0x45, 0, 0, 20+8+device.MessageInitiationSize, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 0, to[0], to[1], to[2], to[3])
		f = binary.BigEndian.AppendUint16(f, uint16(1024+r.Uint64()%60000))
		f = binary.BigEndian.AppendUint16(f, uint16(port))
		f = append(f, 0, 8+device.MessageInitiationSize, 0, 0) // IPv4: without a checksum
		message := make([]byte, device.MessageInitiationSize)
		r.Read(message)
		binary.LittleEndian.PutUint32(message, device.MessageInitiationType)
		macs.AddMacs(message)
		frames = append(frames, append(f, message...))
	}
	return frames
}

func setIPv4Checksum(header []byte) {
	binary.BigEndian.PutUint16(header[10:], 0)
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(header[10:], ^uint16(sum>>16+sum))
}

// burden is what a gateway holds.
type burden struct {
	heap       uint64
	goroutines int
}

func burdens(w *world) (b [2]burden) {
	for i, g := range []*lab.Gateway{w.gatewayA, w.gatewayB} {
		s := g.Status().Memory
		b[i] = burden{s.Heap, s.Goroutines}
	}
	return b
}

// wantNoMore fails if a gateway holds more than before. A heap varies by what the
// collector has not collected yet; buffers that were touched once stay.
func wantNoMore(t *testing.T, before, after [2]burden) {
	t.Helper()
	for i, name := range []string{"a", "b"} {
		if after[i].heap > 2*before[i].heap+16<<20 {
			t.Errorf("gateway %s: a heap of %d MiB, before %d MiB", name, after[i].heap>>20, before[i].heap>>20)
		}
		if after[i].goroutines > before[i].goroutines+8 { // what answers this question, too
			t.Errorf("gateway %s: %d goroutines, before %d", name, after[i].goroutines, before[i].goroutines)
		}
	}
}

// warm has traffic fill the buffers of the gateways.
func warm(t *testing.T, w *world) {
	t.Helper()
	if _, err := w.A1.Pod.Iperf(lab.Iperf{To: w.fromA(w.B1.PodAddr), Streams: 4, Both: true, Duration: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
}

// TestPartitions cuts the link between the gateways again and again, while both sides
// have much to send.
func TestPartitions(t *testing.T) {
	wantStrain(t)
	const times, length = 20, 5 * time.Second
	w := smallWorld(t)
	w.startGateways(t)
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	warm(t, w)
	before := burdens(w)
	serveEcho(t, w.B1.Pod)
	l := startLoad(t)
	l.add(t, "udp", w.A1.Pod, netip.AddrPortFrom(w.fromA(w.B1.PodAddr), echoPort))
	l.add(t, "tcp", w.A1.Pod, netip.AddrPortFrom(w.fromA(w.B1.PodAddr), echoPort))
	l.recovered(t)
	var silences, silencesTCP []float64
	var most [2]burden
	for range times {
		join := w.Cut()
		time.Sleep(length)
		for i, b := range burdens(w) {
			most[i].heap, most[i].goroutines = max(most[i].heap, b.heap), max(most[i].goroutines, b.goroutines)
		}
		joined := time.Now()
		join()
		l.recovered(t)
		silences, silencesTCP = append(silences, l.flows[0].silence(joined).Seconds()), append(silencesTCP, l.flows[1].silence(joined).Seconds())
	}
	l.end()
	for _, f := range l.flows {
		if f.err != nil {
			t.Errorf("%s: %v", f.name, f.err)
		}
	}
	wantNoMore(t, before, most)
	m := table{
		title: "Partitions",
		about: fmt.Sprintf("The link between the gateways cut %d times for %v, with a UDP flow and a TCP connection of 2 Mbit/s each under way. Silence counts from the moment the link is back; "+
			"that of TCP depends on the sender's timer, which doubles while nothing is answered.", times, length),
		head: []string{"", "median", "worst"},
	}
	m.add("silence of UDP", seconds(record.Median(silences)), seconds(slices.Max(silences)))
	m.add("silence of TCP", seconds(record.Median(silencesTCP)), seconds(slices.Max(silencesTCP)))
	m.add("heap of a gateway meanwhile, before "+mib(before[0].heap), "", mib(max(most[0].heap, most[1].heap)))
	m.publish(t)
}

// silence is the time from a moment until something arrives at a flow.
func (f *flow) silence(since time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.arrivals {
		if at.After(since) {
			return at.Sub(since)
		}
	}
	return time.Since(since)
}

func seconds(s float64) string { return fmt.Sprintf("%.2f s", s) }
func mib(n uint64) string      { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// conversations are TCP connections over which a number goes to an echo server and
// back, again and again.
type conversations struct {
	stop      chan struct{}
	work      sync.WaitGroup
	exchanges atomic.Uint64
	last      []atomic.Int64 // of each connection, when its last exchange has ended, in ns since 1970
	mu        sync.Mutex
	errors    []error
	longest   time.Duration
}

func converse(t *testing.T, from *lab.Host, to netip.AddrPort, count int, pause time.Duration) *conversations {
	t.Helper()
	c := &conversations{stop: make(chan struct{}), last: make([]atomic.Int64, count)}
	for i := range count {
		var conn net.Conn
		if err := from.Do(func() (err error) {
			conn, err = net.DialTimeout("tcp", to.String(), lab.Patience)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		c.work.Go(func() {
			defer conn.Close()
			longest, err := c.run(conn, pause, &c.last[i])
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.errors = append(c.errors, err)
			}
			c.longest = max(c.longest, longest)
		})
	}
	return c
}

func (c *conversations) run(conn net.Conn, pause time.Duration, last *atomic.Int64) (longest time.Duration, err error) {
	var sent, got [8]byte
	for n := uint64(1); ; n++ {
		select {
		case <-c.stop:
			return longest, nil
		case <-time.After(time.Duration(float64(pause) * (0.5 + rand.Float64()))):
		}
		begun := time.Now()
		_ = conn.SetDeadline(begun.Add(2 * time.Minute)) // longer than the most that TCP waits to send once more
		binary.BigEndian.PutUint64(sent[:], n)
		if _, err := conn.Write(sent[:]); err != nil {
			return longest, err
		}
		if _, err := io.ReadFull(conn, got[:]); err != nil {
			return longest, err
		}
		if got != sent {
			return longest, fmt.Errorf("%x came back as %x", sent, got)
		}
		longest = max(longest, time.Since(begun))
		c.exchanges.Add(1)
		last.Store(time.Now().UnixNano())
	}
}

// recovered waits for an exchange over each connection.
func (c *conversations) recovered(t *testing.T) {
	t.Helper()
	since := time.Now().UnixNano()
	lab.Eventually(t, 2*time.Minute, "an exchange over each connection", func() error {
		for i := range c.last {
			if c.last[i].Load() < since {
				return fmt.Errorf("none over number %d", i)
			}
		}
		return nil
	})
}

// end ends the connections and fails if one of them has ended before.
func (c *conversations) end(t *testing.T) {
	t.Helper()
	close(c.stop)
	c.work.Wait()
	for _, err := range c.errors[:min(3, len(c.errors))] {
		t.Errorf("%d connections have failed: %v", len(c.errors), err)
	}
	if c.exchanges.Load() == 0 {
		t.Error("nothing was exchanged")
	}
}

// rotate gives one side a new key, and tells the other one.
func rotate(w *world, c *lab.Cluster) {
	c.Keys = lab.NewKeyPair()
	w.gatewayA.Write(w.A.Manifests())
	w.gatewayB.Write(w.B.Manifests())
}

// TestRotations gives the gateways new keys under many connections.
func TestRotations(t *testing.T) {
	wantStrain(t)
	const times, connections = 50, 200
	w := smallWorld(t)
	w.startGateways(t)
	serveEcho(t, w.B1.Pod)
	before := burdens(w)
	to := netip.AddrPortFrom(w.fromA(w.B1.PodAddr), echoPort)
	c := converse(t, w.A1.Pod, to, connections, 200*time.Millisecond)
	for i := range times {
		before := [2]string{handshake(w.gatewayA), handshake(w.gatewayB)}
		rotate(w, []*lab.Cluster{w.A, w.B}[i%2])
		lab.Eventually(t, lab.Patience, "a session with the new key", func() error {
			if now := [2]string{handshake(w.gatewayA), handshake(w.gatewayB)}; now[0] == before[0] || now[1] == before[1] {
				return fmt.Errorf("the last handshakes are of %v", now)
			}
			return nil
		})
		c.recovered(t) // what a sender has waited once, it doubles the next time
	}
	c.end(t)
	wantNoMore(t, before, burdens(w))
	m := table{
		title: "Rotations of keys",
		about: fmt.Sprintf("%d times a new key for one of the gateways, under %d TCP connections.", times, connections),
		head:  []string{"connections lost", "exchanges", "longest exchange"},
	}
	m.add(fmt.Sprint(len(c.errors)), fmt.Sprint(c.exchanges.Load()), seconds(c.longest.Seconds()))
	m.publish(t)
}

func handshake(g *lab.Gateway) string { return g.Status().DataPlane.TunnelText("lastHandshake") }

// TestSoak does at random, for long, what gateways have to bear.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("SKIPPED: takes as long as -e2e.soak says, such as 60m")
	}
	w := smallWorld(t)
	wire := w.Wire()
	w.startGateways(t)
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	serveEcho(t, w.B1.Pod)
	warm(t, w)
	c := converse(t, w.A1.Pod, netip.AddrPortFrom(w.fromA(w.B1.PodAddr), echoPort), 20, 100*time.Millisecond)
	faults := []struct {
		name string
		do   func(r *rand.Rand)
	}{
		{"cut", func(r *rand.Rand) {
			join := w.Cut()
			time.Sleep(time.Duration(1+r.IntN(10)) * time.Second)
			join()
		}},
		{"bad wire", func(r *rand.Rand) {
			wire.Impair(lab.Impairment{
				Loss: r.Float64() / 20, Duplicate: r.Float64() / 20, Reorder: r.Float64() / 20,
				Delay: time.Duration(r.IntN(50)) * time.Millisecond, Jitter: time.Duration(1+r.IntN(10)) * time.Millisecond,
			})
			time.Sleep(5 * time.Second)
			wire.Impair(lab.Impairment{})
		}},
		{"new key", func(r *rand.Rand) { rotate(w, []*lab.Cluster{w.A, w.B}[r.IntN(2)]) }},
		{"flood of handshakes", func(*rand.Rand) {
			stop := startHandshakes(t, w, lab.WireGuardPort, 5000)
			time.Sleep(2 * time.Second)
			stop()
		}},
		{"nodes come and go", func(r *rand.Rand) {
			m := w.A.Manifests()
			m.Nodes = append(m.Nodes, lab.NodeManifest{
				Name: "node9", VNI: 999, Underlay: netip.MustParseAddr("172.30.0.99"), Internal: netip.MustParseAddr("10.80.0.99"),
				Pods: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.243.99.%d/32", r.IntN(256)))},
			})
			w.gatewayA.Write(m)
			time.Sleep(2 * time.Second)
			w.gatewayA.Remove("node9.yaml")
		}},
		{"bulk traffic", func(*rand.Rand) {
			if _, err := w.A1.Pod.Iperf(lab.Iperf{To: w.fromA(w.B1.PodAddr), Streams: 4, Both: true, Duration: 3 * time.Second}); err != nil {
				t.Errorf("bulk traffic: %v", err)
			}
		}},
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("the faults are of the seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	counts := make([]int, len(faults))
	// Each fault is done once before the first look: it may fill a buffer for good.
	for _, f := range faults {
		f.do(r)
	}
	begun := time.Now()
	first := burdens(w)
	for time.Since(begun) < *soak && !t.Failed() {
		i := r.IntN(len(faults))
		counts[i]++
		faults[i].do(r)
		lab.Eventually(t, lab.Patience, "answers after "+faults[i].name, func() error {
			if p := w.A1.Pod.Ping(w.fromA(w.B1.PodAddr), "-c1 -W1"); p.Received == 0 {
				return fmt.Errorf("none")
			}
			return nil
		})
	}
	last := burdens(w)
	c.end(t)
	wantNoMore(t, first, last)
	m := table{
		title: "Soak",
		about: fmt.Sprintf("%v of random faults, one after the other, with 20 TCP connections that last. Connections lost: %d, of exchanges %d, the longest %s.",
			soak.Round(time.Second), len(c.errors), c.exchanges.Load(), seconds(c.longest.Seconds())),
		head: []string{"", "first", "last"},
	}
	for i, name := range []string{"a", "b"} {
		m.add("heap of gateway "+name, mib(first[i].heap), mib(last[i].heap))
		m.add("goroutines of gateway "+name, fmt.Sprint(first[i].goroutines), fmt.Sprint(last[i].goroutines))
	}
	for i, f := range faults {
		m.add(f.name, "", fmt.Sprintf("%d times", counts[i]))
	}
	m.publish(t)
}
