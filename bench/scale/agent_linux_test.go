package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/test/lab"
)

// TestAgent measures the agent of a node: the program, as it is shipped, with its
// objects in files.
func TestAgent(t *testing.T) {
	if !*measure {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -scale runs it")
	}
	binary := lab.Build(t, lab.FabricPackage)
	for _, run := range []struct {
		link  hostnet.Kind
		count int
	}{
		{hostnet.KindVXLAN, usual}, {hostnet.KindVXLAN, *tunnels}, {hostnet.KindTUN, usual}, {hostnet.KindTUN, *tuns},
	} {
		t.Run(fmt.Sprintf("%s %d", run.link, run.count), func(t *testing.T) { measureAgent(t, binary, run.link, run.count) })
	}
}

// usual is how many peerings a cluster has that has some.
const usual = 10

const (
	// idle is how long an agent is left alone.
	idle = 30 * time.Second
	// pause is more than the agent rests at most between two changes.
	pause = 6 * time.Second
)

func measureAgent(t *testing.T, binary string, link hostnet.Kind, count int) {
	a := newAgent(t, binary, link, count)
	out := newReport("node-scale", "the measurement", fmt.Sprintf("The agent of a node, %d tunnels of kind %s, standalone", count, link))
	a.start()
	out.row("start to ready", "%v", a.ready())
	a.applied(count)
	a.figures(out)
	a.alone(out)
	a.changes(out, count)
	a.writeHeap(fmt.Sprintf("-%s-%d", link, count))

	a.stop()
	a.start()
	out.row("second start to ready", "%v", a.ready())
	a.applied(count)
	a.figures(out)
	a.stop()

	start := time.Now()
	a.Run(binary, "cleanup")
	out.row("cleanup", "%v", round(time.Since(start)))
	a.applied(0)
	out.done(t)
}

// agent is a node with its agent.
type agent struct {
	*node
	*lab.Process
	binary, dir string
	link        hostnet.Kind
	started     time.Time
	client      http.Client
}

func newAgent(t *testing.T, binary string, link hostnet.Kind, count int) *agent {
	t.Helper()
	a := &agent{node: newNode(t), binary: binary, dir: t.TempDir(), link: link}
	a.client.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, network, addr string) (c net.Conn, err error) {
		err = a.Do(func() (err error) {
			c, err = net.DialTimeout(network, addr, time.Second)
			return err
		})
		return c, err
	}}
	a.open(hostnet.OpenReadOnly)
	t.Cleanup(a.close)
	a.write("node.yaml", "apiVersion: networking.liqo.io/v1beta1\nkind: InternalNode\nmetadata: {name: node}\n"+
		"spec: {interface: {gateway: {name: liqo.node}, node: {ip: 10.80.0.1}}}\n")
	const inFile = 100
	for first := 0; first < count; first += inFile {
		var b strings.Builder
		for i := first; i < min(first+inFile, count); i++ {
			b.WriteString(manifest(tunnel(link, i)))
		}
		a.write(fmt.Sprintf("peers-%d.yaml", first), b.String())
	}
	return a
}

// manifest is what a tunnel is made of.
func manifest(l hostnet.Link) string {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(l.Owner, "InternalFabric "), "/")
	return fmt.Sprintf(`---
apiVersion: networking.liqo.io/v1beta1
kind: InternalFabric
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  mtu: %[3]d
  gatewayIP: %[4]s
  interface: {gateway: {ip: %[5]s}, node: {name: %[6]s}}
  remoteCIDRs: [%[7]s]
---
apiVersion: networking.liqo.io/v1beta1
kind: GeneveTunnel
metadata: {name: %[1]s-node, namespace: %[2]s}
spec:
  id: %[8]d
  internalFabricRef: {name: %[1]s, namespace: %[2]s}
  internalNodeRef: {name: node}
`, name, namespace, l.MTU, l.Gateway, l.GatewayAddress, l.Name, l.Routes[0], l.VNI)
}

// write replaces a file of the manifests.
func (a *agent) write(name, text string) {
	a.t.Helper()
	next := filepath.Join(a.dir, "."+name)
	if err := errors.Join(os.WriteFile(next, []byte(text), 0o644), os.Rename(next, filepath.Join(a.dir, name))); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) start() {
	a.t.Helper()
	a.started = time.Now()
	args := []string{a.binary, "--node-name", "node", "--manifests", a.dir, "--link", string(a.link), "--admin-socket", filepath.Join(a.dir, "admin.sock")}
	if *profile != "" {
		args = append(args, "--pprof-address", "127.0.0.1:8093")
	}
	a.Process = a.Start(lab.Program{Name: "fabric", NetAdmin: true, Args: args})
}

func (a *agent) stop() {
	a.t.Helper()
	if _, err := a.Stop(time.Minute); err != nil {
		a.t.Fatalf("stop the agent: %v", err)
	}
}

// ready waits until the agent has put its objects in force.
func (a *agent) ready() spent {
	a.t.Helper()
	until(a.t, "the agent is ready", func() error {
		if !a.Running() {
			a.t.Fatalf("the agent has ended:\n%s", a.Log())
		}
		r, err := a.client.Get("http://127.0.0.1:8091/readyz")
		if err != nil {
			return err
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return errors.New(r.Status)
		}
		return nil
	})
	s := a.spent()
	s.wall = time.Since(a.started)
	return s
}

// applied checks that the links and routes are there.
func (a *agent) applied(count int) {
	a.t.Helper()
	if have := a.read(); len(have.Links) != count || len(have.Routes) != 2*count {
		a.t.Fatalf("%d links and %d routes, want %d and %d", len(have.Links), len(have.Routes), count, 2*count)
	}
}

// spent is what the agent has used of processors.
func (a *agent) spent() (s spent) {
	a.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.PID()))
	if err != nil {
		a.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold spaces
	fields := strings.Fields(rest)
	for i, into := range []*time.Duration{&s.user, &s.system} { // fields 14 and 15 of proc_pid_stat(5)
		var ticks int64
		if _, err := fmt.Sscan(fields[11+i], &ticks); err != nil {
			a.t.Fatal(err)
		}
		*into = time.Duration(ticks) * (time.Second / 100)
	}
	return s
}

// memory reads a field of /proc/PID/status, in MiB.
func (a *agent) memory(field string) float64 {
	a.t.Helper()
	return memoryOf(a.t, a.PID(), field)
}

func memoryOf(t *testing.T, pid int, field string) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			var kib float64
			if _, err := fmt.Sscan(value, &kib); err == nil {
				return kib / 1024
			}
		}
	}
	t.Fatalf("no %s of process %d", field, pid)
	return 0
}

func (a *agent) figures(out *report) {
	out.row("  resident, and its peak", "%.0f, %.0f MiB", a.memory("VmRSS"), a.memory("VmHWM"))
}

// writeHeap writes a heap profile, if one is asked for.
func (a *agent) writeHeap(suffix string) {
	a.t.Helper()
	if *profile == "" {
		return
	}
	r, err := a.client.Get("http://127.0.0.1:8093/debug/pprof/heap?gc=1")
	if err != nil {
		a.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = os.WriteFile(*profile+suffix, text, 0o600)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// alone leaves the agent alone for a while.
func (a *agent) alone(out *report) {
	a.t.Helper()
	time.Sleep(pause) // what follows from the start does not count
	before := a.spent()
	time.Sleep(idle)
	after := a.spent()
	cpu := after.user + after.system - before.user - before.system
	out.row("idle, of one processor", "%.2f %%", 100*cpu.Seconds()/idle.Seconds())
	a.figures(out)
}

// changes measures how soon the agent follows its objects, and how soon it
// repairs what somebody does to the node.
func (a *agent) changes(out *report, count int) {
	a.t.Helper()
	more := tunnel(a.link, count)
	out.row("a tunnel more, to its route", "%v", a.until(func() { a.write("more.yaml", manifest(more)) }, more.Routes[0], more.Name))
	out.row("a tunnel less, to the end of its route", "%v", a.until(func() { a.write("more.yaml", "") }, more.Routes[0], "eth0"))
	some := tunnel(a.link, count/2)
	out.row("a route deleted by hand, to its return", "%v", a.until(func() {
		a.IP("route del %s table %d", some.Routes[0], hostnet.Table)
	}, some.Routes[0], some.Name))
	out.row("a link deleted by hand, to its route", "%v", a.until(func() {
		a.IP("link del %s", some.Name)
	}, some.Routes[0], some.Name))
	a.applied(count)
	a.figures(out)
}

// until does something and waits until the way to a prefix leads through a
// device.
func (a *agent) until(do func(), to netip.Prefix, device string) spent {
	a.t.Helper()
	before := a.spent()
	do()
	start := time.Now()
	for {
		// hostnet.Conn.Path does not look into tunnels.
		way, err := a.Try("ip", "route", "get", to.Addr().Next().String())
		if err == nil && strings.Contains(way, " dev "+device+" ") {
			break
		}
		if time.Since(start) > patience {
			a.t.Fatalf("%s: by %q (%v), want %s; the agent says\n%s", to, way, err, device, a.Log())
		}
		time.Sleep(time.Millisecond)
	}
	wall := time.Since(start)
	time.Sleep(pause) // what follows from it belongs to it
	after := a.spent()
	return spent{wall, after.user - before.user, after.system - before.system}
}
