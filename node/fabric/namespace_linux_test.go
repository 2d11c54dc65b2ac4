package fabric

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/node/tunlink"
	"github.com/sluice-net/sluice/objects/manifests"
	testsource "github.com/sluice-net/sluice/test/source"
	"github.com/sluice-net/sluice/test/testlog"
)

// host is a network namespace with an uplink, and a Runner in it.
type host struct {
	*Runner
	t    *testing.T
	dir  string
	out  *testlog.Buffer
	feed *fakeFeed // instead of dir
	// takeOver: the agent takes the place of Liqo's.
	takeOver bool
	ns       *os.File
	stop     func()
}

// newHost puts the test's goroutine into a network namespace of its own. The
// thread ends with the goroutine.
func newHost(t *testing.T) *host {
	t.Helper()
	testsource.NeedRoot(t, "ip")
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		testsource.Lacks(t, "it needs the right to make a network namespace: %v", err)
	}
	h := &host{t: t, dir: t.TempDir(), out: new(testlog.Buffer)}
	var err error
	if h.ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.ns.Close() })
	h.ip("link set lo up")
	h.ip("link add eth0 type veth peer name eth0p")
	h.ip("address add 172.18.0.2/24 dev eth0")
	h.ip("link set eth0p up")
	h.ip("link set eth0 up")
	h.ip("route add default via 172.18.0.1")
	h.write("configuration", `{apiVersion: networking.liqo.io/v1beta1, kind: Configuration, metadata: {name: milan}, spec: {
  local: {cidr: {pod: 10.60.0.0/16, external: 10.70.0.0/16}}, remote: {cidr: {pod: 10.61.0.0/16, external: 10.71.0.0/16}}}}`)
	h.write("node", `{apiVersion: networking.liqo.io/v1beta1, kind: InternalNode, metadata: {name: worker}, spec: {
  interface: {gateway: {name: liqo.worker}, node: {ip: 10.80.0.9}}}}`)
	h.fabric("10.0.0.11", 1340, "10.90.0.0/16", "10.91.0.0/16")
	h.write("tunnel", `{apiVersion: networking.liqo.io/v1beta1, kind: GeneveTunnel, metadata: {name: milan-worker}, spec: {
  id: 7, internalFabricRef: {name: milan}, internalNodeRef: {name: worker}}}`)
	return h
}

func (h *host) fabric(gateway string, mtu int, cidrs ...string) {
	h.write("fabric", fmt.Sprintf(`{apiVersion: networking.liqo.io/v1beta1, kind: InternalFabric, metadata: {name: milan}, spec: {
  mtu: %d, gatewayIP: %s, remoteCIDRs: [%s], interface: {node: {name: liqo.milan}, gateway: {ip: 10.80.0.1}}}}`, mtu, gateway, strings.Join(cidrs, ", ")))
}

// write replaces a manifest, as an editor does.
func (h *host) write(name, content string) {
	h.t.Helper()
	next := filepath.Join(h.dir, "."+name)
	if err := os.WriteFile(next, []byte(content), 0o644); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(h.dir, name+".yaml")); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) ip(command string) string {
	h.t.Helper()
	out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("ip %s: %v\n%s", command, err, out)
	}
	return string(out)
}

// run starts an agent.
func (h *host) run(link string) {
	h.t.Helper()
	conn, err := hostnet.Open()
	if err != nil {
		h.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(h.out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ends, err := tunlink.New(tunlink.Options{Logger: log, Queues: 1})
	if err != nil {
		h.t.Fatal(err)
	}
	o := Options{NodeName: "worker", Link: link, Host: conn, Ends: ends, Dir: h.dir, Logger: log}
	if h.takeOver {
		o.TakeOver, o.LiqoTables = true, []string{"milan-masquerade-bypass"}
	}
	if h.feed != nil {
		o.Dir, o.Feed, o.Reporter = "", h.feed, h.feed
	}
	if h.Runner, err = New(o); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			h.t.Errorf("enter the namespace: %v", err)
			return
		}
		if err := h.Run(ctx); err != nil {
			h.t.Errorf("Run: %v", err)
		}
	})
	h.stop = func() {
		cancel()
		wg.Wait()
		_ = conn.Close()
	}
	h.t.Cleanup(func() {
		h.stop()
		if h.t.Failed() {
			h.t.Log(h.out.String())
		}
	})
}

// shows waits until ip(8) prints all of these.
func (h *host) shows(command string, want ...string) {
	h.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		// An error is an answer, too: a table that does not exist yet.
		text, _ := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
		out, missing := string(text), ""
		for _, w := range want {
			if not, unwanted := strings.CutPrefix(w, "!"); strings.Contains(out, not) == unwanted {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("ip %s does not show %q within %v:\n%s", command, missing, patience, out)
		}
	}
}

// patience is how long a test waits for a change of a file or of the kernel to be dealt with.
const patience = time.Minute

func TestInKernel(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, kind := range []string{"auto", "vxlan", "tun"} {
		t.Run(kind, func(t *testing.T) {
			h := newHost(t)
			h.run(kind)
			h.shows("-d link show", "liqo.milan", "alias sluice: InternalFabric milan", "mtu 1340")
			h.shows("address show liqo.milan", "inet 10.80.0.9/32", "UP")
			h.shows("route show table 6091", "10.80.0.1 dev liqo.milan", "10.90.0.0/16", "10.91.0.0/16")
			h.shows("rule show", "600:\tnot from all fwmark 0x5c lookup 6091")
			h.settled()
			index := h.ip("-o link show liqo.milan")

			h.fabric("10.0.0.12", 1300, "10.90.0.0/16", "10.92.0.0/16")
			h.shows("link show", "mtu 1300")
			h.shows("route show table 6091", "10.92.0.0/16", "!10.91.0.0/16")
			h.settled()
			if now := h.ip("-o link show liqo.milan"); now[:2] != index[:2] {
				t.Errorf("the link was made anew: %s, before: %s", now, index)
			}
			h.status(func(n networkingv1beta1.InternalNode) string {
				if n.Status.NodeIP.Remote != "172.18.0.2" || len(n.Status.Conditions) != 2 || n.Status.Conditions[0].Status != "True" {
					return fmt.Sprintf("%+v", n.Status)
				}
				return ""
			})

			h.ip("route flush table 6091")
			h.shows("route show table 6091", "10.80.0.1 dev liqo.milan", "10.90.0.0/16", "10.92.0.0/16")
			h.repaired(1)
			h.ip("link delete liqo.milan")
			h.shows("route show table 6091", "10.90.0.0/16")
			h.repaired(2)
			h.ip("rule delete priority 600")
			h.shows("rule show", "600:\tnot from all fwmark 0x5c lookup 6091")
			h.repaired(3)
			h.ip("address delete 10.80.0.9/32 dev liqo.milan")
			h.shows("address show liqo.milan", "inet 10.80.0.9/32")
			h.repaired(4)
			h.settled()

			h.restart(kind)
			if err := os.Remove(filepath.Join(h.dir, "tunnel.yaml")); err != nil {
				t.Fatal(err)
			}
			h.shows("link show", "!liqo.milan")
			h.shows("rule show", "!6091")
			h.settled()
			if s := h.State(); s.Translation.Exists || len(s.Tunnels) > 0 {
				t.Errorf("state: %+v", s)
			}
		})
	}
}

// Whatever becomes of a TUN device, the one of its name is served again soon.
func TestInKernelServesDevices(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		h := newHost(t)
		elsewhere := exec.Command("unshare", "--net", "sleep", "60")
		if err := elsewhere.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = elsewhere.Process.Kill()
			_ = elsewhere.Wait()
		}()
		h.run("tun")
		for _, tamper := range [][]string{
			{},
			{"link delete liqo.milan"},
			{fmt.Sprintf("link set liqo.milan netns %d name tunx", elsewhere.Process.Pid)},
			{"link set liqo.milan alias foo", "link set liqo.milan name liqo.other"},
			{"link set liqo.milan name liqo.another"},
			{"link set liqo.milan carrier off"},
			{"link set liqo.milan alias foo"},
		} {
			for _, command := range tamper {
				h.ip(command)
			}
			h.shows("-o link show liqo.milan", "LOWER_UP", "!NO-CARRIER", "alias sluice: ")
			h.settled()
			h.shows("-o link show type tun", "!liqo.other", "!liqo.another")
			if s := h.State(); s.Tunnels[0].Status != TunnelUp {
				t.Errorf("after %q: %+v", tamper, s.Tunnels)
			}
		}
	})
}

// While the API server is away, an agent that starts serves what is there.
func TestInKernelResumes(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		h := newHost(t)
		h.run("tun")
		h.settled()
		h.stop()
		h.shows("-o link show liqo.milan", "NO-CARRIER")
		h.feed = &fakeFeed{waiting: manifests.Waiting{{Reason: "the API server does not answer"}}}
		h.run("auto")
		h.shows("-o link show liqo.milan", "LOWER_UP", "alias sluice: InternalFabric milan (VNI 7, gateway 10.0.0.11:6091)")
		ts := h.options.Ends.Status().Tunnels
		if len(ts) != 1 || ts[0].VNI != 7 || ts[0].Gateway.String() != "10.0.0.11" || ts[0].Internal.String() != "10.80.0.9" || ts[0].GatewayInternal.String() != "10.80.0.1" || ts[0].Queues != 1 {
			t.Errorf("%+v", ts)
		}
		h.stop()
		h.feed = nil
		h.restart("tun")
	})
}

// A TUN device that nobody has open carries nothing.
func TestStatusOfDevice(t *testing.T) {
	for _, tt := range []struct {
		link hostnet.ActualLink
		want TunnelStatus
	}{
		{hostnet.ActualLink{Kind: hostnet.KindTUN, Up: true, Carrier: true}, TunnelUp},
		{hostnet.ActualLink{Kind: hostnet.KindTUN, Up: true}, TunnelDown},
		{hostnet.ActualLink{Kind: hostnet.KindVXLAN, Up: true}, TunnelUp},
		{hostnet.ActualLink{Kind: hostnet.KindVXLAN}, TunnelDown},
	} {
		if got := tunnelStatus(&tt.link, true, view{}); got != tt.want {
			t.Errorf("%+v is %s, want %s", tt.link, got, tt.want)
		}
	}
}

// restart stops the agent, looks that everything stays, and starts another one,
// which finds nothing to do.
func (h *host) restart(kind string) {
	h.t.Helper()
	h.stop()
	look := func() string {
		// Whether anybody has a TUN device open shows in its flags and routes.
		index, _, _ := strings.Cut(h.ip("-o link show liqo.milan"), "<")
		return index + strings.ReplaceAll(h.ip("route show table 6091"), "linkdown ", "") + h.ip("rule show")
	}
	before := look()
	h.run(kind)
	h.settled()
	if s := h.State(); s.Applies != 0 || s.Generation != 1 {
		h.t.Errorf("after a restart %d changes, generation %d", s.Applies, s.Generation)
	}
	if after := look(); before != after {
		h.t.Errorf("a restart changed\n%sinto\n%s", before, after)
	}
}

// repaired waits until that much was put right.
func (h *host) repaired(n uint64) {
	h.t.Helper()
	for deadline := time.Now().Add(patience); h.State().Repairs < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("%d repairs, want %d", h.State().Repairs, n)
		}
	}
}

// settled waits until the kernel holds what is desired.
func (h *host) settled() {
	h.t.Helper()
	var s State
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		h.sampler.outdated()
		if s = h.State(); s.Generation > 0 && len(s.Drift)+len(s.Failures) == 0 {
			return
		}
	}
	h.t.Fatalf("drift %q, failures %q, refused %v", s.Drift, s.Failures, s.Refused)
}

// status waits until the InternalNode beside the manifests is right.
func (h *host) status(wrong func(networkingv1beta1.InternalNode) string) {
	h.t.Helper()
	why := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(h.dir, manifests.StatusDir, StatusFile))
		if err != nil {
			why = err.Error()
			continue
		}
		var n networkingv1beta1.InternalNode
		if err := yaml.UnmarshalStrict(text, &n); err != nil {
			h.t.Fatalf("%v in\n%s", err, text)
		}
		if why = wrong(n); why == "" {
			return
		}
	}
	h.t.Fatal(why)
}

// A bad file changes nothing, and a good one ends that.
func TestInKernelRefuses(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		h := newHost(t)
		h.run("vxlan")
		h.settled()
		h.fabric("10.0.0.11", 1451, "10.90.0.0/16")
		h.status(func(n networkingv1beta1.InternalNode) string {
			if c := n.Status.Conditions[0]; c.Reason != "TunnelRefused" || !strings.Contains(c.Message, "what was in force stays: fabric.yaml:2: InternalFabric milan: spec.mtu: 1451 does not fit") {
				return c.Reason + ": " + c.Message
			}
			return ""
		})
		h.ip("link delete liqo.milan")
		h.shows("route show table 6091", "10.91.0.0/16")
		h.shows("link show liqo.milan", "mtu 1340")
		// A path with more room ends it, although no file changes.
		h.ip("link set eth0p mtu 2000")
		h.ip("link set eth0 mtu 2000")
		h.shows("link show liqo.milan", "mtu 1451")
		h.settled()
		if s := h.State(); len(s.Refused) > 0 {
			t.Errorf("refused: %v", s.Refused)
		}
	})
}

// What is right can be put in force over what is wrong, although the way to the
// new gateway leads into the tunnel.
func TestInKernelMendsWhatCutsOff(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		h := newHost(t)
		h.run("vxlan")
		h.settled()
		h.ip("address add 10.90.0.2/24 dev eth0")
		h.status(func(n networkingv1beta1.InternalNode) string {
			if c := n.Status.Conditions[0]; c.Reason != "TunnelRefused" || !strings.Contains(c.Message, "10.90.0.0/16 overlaps the network 10.90.0.0/24 that this node is in (eth0)") {
				return c.Reason + ": " + c.Message
			}
			return ""
		})
		h.shows("route get 10.90.0.7", "dev liqo.milan")
		h.fabric("10.90.0.7", 1450, "10.92.0.0/16")
		h.shows("route get 10.90.0.7", "dev eth0 src 10.90.0.2")
		h.shows("-d link show liqo.milan", "mtu 1450", "remote 10.90.0.7")
		h.settled()
	})
}

// A port or a name that somebody else has is no reason for links of another kind.
// A rule of another program that comes before ours is found, and named until it
// goes.
func TestInKernelNamesForeignRules(t *testing.T) {
	h := newHost(t)
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"link add cni0 type bridge", "link set cni0 up", "address add 10.60.1.1/24 dev cni0", "route add default dev eth0 table 52"} {
		h.ip(command)
	}
	h.run("auto")
	h.shows("rule", "lookup 6091")
	says := func(reason, text string) {
		t.Helper()
		h.status(func(n networkingv1beta1.InternalNode) string {
			for _, c := range n.Status.Conditions {
				if c.Reason == reason && strings.Contains(c.Message, text) {
					return ""
				}
			}
			return fmt.Sprintf("not %s: %+v", reason, n.Status.Conditions)
		})
	}
	says("TunnelsReady", "Tunnels in place: 1")
	h.ip("rule add pref 500 from 10.60.0.0/16 lookup 52")
	says("TrafficDiverted", `packets of pods to 10.90.0.0/16, 10.91.0.0/16 do not get into it: the rule "500: from 10.60.0.0/16 lookup 52" of another program comes before ours, and table 52 sends them to device eth0`)
	h.ip("rule del pref 500")
	says("TunnelsReady", "Tunnels in place: 1")
}

func TestInKernelWaitsForWhatIsInTheWay(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, way := range map[string]func(*host) (away func()){
		"port": func(h *host) func() {
			pc, err := net.ListenPacket("udp", ":6091")
			if err != nil {
				h.t.Fatal(err)
			}
			return func() { pc.Close() }
		},
		"name": func(h *host) func() {
			h.ip("link add liqo.milan type veth peer name other")
			return func() { h.ip("link delete liqo.milan") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			away := way(h)
			h.run("auto")
			h.status(func(n networkingv1beta1.InternalNode) string {
				if c := n.Status.Conditions[0]; c.Reason != "TunnelRefused" {
					return c.Reason + ": " + c.Message
				}
				return ""
			})
			away()
			h.shows("-d link show", "alias sluice: InternalFabric milan", "!tun type tun")
			h.settled()
			if k := h.State().Link.Kind; k == hostnet.KindTUN {
				t.Errorf("links are of kind %s", k)
			}
		})
	}
}

// A device that cannot get its new name is served under the old one.
func TestInKernelServesTheOldName(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		h := newHost(t)
		h.ip("link add liqo.theirs type veth peer name other")
		h.run("tun")
		h.settled()
		h.write("fabric", `{apiVersion: networking.liqo.io/v1beta1, kind: InternalFabric, metadata: {name: milan}, spec: {
  gatewayIP: 10.0.0.11, remoteCIDRs: [10.90.0.0/16], interface: {node: {name: liqo.theirs}, gateway: {ip: 10.80.0.1}}}}`)
		h.status(func(n networkingv1beta1.InternalNode) string {
			if c := n.Status.Conditions[0]; c.Reason != "TunnelRefused" {
				return c.Reason + ": " + c.Message
			}
			return ""
		})
		h.shows("-o link show liqo.milan", "LOWER_UP", "!NO-CARRIER")
		h.ip("link delete liqo.theirs")
		h.shows("-o link show", "liqo.theirs", "!liqo.milan")
		h.shows("-o link show liqo.theirs", "LOWER_UP", "!NO-CARRIER")
		h.settled()
	})
}

func TestLoad(t *testing.T) {
	h := newHost(t)
	load := func() error {
		conn, err := hostnet.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r, err := New(Options{NodeName: "worker", Host: conn, Dir: h.dir, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return r.Load()
	}
	if err := load(); err != nil {
		t.Error(err)
	}
	h.write("node", `{apiVersion: networking.liqo.io/v1beta1, kind: InternalNode, metadata: {name: worker1}, spec: {interface: {node: {ip: 10.80.0.9}}}}`)
	want := "InternalNode worker: does not exist, there are: worker1; set --node-name to the name of this node's InternalNode, or add one"
	if err := load(); err == nil || err.Error() != want {
		t.Error(err)
	}
	h.write("node", `{apiVersion: networking.liqo.io/v1beta1, kind: InternalNod}`)
	if err := load(); err == nil || !strings.HasPrefix(err.Error(), "node.yaml:1: ") {
		t.Error(err)
	}
}
