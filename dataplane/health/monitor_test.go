package health

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/mutate"
)

var (
	peerAddr  = netip.MustParseAddr("169.254.18.2")
	otherAddr = netip.MustParseAddr("10.0.0.9")
)

func testConfig() Config {
	return Config{ClusterID: "rome", Peer: netip.AddrPortFrom(peerAddr, 0), MTU: 1340}
}

// clocked is a Monitor with a clock that tests push forward, and the PINGs that
// it has sent.
type clocked struct {
	*testing.T
	*Monitor
	now   time.Time
	pings [][]byte
}

func newClocked(t *testing.T, c Config) *clocked {
	t.Helper()
	m, err := NewMonitor(c, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return &clocked{T: t, Monitor: m, now: epoch}
}

// until runs the monitor as its owner would, to offset after the start.
func (c *clocked) until(offset time.Duration) {
	c.Helper()
	for {
		ping, next := c.Tick(c.now)
		if ping != nil {
			c.pings = append(c.pings, ping)
		}
		if !next.After(c.now) {
			c.Fatalf("at %v Tick asks for %v", c.now.Sub(epoch), next.Sub(epoch))
		}
		if end := epoch.Add(offset); next.After(end) {
			c.now = end
			return
		}
		c.now = next
	}
}

// answer is the PONG to PING number i.
func (c *clocked) answer(i int) string {
	return strings.Replace(string(c.pings[i]), string(Ping), string(Pong), 1)
}

func (c *clocked) want(s Status) {
	c.Helper()
	if diff := cmp.Diff(s, c.Status()); diff != "" {
		c.Errorf("status at %v (-want +got):\n%s", c.now.Sub(epoch), diff)
	}
}

func TestMonitorConnects(t *testing.T) {
	m := newClocked(t, testConfig())
	m.want(Status{Value: Connecting, Timestamp: epoch})
	m.until(0)
	want := `{"clusterID":"rome","msgType":"PING","timeStamp":"2026-01-02T15:04:05.123456789Z","mtu":1340}`
	if len(m.pings) != 1 || string(m.pings[0]) != want {
		t.Fatalf("%q, want one %q", m.pings, want)
	}
	m.until(7 * time.Millisecond)
	if reply, v := m.Receive(m.now, peerAddr, []byte(m.answer(0))); reply != nil || v != Measured {
		t.Errorf("%q, %v", reply, v)
	}
	m.want(Status{Value: Connected, Latency: 7 * time.Millisecond, Timestamp: m.now})
}

func TestMonitorPingsAtTheInterval(t *testing.T) {
	m := newClocked(t, testConfig())
	m.until(9 * time.Second)
	if len(m.pings) != 5 { // at 0, 2, 4, 6 and 8
		t.Errorf("%d pings in 9 s, want 5", len(m.pings))
	}
	// A pause is not made up for in a burst.
	m.now = m.now.Add(time.Minute)
	m.until(70 * time.Second)
	if len(m.pings) != 6 {
		t.Errorf("%d pings, want 6", len(m.pings))
	}
}

func TestMonitorLoss(t *testing.T) {
	m := newClocked(t, testConfig())
	m.until(10*time.Second - 1)
	m.want(Status{Value: Connecting, Timestamp: epoch})
	m.until(10 * time.Second)
	m.want(Status{Value: Error, Timestamp: epoch.Add(10 * time.Second)})
	m.until(30 * time.Second)
	m.want(Status{Value: Error, Timestamp: epoch.Add(10 * time.Second)})

	// One PONG, even a late one, and it is back; ten seconds later it is lost again.
	last := len(m.pings) - 1
	m.until(31 * time.Second)
	if _, v := m.Receive(m.now, peerAddr, []byte(m.answer(last))); v != Measured {
		t.Fatal(v)
	}
	m.want(Status{Value: Connected, Latency: time.Second, Timestamp: m.now})
	m.until(41*time.Second - 1)
	if s := m.Status(); s.Value != Connected {
		t.Errorf("%+v", s)
	}
	m.until(41 * time.Second)
	m.want(Status{Value: Error, Timestamp: m.now})
}

// PINGs that wait for the handshake of the tunnel are answered all at once: how
// long they waited is no latency.
func TestMonitorMeasuresNoHandshake(t *testing.T) {
	m := newClocked(t, testConfig())
	m.until(12*time.Second + 5*time.Millisecond) // seven PINGs are out, the first for 12 s
	last := len(m.pings) - 1
	for i := range last {
		if _, v := m.Receive(m.now, peerAddr, []byte(m.answer(i))); v != Measured {
			t.Fatalf("PONG %d: %v", i, v)
		}
		m.want(Status{Value: Connected, Timestamp: m.now})
	}
	m.Receive(m.now, peerAddr, []byte(m.answer(last)))
	m.want(Status{Value: Connected, Latency: 5 * time.Millisecond, Timestamp: m.now})

	// Alone on the way, but too long for the interval at which PINGs are sent.
	m = newClocked(t, testConfig())
	m.until(0)
	m.now = m.now.Add(3 * time.Second) // the process was stopped
	m.Receive(m.now, peerAddr, []byte(m.answer(0)))
	m.want(Status{Value: Connected, Timestamp: m.now})

	// While connected a long way is a long way.
	m.until(4 * time.Second)
	last = len(m.pings) - 1
	m.now = m.now.Add(3 * time.Second)
	m.Receive(m.now, peerAddr, []byte(m.answer(last)))
	if s := m.Status(); s.Latency < 3*time.Second {
		t.Errorf("latency %v of a PING sent while connected", s.Latency)
	}
}

func TestMonitorVerdicts(t *testing.T) {
	ping := func(cluster, extra string) string {
		return `{"clusterID":"` + cluster + `","msgType":"PING","timeStamp":"2026-01-02T15:04:05Z"` + extra + `}`
	}
	m := newClocked(t, testConfig())
	m.until(6 * time.Second) // four PINGs are out
	m.Receive(m.now, peerAddr, []byte(m.answer(2)))
	forged := strings.Replace(m.answer(3), "2026", "2027", 1)
	tests := []struct {
		name  string
		from  netip.Addr
		text  string
		want  Verdict
		reply string
	}{
		{"PING of the peer", peerAddr, ping("milan", ""), Answered, strings.Replace(ping("milan", ""), "PING", "PONG", 1)},
		{"PING of anybody", otherAddr, ping("milan", ""), Answered, strings.Replace(ping("milan", ""), "PING", "PONG", 1)},
		{"PING of the peer, mapped", netip.AddrFrom16(peerAddr.As16()), ping("milan", `,"mtu":7`), Answered, strings.Replace(ping("milan", `,"mtu":7`), "PING", "PONG", 1)},
		{"PING that grows when it is written", otherAddr, ping("<<<", ""), DropMalformed, ""},
		{"PING that would grow beyond the limit", peerAddr, ping(strings.Repeat("<", 500), ""), DropMalformed, ""},
		{"PING with an impossible zone", peerAddr, strings.Replace(ping("milan", ""), "05Z", "05+99:00", 1), DropMalformed, ""},
		{"PING with unknown fields", otherAddr, ping("milan", `,"more":[1,2]`), Answered, strings.Replace(ping("milan", ""), "PING", "PONG", 1)},
		{"too long", peerAddr, ping("milan", strings.Repeat(" ", MaxMessage)), DropTooLong, ""},
		{"no JSON", peerAddr, "hello", DropMalformed, ""},
		{"other type", peerAddr, strings.Replace(ping("milan", ""), "PING", "ping", 1), DropUnknownType, ""},
		{"PONG from elsewhere", otherAddr, m.answer(3), DropUnknownSource, ""},
		{"PONG from nowhere", netip.Addr{}, m.answer(3), DropUnknownSource, ""},
		{"PONG of another cluster", peerAddr, strings.Replace(m.answer(3), "rome", "milan", 1), DropUnknownCluster, ""},
		{"PONG overtaken by a newer one", peerAddr, m.answer(1), DropOutOfOrder, ""},
		{"PONG twice", peerAddr, m.answer(2), DropOutOfOrder, ""},
		{"PONG from the future", peerAddr, forged, DropUnsolicited, ""},
		{"PONG", peerAddr, m.answer(3), Measured, ""},
	}
	for _, tt := range tests {
		reply, v := m.Receive(m.now, tt.from, []byte(tt.text))
		if v != tt.want || string(reply) != tt.reply {
			t.Errorf("%s: %v %q, want %v %q", tt.name, v, reply, tt.want, tt.reply)
		}
	}
}

func TestMonitorLearnsPeerMTUFromThePeerOnly(t *testing.T) {
	m := newClocked(t, testConfig())
	for _, step := range []struct {
		from netip.Addr
		mtu  string
		want int
	}{
		{otherAddr, `,"mtu":1200`, 0},
		{peerAddr, `,"mtu":1400`, 1400},
		{peerAddr, `,"mtu":-5`, 0},
		{peerAddr, `,"mtu":65535`, 65535},
		{peerAddr, `,"mtu":65536`, 0},
		{peerAddr, `,"mtu":1420`, 1420},
		{peerAddr, ``, 0},
	} {
		text := `{"clusterID":"x","msgType":"PING","timeStamp":"2026-01-02T15:04:05Z"` + step.mtu + `}`
		m.Receive(m.now, step.from, []byte(text))
		if got := m.Status().PeerMTU; got != step.want {
			t.Errorf("after %q from %v: %d, want %d", step.mtu, step.from, got, step.want)
		}
	}
	// A PONG carries our own MTU back.
	m.until(0)
	m.Receive(m.now, peerAddr, []byte(m.answer(0)))
	if got := m.Status().PeerMTU; got != 0 {
		t.Errorf("%d from a PONG", got)
	}
}

func TestMonitorReports(t *testing.T) {
	m := newClocked(t, testConfig())
	reports := func(want bool) {
		t.Helper()
		if s, got := m.Report(m.now); got != want || s != m.Status() {
			t.Errorf("at %v: %+v, %v; want %v", m.now.Sub(epoch), s, got, want)
		}
	}
	reports(true) // the beginning
	reports(false)
	m.until(1 * time.Second)
	m.Receive(m.now, peerAddr, []byte(m.answer(0)))
	reports(true) // connected
	m.until(3 * time.Second)
	m.Receive(m.now, peerAddr, []byte(m.answer(1)))
	reports(false) // another latency can wait
	m.until(11*time.Second - 1)
	reports(false)
	m.until(11 * time.Second)
	reports(true) // the latency of 3 s, ten seconds after the last report
	m.Receive(m.now, peerAddr, []byte(`{"clusterID":"x","msgType":"PING","timeStamp":"2026-01-02T15:04:05Z","mtu":9000}`))
	reports(true) // the peer's MTU
	m.until(13 * time.Second)
	reports(true) // lost
	m.until(60 * time.Second)
	reports(false) // nothing new to say
}

// Setting the wall clock back must neither repeat a timestamp nor make a
// negative latency.
func TestMonitorSurvivesClockSteps(t *testing.T) {
	m := newClocked(t, testConfig())
	m.until(2 * time.Second)
	m.Tick(epoch) // not due, and no harm
	first, _ := m.Tick(epoch.Add(4 * time.Second))
	m.nextPing = epoch
	second, _ := m.Tick(epoch.Add(time.Second))
	var a, b Message
	if json.Unmarshal(first, &a) != nil || json.Unmarshal(second, &b) != nil || !b.Timestamp.After(a.Timestamp) {
		t.Errorf("timestamps %v, then %v", a.Timestamp, b.Timestamp)
	}
	if _, v := m.Receive(epoch, peerAddr, []byte(strings.Replace(string(second), "PING", "PONG", 1))); v != Measured {
		t.Errorf("%v", v)
	}
	if l := m.Status().Latency; l <= 0 {
		t.Errorf("latency %v", l)
	}
}

func TestMonitorForgetsOldPings(t *testing.T) {
	m := newClocked(t, testConfig())
	m.until(2 * time.Second * (maxOutstanding + 3))
	if len(m.sent) != maxOutstanding {
		t.Errorf("%d outstanding", len(m.sent))
	}
	if _, v := m.Receive(m.now, peerAddr, []byte(m.answer(0))); v != DropUnsolicited {
		t.Errorf("%v", v)
	}
}

func TestMonitorDisabled(t *testing.T) {
	c := testConfig()
	c.Disabled = true
	m := newClocked(t, c)
	m.until(time.Minute)
	m.want(Status{Value: Connected, Timestamp: epoch})
	if len(m.pings) != 0 {
		t.Errorf("%d pings sent", len(m.pings))
	}
	if _, v := m.Receive(m.now, peerAddr, []byte(`{"msgType":"PING","timeStamp":"2026-01-02T15:04:05Z"}`)); v != Answered {
		t.Errorf("%v", v)
	}
}

func TestMonitorApply(t *testing.T) {
	m := newClocked(t, testConfig())
	m.until(time.Second)
	m.Receive(m.now, peerAddr, []byte(m.answer(0)))
	connected := m.Status()

	c := testConfig()
	c.MTU, c.Interval, c.Threshold = 1400, time.Second, 3
	if err := m.Apply(c, m.now); err != nil {
		t.Fatal(err)
	}
	m.want(connected)
	m.until(2 * time.Second)
	if p := string(m.pings[1]); !strings.Contains(p, `"mtu":1400`) {
		t.Errorf("%s", p)
	}
	old := m.answer(1)

	c.Peer = netip.AddrPortFrom(otherAddr, 0)
	if err := m.Apply(c, m.now); err != nil {
		t.Fatal(err)
	}
	m.want(Status{Value: Connecting, Timestamp: m.now})
	if _, v := m.Receive(m.now, otherAddr, []byte(old)); v != DropOutOfOrder {
		t.Errorf("a PONG to a PING of the old peer: %v", v)
	}
	if err := m.Apply(Config{}, m.now); err == nil {
		t.Error("no error")
	}
	if m.Peer() != netip.AddrPortFrom(otherAddr, Port) {
		t.Errorf("peer %v after a refused Apply", m.Peer())
	}
}

func TestConfigRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no peer":            func(c *Config) { c.Peer = netip.AddrPort{} },
		"interval in ns":     func(c *Config) { c.Interval = 2 },
		"negative interval":  func(c *Config) { c.Interval = -1 },
		"negative threshold": func(c *Config) { c.Threshold = -1 },
		"negative update":    func(c *Config) { c.UpdateInterval = -1 },
		"negative MTU":       func(c *Config) { c.MTU = -1 },
		"MTU too large":      func(c *Config) { c.MTU = 65536 },
		"long cluster ID":    func(c *Config) { c.ClusterID = strings.Repeat("x", MaxMessage) },
	} {
		c := testConfig()
		change(&c)
		if _, err := NewMonitor(c, epoch); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestVerdictNames(t *testing.T) {
	seen := map[string]bool{}
	for v := range verdicts {
		name := v.String()
		if name == "" || seen[name] {
			t.Errorf("verdict %d is called %q", v, name)
		}
		seen[name] = true
	}
	if got := verdicts.String(); got != "Verdict(9)" {
		t.Error(got)
	}
}

// FuzzReceive: no bytes from anywhere may change the value, unless they are the
// peer's PONG to a PING of ours; and no reply is longer than its question, the
// peer's excepted.
func FuzzReceive(t *testing.F) {
	f := mutate.New(t)
	f.Add([]byte(`{"clusterID":"rome","msgType":"PING","timeStamp":"2026-01-02T15:04:05Z","mtu":1340}`), true)
	f.Add([]byte(`{"clusterID":"rome","msgType":"PONG","timeStamp":"2026-01-02T15:04:05.123456789Z"}`), true)
	f.Add([]byte(`{"clusterID":"rome","msgType":"PONG","timeStamp":"2026-01-02T15:04:05.123456789Z"}`), false)
	f.Add([]byte("\xff{\x00"), false)
	f.Fuzz(func(t *testing.T, b []byte, peer bool) {
		m, err := NewMonitor(testConfig(), epoch)
		if err != nil {
			t.Fatal(err)
		}
		m.Tick(epoch)
		from := otherAddr
		if peer {
			from = peerAddr
		}
		reply, v := m.Receive(epoch.Add(time.Millisecond), from, b)
		if (reply != nil) != (v == Answered) || len(reply) > MaxMessage || !peer && len(reply) > len(b) {
			t.Errorf("%v with a reply of %d bytes to %d", v, len(reply), len(b))
		}
		if (m.Status().Value == Connected) != (v == Measured) || v == Measured && !peer {
			t.Errorf("%v makes %+v", v, m.Status())
		}
		if v >= verdicts {
			t.Errorf("%v", v)
		}
	})
}

// A network that loses, delays and repeats must never yield a PONG that counts
// twice, a latency of less than the delay, or an error while PONGs arrive.
func TestMonitorOverBadNetwork(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	m := newClocked(t, testConfig())
	type arrival struct {
		at   time.Duration
		ping int
	}
	var onTheWay []arrival
	counted := map[int]bool{}
	heard := time.Duration(0)
	for now := time.Duration(0); now < 20*time.Minute; now += 100 * time.Millisecond {
		before := len(m.pings)
		m.until(now)
		for i := before; i < len(m.pings); i++ {
			for range rng.IntN(3) { // 0: lost, 2: repeated
				onTheWay = append(onTheWay, arrival{now + time.Duration(rng.IntN(5000))*time.Millisecond, i})
			}
		}
		for _, a := range onTheWay {
			if a.at > now || a.at <= now-100*time.Millisecond {
				continue
			}
			if _, v := m.Receive(m.now, peerAddr, []byte(m.answer(a.ping))); v == Measured {
				if counted[a.ping] {
					t.Fatalf("PING %d counted twice", a.ping)
				}
				counted[a.ping], heard = true, now
			}
		}
		if s := m.Status(); (s.Value == Error) != (now-heard >= 10*time.Second) {
			t.Fatalf("at %v, last PONG at %v: %+v", now, heard, s)
		}
	}
	if len(counted) < 200 {
		t.Errorf("only %d PONGs counted", len(counted))
	}
}

func TestPingFromThePeerHastensOurs(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	peer := netip.MustParseAddrPort("169.254.18.2:12345")
	m, err := NewMonitor(Config{ClusterID: "b", Peer: peer}, start)
	if err != nil {
		t.Fatal(err)
	}
	if ping, _ := m.Tick(start); ping == nil {
		t.Fatal("no first PING")
	}
	question, err := Encode(Message{ClusterID: "a", Type: Ping, Timestamp: start})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		after time.Duration
		want  bool
	}{
		{100 * time.Millisecond, false}, // a tenth of 2 s must lie between two PINGs
		{200 * time.Millisecond, true},
		{350 * time.Millisecond, false},
		{500 * time.Millisecond, true},
	} {
		now := start.Add(tt.after)
		if _, v := m.Receive(now, peer.Addr(), question); v != Answered {
			t.Fatalf("after %v the peer's PING is %v", tt.after, v)
		}
		if ping, _ := m.Tick(now); (ping != nil) != tt.want {
			t.Errorf("after %v PING %t, want %t", tt.after, ping != nil, tt.want)
		}
	}
}
