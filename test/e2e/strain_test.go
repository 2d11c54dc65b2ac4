package e2e

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	type measured struct {
		rates, trips []float64
		lost         string // by the gateways, in the last round
	}
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
					var before [2]lab.DataPlaneStatus
					if ours {
						before = statuses(w)
					}
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
					if ours {
						got.lost = losses(before, statuses(w))
					}
				}
			})
		}
	}
	m := table{
		title: "Bad wires",
		about: "Four TCP streams from pod to pod, and pings, over a wire that passes through a process of the test: what it costs is the same for both. " +
			"Stock is kernel tunnels, nftables and stock wireguard-go. Medians.",
		head: []string{"wire", "TCP Mbit/s", "stock", "ratio", "round trip ms", "stock", "lost by gateways, last round"},
	}
	for i, how := range wires {
		ours, stock := results[true][i], results[false][i]
		rate, other := record.Median(ours.rates), record.Median(stock.rates)
		m.add(how.String(), fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.0f", other), fmt.Sprintf("%.2f", rate/other),
			fmt.Sprintf("%.2f", record.Median(ours.trips)), fmt.Sprintf("%.2f", record.Median(stock.trips)), ours.lost)
	}
	m.publish(t)
}

// TestHandshakeFlood sends 50 000 handshake initiations each second, from forged
// addresses and with a right first MAC, so that nothing but the server's load tells
// them from a client's. The same flood, dropped by the kernel in front of the gateway,
// says what the flood itself costs.
func TestHandshakeFlood(t *testing.T) {
	wantStrain(t)
	const perSecond, rounds = 50_000, 7
	const none, dropped, served = "none", "dropped by the kernel", "at the server"
	w := smallWorld(t)
	w.startGateways(t)
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	routeForged(w)
	const discard = 9
	w.A.Gateway.Nft(fmt.Sprintf("table inet flood { chain in { type filter hook prerouting priority -300; udp dport %d drop; }; }", discard))

	// The shares are of the two streams of a round, which the machine's other work slows alike.
	rates, beside, spent := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	var sent []float64
	before := statuses(w)
	for range rounds {
		round := map[string]float64{}
		for _, c := range []struct {
			name string
			port int
		}{{none, 0}, {dropped, discard}, {served, lab.WireGuardPort}} {
			stop := func() flooded { return flooded{} }
			if c.port != 0 {
				stop = startHandshakes(t, w, c.port, perSecond)
			}
			r, err := w.A1.Pod.Iperf(lab.Iperf{To: w.fromA(w.B1.PodAddr), Duration: 4 * time.Second})
			if err != nil {
				t.Errorf("flood %s: %v", c.name, err)
			}
			if f := stop(); c.port != 0 {
				sent = append(sent, float64(f.sent)/f.took.Seconds())
				spent[c.name] = append(spent[c.name], f.processor.Seconds()/f.took.Seconds())
			}
			round[c.name] = r.BitsPerSecond / 1e6
		}
		for name, rate := range round {
			rates[name] = append(rates[name], rate)
			for _, other := range []string{none, dropped} {
				beside[name+other] = append(beside[name+other], rate/round[other])
			}
		}
	}
	wantAnswers(t, w.A1.Pod, w.fromA(w.B1.PodAddr), 3, "")
	m := table{
		title: "Flood of handshakes",
		about: fmt.Sprintf("One TCP stream from pod to pod beside %.0f handshake initiations a second at the server, from forged addresses with a right first MAC. "+
			"The generator shares the machine: the flood that the kernel drops is what to compare with. Shares are of the streams of one round. "+
			"The generator's processors contain what the kernel does with a datagram until a socket has it. Medians of %d. What was lost, all rounds: %s",
			record.Median(sent), rounds, losses(before, statuses(w))),
		head: []string{"flood", "TCP Mbit/s", "beside the dropped flood", "beside no flood", "processors of the generator"},
	}
	for _, name := range []string{none, dropped, served} {
		m.add(name, fmt.Sprintf("%.0f", record.Median(rates[name])), record.Spread(beside[name+dropped]),
			record.Spread(beside[name+none]), fmt.Sprintf("%.2f", record.Median(spent[name])))
	}
	m.publish(t)
	// Without figures to record, a machine that does other things judges nothing.
	if left := record.Median(beside[served+dropped]); *figures != "" && left < 0.8 {
		t.Errorf("%.2f of the throughput is left, want 0.8", left)
	}
}

// flooded is what a generator has done, in which time, and its processor time.
type flooded struct {
	sent            uint64
	took, processor time.Duration
}

// startHandshakes sends initiations from the link of gateway b to a port of gateway a.
// The returned function ends that and says what there was.
func startHandshakes(t *testing.T, w *world, port, perSecond int) (stop func() flooded) {
	t.Helper()
	frames := handshakes(t, w, port)
	var out io.WriteCloser
	if err := w.B.Gateway.Do(func() (err error) { out, err = lab.OpenPacketSocket("wan0"); return err }); err != nil {
		t.Fatal(err)
	}
	var f flooded
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		runtime.LockOSThread() // whose processor time counts; it ends with the goroutine
		pace := time.NewTicker(time.Millisecond)
		defer pace.Stop()
		begun := time.Now()
		for {
			select {
			case <-done:
				f.took = time.Since(begun)
				var used unix.Rusage
				if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err == nil {
					f.processor = time.Duration(used.Utime.Nano() + used.Stime.Nano())
				}
				return
			case now := <-pace.C:
				for want := uint64(now.Sub(begun).Seconds() * float64(perSecond)); f.sent < want; f.sent++ {
					frame := frames[rand.IntN(len(frames))]
					binary.BigEndian.PutUint16(frame[14+14:], uint16(rand.Uint32())) // its source, of 198.18.0.0/16
					setIPv4Checksum(frame[14:])
					_, _ = out.Write(frame)
				}
			}
		}
	})
	return func() flooded {
		close(done)
		work.Wait()
		out.Close()
		return f
	}
}

// routeForged gives replies to the forged addresses a way out, as on the Internet.
func routeForged(w *world) {
	w.A.Gateway.IP("route add 198.18.0.0/15 via %s", w.B.WAN)
	w.B.Gateway.Nft("table inet forged { chain in { type filter hook prerouting priority -300; ip daddr 198.18.0.0/15 drop; }; }")
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

func statuses(w *world) [2]lab.DataPlaneStatus {
	return [2]lab.DataPlaneStatus{w.gatewayA.Status().DataPlane, w.gatewayB.Status().DataPlane}
}

// losses is what the gateways have counted as lost since then, by reason.
func losses(then, now [2]lab.DataPlaneStatus) string {
	var all []string
	for i, name := range []string{"a", "b"} {
		then, now := then[i], now[i]
		lost := map[string]uint64{}
		for reason, n := range now.Egress.Verdicts {
			lost["egress "+reason] = n - then.Egress.Verdicts[reason]
		}
		for reason, n := range now.Ingress.Verdicts {
			lost["ingress "+reason] = n - then.Ingress.Verdicts[reason]
		}
		for reason := range now.Tunnel {
			lost["tunnel "+reason] = now.TunnelCounter(reason) - then.TunnelCounter(reason)
		}
		for socket, s := range now.Sockets {
			lost[socket+" overrun"] = s.Overruns - then.Sockets[socket].Overruns
			lost[socket+" writeErrors"] = s.WriteErrors - then.Sockets[socket].WriteErrors
		}
		var counts []string
		for _, what := range slices.Sorted(maps.Keys(lost)) {
			if n := lost[what]; n > 0 && (strings.Contains(strings.ToLower(what), " drop") || strings.Contains(what, "rror") || strings.Contains(what, "overrun")) {
				counts = append(counts, fmt.Sprintf("%s %d", what, n))
			}
		}
		if len(counts) == 0 {
			counts = []string{"nothing"}
		}
		all = append(all, fmt.Sprintf("gateway %s: %s", name, strings.Join(counts, ", ")))
	}
	return strings.Join(all, "; ") + "."
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
	begun, counted := time.Now(), statuses(w)
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
	seen := l.since(begun, underWay)
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
			"that of TCP depends on the sender's timer, which doubles while nothing is answered. Datagrams lost: %d of %d, which %v of partition explain as %d. Of gateways: %s",
			times, length, seen.lost, seen.sent, times*length, int(times*length/loadInterval), losses(counted, statuses(w))),
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

// rotate gives one side a new key when the other one knows it, as `liqoctl network
// rotate-keys` does.
func rotate(t *testing.T, w *world, c *lab.Cluster) {
	t.Helper()
	own, peer := w.gatewayA, w.gatewayB
	if c == w.B {
		own, peer = peer, own
	}
	c.Keys = lab.NewKeyPair()
	peer.Write(c.Peer.Manifests())
	lab.Eventually(t, lab.Patience, "the new key at the peer", func() error {
		if key := peer.Status().DataPlane.TunnelText("peer"); key != c.Keys.Public() {
			return fmt.Errorf("it knows %s, not %s", key, c.Keys.Public())
		}
		return nil
	})
	own.Write(c.Manifests())
}

// rotateEarly gives one side a new key that the other one learns later: until then it
// can begin no session.
func rotateEarly(w *world, c *lab.Cluster, later time.Duration) {
	own, peer := w.gatewayA, w.gatewayB
	if c == w.B {
		own, peer = peer, own
	}
	c.Keys = lab.NewKeyPair()
	own.Write(c.Manifests())
	time.Sleep(later)
	peer.Write(c.Peer.Manifests())
}

// TestRotations gives the gateways new keys under many connections.
func TestRotations(t *testing.T) {
	wantStrain(t)
	const times, connections = 50, 200
	w := smallWorld(t)
	w.startGateways(t)
	serveEcho(t, w.B1.Pod)
	before, counted := burdens(w), statuses(w)
	to := netip.AddrPortFrom(w.fromA(w.B1.PodAddr), echoPort)
	c := converse(t, w.A1.Pod, to, connections, 200*time.Millisecond)
	for i := range times {
		before := [2]string{handshake(w.gatewayA), handshake(w.gatewayB)}
		rotate(t, w, []*lab.Cluster{w.A, w.B}[i%2])
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
		about: fmt.Sprintf("%d times a new key for one of the gateways, under %d TCP connections. What was lost: %s", times, connections, losses(counted, statuses(w))),
		head:  []string{"connections lost", "exchanges", "longest exchange"},
	}
	m.add(fmt.Sprint(len(c.errors)), fmt.Sprint(c.exchanges.Load()), seconds(c.longest.Seconds()))
	m.publish(t)
}

func handshake(g *lab.Gateway) string { return g.Status().DataPlane.TunnelText("lastHandshake") }

// profiler is where the gateways of a soak tell what they hold.
const profiler = "127.0.0.1:6060"

// profile asks a gateway's profiler.
func profile(c *lab.Cluster, query string) string {
	return c.Gateway.Run("curl", "-sf", "http://"+profiler+"/debug/pprof/"+query)
}

var (
	heapLine      = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)
	objectsLine   = regexp.MustCompile(`(?m)^# HeapObjects = (\d+)$`)
	goroutineLine = regexp.MustCompile(`^goroutine profile: total (\d+)\n`)
)

// measure notes what a gateway cannot give back: its heap behind a collection of garbage. What
// lies in a pool goes with the second one.
func (p *soakPart) measure(t *testing.T, c *lab.Cluster) {
	t.Helper()
	number := func(from *regexp.Regexp, text string) float64 {
		m := from.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %v in the answer of the profiler:\n%.500s", from, text)
		}
		n, _ := strconv.ParseFloat(m[1], 64)
		return n
	}
	profile(c, "heap?gc=1&debug=1")
	heap := profile(c, "heap?gc=1&debug=1")
	p.heap, p.objects = append(p.heap, number(heapLine, heap)), append(p.objects, number(objectsLine, heap))
	p.goroutines = append(p.goroutines, number(goroutineLine, profile(c, "goroutine?debug=1")))
}

// soakPart is what was seen of a gateway in one sixth of a soak.
type soakPart struct{ heap, objects, goroutines []float64 }

const soakParts = 6

// messageBuffers of messageBuffer bytes are a batch of wireguard-go's. How many of them
// a gateway holds depends on how the last messages came in, and not on how many there were.
const (
	messageBuffers = 128
	messageBuffer  = 64 << 10
)

// TestSoak does at random, for long, what gateways have to bear. After each fault, when
// all is quiet again, it looks at what they hold.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("SKIPPED: takes as long as -e2e.soak says, such as 60m")
	}
	w := smallWorld(t)
	wire := w.Wire()
	w.startGateways(t, "--pprof-address="+profiler)
	routeForged(w)
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
		{"new key", func(r *rand.Rand) { rotate(t, w, []*lab.Cluster{w.A, w.B}[r.IntN(2)]) }},
		{"new key that the peer learns late", func(r *rand.Rand) {
			rotateEarly(w, []*lab.Cluster{w.A, w.B}[r.IntN(2)], time.Duration(r.IntN(3000))*time.Millisecond)
		}},
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
	answered, exchanged := make([][]float64, len(faults)), make([][]float64, len(faults))
	bear := func(i int) {
		faults[i].do(r)
		ended := time.Now()
		lab.Eventually(t, lab.Patience, "answers after "+faults[i].name, func() error {
			if p := w.A1.Pod.Ping(w.fromA(w.B1.PodAddr), "-c1 -W1"); p.Received == 0 {
				return fmt.Errorf("none")
			}
			return nil
		})
		answered[i] = append(answered[i], time.Since(ended).Seconds())
		c.recovered(t)
		exchanged[i] = append(exchanged[i], time.Since(ended).Seconds())
	}
	// Each fault is done once before the first look: it may fill a buffer for good.
	for i := range faults {
		bear(i)
	}
	clusters := []*lab.Cluster{w.A, w.B}
	parts := make([][soakParts]soakPart, len(clusters))
	before := statuses(w)
	done := 0
	for begun := time.Now(); time.Since(begun) < *soak && !t.Failed(); done++ {
		bear(r.IntN(len(faults)))
		part := min(int(soakParts*time.Since(begun) / *soak), soakParts-1)
		for i, cluster := range clusters {
			parts[i][part].measure(t, cluster)
		}
	}
	lost := losses(before, statuses(w))
	c.end(t)

	m := table{
		title: "Soak",
		about: fmt.Sprintf("%v of random faults, %d of them one after the other, with 20 TCP connections that last. Connections lost: %d, of exchanges %d, the longest %s. "+
			"Heap and goroutines are looked at after each fault when all connections go on; the heap is what two collections of garbage leave. Medians of each sixth of the time. "+
			"What was lost: %s",
			soak.Round(time.Second), done, len(c.errors), c.exchanges.Load(), seconds(c.longest.Seconds()), lost),
		head: []string{""},
	}
	for i := range soakParts {
		m.head = append(m.head, fmt.Sprintf("sixth %d", i+1))
	}
	for i, cluster := range clusters {
		heap, objects, goroutines := []string{"heap of gateway " + cluster.Name}, []string{"its objects"}, []string{"goroutines"}
		for _, p := range parts[i] {
			heap = append(heap, fmt.Sprintf("%.3f MiB", record.Median(p.heap)/(1<<20)))
			objects = append(objects, fmt.Sprintf("%.0f", record.Median(p.objects)))
			goroutines = append(goroutines, fmt.Sprintf("%.0f", record.Median(p.goroutines)))
		}
		m.add(heap...)
		m.add(objects...)
		m.add(goroutines...)
		wantFlat(t, cluster, done, parts[i][0], parts[i][soakParts-1])
	}
	m.publish(t)
	m = table{
		title: "Faults of the soak",
		about: "How long it took from the end of a fault until a ping was answered, and until each of the 20 connections had exchanged something: median (least to most).",
		head:  []string{"fault", "times", "ping answered after s", "all connections after s"},
	}
	for i, f := range faults {
		m.add(f.name, fmt.Sprint(len(answered[i])), record.Spread(answered[i]), record.Spread(exchanged[i]))
	}
	m.publish(t)
}

// wantFlat fails if a gateway holds more at the end of a soak than at its beginning. What
// a fault leaks is at least one object, so the objects must not be more by one for each
// fault; whatever else is more is message buffers, no more than a batch of them.
// Goroutines are none more.
func wantFlat(t *testing.T, c *lab.Cluster, faults int, first, last soakPart) {
	t.Helper()
	for _, of := range []struct {
		what        string
		first, last []float64
		more        float64
		profile     string
	}{
		{"bytes of heap", first.heap, last.heap, messageBuffers * messageBuffer, "heap?gc=1&debug=1"},
		{"objects", first.objects, last.objects, float64(faults + messageBuffers), "heap?gc=1&debug=1"},
		{"goroutines", first.goroutines, last.goroutines, 0, "goroutine?debug=1"},
	} {
		t.Logf("gateway %s, %s: at first %s, at last %s", c.Name, of.what, record.Spread(of.first), record.Spread(of.last))
		if more := record.Median(of.last) - record.Median(of.first); more > of.more {
			t.Errorf("gateway %s: %.0f %s more than at first, at most %.0f are allowed:\n%s", c.Name, more, of.what, of.more, profile(c, of.profile))
		}
	}
}
