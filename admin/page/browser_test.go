package page

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/bundle"
	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/admin/trace"
	"github.com/sluice-net/sluice/test/browser"
	"github.com/sluice-net/sluice/test/golden"
	"github.com/sluice-net/sluice/test/source"
)

// stand is two clusters and what a page may find out about them.
type stand struct {
	cut   atomic.Bool
	ticks atomic.Int64
	// hostile, where it is set, is what names and messages are.
	hostile string
	// held, where it is set, holds the doctor up until it is closed.
	held chan struct{}
}

// clientLink is the link to the object that the doctor names: other findings come before the doctor has looked.
const clientLink = `[...document.querySelectorAll("aside .finding button.link")].find((b) => b.innerText.startsWith("GatewayClient"))`

const whyCut = "UDP from milan's gateway does not arrive at 203.0.113.7:51840"

func (w *stand) serve(s *Server) {
	s.watch.read = func(_ context.Context, c *access.Cluster, _ *survey.Cluster, _ bool) (*survey.Cluster, error) {
		id, peer := "rome", "milan"
		if c == s.config.Clusters[len(s.config.Clusters)-1] && len(s.config.Clusters) > 1 {
			id, peer = peer, id
		}
		out := clusterWith(id, 3, int(w.ticks.Add(1)), peer)
		if id == "milan" {
			out.Peers = append(out.Peers, peerOf(id, "turin", 1, out.ReadAt, int(w.ticks.Load())))
			for _, n := range out.Nodes {
				out.Peers[1].Tunnels = append(out.Peers[1].Tunnels, n.Name)
			}
		}
		if w.cut.Load() {
			cutTunnel(&out.Peers[0])
		}
		if w.hostile != "" {
			out.Installation.Version = w.hostile
			out.Nodes[0].Name = w.hostile
			out.Peers[0].Gateway.Pods[0].Name = w.hostile
			out.Peers[0].Connection.Status.Conditions[0].Status = "False"
			out.Peers[0].Connection.Status.Conditions[0].Message = strings.Repeat(w.hostile, 10_000)
			out.Peers = append(out.Peers, peerOf(id, w.hostile, 2, out.ReadAt, 1))
		}
		return out, nil
	}
	s.examine = func(ctx context.Context, o doctor.Options, say progress.Func) (*doctor.Report, error) {
		say.Waiting("local", "Reading the cluster"+w.hostile)
		say.Waiting("remote", "Reading the cluster")
		say.Done("local", "Cluster examined")
		if w.held != nil && say != nil {
			select {
			case <-w.held:
			case <-ctx.Done():
			}
		}
		r := &doctor.Report{Time: time.Now(), Clusters: []doctor.Examined{{Name: "local", ClusterID: "rome"}, {Name: "remote", ClusterID: "milan"}}}
		r.Findings = []doctor.Finding{{Check: "api", Status: doctor.OK, Message: "both API servers answer" + w.hostile}}
		if w.cut.Load() || w.hostile != "" {
			r.Findings = append(r.Findings, doctor.Finding{Check: "endpoint", Cluster: "local", Status: doctor.Failed, Object: "GatewayClient liqo-tenant-milan/milan", Message: whyCut + w.hostile, Cause: "a firewall", Fix: "kubectl -n liqo get svc" + w.hostile})
			r.Summary.Failed = 1
		}
		r.Summary.OK = 1
		return r, nil
	}
	s.follow = func(_ context.Context, o trace.Options) (*trace.Way, error) {
		if o.From.Name == "nobody" {
			return nil, errors.New("there is no pod default/nobody")
		}
		hops := []trace.Hop{
			{Cluster: "local", Kind: "pod", Name: o.From.String(), Source: addr("10.243.1.5"), Destination: o.To},
			{Cluster: "local", Kind: "node", Name: "rome-1", Source: addr("10.243.1.5"), Destination: o.To, Facts: []string{"route 10.71.0.0/16 into link liqo.milan, MTU 1340"}, DecidedBy: "InternalFabric liqo-tenant-milan/milan"},
			{Cluster: "local", Kind: "gateway", Name: "liqo-tenant-milan/gw-milan-0" + w.hostile, Source: addr("10.243.1.5"), Destination: o.To, Facts: []string{"node rome-1 heard 1s ago"}},
			{Cluster: "local", Kind: "translation", Name: "10.71.0.0/16 > 10.243.0.0/16", Source: addr("10.243.1.5"), Destination: addr("10.243.2.20"), DecidedBy: "Configuration liqo-tenant-milan/milan"},
			{Cluster: "local", Kind: "tunnel", Name: "203.0.113.7:51840", Source: addr("10.243.1.5"), Destination: addr("10.243.2.20"), Facts: []string{"session with the peer, latency 1.24ms"}},
		}
		if w.cut.Load() {
			hops[4].Problem = &trace.Problem{Message: "the peer's gateway does not answer", Cause: "UDP or keys", Fix: "liqoctl network doctor milan"}
		}
		if o.Live > 0 {
			hops[0].NotCounted, hops[1].Live = "the version of its agent cannot count packets"+w.hostile, []trace.Sight{{Point: "pod", Packets: 12}, {Point: "link", Packets: 12}}
			hops[2].Live = []trace.Sight{{Point: "node", Packets: 12}}
			hops[3].Live = []trace.Sight{{Point: "translated", Packets: 12}}
			hops[4].Live = []trace.Sight{{Point: "tunnel", Packets: 0}}
			hops[4].Problem = &trace.Problem{Message: "within 5s, 12 matching packets were seen at point translated of the local gateway but none here", Cause: "the gateway does not forward the packets", Fix: "see 'liqoctl network drops'"}
		}
		if hops[4].Problem == nil {
			hops = append(hops, trace.Hop{Cluster: "remote", Kind: "gateway", Name: "liqo-tenant-rome/gw-rome-0", Source: addr("10.243.1.5"), Destination: addr("10.243.2.20")})
		}
		return &trace.Way{There: hops}, nil
	}
	s.pack = func(_ context.Context, to io.Writer, _ bundle.Options, _ progress.Func, clusters ...*access.Cluster) (bundle.Summary, error) {
		_, err := fmt.Fprintf(to, "the archive of %d clusters", len(clusters))
		return bundle.Summary{}, err
	}
	s.dropped = func(context.Context, *access.Cluster, types.NamespacedName) ([]drops.Drop, error) {
		return []drops.Drop{
			{Number: 1, Time: time.Now(), Direction: "egress", Reason: "DropNoMapping", Node: "rome-1" + w.hostile, Source: addr("10.243.1.5"), Destination: addr("10.99.0.1"), Protocol: 6, SourcePort: 33000, DestinationPort: 443, TCPFlags: 2, Length: 60, Total: 7},
		}, nil
	}
}

// open opens the page in a browser.
func open(t *testing.T, s *Server, width, height int, dark bool) *browser.Page {
	t.Helper()
	p := browser.Open(t, width, height, dark)
	p.Go(s.URL())
	p.Until(`document.querySelectorAll("svg.map .peering.up, svg.map .peering.down, svg.map .peering.degraded").length > 0`)
	return p
}

// quiet fails where the browser has found fault with the page, and where usable does.
func quiet(t *testing.T, p *browser.Page) {
	t.Helper()
	for _, text := range p.Troubles() {
		t.Errorf("the browser says: %s", text)
	}
	usable(t, p)
}

// usable fails where what is shown cannot be used by everybody.
func usable(t *testing.T, p *browser.Page) {
	t.Helper()
	var faults []string
	p.Must(accessibility, &faults)
	if judged, err := p.Axe(); err == nil { // else TestPage says so at its end
		faults = append(faults, judged...)
	}
	for _, f := range faults {
		t.Errorf("accessibility: %s", f)
	}
}

// accessibility looks for what axe-core does not: what sticks out of a narrow window (WCAG
// 1.4.10), what only a mouse can choose (2.1.1), controls that are too small to hit even
// where there is room around them (2.5.8), IDs that are there twice, references to nothing.
const accessibility = `(() => {
	const faults = [];
	const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
	for (const id of ids) if (ids.filter((x) => x === id).length > 1) faults.push("id twice: " + id);
	if (document.documentElement.scrollWidth > innerWidth + 1) faults.push("wider than the window: " + document.documentElement.scrollWidth);
	for (const e of document.querySelectorAll("[role=button]")) if (e.tabIndex < 0) faults.push("no keyboard comes here: " + e.outerHTML.slice(0, 120));
	for (const e of document.querySelectorAll("button, select, input, summary")) {
		const r = e.getBoundingClientRect();
		// Links within text may be as small as the text; the table below the map has what is on it.
		if (e.checkVisibility() && !e.closest(".link") && (r.width < 24 || r.height < 24)) faults.push("too small to hit: " + e.outerHTML.slice(0, 120));
	}
	for (const a of ["aria-controls", "list", "for"])
		for (const e of document.querySelectorAll("[" + a + "]")) for (const id of e.getAttribute(a).split(" ")) if (!document.getElementById(id)) faults.push(a + " of nothing: " + id);
	return faults;
})()`

// TestPage: the map is that of the objects, a cut peering turns red and says why, and
// every view works, in the light and in the dark.
func TestPage(t *testing.T) {
	for _, tt := range []struct {
		name          string
		width, height int
		dark          bool
	}{{"light", 1280, 900, false}, {"dark", 1280, 900, true}, {"narrow", 390, 844, false}, {"narrow, dark", 390, 844, true}} {
		t.Run(tt.name, func(t *testing.T) {
			w := &stand{held: make(chan struct{})}
			s := start(t, []string{"rome", "milan"}, func(s *Server) {
				w.serve(s)
				s.config.Prometheus = map[string]*Prometheus{"rome": keeping(t, &keeper{days: 6})}
			})
			p := open(t, s, tt.width, tt.height, tt.dark)
			shot := func(view string) { keep(t, view+"-"+tt.name+".png", p.Screenshot()) }
			tab := func(name string) { p.Must(`document.querySelector("#views [data-view=`+name+`]").click()`, nil) }

			p.Until(`document.querySelectorAll("svg.map .peering.up").length === 2 && document.querySelectorAll("svg.map .box").length === 3`)
			p.Until(`document.querySelectorAll("svg.map .box:not(.stranger) .node").length === 6`)
			p.Until(`document.querySelector("aside").innerText.includes("10.71.0.0/16")`)
			var hash string
			if p.Must(`location.hash + location.href.includes("`+s.guard.token+`")`, &hash); hash != "false" {
				t.Errorf("the token is still in the address: %s", hash)
			}
			shot("map")
			quiet(t, p)
			var smallest float64
			if p.Must(`Math.min(...[...document.querySelectorAll("svg.map text")].filter((t) => t.textContent).map((t) => t.getBoundingClientRect().height))`, &smallest); smallest < 11 {
				t.Errorf("text on the map is %.1f pixels high", smallest)
			}

			w.cut.Store(true)
			p.Until(`document.querySelectorAll("svg.map .peering.down").length === 1 && document.title.startsWith("(1 down)")`)
			p.Must(`document.querySelector("svg.map .peering.down").dispatchEvent(new MouseEvent("click", { bubbles: true }))`, nil)
			p.Until(`document.querySelector("aside").innerText.includes(` + quoted(whyCut) + `) && document.querySelector("aside .fix code").innerText === "kubectl -n liqo get svc"`)
			shot("down")
			quiet(t, p)
			// Who holds a button there sees at once that all is well again, or not, and still holds it.
			p.Must(`document.querySelector("aside [class=row] button").focus()`, nil)
			w.cut.Store(false)
			p.Until(`document.querySelector("aside .badge.up") && document.activeElement.innerText === "Plots"`)
			w.cut.Store(true)
			p.Until(`document.querySelector("aside .badge.down") && ` + clientLink + ` && document.activeElement.innerText === "Plots"`)
			p.Must(`document.activeElement.blur()`, nil)
			p.Must(clientLink+`.click()`, nil)
			p.Until(`document.querySelector("dialog pre").innerText.startsWith("apiVersion: networking.liqo.io/v1beta1\nkind: GatewayClient\n")`)
			usable(t, p)
			p.Must(`document.querySelector("dialog").close()`, nil)

			tab("packet")
			p.Until(`document.querySelectorAll("#from-pods option").length === 1`)
			p.Must(`(() => { const f = document.querySelector("form"); f.elements.from.value = "default/rome-client"; f.elements.to.value = "10.71.2.20:443"; f.requestSubmit(); })()`, nil)
			p.Until(`document.querySelectorAll("ol.way > li").length === 5 && document.querySelector("li.stop").innerText.includes("does not answer")`)
			shot("packet")
			quiet(t, p)
			w.cut.Store(false)
			p.Must(`(() => { const f = document.querySelector("form"); f.elements.toCluster.value = "1"; f.elements.toCluster.dispatchEvent(new Event("change")); f.elements.to.value = "default/milan-client"; f.requestSubmit(); })()`, nil)
			p.Until(`document.querySelectorAll("ol.way > li").length === 6 && !document.querySelector("li.stop") && document.querySelector("ol.way").innerText.includes("10.71.2.20") && document.querySelector("ol.way").innerText.includes("(milan)")`)
			p.Must(`(() => { const f = document.querySelector("form"); f.elements.from.value = "default/nobody"; f.requestSubmit(); })()`, nil)
			p.Until(`document.querySelector("main [role=status]").innerText.includes("there is no pod default/nobody")`)
			p.Must(`(() => { const f = document.querySelector("form"); f.elements.from.value = "default/rome-client"; f.elements.toCluster.value = ""; f.elements.to.value = "milan.example"; f.requestSubmit(); })()`, nil)
			p.Until(`document.querySelector("main [role=status]").innerText.includes("is not an address")`)

			p.Must(`(() => { const f = document.querySelector("form"); f.elements.to.value = "10.71.2.20:443"; f.elements.live.click(); f.requestSubmit(); })()`, nil)
			p.Until(`document.querySelector("li.stop")?.innerText.includes("but none here") && document.querySelectorAll(".seen").length === 4 && document.querySelector(".seen").innerText.includes("12 at pod, 12 at link") && document.querySelector(".uncounted").innerText.includes("Not counted: the version of its agent")`)
			p.Must(`scrollTo(0, document.querySelector("main > div").offsetTop - document.querySelector("header").offsetHeight - 12)`, nil)
			shot("live")
			usable(t, p)

			tab("drops")
			p.Until(`document.querySelectorAll("tbody tr").length === 2 && document.querySelector("main").innerText.includes("10.243.1.5:33000 > 10.99.0.1:443")`)
			shot("drops")
			usable(t, p)
			p.Must(`document.querySelector(".finding button.link").click()`, nil)
			p.Until(`document.querySelector("dialog tr.chosen")?.innerText.includes("DropNoMapping")`)
			shot("reason")
			usable(t, p)
			p.Must(`document.querySelector("dialog").close()`, nil)

			tab("doctor")
			p.Until(`document.querySelectorAll("main select option").length === 4`)
			w.cut.Store(true)
			p.Must(`document.querySelector("main button.primary").click()`, nil)
			p.Until(`document.querySelectorAll(".steps li").length === 2 && document.querySelector(".steps .up").innerText.includes("Cluster examined") && document.querySelector(".steps .waiting")`)
			shot("progress")
			usable(t, p)
			close(w.held)
			p.Until(`document.querySelectorAll("details").length === 2 && document.querySelector("details[open]").innerText.includes(` + quoted(whyCut) + `)`)
			shot("doctor")
			usable(t, p)

			w.cut.Store(false)
			tab("plots")
			p.Until(`document.querySelectorAll("canvas").length === 6 && /\d/.test(document.querySelector("canvas").getAttribute("aria-label"))`)
			p.Must(`document.querySelectorAll("main [aria-pressed=false]")[0].click()`, nil)
			p.Until(`document.querySelector(".plot .legend").children.length === 4`)
			p.Must(`document.querySelector("canvas").focus()`, nil)
			p.Press("ArrowLeft")
			p.Until(`/\d:\d/.test(document.querySelector(".plot h2 span").innerText)`)
			shot("plots")
			usable(t, p)
			var before, after string
			p.Must(`document.querySelectorAll("canvas")[5].getAttribute("aria-label")`, &before)
			p.Press("Escape")
			p.Until(`document.querySelectorAll("canvas")[5].getAttribute("aria-label") !== ` + quoted(before))
			if p.Must(`document.querySelectorAll("canvas")[5].getAttribute("aria-label")`, &after); !strings.Contains(after, "MiB") {
				t.Errorf("memory: %q", after)
			}
			p.Must(`(() => { const far = document.querySelector("main label select"); far.value = "168"; far.dispatchEvent(new Event("change")); })()`, nil)
			p.Until(`document.querySelector("main p.down").innerText.includes("no Prometheus is configured")`) // for milan
			p.Must(`document.querySelectorAll("main [aria-pressed=true]")[1].click()`, nil)
			p.Until(`document.querySelector("main p.down").innerText === "" && document.querySelector("canvas").getAttribute("aria-label").includes("Mbit/s") && document.querySelectorAll("canvas")[2].getAttribute("aria-label").includes("other")`)
			p.Must(`document.activeElement.blur()`, nil)
			shot("past")
			usable(t, p)
			// What was refused above was the user's mistake, and is in the log of the browser.
			for _, text := range p.Troubles() {
				if !strings.Contains(text, "/api/trace?") && !strings.Contains(text, "/api/object?") && !strings.Contains(text, "/api/past?end=1%2Frome") {
					t.Errorf("the browser says: %s", text)
				}
			}
		})
	}
	// The pictures in the documents were made with the assets of now.
	golden.CompareEmbedded(t, "testdata/pictures.txt", pictures, digest(t))
	if _, err := source.Axe(); err != nil {
		source.Lacks(t, "%v", err)
	}
}

//go:embed testdata/pictures.txt
var pictures string

// digest is that of all assets.
func digest(t *testing.T) string {
	t.Helper()
	sum := sha256.New()
	files, err := fs.Glob(embedded, "assets/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		data, err := embedded.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data)
	}
	return fmt.Sprintf("%x\n", sum.Sum(nil))
}

// TestKeyboard: what a mouse can choose a keyboard can.
func TestKeyboard(t *testing.T) {
	w := &stand{}
	p := open(t, start(t, []string{"rome", "milan"}, w.serve), 1280, 900, false)
	p.Until(`document.querySelectorAll("svg.map .box").length === 3`)
	p.Must(`document.querySelector("#views button:last-child").focus()`, nil)
	p.Press("Tab")
	for range 10 {
		p.Press("Tab")
		var on string
		p.Must(`document.activeElement.getAttribute("aria-label") ?? ""`, &on)
		if strings.HasPrefix(on, "Cluster milan") {
			p.Press("Enter")
			p.Until(`document.querySelector("aside h2").innerText === "Cluster milan"`)
			quiet(t, p)
			return
		}
	}
	t.Error("Tab does not come to a cluster")
}

// TestMouse: the map and the plots zoom and move by mouse and keyboard, a plot shows values where the mouse is, and a fix
// is copied.
func TestMouse(t *testing.T) {
	w := &stand{}
	p := open(t, start(t, []string{"rome", "milan"}, w.serve), 1280, 900, false)
	p.Allow("clipboardReadWrite", "clipboardSanitizedWrite")
	p.Until(`document.querySelectorAll("svg.map .box").length === 3`)
	view := func() (v struct{ X, Y, W, H float64 }) {
		p.Must(`(() => { const v = document.querySelector("svg.map").viewBox.baseVal; return { X: v.x, Y: v.y, W: v.width, H: v.height }; })()`, &v)
		return v
	}
	place := func(selector string) (r struct{ X, Y, W, H float64 }) {
		p.Must(`(() => { const e = document.querySelector(`+quoted(selector)+`); e.scrollIntoView({ block: "center" }); const r = e.getBoundingClientRect(); return { X: r.x, Y: r.y, W: r.width, H: r.height }; })()`, &r)
		return r
	}
	whole, svg := view(), place("svg.map")
	p.Wheel(svg.X+svg.W/2, svg.Y+svg.H/2, -100)
	if near := view(); near.W >= whole.W {
		t.Errorf("the wheel zooms from %v to %v", whole, near)
	}
	before := view()
	p.Drag(svg.X+10, svg.Y+10, svg.X+60, svg.Y+40)
	if moved := view(); moved.X >= before.X || moved.Y >= before.Y || moved.W != before.W {
		t.Errorf("dragged from %v to %v", before, moved)
	}
	p.Must(`document.querySelector("svg.map .box").focus()`, nil)
	before = view()
	p.Press("+")
	p.Press("ArrowRight")
	if now := view(); now.W >= before.W || now.X <= before.X {
		t.Errorf("by keys from %v to %v", before, now)
	}
	p.Press("0")
	if now := view(); now != whole {
		t.Errorf("everything is %v, before it was %v", now, whole)
	}

	w.cut.Store(true)
	p.Until(`document.querySelector("svg.map .peering.down")`)
	p.Must(`document.querySelector("svg.map .peering.down").dispatchEvent(new MouseEvent("click", { bubbles: true }))`, nil)
	p.Until(`document.querySelector("aside .fix button")`)
	p.Must(`(() => { const b = document.querySelector("aside .fix button"); b.focus(); b.click(); })()`, nil) // details in use stay
	p.Until(`document.querySelector("aside .fix button").innerText === "Copied"`)
	var copied string
	if p.Must(`navigator.clipboard.readText()`, &copied); copied != "kubectl -n liqo get svc" {
		t.Errorf("copied: %q", copied)
	}
	w.cut.Store(false)

	p.Must(`document.querySelector("#views [data-view=plots]").click()`, nil)
	p.Until(`/\d/.test(document.querySelector("canvas").getAttribute("aria-label"))`)
	for range 2 { // all gateways
		p.Must(`document.querySelector("main [aria-pressed=false]").click()`, nil)
	}
	p.Until(`document.querySelector(".plot .legend").children.length === 6`)
	var lines []string
	p.Must(`[...document.querySelectorAll(".plot:first-child .legend line")].map((l) => l.getAttribute("stroke") + " " + l.getAttribute("stroke-dasharray"))`, &lines)
	slices.Sort(lines)
	if len(slices.Compact(lines)) != 6 {
		t.Errorf("lines look the same: %v", lines)
	}
	const at = `document.querySelector(".plot h2 span").innerText`
	canvas := place("canvas")
	leftmost := func() (text string) {
		p.Point(canvas.X+74, canvas.Y+50)
		p.Until(`/\d:\d/.test(` + at + `)`)
		p.Must(at, &text)
		return text
	}
	from := leftmost()
	// The last seconds only: on a slow machine much time passes meanwhile.
	p.Drag(canvas.X+canvas.W*0.88, canvas.Y+50, canvas.X+canvas.W-12, canvas.Y+50)
	if near := leftmost(); near <= from {
		t.Errorf("zoomed, the plot begins at %s, before at %s", near, from)
	}
	near := leftmost()
	p.Must(`document.querySelector("canvas").focus()`, nil)
	p.Press("Escape")
	if all := leftmost(); all >= near {
		t.Errorf("everything begins at %s, a part of it at %s", all, near)
	}
	quiet(t, p)
}

// TestBundleButton: the button saves an archive, and says under which name.
func TestBundleButton(t *testing.T) {
	p := open(t, start(t, []string{"rome", "milan"}, (&stand{}).serve), 1280, 900, false)
	p.Must(`document.querySelector("#views [data-view=doctor]").click()`, nil)
	p.Until(`[...document.querySelectorAll("main button")].some((b) => b.innerText === "Support bundle")`)
	p.Must(`(() => {
		const make = URL.createObjectURL;
		URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; }); return make.call(URL, blob); };
		[...document.querySelectorAll("main button")].find((b) => b.innerText === "Support bundle").click();
	})()`, nil)
	p.Until(`/sluice-support-\S+\.tar\.gz\. Review it/.test(document.querySelector("main").innerText) && window.saved === "the archive of 2 clusters"`)
	quiet(t, p)
}

// TestHostileNames: names and messages with markup stay text.
func TestHostileNames(t *testing.T) {
	w := &stand{hostile: `"'><img src=x onerror="document.title='owned'"><script>document.title='owned'</script>` + "\u202e</svg><svg onload=document.title='owned'>"}
	s := start(t, []string{"rome", "milan"}, w.serve)
	p := open(t, s, 1280, 900, false)
	p.Must(`document.querySelector("svg.map .peering.degraded, svg.map .peering.down").dispatchEvent(new MouseEvent("click", { bubbles: true }))`, nil)
	p.Until(`document.querySelector("aside").innerText.includes("onerror=") && document.querySelector("svg.map").textContent.includes("img src")`)
	keep(t, "hostile.png", p.Screenshot())
	p.Must(`document.querySelector("#views [data-view=packet]").click()`, nil)
	p.Until(`document.querySelectorAll("#from-pods option").length === 1`)
	p.Must(`(() => { const f = document.querySelector("form"); f.elements.from.value = "default/rome-client"; f.elements.to.value = "10.71.2.20"; f.requestSubmit(); })()`, nil)
	p.Until(`document.querySelectorAll("ol.way > li").length === 6`)
	p.Must(`document.querySelector("#views [data-view=doctor]").click()`, nil)
	p.Until(`document.querySelectorAll("main select option").length > 1`)
	p.Must(`document.querySelector("main button.primary").click()`, nil)
	p.Until(`document.querySelectorAll("details").length === 2`)
	p.Must(`document.querySelector("#views [data-view=drops]").click()`, nil)
	p.Until(`document.querySelectorAll("tbody tr").length === 2 && document.querySelector("main").innerText.includes("onerror=")`)
	p.Must(`document.querySelector("#views [data-view=plots]").click()`, nil)
	p.Until(`/\d/.test(document.querySelector("canvas").getAttribute("aria-label"))`)
	p.Must(`document.querySelector("#views [data-view=map]").click()`, nil)
	p.Until(clientLink)
	p.Must(clientLink+`.click()`, nil)
	p.Until(`document.querySelector("dialog pre").innerText.includes("kind: GatewayClient") && document.querySelector("dialog pre").innerText.includes("onerror=")`)
	p.Must(`document.querySelector("dialog").close()`, nil)
	var state struct {
		Title   string
		Foreign int
		Blocked bool
	}
	p.Must(`({ Title: document.title, Foreign: document.querySelectorAll("img, main script, iframe, object, embed, [onload], [onerror]").length,
		Blocked: (() => { try { document.body.innerHTML = "<b>x</b>"; return false; } catch { return true; } })() })`, &state)
	if strings.Contains(state.Title, "owned") || state.Foreign > 0 || !state.Blocked {
		t.Errorf("%+v", state)
	}
	for _, text := range p.Troubles() {
		if !strings.Contains(text, "TrustedHTML") { // what was tried above
			t.Errorf("the browser says: %s", text)
		}
	}
}

// TestTokenOfAnother: who opens the page without the token sees no cluster.
func TestTokenOfAnother(t *testing.T) {
	w := &stand{}
	s := start(t, []string{"rome", "milan"}, w.serve)
	p := browser.Open(t, 800, 600, false)
	p.Go("http://" + s.listener.Addr().String() + "/")
	p.Until(`document.querySelector("#news").innerText.includes("the token is missing or wrong")`)
	defer func() { // in the same tab, as after a new start of the console
		p.Go(s.URL())
		p.Until(`document.querySelector("svg.map .peering.up") && location.hash === ""`)
	}()
	var text string
	if p.Must(`document.body.innerText`, &text); slices.ContainsFunc([]string{"rome", "milan", "10.243"}, func(s string) bool { return strings.Contains(text, s) }) {
		t.Errorf("it shows %s", text)
	}
}

// quoted is a text as JavaScript reads it.
func quoted(s string) string {
	out, _ := json.Marshal(s) // a string can be
	return string(out)
}
