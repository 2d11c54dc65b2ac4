package page

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/browser"
	"github.com/sluice-net/sluice/test/packettest"
)

// costs are what an update takes of each page, in time of its thread: medians of rounds, in
// which the pages take turns.
func costs(pages ...*browser.Page) []time.Duration {
	const rounds, updates = 5, 3
	all := make([][]time.Duration, len(pages))
	for range rounds {
		for i, p := range pages {
			before := p.Worked()
			p.Must(fmt.Sprintf(`new Promise((done) => {
				let n = 0;
				const o = new PerformanceObserver((list) => { n += list.getEntries().length; if (n >= %d) { o.disconnect(); done(); } });
				o.observe({ type: "measure" });
			})`, updates), nil)
			all[i] = append(all[i], (p.Worked()-before)/updates)
		}
	}
	out := make([]time.Duration, len(pages))
	for i, samples := range all {
		slices.Sort(samples)
		out[i] = samples[rounds/2]
	}
	return out
}

// sized opens the page of a cluster with peerings and nodes, which change all the time.
func sized(t *testing.T, peerings, nodes int, change func(*survey.Cluster)) (*Server, *browser.Page) {
	if packettest.Race {
		t.Skip("SKIPPED: the race detector changes what is measured here")
	}
	var peers []string
	for i := range peerings {
		peers = append(peers, fmt.Sprintf("peer-%d", i))
	}
	s := start(t, []string{"rome"}, func(s *Server) {
		(&stand{}).serve(s)
		tick := 0
		s.watch.read = func(context.Context, *access.Cluster, *survey.Cluster, bool) (*survey.Cluster, error) {
			tick++
			c := clusterWith("rome", nodes, tick, peers...)
			change(c)
			return c, nil
		}
		s.config.Interval, s.watch.interval = 200*time.Millisecond, 200*time.Millisecond
	})
	p := open(t, s, 1280, 900, false)
	p.Until(fmt.Sprintf(`document.querySelectorAll("svg.map .peering").length === %d && document.querySelectorAll("svg.map .node").length === %d`, peerings, nodes))
	return s, p
}

// TestLarge: a large map is drawn once, and an update touches what has changed only, and takes
// no longer than in proportion to what there is to show.
func TestLarge(t *testing.T) {
	const peerings, nodes, more = 200, 500, 5
	as := func(*survey.Cluster) {}
	_, few := sized(t, peerings/more, nodes/more, as)
	_, many := sized(t, peerings, nodes, as)
	keep(t, "large.png", many.Screenshot())
	many.Must(`(() => {
		window.added = 0;
		new MutationObserver((all) => { added += all.reduce((n, m) => n + [...m.addedNodes].filter((x) => x.nodeType === 1).length, 0); })
			.observe(document.querySelector("svg.map"), { subtree: true, childList: true });
	})()`, nil)
	c := costs(few, many)
	t.Logf("%d peerings and %d nodes: an update takes %v, and %v with a %dth of them", peerings, nodes, c[1], c[0], more)
	// What takes the square of that would be near 25.
	if ratio := float64(c[1]) / float64(c[0]); ratio > 1.6*more {
		t.Errorf("%d times as much to show takes %.1f times as long", more, ratio)
	}
	var added int
	if many.Must(`added`, &added); added > 0 {
		t.Errorf("%d elements of the map were made anew", added)
	}
	for _, text := range many.Troubles() {
		t.Errorf("the browser says: %s", text)
	}
}

// TestFluid: with 50 peerings and 500 nodes, all of which change all the time, zooming and moving the map costs little of
// the page's thread. How many frames a busy machine shows is in the log.
func TestFluid(t *testing.T) {
	const frames = 120
	_, p := sized(t, 50, 500, func(*survey.Cluster) {})
	before := p.Worked()
	var gaps []float64
	p.Must(fmt.Sprintf(`new Promise((done) => {
		const svg = document.querySelector("svg.map"), r = svg.getBoundingClientRect(), gaps = [];
		const mouse = (kind, x) => svg.dispatchEvent(new PointerEvent(kind, { clientX: r.x + 100 + x, clientY: r.y + 100, buttons: 1, bubbles: true }));
		let last = performance.now(), n = 0;
		mouse("pointerdown", 0);
		const frame = (now) => {
			gaps.push(now - last);
			last = now;
			if (n %% 2) mouse("pointermove", n);
			else svg.dispatchEvent(new WheelEvent("wheel", { deltaY: n %% 4 ? 100 : -100, clientX: r.x + r.width / 2, clientY: r.y + r.height / 2, bubbles: true, cancelable: true }));
			if (++n < %d) requestAnimationFrame(frame);
			else done(gaps.sort((a, b) => a - b));
		};
		requestAnimationFrame(frame);
	})`, frames), &gaps)
	cost := (p.Worked() - before) / frames
	t.Logf("a frame costs %v of the thread; time between frames: median %.1f ms, 95th percentile %.1f ms, longest %.1f ms",
		cost, gaps[frames/2], gaps[frames*95/100], gaps[frames-1])
	if cost > 50*time.Millisecond { // measured: a tenth of that
		t.Errorf("a frame costs %v of the page's thread", cost)
	}
}

// TestHostileSize: whoever writes as much as can be written into names, annotations,
// conditions and counters makes neither the answers nor the page's work much larger.
func TestHostileSize(t *testing.T) {
	// An API server takes objects of up to 1.5 MiB.
	const huge, thousands, peerings, nodes = 1 << 20, 3000, 6, 20
	word := strings.Repeat("W", huge)
	part := word[:huge/thousands]
	broken := make([]metav1.Condition, thousands)
	for i := range broken {
		broken[i] = metav1.Condition{Type: fmt.Sprint("Broken", i), Status: metav1.ConditionFalse, Reason: "Broken", Message: part}
	}
	list := make([]networkingv1beta1.CIDR, thousands)
	verdicts := make(map[string]uint64)
	for i := range list {
		list[i] = networkingv1beta1.CIDR(part)
		verdicts[fmt.Sprintf("Drop%d%s", i, part)] = uint64(i + 1)
	}
	sick := func(c *survey.Cluster) {
		for i := range c.Peers {
			cutTunnel(&c.Peers[i])
		}
	}
	hostile := func(c *survey.Cluster) {
		sick(c)
		c.Installation.Version = word
		for i := range thousands {
			c.Gaps = append(c.Gaps, survey.Gap{What: "x", Err: fmt.Errorf("%d %s", i, part)})
		}
		for i := range c.Nodes {
			c.Nodes[i].Name += word
			c.Nodes[i].Internal.Annotations = map[string]string{"a": word}
		}
		for i := range c.Peers {
			p := &c.Peers[i]
			p.ID += word[:60<<10]
			p.Configuration.Annotations = map[string]string{"a": word}
			p.Configuration.Spec.Remote.CIDR.Pod.List, p.Configuration.Status.Remote.CIDR.Pod.List = list, list
			p.Connection.Annotations = map[string]string{"a": word}
			p.Connection.Status.Conditions = broken
			p.Connection.Status.Latency.Value = word
			p.Gateway.Report.DataPlane.Egress.Verdicts = verdicts
			p.Gateway.Pods[0].Name = word
		}
	}
	_, plain := sized(t, peerings, nodes, sick)
	s, stuffed := sized(t, peerings, nodes, hostile)
	for _, p := range []*browser.Page{plain, stuffed} {
		p.Until(`document.querySelectorAll("svg.map .peering.down").length === ` + fmt.Sprint(peerings) + ` && document.querySelector("aside .finding")`)
	}
	out, err := bounded(s.watch.current(), maxStateText, maxState)
	if err != nil || len(out) > maxState {
		t.Errorf("the state of a hostile cluster: %d bytes, %v", len(out), err)
	}
	keep(t, "hostile-size.png", stuffed.Screenshot())
	c := costs(plain, stuffed)
	t.Logf("an update takes %v, and %v, with %d KiB, where a cluster is hostile", c[0], c[1], len(out)>>10)
	if ratio := float64(c[1]) / float64(c[0]); ratio > 5 {
		t.Errorf("a hostile cluster makes an update take %.1f times as long", ratio)
	}
	quiet(t, stuffed)
}
