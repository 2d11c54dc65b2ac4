package kubernetes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/browser"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// pageLimit is how soon the page shows that a peering is cut, with the cause, and that it
// works again.
const pageLimit = 10 * time.Second

// red is what the page has in the light for what is down.
const red = "rgb(179, 38, 30)"

// console is the page of liqoctl console, in a browser of the administrator.
type console struct {
	*world
	*browser.Page
	client, server *kubelab.Pod // in a, on its first node, and in b
	to             netip.Addr   // the server, as a calls it
}

// testPage looks at two connected clusters, and at what happens to them, on the page.
func testPage(t *testing.T, w *world) {
	w.connect(t)
	c := &console{world: w, client: w.clients(t, w.a, 2)[0], server: w.servers(t, w.b, 2)[0]}
	if c.client.Node != w.a.Nodes[0] {
		c.client = w.clients(t, w.a, 2)[1]
	}
	c.to = w.remote(t, w.a, c.server.Addr)
	w.connected(t)
	c.open(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"map", c.testMap},
		{"plots", c.testPlots},
		{"packet path", c.testWay},
		{"between two pods", c.testPods},
		{"drops, checks, objects", c.testOthers},
		{"hostile", c.testHostile},
		{"cut", c.testCut},
		{"support bundle", c.testBundle},
	} {
		start := time.Now()
		t.Run(part.name, part.run)
		t.Logf("%s: %v", part.name, time.Since(start).Round(100*time.Millisecond))
	}
	for _, text := range c.Troubles() {
		t.Errorf("the browser says: %s", text)
	}
}

// open starts liqoctl console as a user does who opens the address by hand, and opens it.
// liqoctl ends by Ctrl-C.
func (c *console) open(t *testing.T, more ...string) {
	t.Helper()
	cmd := c.command(append(c.both("console", "--no-browser"), more...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.WAN.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("liqoctl console: %v", err)
		}
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("liqoctl console prints no address: %v", err)
	}
	c.Page = browser.OpenIn(t, c.WAN.Do, 1280, 900, false)
	c.Go(strings.TrimSpace(url))
	start := time.Now()
	c.Until(`document.querySelectorAll("svg.map .peering.up").length === 1 && document.querySelectorAll("svg.map .node:not(.ill)").length === 4`)
	t.Logf("the map is there after %v", time.Since(start).Round(10*time.Millisecond))
}

// view shows one of the views.
func (c *console) view(name string) {
	c.Must(`document.querySelector("#views [data-view=`+name+`]").click()`, nil)
}

// click clicks the first element of a selector.
func (c *console) click(selector string) {
	c.Must(`document.querySelector(`+quoted(selector)+`).dispatchEvent(new MouseEvent("click", { bubbles: true }))`, nil)
}

// keep writes a picture for somebody to look at, where a flag says where.
func (c *console) keep(t *testing.T, name string) {
	t.Helper()
	if *pictures == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), c.Screenshot(), 0o644); err != nil {
		t.Error(err)
	}
}

// quoted is a text as JavaScript reads it.
func quoted(s string) string {
	out, _ := json.Marshal(s) // a string can be
	return string(out)
}

// testMap compares the map with the objects.
func (c *console) testMap(t *testing.T) {
	var shown struct {
		Boxes                          []string
		Ill, Gateways, Peerings, Lines int
		Row                            []string
	}
	c.Must(`({
		Boxes: [...document.querySelectorAll("svg.map .box")].map((e) => e.getAttribute("aria-label")),
		Ill: document.querySelectorAll("svg.map .node.ill, svg.map .box.trouble, svg.map .box.stranger").length,
		Gateways: document.querySelectorAll("svg.map .gateway").length,
		Peerings: document.querySelectorAll("svg.map .peering").length, Lines: document.querySelectorAll(".columns section.scroll tbody tr").length,
		Row: [...document.querySelectorAll(".columns section.scroll tbody tr:first-child td")].map((e) => e.innerText.trim()),
	})`, &shown)
	want := shown
	want.Boxes, want.Ill, want.Gateways, want.Peerings, want.Lines = nil, 0, 2, 1, 1
	for _, k := range []*kubelab.Cluster{c.a, c.b} {
		want.Boxes = append(want.Boxes, fmt.Sprintf("Cluster %s pods %s %d nodes", k.Name, kubelab.PodCIDR, len(k.Nodes)))
	}
	mtu := c.kubectl(t, c.a, "-n", c.peering().client.namespace, "get", "gatewayclient", c.b.Name, "-o", "jsonpath={.spec.mtu}")
	want.Row = append([]string{c.a.Name + " – " + c.b.Name, "✓ Connected", shown.Row[2], mtu}, shown.Row[4:7]...)
	want.Row = append(want.Row, fmt.Sprintf("%d of %d", len(c.a.Nodes), len(c.a.Nodes)))
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("the map (-want +got):\n%s", diff)
	}
	c.keep(t, "map")
	c.usable(t)

	c.click("svg.map .peering")
	var details struct {
		Text  string
		CIDRs [][]string // per table: its columns, then cells
	}
	c.Until(`document.querySelectorAll("aside table").length === 2`)
	c.Must(`({ Text: document.querySelector("aside").innerText,
		CIDRs: [...document.querySelectorAll("aside table")].map((e) => [...e.querySelectorAll("th, td")].map((x) => x.innerText)) })`, &details)
	var cidrs [][]string
	for _, e := range c.peering().ends() {
		if g := leads(t, e.Cluster); !strings.Contains(details.Text, fmt.Sprintf("%s on %s, active", g.Name, g.Node.Name)) {
			t.Errorf("it does not show that %s on %s is active:\n%s", g.Name, g.Node.Name, details.Text)
		}
		var o networkingv1beta1.Configuration
		if err := e.get(t.Context(), e.peer, &o); err != nil {
			t.Fatal(err)
		}
		there, here := o.Spec.Remote.CIDR, o.Status.Remote.CIDR
		cidrs = append(cidrs, []string{
			"CIDR", "in " + e.peer, "seen from " + e.Name,
			"pods", string(there.Pod.List[0]), string(here.Pod.List[0]), "external", string(there.External.List[0]), string(here.External.List[0]),
		})
	}
	if diff := cmp.Diff(cidrs, details.CIDRs); diff != "" {
		t.Errorf("CIDRs (-want +got):\n%s", diff)
	}

	c.click(`svg.map .box`)
	c.Until(`document.querySelector("aside h2").innerText === ` + quoted("Cluster "+c.a.Name))
	var text string
	c.Must(`document.querySelector("aside").innerText`, &text)
	for _, fact := range []string{c.a.Config().Host, kubelab.PodCIDR, kubelab.ServiceCIDR, c.a.Kubeconfig} {
		if !strings.Contains(text, fact) {
			t.Errorf("%s does not stand in what is said of the cluster:\n%s", fact, text)
		}
	}
}

// testPlots has one connection carry as much as it can.
func (c *console) testPlots(t *testing.T) {
	c.view("plots")
	const rate = `(document.querySelector("canvas").getAttribute("aria-label") ?? "")`
	c.Until(rate + `.startsWith("Throughput: out ")`)
	var idle, busy string
	c.Must(rate, &idle)
	if strings.Contains(idle, "Mbit/s") || strings.Contains(idle, "Gbit/s") {
		t.Errorf("while nobody sends anything: %s", idle)
	}
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			got, err := bulk(t.Context(), path{from: c.client, to: c.server, at: c.to}, time.Second)
			if err != nil {
				t.Errorf("the transfer: %v", err)
				return
			}
			t.Logf("%.0f Mbit/s arrive", got/1e6)
		}
	})
	defer work.Wait()
	defer close(stop)
	c.Until(`/^Throughput: out [\d.]+ [MG]bit/.test(` + rate + `) && /out [\d.]+ k?\/s/.test(document.querySelectorAll("canvas")[1].getAttribute("aria-label"))`)
	c.Must(rate, &busy)
	t.Logf("the plots: %s, then %s", idle, busy)
	c.usable(t)
	c.keep(t, "plots")
}

// testWay follows a packet, and follows it where another program's rule takes it away.
func (c *console) testWay(t *testing.T) {
	c.view("packet")
	c.Until(`[...document.querySelectorAll("#from-pods option")].some((o) => o.value === ` + quoted(c.client.Namespace+"/"+c.client.Name) + `)`)
	follow := func() (way struct{ Verdict, Stop, Text string }, err error) {
		c.Must(fmt.Sprintf(`(() => { const f = document.querySelector("form"); f.elements.from.value = %s; f.elements.to.value = %s; f.requestSubmit(); })()`,
			quoted(c.client.Namespace+"/"+c.client.Name), quoted(netip.AddrPortFrom(c.to, webPort).String())), nil)
		c.Until(`!document.querySelector("form button.primary").disabled`)
		c.Must(`({ Verdict: document.querySelector("main .badge")?.innerText ?? document.querySelector("main [role=status]").innerText, Text: document.querySelector("main").innerText,
			Stop: document.querySelector("li.stop")?.innerText ?? "" })`, &way)
		if len(c.Troubles()) > 0 {
			err = errors.New(strings.Join(c.Troubles(), "; "))
		}
		return way, err
	}
	complete := func() error {
		way, err := follow()
		if err == nil && (way.Verdict != "✓ Nothing stops the packet" || way.Stop != "") {
			err = errors.New(way.Text)
		}
		for _, hop := range []string{c.client.Name, c.client.Node.Name, c.to.String(), c.server.Addr.String(), c.server.Name, c.server.Node.Name} {
			if err == nil && !strings.Contains(way.Text, hop) {
				err = fmt.Errorf("%s is not on the way:\n%s", hop, way.Text)
			}
		}
		return err
	}
	lab.Eventually(t, patience, "the way is complete", complete)
	c.keep(t, "way")

	c.divert(t, "500")
	rule := sync.OnceFunc(func() { c.client.Node.Host.Run("ip", "rule", "del", "priority", "500") })
	defer rule()
	start := time.Now()
	lab.Eventually(t, patience, "the way ends at the node, by the rule", func() error {
		way, err := follow()
		if err == nil && (way.Verdict != "✕ The packet stops at the node" || !strings.Contains(way.Stop, "500: from all to") || !strings.Contains(way.Stop, c.client.Node.Name)) {
			err = errors.New(way.Text)
		}
		return err
	})
	t.Logf("the rule is named after %v", time.Since(start).Round(10*time.Millisecond))
	var colours []string
	if c.Must(`[getComputedStyle(document.querySelector("li.stop .mark")).backgroundColor, getComputedStyle(document.querySelector("main .badge.down")).color]`, &colours); colours[0] != red || colours[1] != red {
		t.Errorf("where it stops is not red: %s", colours)
	}
	c.Must(`document.querySelector("li.stop").scrollIntoView({ block: "center" })`, nil)
	c.usable(t)
	c.keep(t, "stop")
	rule()
	lab.Eventually(t, patience, "the way is complete again", complete)
	c.view("map") // a node with a problem may still be shown: what follows begins when all is well
	c.Until(`document.querySelectorAll("svg.map .peering.up").length === 1 && !document.querySelector("svg.map .node.ill")`)
}

// usable fails where axe-core finds fault with what is shown.
func (c *console) usable(t *testing.T) {
	t.Helper()
	faults, err := c.Axe()
	if err != nil {
		t.Logf("not judged: %v", err) // the tests of the page say so
	}
	for _, f := range faults {
		t.Errorf("accessibility: %s", f)
	}
}

// testPods follows a packet to a pod that is chosen in its own cluster, while packets are watched.
func (c *console) testPods(t *testing.T) {
	c.view("packet")
	c.Until(`document.querySelectorAll("form select[name=toCluster] option").length === 3`)
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				_, _ = getAt(t.Context(), c.client, netip.AddrPortFrom(c.to, webPort)) // whether packets pass is what the page says
			}
		}
	})
	defer work.Wait()
	defer close(stop)
	// What was dropped within the last minute, by a fault of before, counts as well.
	lab.Eventually(t, patience, "packets are seen all the way", func() error {
		c.Must(fmt.Sprintf(`(() => { const f = document.querySelector("form"); f.elements.toCluster.value = "1"; f.elements.toCluster.dispatchEvent(new Event("change"));
			f.elements.from.value = %s; f.elements.to.value = %s; f.elements.live.checked = true; f.requestSubmit(); })()`,
			quoted(c.client.Namespace+"/"+c.client.Name), quoted(c.server.Namespace+"/"+c.server.Name)), nil)
		c.Until(`!document.querySelector("form button.primary").disabled`)
		var way struct {
			Seen int
			Text string
		}
		c.Must(`({ Seen: document.querySelector("main .badge.up") ? document.querySelectorAll(".seen").length : 0, Text: document.querySelector("main").innerText })`, &way)
		if way.Seen < 4 {
			return fmt.Errorf("at %d places:\n%s", way.Seen, way.Text)
		}
		for _, want := range []string{c.server.Name, c.to.String(), "(" + c.b.Name + ")", "WireGuard messages arrive from "} {
			if !strings.Contains(way.Text, want) {
				return fmt.Errorf("%q is not on the way:\n%s", want, way.Text)
			}
		}
		return nil
	})
	c.usable(t)
	c.keep(t, "live")
}

// testOthers looks at drops, at the doctor's checklist, and at an object.
func (c *console) testOthers(t *testing.T) {
	nowhere := through(externalCIDR(t, c.a, c.b.Name), netip.MustParseAddr("255.255.255.254")) // no IP object has it
	c.view("drops")
	lab.Eventually(t, patience, "the page shows the drop", func() error {
		if _, err := getAt(t.Context(), c.client, netip.AddrPortFrom(nowhere, webPort)); err == nil {
			return fmt.Errorf("%s answers", nowhere)
		}
		c.Must(`[...document.querySelectorAll("main button")].find((b) => b.innerText === "Read again").click()`, nil)
		c.Until(`[...document.querySelectorAll("main button")].some((b) => b.innerText === "Read again" && !b.disabled)`)
		var text string
		if c.Must(`document.querySelector("main").innerText`, &text); !strings.Contains(text, "DropNoAddress") || !strings.Contains(text, fmt.Sprintf(".255.254:%d SYN", webPort)) { // as the other cluster calls it
			return errors.New(text)
		}
		return nil
	})
	c.usable(t)
	c.view("doctor")
	c.Until(`document.querySelectorAll("main select option").length === 3`)
	c.Must(`document.querySelector("main button.primary").click()`, nil)
	c.Until(`document.querySelectorAll("details").length > 20 && document.querySelector("main .badge.up")`)
	c.usable(t)
	c.view("map")
	c.Until(`document.querySelector("svg.map .peering.up")`)
	c.click("svg.map .peering")
	c.Until(`document.querySelector("aside dd button.link")`)
	c.click("aside dd button.link")
	c.Until(`/kind: Gateway(Client|Server)\n/.test(document.querySelector("dialog pre").innerText)`)
	c.usable(t)
	c.click("dialog button")
}

// testHostile has an object hold markup and as much text as an API server takes.
func (c *console) testHostile(t *testing.T) {
	const markup = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	o := c.peering().client
	file := filepath.Join(t.TempDir(), "patch.json")
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"hostile":%s}}}`, quoted(markup+strings.Repeat("W", 250<<10))) // all annotations: 256 KiB
	if err := os.WriteFile(file, []byte(patch), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"gatewayclient", "configuration"} {
		c.kubectl(t, c.a, "-n", o.namespace, "patch", kind, c.b.Name, "--type=merge", "--patch-file", file)
		defer c.kubectl(t, c.a, "-n", o.namespace, "annotate", kind, c.b.Name, "hostile-")
	}
	c.view("map")
	c.Until(`document.querySelector("svg.map .peering.up")`)
	c.click("svg.map .peering")
	c.Until(`document.querySelector("aside dd button.link")`)
	c.click("aside dd button.link")
	c.Until(`document.querySelector("dialog pre").innerText.includes("onerror=")`)
	var shown struct {
		Title        string
		Foreign, Len int
	}
	c.Must(`({ Title: document.title, Foreign: document.querySelectorAll("img, main script, iframe, object, embed, [onload], [onerror]").length, Len: document.querySelector("dialog pre").innerText.length })`, &shown)
	if shown.Title != "Sluice" || shown.Foreign > 0 || shown.Len > 70<<10 {
		t.Errorf("%+v", shown)
	}
	c.click("dialog button")
}

// testCut cuts the peering and mends it, again where the machine was too busy for a promise.
func (c *console) testCut(t *testing.T) {
	defer c.Mend()
	const limit, tries = loadedMachine * pageLimit, 3
	best := 2 * limit
	for n := 0; n < repetitions() || best > limit && n < tries; n++ {
		red := c.cut(t)
		back := c.mended()
		best = min(best, max(red, back))
		t.Logf("cut: red, with the cause, after %v; mended: well after %v", red.Round(10*time.Millisecond), back.Round(10*time.Millisecond))
	}
	if best > limit {
		t.Errorf("promised are %v (and allowed %d times that)", pageLimit, loadedMachine)
	}
}

// cut returns how long it takes until the page shows that the peering is cut, and why.
func (c *console) cut(t *testing.T) time.Duration {
	t.Helper()
	c.click("svg.map .peering")
	start := time.Now()
	c.Cut()
	c.Until(`document.querySelector("svg.map .peering.down") && document.title.startsWith("(1 down)") &&
		document.querySelector("aside .finding.failed")?.innerText.includes("UDP is blocked or misrouted on the way to the server")`)
	took := time.Since(start)
	c.Until(`getComputedStyle(document.querySelector("svg.map .peering.down .line")).stroke === ` + quoted(red)) // it fades
	var first, fix string
	c.Must(`document.querySelector("aside .finding").innerText`, &first)
	c.Must(`[...document.querySelectorAll("aside .finding p")].map((p) => p.innerText).find((text) => text.startsWith("Fix: ")) ?? ""`, &fix)
	if !strings.Contains(first, "nothing arrives at the server") || !strings.Contains(fix, "check firewalls") {
		t.Errorf("the cause that comes first, and what to do: %s\n%s", first, fix)
	}
	c.usable(t)
	c.keep(t, "down")
	return took
}

// mended mends it, and returns how long it takes until the page shows that all is well.
func (c *console) mended() time.Duration {
	start := time.Now()
	c.Mend()
	c.Until(`document.querySelector("svg.map .peering.up") && document.title === "Sluice"`)
	return time.Since(start)
}

// testBundle saves the support bundle.
func (c *console) testBundle(t *testing.T) {
	c.view("doctor")
	c.Until(`[...document.querySelectorAll("main button")].some((b) => b.innerText === "Support bundle")`)
	c.Must(`[...document.querySelectorAll("main button")].find((b) => b.innerText === "Support bundle").click()`, nil)
	c.Until(`document.querySelector("main").innerText.includes("Review it before you share it")`)
	var file string
	lab.Eventually(t, patience, "the browser has saved it", func() error {
		files, err := filepath.Glob(filepath.Join(c.Downloads, "*.tar.gz"))
		if err == nil && len(files) != 1 {
			err = fmt.Errorf("there are %v", files)
		}
		if err == nil {
			file = files[0]
		}
		return err
	})
	files, p := unpacked(t, file), c.peering()
	p.checkSecrecy(t, files)
	c.checkBundle(t, p, files)
}
