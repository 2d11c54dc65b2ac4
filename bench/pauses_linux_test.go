package bench

import (
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

var measurePauses = flag.Bool("pauses", false, "measure for how long the garbage collection stops a gateway under load; takes three minutes for each of -rounds")

// pausePlaces are where TestPauses has the gateways run.
var pausePlaces = []struct {
	name string
	told bool // the scheduler of system calls
	in   func(*testing.T, []*lab.Process) (leave func())
}{
	{"alone", false, alone},
	{"alone-told", true, alone},
	{"two-busy-loops", false, busyLoops},
	{"two-busy-loops-told", true, busyLoops},
	{"quota-100", false, quota(100, pauseQuotaPeriod)},
	{"quota-50", false, quota(50, pauseQuotaPeriod)},
}

// pauseQuotaPeriod is what Kubernetes has for a limit of a container.
const pauseQuotaPeriod = 100 * time.Millisecond

// pauseCollections is how many garbage collections each figure is of: as many pauses as the runtime
// remembers, but for some.
const pauseCollections = 200

// pauseStreams is how long the streams last within which a gateway collects.
const pauseStreams = 30 * time.Second

// TestPauses measures for how long the garbage collection stops all goroutines of a gateway that carries
// four TCP streams. By itself a gateway collects every two minutes, as it allocates next to nothing; here
// it is asked to, all the time.
func TestPauses(t *testing.T) {
	if !*measurePauses {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -pauses runs it")
	}
	topo := newTopology(t)
	server := topo.B.Nodes[0].Pod.StartIperf()
	defer server.Stop(lab.Patience)
	var r report
	for r.round = range *rounds {
		for _, place := range pausePlaces {
			gateway := lab.Build(t, lab.GatewayPackage)
			if place.told {
				gateway = buildUnderlay(t, "mmsg_linux.go", told...)
			}
			gateways, stop := startSluice(t, topo, gateway, nil, "--pprof-address", profiler)
			p := &path{t: t, variant: place.name, topo: topo, gateways: gateways, report: &r}
			p.ready()
			leave := place.in(t, gateways)
			p.pauses()
			leave()
			stop()
		}
	}
	var names []string
	for _, place := range pausePlaces {
		names = append(names, place.name)
	}
	keep(t, "-pauses", fmt.Sprintf("%d collections at least within streams of %v\n", pauseCollections, pauseStreams)+r.text(names, r.figures))
}

// pauses collects garbage in the gateway of cluster a while four streams pass.
func (p *path) pauses() {
	p.t.Helper()
	start := time.Now()
	var traffic sync.WaitGroup
	var result lab.IperfResult
	var trafficErr error
	traffic.Go(func() {
		result, trafficErr = p.client().Iperf(lab.Iperf{To: p.to(), Streams: 4, Duration: pauseStreams})
	})
	var all []time.Duration
	var err error
	for err == nil && len(all) < pauseCollections {
		all, err = p.collect(pauseCollections / 10)
	}
	took := time.Since(start)
	traffic.Wait()
	if err := errors.Join(err, trafficErr); err != nil {
		p.t.Fatal(err)
	}
	if took > pauseStreams {
		p.t.Fatalf("%s: %d collections took %v, longer than the streams", p.variant, len(all), took)
	}
	slices.Sort(all)
	p.distribution("pause", all)
	p.add("pause/max", "µs", microseconds(all[len(all)-1]))
	p.add("tcp4", "Gbit/s", gbits(result))
}

// collect has the gateway collect its garbage some times, and returns all pauses that its runtime remembers.
func (p *path) collect(times int) (all []time.Duration, err error) {
	const url = "http://" + profiler + "/debug/pprof/heap?debug=1&gc=1"
	text, err := p.topo.A.Gateway.Try("sh", "-c", fmt.Sprintf("for i in $(seq %d); do curl -sf '%s' >/dev/null || exit; done; curl -sf '%s'", times-1, url, url))
	if err != nil {
		return nil, err
	}
	_, rest, found := strings.Cut(text, "\n# PauseNs = [")
	list, _, closed := strings.Cut(rest, "]")
	if !found || !closed {
		return nil, errors.New("the profile of the heap tells no pauses")
	}
	for field := range strings.FieldsSeq(list) {
		ns, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return nil, err
		}
		if ns > 0 { // others have not been yet
			all = append(all, time.Duration(ns))
		}
	}
	return all, nil
}

func alone(*testing.T, []*lab.Process) (leave func()) { return func() {} }

// busyLoops runs two programs beside the gateways that do nothing but that.
func busyLoops(t *testing.T, _ []*lab.Process) (end func()) {
	t.Helper()
	var loops []*exec.Cmd
	for range 2 {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		loop.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := loop.Start(); err != nil {
			t.Fatal(err)
		}
		loops = append(loops, loop)
	}
	return func() {
		for _, loop := range loops {
			_ = loop.Process.Kill()
			_ = loop.Wait()
		}
	}
}
