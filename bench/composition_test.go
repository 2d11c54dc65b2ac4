package bench

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

var (
	compare = flag.Bool("compare", false, "compare the gateway with the stock composition; takes minutes")
	rounds  = flag.Int("rounds", 5, "interleaved repeats of -compare")
	seconds = flag.Int("seconds", 4, "length of each measurement of -compare")
	links   = flag.Int("link.mtu", 0, "MTU of all links of -compare, of which each variant makes what it can; 0: links of 1500 bytes, and packets of 1340 through the tunnel")
	results = flag.String("results", "", "directory that -compare writes its result to")
)

func TestMain(m *testing.M) {
	if name := os.Getenv(linkProgram); name != "" {
		runLink(name) // this process is one of the programs that TestNodeLink compares
		return
	}
	os.Exit(lab.Main(m))
}

// TestComposition measures variants in the same namespaces, taking turns, so that
// what else the machine does falls on all of them alike.
func TestComposition(t *testing.T) {
	if !*compare {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -compare runs it")
	}
	chosenVariants := chosen(t, *variantNames, variants, func(v variant) string { return v.name })
	chosenLoads := loads
	if *loadNames != "all" {
		chosenLoads = chosen(t, *loadNames, loads, func(k kind) string { return k.name })
	}
	prioritize(t)
	topo := newTopology(t)
	server := topo.B.Nodes[0].Pod.StartIperf()
	defer server.Stop(lab.Patience)

	r := report{}
	half := halfLoad(t, topo)
	for r.round = range *rounds {
		for i := range chosenVariants {
			v := chosenVariants[(i+r.round)%len(chosenVariants)] // nobody is always first
			gateways, stop := v.start(t, topo)
			p := &path{t: t, variant: v.name, topo: topo, gateways: gateways, report: &r, half: half}
			p.ready()
			before := othersNow(t)
			for _, k := range chosenLoads {
				k.run(p)
			}
			p.add("others", "% of machine", othersNow(t).share(before, runtime.NumCPU()))
			p.resident()
			stop()
		}
		t.Logf("round %d of %d is done", r.round+1, *rounds)
	}
	var columns []string
	for _, v := range chosenVariants {
		columns = append(columns, v.name)
	}
	what := "" // a run of other loads does not replace this day's
	if *loadNames != quickLoads {
		what = "-" + strings.ReplaceAll(*loadNames, ",", "+")
	}
	head := fmt.Sprintf("each measurement: %v\nhalf load: %.2f Gbit/s\n", duration(), half/1e9)
	if *links != 0 {
		what += fmt.Sprintf("-links%d", *links)
		head += fmt.Sprintf("link MTU: %d, packets of %d bytes between the gateways\n", *links, topo.A.MTU)
	}
	keep(t, what, head+r.text(columns, r.figures))
}

// newTopology builds both clusters, of one node each.
func newTopology(t *testing.T) *lab.Topology {
	t.Helper()
	node := lab.NodeSpec{Encapsulation: lab.VXLAN}
	if *links != 0 {
		node.MTU = *links - 50 // VXLAN
	}
	topo := lab.New(t, "iperf3", "curl").NewTopology([]lab.NodeSpec{node}, []lab.NodeSpec{node})
	if *links != 0 {
		topo.SetLinkMTU(*links)
		setMTU(topo, *links-100) // WireGuard over IPv4 takes 60 bytes
	}
	return topo
}

// setMTU sets the largest packet between the gateways that are started next.
func setMTU(topo *lab.Topology, mtu int) { topo.A.MTU, topo.B.MTU = mtu, mtu }

// halfLoad finds out what half a load is: of what the stock composition carries in
// one stream.
func halfLoad(t *testing.T, topo *lab.Topology) float64 {
	t.Helper()
	gateways, stop := startStock(t, topo)
	defer stop()
	p := &path{t: t, variant: stockName, topo: topo, gateways: gateways}
	p.ready()
	result, err := p.client().Iperf(lab.Iperf{To: p.to(), Duration: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return result.BitsPerSecond / 2
}

// resident records the memory of the gateways after the loads.
func (p *path) resident() {
	p.t.Helper()
	for _, g := range p.gateways {
		rss, err := g.RSS()
		if err != nil {
			p.t.Fatal(err)
		}
		p.add("memory/rss", "MiB", float64(rss)/(1<<20))
	}
}

// keep shows a report and writes it if that was asked for. what distinguishes
// the files of different comparisons.
func keep(t *testing.T, what, text string) {
	t.Helper()
	fmt.Print(text)
	if *results == "" {
		return
	}
	path := resultPath(*results, what)
	if err := errors.Join(os.MkdirAll(*results, 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Logf("written to %s", path)
}
