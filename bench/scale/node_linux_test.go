package scale

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/test/lab"
)

// node is the network namespace of a node, which reaches everything by one
// route. Nobody answers there.
type node struct {
	*lab.Host
	t    *testing.T
	conn *hostnet.Conn
}

func newNode(t *testing.T) *node {
	t.Helper()
	l := lab.New(t)
	n, router := &node{Host: l.Host("node"), t: t}, l.Host("router")
	l.Link(n.Host, "eth0", router, "eth0")
	n.IP("addr add 192.0.2.1/24 dev eth0")
	router.IP("addr add 192.0.2.2/24 dev eth0")
	n.IP("route add default via 192.0.2.2")
	return n
}

// open takes the node's network to work on. It is closed with the test, or by
// close.
func (n *node) open(open func() (*hostnet.Conn, error)) {
	n.t.Helper()
	if err := n.Do(func() (err error) {
		n.conn, err = open()
		return err
	}); err != nil {
		n.t.Fatalf("open the node's network: %v", err)
	}
}

func (n *node) close() {
	n.t.Helper()
	if err := n.conn.Close(); err != nil {
		n.t.Error(err)
	}
}

// address is the i-th of a prefix.
func address(base string, i int) netip.Addr {
	b := netip.MustParseAddr(base).As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(i))
	return netip.AddrFrom4(b)
}

// tunnel is the i-th of a node, with one cluster behind it.
func tunnel(kind hostnet.Kind, i int) hostnet.Link {
	return hostnet.Link{
		Name: fmt.Sprintf("%s%010x", hostnet.LinkPrefix, i), Owner: fmt.Sprintf("InternalFabric tenant-%d/peer-%d", i, i), Kind: kind,
		VNI: uint32(1 + i), Gateway: address("10.64.0.1", i), Port: 6091, MTU: 1340,
		Address: netip.MustParseAddr("10.80.0.1"), GatewayAddress: address("10.80.0.2", i),
		Routes: []netip.Prefix{cluster(i)},
	}
}

// cluster is the CIDR of the i-th remote cluster.
func cluster(i int) netip.Prefix { return netip.PrefixFrom(address("10.128.0.0", i<<8), 24) }

func desired(kind hostnet.Kind, count int) hostnet.Desired {
	var d hostnet.Desired
	for i := range count {
		d.Links = append(d.Links, tunnel(kind, i))
	}
	return d
}

// spent is a time, and what this process used of processors meanwhile: what the
// kernel does for it counts.
type spent struct{ wall, user, system time.Duration }

func (s spent) String() string {
	return fmt.Sprintf("%v (user %v, kernel %v)", round(s.wall), round(s.user), round(s.system))
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

func usage() (user, system time.Duration) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no reason to
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}

// timed tells what do costs.
func timed(do func()) spent {
	runtime.GC() // the garbage of others is theirs
	user, system := usage()
	start := time.Now()
	do()
	s := spent{wall: time.Since(start)}
	u, k := usage()
	s.user, s.system = u-user, k-system
	return s
}

func (n *node) read() hostnet.Actual {
	n.t.Helper()
	a, err := n.conn.Read()
	if err != nil {
		n.t.Fatalf("read: %v", err)
	}
	return a
}

// reach brings the node to a state, and tells how many steps that took.
func (n *node) reach(d hostnet.Desired) int {
	n.t.Helper()
	plan := hostnet.Diff(d, n.read())
	if err := n.conn.Apply(plan); err != nil {
		n.t.Fatalf("apply: %v", err)
	}
	return len(plan.Steps)
}

// settled fails unless there is nothing to do.
func (n *node) settled(d hostnet.Desired) {
	n.t.Helper()
	if lines := hostnet.Diff(d, n.read()).Lines(); len(lines) > 0 {
		n.t.Fatalf("%d steps are left, the first: %s", len(lines), lines[0])
	}
}

// looks is how often a short thing is repeated.
const looks = 20

func median(times []spent) spent {
	slices.SortFunc(times, func(a, b spent) int { return cmp.Compare(a.wall, b.wall) })
	return times[len(times)/2]
}

// TestHostNetwork measures node/hostnet against the kernel, for each
// kind of link that there is.
func TestHostNetwork(t *testing.T) {
	if !*measure {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -scale runs it")
	}
	out := newReport("node-scale", "the measurement", fmt.Sprintf("The network of a node, %d tunnels (%d of kind tun)", *tunnels, *tuns))
	n := newNode(t)
	n.open(hostnet.Open)
	for _, k := range n.conn.Probe() {
		if !k.OK {
			out.row(string(k.Kind), "not here: %s", k.Reason)
			continue
		}
		count := *tunnels
		if k.Kind == hostnet.KindTUN {
			count = *tuns
		}
		n.measure(out, k.Kind, count)
	}
	n.close()
	out.done(t)
}

func (n *node) measure(out *report, kind hostnet.Kind, count int) {
	n.t.Helper()
	d := desired(kind, count)
	out.row(fmt.Sprintf("%d links of kind %s, %d routes", count, kind, 2*count), "")
	if kind != hostnet.KindTUN {
		out.row("  the same by ip -batch, to compare", "%v", n.batch(d))
		n.reach(hostnet.Desired{})
	}
	steps := 0
	out.row("  from nothing", "%v", timed(func() { steps = n.reach(d) }))
	out.row("    steps", "%d", steps)
	n.settled(d)

	n.nothing(out, "  nothing to do", d)
	n.foreign()
	n.nothing(out, "  nothing to do, beside 10000 routes of others", d)
	n.heap(out, d)
	for _, c := range []struct {
		name   string
		change func(*hostnet.Desired)
	}{
		{"a route more", func(d *hostnet.Desired) {
			d.Links[count/2].Routes = append(slices.Clone(d.Links[count/2].Routes), netip.MustParsePrefix("10.112.0.0/16"))
		}},
		{"a gateway that moved", func(d *hostnet.Desired) { d.Links[count/2].Gateway = netip.MustParseAddr("10.96.0.1") }},
		{"a tunnel less", func(d *hostnet.Desired) { d.Links = slices.Delete(d.Links, count/2, count/2+1) }},
		{"a tunnel more", func(d *hostnet.Desired) { d.Links = append(d.Links, tunnel(kind, count/2)) }},
	} {
		d.Links = slices.Clone(d.Links)
		c.change(&d)
		actual := n.read()
		var plan hostnet.Plan
		find := timed(func() { plan = hostnet.Diff(d, actual) })
		apply := timed(func() {
			if err := n.conn.Apply(plan); err != nil {
				n.t.Fatalf("%s: %v", c.name, err)
			}
		})
		out.row("  "+c.name, "find %v, apply %v", round(find.wall), round(apply.wall))
		n.settled(d)
	}
	out.row("  remove all", "%v", timed(func() { n.reach(hostnet.Desired{}) }))
	n.settled(hostnet.Desired{})
	n.IP("route flush proto 77")
}

// nothing measures what it takes to find nothing to do.
func (n *node) nothing(out *report, name string, d hostnet.Desired) {
	n.t.Helper()
	var whole, read []spent
	for range looks {
		var actual hostnet.Actual
		read = append(read, timed(func() { actual = n.read() }))
		rest := timed(func() { hostnet.Diff(d, actual) })
		last := read[len(read)-1]
		whole = append(whole, spent{last.wall + rest.wall, last.user + rest.user, last.system + rest.system})
	}
	m := median(whole)
	out.row(name, "%v", m)
	out.row("    worst, and what of the median is reading", "%v, %v", round(whole[len(whole)-1].wall), round(median(read).wall))
}

// heap tells what a look leaves in memory, and what it leaves to collect.
func (n *node) heap(out *report, d hostnet.Desired) {
	n.t.Helper()
	var before, kept, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	actual := n.read()
	runtime.GC()
	runtime.ReadMemStats(&kept)
	if len(actual.Links) < len(d.Links) {
		n.t.Fatalf("%d links", len(actual.Links))
	}
	runtime.KeepAlive(actual)
	runtime.ReadMemStats(&after)
	hostnet.Diff(d, n.read())
	var end runtime.MemStats
	runtime.ReadMemStats(&end)
	const mib = 1 << 20
	out.row("  what was read, in memory", "%.1f MiB", float64(kept.HeapAlloc-before.HeapAlloc)/mib)
	out.row("  a look allocates", "%.1f MiB, %d objects", float64(end.TotalAlloc-after.TotalAlloc)/mib, end.Mallocs-after.Mallocs)
}

// foreign adds what other programs have on a node: routes, in the main table.
func (n *node) foreign() {
	n.t.Helper()
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, "route add %s/32 via 192.0.2.2 proto 77\n", address("172.16.0.1", i))
	}
	n.ipBatch(b.String())
}

// batch makes the same as hostnet by iproute2, without a mark.
func (n *node) batch(d hostnet.Desired) spent {
	n.t.Helper()
	var b strings.Builder
	for i := range d.Links {
		l := &d.Links[i]
		name := fmt.Sprintf("t%d", i)
		switch l.Kind {
		case hostnet.KindVXLAN:
			fmt.Fprintf(&b, "link add %s mtu %d type vxlan id %d remote %s dstport %d nolearning udp6zerocsumrx\n", name, l.MTU, l.VNI, l.Gateway, l.Port)
		default:
			fmt.Fprintf(&b, "link add %s mtu %d type geneve id %d remote %s dstport %d\n", name, l.MTU, l.VNI, l.Gateway, l.Port)
		}
		fmt.Fprintf(&b, "link set %s alias t group 77 up\naddr add %s/32 dev %s\nroute add %s dev %s table %d\nroute add %s via %s dev %s table %d onlink\n",
			name, l.Address, name, l.GatewayAddress, name, hostnet.Table, l.Routes[0], l.GatewayAddress, name, hostnet.Table)
	}
	took := n.ipBatch(b.String())
	n.IP("link del group 77") // together: one after the other takes minutes
	return took
}

// ipBatch runs many commands of iproute2 in one process.
func (n *node) ipBatch(commands string) spent {
	n.t.Helper()
	path := filepath.Join(n.t.TempDir(), "batch")
	if err := os.WriteFile(path, []byte(commands), 0o600); err != nil {
		n.t.Fatal(err)
	}
	children := func() (user, system time.Duration) {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
			n.t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
	}
	user, system := children()
	start := time.Now()
	n.Run("ip", "-batch", path)
	s := spent{wall: time.Since(start)}
	u, k := children()
	s.user, s.system = u-user, k-system
	return s
}
