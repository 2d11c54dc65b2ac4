package fabric

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/objects/manifests"
)

const (
	addMilan  = "add liqo.milan geneve 7 10.0.0.11"
	addRome   = "add liqo.rome geneve 8 10.0.0.12"
	translate = "translate [10.90.0.0/16 10.91.0.0/16 10.92.0.0/16]"
)

func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestRunnerFollowsObjects(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, nil, Options{})
		x.expect("at the start", time.Second, addMilan, addRome, translate)
		if ready, why := x.Ready(); !ready || why != "ok" {
			t.Errorf("ready is %v: %s", ready, why)
		}
		x.expect("nothing new", time.Hour)
		x.feed.edit(func(w *world) { w.fabrics[0].Spec.GatewayIP = "10.0.0.13" })
		x.expect("the gateway moves", 0, "set liqo.milan geneve 7 10.0.0.13", translate)
		x.feed.edit(func(w *world) { w.ip.Annotations = map[string]string{"a": "b"} })
		x.expect("what nobody reads", time.Minute)
		x.feed.edit(func(w *world) { w.tunnels = w.tunnels[:1] })
		x.expect("a peering ends", 0, "remove liqo.rome", "translate [10.90.0.0/16 10.91.0.0/16]")
		x.feed.edit(func(w *world) { w.tunnels = nil })
		x.expect("the last one ends", 0, "remove liqo.milan", "translate []")
		if s := x.State(); s.Generation != 4 || s.Applies != 4 || s.Repairs != 0 || len(s.Drift) > 0 || len(s.Tunnels) > 0 {
			t.Errorf("state: %+v", s)
		}
		x.says("configuration applied", 4)
		x.says("level=WARN", 1) // the gateway moved to where no path leads
	})
}

// A restarted agent must not take down what it has not heard of yet.
func TestRunnerStartsWithoutObjects(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, func(x *running) {
			x.feed.waiting = manifests.Waiting{{Reason: "reading the objects of the cluster"}}
			for _, l := range []hostnet.Link{
				{Name: "liqo.milan", Owner: "InternalFabric t-milan/milan", Kind: hostnet.KindVXLAN, VNI: 7},
				{Name: "liqo.gone", Owner: "InternalFabric t-gone/gone", Kind: hostnet.KindVXLAN, VNI: 5},
			} {
				x.kernel.links[l.Name] = l
			}
		}, Options{})
		x.expect("without objects", time.Hour)
		if ready, why := x.Ready(); ready || why != "waiting: reading the objects of the cluster" {
			t.Errorf("ready is %v: %s", ready, why)
		}
		if s := x.State(); len(s.Conditions) > 0 || len(s.Drift) > 0 || len(s.Tunnels) != 2 {
			t.Errorf("knows what it cannot know: %+v", s)
		}
		x.kernel.tamper(hostnet.Event{Ours: true, Paths: true}, func() {})
		x.expect("something happens", time.Minute)
		x.feed.edit(func(*world) { x.feed.waiting = nil })
		x.expect("the objects come", 0, "set liqo.milan vxlan 7 10.0.0.11", "add liqo.rome vxlan 8 10.0.0.12", "remove liqo.gone", translate)
		if l := x.State().Link; l.Kind != hostnet.KindVXLAN {
			t.Errorf("links are of another kind now: %+v", l)
		}

		// The API server goes away: nothing changes, and what is tampered with is
		// put right all the same.
		x.feed.edit(func(w *world) {
			w.tunnels = nil
			x.feed.waiting = manifests.Waiting{{Reason: "cannot read from the API server yet"}}
		})
		x.expect("the API server is away", time.Hour)
		x.kernel.tamper(hostnet.Event{Ours: true}, func() { delete(x.kernel.links, "liqo.milan") })
		x.expect("tampering", time.Second, "add liqo.milan vxlan 7 10.0.0.11")
		x.stop()
		x.expect("the agent ends", time.Hour)
	})
}

func TestRunnerRepairs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, nil, Options{})
		x.expect("at the start", time.Second, addMilan, addRome, translate)
		remove := func() { delete(x.kernel.links, "liqo.rome") }
		x.kernel.tamper(hostnet.Event{Ours: true}, remove)
		x.expect("not at once: there may be more", oursSettle-time.Millisecond)
		x.expect("soon", time.Millisecond, addRome)
		if s := x.State(); s.Repairs != 1 {
			t.Errorf("repairs: %d", s.Repairs)
		}
		x.pass(time.Hour)
		x.kernel.mu.Lock()
		remove()
		x.kernel.mu.Unlock()
		x.expect("without a notification", sampleInterval, addRome)
		x.says("put right what", 2)
	})
}

// Whoever changes what is ours again and again finds us slow, not gone.
func TestRunnerInAContest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, nil, Options{})
		x.expect("at the start", time.Second, addMilan, addRome, translate)
		repairs := 0
		fight := func(times time.Duration) {
			for end := time.Now().Add(times); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if len(x.kernel.took()) > 0 {
					repairs++
				}
				x.kernel.tamper(hostnet.Event{Ours: true}, func() { delete(x.kernel.links, "liqo.rome") })
			}
		}
		fight(10 * time.Minute)
		if repairs < 10 || repairs > 40 {
			t.Errorf("%d repairs within ten minutes", repairs)
		}
		x.says("another program keeps changing what is ours", 1)
		x.says("put right what", contestAfter)
		if got := x.State().Contested; got != addRome {
			t.Errorf("contested: %q", got)
		}
		// What the objects ask for does not wait.
		x.kernel.took()
		x.feed.edit(func(w *world) { w.tunnels = w.tunnels[:1] })
		x.expect("a change of the objects", 0, "translate [10.90.0.0/16 10.91.0.0/16]")
		x.pass(time.Hour)
		x.says("nobody changes what is ours any more", 1)
		if got := x.State().Contested; got != "" {
			t.Errorf("contested: %q", got)
		}
		x.kernel.tamper(hostnet.Event{Ours: true}, func() { delete(x.kernel.links, "liqo.milan") })
		x.expect("afterwards it is fast again", oursSettle, addMilan)
	})
}

// Paths change without objects: the report follows, and what does not fit any
// more is said.
func TestRunnerFollowsPaths(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, nil, Options{})
		x.expect("at the start", time.Second, addMilan, addRome, translate)
		move := func(source string, mtu int) {
			x.kernel.tamper(hostnet.Event{Paths: true}, func() {
				for a := range x.kernel.paths {
					x.kernel.paths[a] = hostnet.Path{Source: addr(source), Device: "eth0", MTU: mtu}
				}
			})
			x.pass(pathsSettle)
		}
		move("172.18.0.3", 1500)
		move("172.18.0.3", 1389)
		move("172.18.0.3", 1500)
		x.kernel.tamper(hostnet.Event{Paths: true}, func() { delete(x.kernel.paths, addr("10.0.0.12")) })
		x.expect("the kernel stays as it is", time.Second)
		reason, message := x.condition(networkingv1beta1.ConditionTunnelsReady)
		if reason != "GatewayUnreachable" || !strings.Contains(message, "the gateway 10.0.0.12 cannot be reached: no route") {
			t.Errorf("%s: %s", reason, message)
		}
		move("172.18.0.3", 1500)
		x.kernel.tamper(hostnet.Event{Paths: true}, func() { x.kernel.paths[addr("10.0.0.12")] = hostnet.Path{Source: addr("172.18.0.3")} })
		x.pass(pathsSettle)
		want := []string{
			"/172.18.0.2 TunnelsReady AddressTranslationReady",
			"/172.18.0.3 TunnelsReady AddressTranslationReady",
			"/172.18.0.3 TunnelRefused AddressTranslationReady",
			"/172.18.0.3 TunnelsReady AddressTranslationReady",
			"/172.18.0.3 GatewayUnreachable AddressTranslationReady",
			"/172.18.0.3 TunnelsReady AddressTranslationReady",
		}
		if diff := cmp.Diff(want, x.feed.reports); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
		x.says("every gateway can be reached again", 1)
		x.says("gateway out of reach", 1)
		// Both links were kept while nothing of them fitted.
		if s := x.State(); len(s.Tunnels) != 2 || s.Tunnels[0].Status != TunnelUp || s.Tunnels[0].Path == nil || s.Tunnels[0].Problem != "" {
			t.Errorf("tunnels: %+v", s.Tunnels)
		}
	})
}

func TestRunnerTriesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, func(x *running) { x.kernel.refuse["liqo.rome"] = errors.New("the device is busy") }, Options{})
		x.expect("one link cannot be made", 0, addMilan, translate)
		reason, message := x.condition(networkingv1beta1.ConditionTunnelsReady)
		if reason != "TunnelRefused" || message != "link liqo.rome: the device is busy" {
			t.Errorf("%s: %s", reason, message)
		}
		s := x.State()
		if s.Tunnels[1].Status != TunnelMissing || s.Tunnels[1].Problem != "the device is busy" || len(s.Drift) != 1 || s.Generation != 1 {
			t.Errorf("state: %+v", s)
		}
		x.expect("for long", time.Hour)
		if n := x.State().ApplyErrors; n < 100 || n > 200 {
			t.Errorf("%d attempts within an hour", n)
		}
		x.says("trying again", 1)
		x.kernel.tamper(hostnet.Event{}, func() { clear(x.kernel.refuse) })
		x.expect("it can be made", maxRetry, addRome)
		x.says("as it should be again", 1)
		if s := x.State(); len(s.Failures) > 0 || s.Repairs != 0 {
			t.Errorf("state: %+v", s)
		}

		x.kernel.tamper(hostnet.Event{}, func() { x.kernel.foreign = "liqo.milan" })
		x.feed.edit(func(w *world) { w.fabrics[0].Spec.MTU = 1300 })
		x.expect("somebody else has the name", time.Minute)
		if _, message := x.condition(networkingv1beta1.ConditionTunnelsReady); message != "link liqo.milan: is somebody else's" {
			t.Error(message)
		}
		x.kernel.tamper(hostnet.Event{Paths: true}, func() { x.kernel.foreign = "" })
		x.expect("it is free", pathsSettle, "set liqo.milan geneve 7 10.0.0.11")

		x.kernel.tamper(hostnet.Event{Ours: true}, func() { delete(x.kernel.links, "liqo.milan"); x.kernel.refuse[""] = hostnet.ErrNotPermitted })
		x.pass(time.Second)
		if reason, _ := x.condition(networkingv1beta1.ConditionTunnelsReady); reason != "NotPermitted" {
			t.Error(reason)
		}
	})
}

func TestRunnerKinds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		none := func(x *running) {
			for i := range x.kernel.support {
				x.kernel.support[i].OK, x.kernel.support[i].Reason = false, "not in this kernel"
			}
		}
		x := start(t, none, Options{})
		x.expect("nothing can be had", time.Minute)
		reason, message := x.condition(networkingv1beta1.ConditionTunnelsReady)
		if reason != "LinkKindUnavailable" || !strings.Contains(message, "no geneve: not in this kernel; no vxlan: not in this kernel; no tun: not in this kernel") {
			t.Errorf("%s: %s", reason, message)
		}
		if ready, why := x.Ready(); ready || !strings.HasPrefix(why, "failing: no kind of link") {
			t.Errorf("ready is %v: %s", ready, why)
		}
		x.kernel.tamper(hostnet.Event{}, func() { x.kernel.support[1].OK = true })
		x.expect("a module is loaded", maxRetry, "add liqo.milan vxlan 7 10.0.0.11", "add liqo.rome vxlan 8 10.0.0.12", translate)
		x.says("no kind of link can be had here", 1)
	})
	inBubble(t, func(t *testing.T) {
		x := start(t, func(x *running) {
			x.kernel.refuse["liqo.milan"], x.kernel.refuse["liqo.rome"] = errors.New("not supported"), errors.New("not supported")
		}, Options{})
		x.kernel.tamper(hostnet.Event{}, func() {})
		if reason, _ := x.condition(networkingv1beta1.ConditionTunnelsReady); reason != "LinkKindUnavailable" {
			t.Errorf("reason: %s", reason)
		}
		x.kernel.tamper(hostnet.Event{}, func() { clear(x.kernel.refuse) })
		x.kernel.took()
		x.expect("later the best is tried first", maxRetry, addMilan, addRome)
		x.says("level=ERROR", 1)
	})
}

// The agent's own ends let go of the port before kernel links take it, and take
// hold of devices that are there.
func TestRunnerServesTUNDevices(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, nil, Options{Link: "tun"})
		x.expect("at the start", time.Second, "add liqo.milan tun 7 10.0.0.11", "add liqo.rome tun 8 10.0.0.12", translate, "ends [liqo.milan 7 liqo.rome 8]")
		x.feed.edit(func(w *world) { w.tunnels[0].Spec.ID = 70 })
		x.expect("another VNI", 0, "set liqo.milan tun 70 10.0.0.11", "ends [liqo.milan 70 liqo.rome 8]")
		x.feed.edit(func(w *world) { w.fabrics[0].Spec.MTU = 9000 })
		x.expect("one that stays as it is", 0)
	})
}

// An agent that starts knows from the kernel alone whom TUN devices lead to.
func TestRunnerResumesTUNDevices(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, func(x *running) {
			x.feed.waiting = manifests.Waiting{{Reason: "reading the objects of the cluster"}}
			l := hostnet.Link{
				Owner: "InternalFabric t-milan/milan", Kind: hostnet.KindTUN, VNI: 7, Gateway: addr("10.0.0.11"), Port: DefaultPort,
				Address: addr("10.80.0.9"), GatewayAddress: addr("10.80.0.1"), MTU: 1340,
			}
			x.kernel.links["liqo.milan"] = l
			l.Port = 1
			x.kernel.links["liqo.port"] = l
			l.Port, l.Gateway = DefaultPort, netip.Addr{}
			x.kernel.links["liqo.unknown"] = l
		}, Options{Link: "tun"})
		x.expect("without objects", 0, "ends [liqo.milan 7]")
		x.expect("nothing new", time.Hour)
		x.kernel.tamper(hostnet.Event{Ours: true}, func() { x.kernel.idle = true })
		x.expect("somebody closes it", time.Second, "ends []", "ends [liqo.milan 7]")
		if ready, why := x.Ready(); ready {
			t.Errorf("ready: %s", why)
		}
		if s := x.State(); s.Tunnels[0].VNI != 7 || s.Tunnels[0].Gateway != addr("10.0.0.11") || s.Tunnels[0].Status != TunnelUp {
			t.Errorf("%+v", s.Tunnels)
		}
	})
}

func TestRunnerWarnsOfATunnelWithoutPrefixes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, func(x *running) { x.feed.world.fabrics[0].Spec.RemoteCIDRs = nil }, Options{})
		x.expect("at the start", time.Second, addMilan, addRome, "translate [10.92.0.0/16]")
		reason, message := x.condition(networkingv1beta1.ConditionTunnelsReady)
		if reason != "TunnelsReady" || !strings.HasPrefix(message, "Tunnels in place: 2; nothing leads into: InternalFabric t-milan/milan: spec.remoteCIDRs: is empty") {
			t.Errorf("%s: %s", reason, message)
		}
		if s := x.State(); !strings.Contains(s.Tunnels[0].Problem, "spec.remoteCIDRs: is empty") || len(s.Warnings) != 1 {
			t.Errorf("%+v, warnings %v", s.Tunnels, s.Warnings)
		}
		x.says("level=WARN", 1)
	})
}

// What others change while something cannot be had is put right and said, too.
func TestRunnerRepairsWhileFailing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, func(x *running) { x.kernel.refuse["liqo.rome"] = errors.New("not supported") }, Options{Link: "vxlan"})
		x.expect("at the start", time.Second, "add liqo.milan vxlan 7 10.0.0.11", translate)
		x.pass(time.Hour)
		if s := x.State(); s.Repairs != 0 || s.ApplyErrors == 0 {
			t.Errorf("%d repairs, %d errors", s.Repairs, s.ApplyErrors)
		}
		x.kernel.tamper(hostnet.Event{Ours: true}, func() { delete(x.kernel.links, "liqo.milan") })
		x.expect("tampering", time.Second, "add liqo.milan vxlan 7 10.0.0.11")
		if s := x.State(); s.Repairs != 1 {
			t.Errorf("%d repairs", s.Repairs)
		}
		x.says("put right what", 1)
		x.pass(time.Hour)
		x.says("put right what", 1)
	})
}

func TestRunnerTellsThatItCannotReport(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, func(x *running) { x.feed.refuse = errors.New("not allowed") }, Options{})
		x.pass(time.Second)
		if s := x.State(); s.ReportError != "not allowed" || !s.Planned {
			t.Errorf("%+v", s)
		}
		x.says("is not kept up to date", 1)
	})
}

// What a feed reserves counts as soon as it is known.
func TestRunnerReserves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, nil, Options{})
		x.expect("at the start", time.Second, addMilan, addRome, translate)
		x.feed.mu.Lock()
		x.feed.reserved = []Reserved{{prefix("10.90.0.1/32"), "the API server"}}
		x.feed.mu.Unlock()
		x.feed.changed()
		x.pass(time.Second)
		if reason, message := x.condition(networkingv1beta1.ConditionTunnelsReady); reason != "TunnelRefused" || !strings.Contains(message, "overlaps the API server (10.90.0.1/32)") {
			t.Errorf("%s: %s", reason, message)
		}
	})
}

func TestRunnerAttachesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, nil, Options{Link: "tun"})
		x.expect("at the start", time.Second, "add liqo.milan tun 7 10.0.0.11", "add liqo.rome tun 8 10.0.0.12", translate, "ends [liqo.milan 7 liqo.rome 8]")
		x.kernel.tamper(hostnet.Event{Ours: true}, func() { x.kernel.idle = true })
		x.expect("nobody has the devices open", time.Second, "ends []", "ends [liqo.milan 7 liqo.rome 8]")
		x.says("attach to TUN device liqo.rome again", 1)
		x.kernel.mu.Lock()
		x.kernel.idle = true
		x.kernel.mu.Unlock()
		x.expect("without a notification", sampleInterval, "ends []", "ends [liqo.milan 7 liqo.rome 8]")
	})
}

func TestRunnerWithoutNFTables(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, func(x *running) { x.kernel.noNFT = true }, Options{})
		x.expect("at the start", time.Second, addMilan, addRome)
		reason, message := x.condition(networkingv1beta1.ConditionAddressTranslationReady)
		if reason != "NFTablesUnavailable" || message != "this kernel has no nf_tables" {
			t.Errorf("%s: %s", reason, message)
		}
		if reason, _ := x.condition(networkingv1beta1.ConditionTunnelsReady); reason != "TunnelsReady" {
			t.Error(reason)
		}
	})
}

// On a busy node links and routes of others change all the time.
func TestRunnerAmongOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, nil, Options{})
		x.expect("at the start", time.Second, addMilan, addRome, translate)
		x.kernel.mu.Lock()
		before := x.kernel.asked
		x.kernel.mu.Unlock()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			x.kernel.tamper(hostnet.Event{Paths: true}, func() {})
		}
		x.expect("nothing of it matters", time.Second)
		x.kernel.mu.Lock()
		defer x.kernel.mu.Unlock()
		if asked := x.kernel.asked - before; asked < 100 || asked > 2*int(time.Minute/pathsSettle)+4 {
			t.Errorf("asked for paths %d times within a minute", asked)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	good := Options{NodeName: "worker", Dir: "x", Host: &fakeKernel{}, Ends: fakeEnds{}}
	for _, tt := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"nothing", func(*Options) {}, ""},
		{"no name", func(o *Options) { o.NodeName = "" }, "--node-name is required: the InternalNode that this node is"},
		{"no objects", func(o *Options) { o.Dir = "" }, "either a directory of manifests or an API server is needed"},
		{"two kinds of objects", func(o *Options) { f := new(fakeFeed); o.Feed, o.Reporter = f, f }, "either a directory of manifests or an API server is needed"},
		{"an unknown link", func(o *Options) { o.Link = "gre" }, `--link is "gre": it must be auto, geneve, vxlan or tun`},
		{"TUN without ends", func(o *Options) { o.Link, o.Ends = "tun", nil }, "--link=tun needs the agent's own end of the tunnels"},
	} {
		o := good
		tt.change(&o)
		_, err := New(o)
		if got := errorText(err); got != tt.want {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// What is written beside the manifests can be read as one of them.
func TestDirectoryReporter(t *testing.T) {
	dir := t.TempDir()
	node := newNode("worker", "10.80.0.9")
	node.Spec.Interface.Gateway.Name = "liqo.worker"
	noon := time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC)
	report := func(d *directoryReporter, at time.Time, source networkingv1beta1.Address) string {
		t.Helper()
		r := Report{Time: at, Node: node, NodeIP: networkingv1beta1.NodeIP{Remote: source}, Conditions: []metav1.Condition{
			condition(networkingv1beta1.ConditionTunnelsReady, networkingv1beta1.ReasonTunnelsReady, "fine"),
		}}
		if err := d.Report(r); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, manifests.StatusDir, StatusFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	d := &directoryReporter{dir: dir}
	first := report(d, noon, "172.18.0.2")
	if again := report(&directoryReporter{dir: dir}, noon.Add(time.Hour), "172.18.0.2"); again != first {
		t.Errorf("a restart made of\n%sthis:\n%s", first, again)
	}
	second := report(d, noon.Add(time.Hour), "172.18.0.3")
	if !strings.Contains(second, "172.18.0.3") || !strings.Contains(second, "2025-01-01T12:00:00Z") {
		t.Errorf("changed:\n%s", second)
	}
	if err := os.WriteFile(filepath.Join(dir, "node.yaml"), []byte(second), 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := manifests.ReadFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	objects, warnings, err := files.Decode(reader)
	if err != nil || len(warnings) > 0 || len(objects.InternalNodes) != 1 || objects.InternalNodes[0].Object.Status.NodeIP.Remote != "172.18.0.3" {
		t.Errorf("read as %+v, %v, %v", objects.InternalNodes, warnings, err)
	}
	if err := d.Report(Report{Node: newNode("worker", "")}); err != nil {
		t.Error(err)
	}
	d.dir = filepath.Join(dir, "gone")
	if err := d.Report(Report{Node: node}); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Error(err)
	}
}

func TestReportStatus(t *testing.T) {
	node := newNode("worker", "10.80.0.9")
	node.Generation = 3
	noon := time.Date(2025, 1, 1, 12, 0, 0, 5, time.UTC)
	r := Report{Time: noon, Node: node, NodeIP: networkingv1beta1.NodeIP{Remote: "172.18.0.2"}, Conditions: []metav1.Condition{
		condition(networkingv1beta1.ConditionTunnelsReady, networkingv1beta1.ReasonTunnelsReady, "fine"),
	}}
	others := networkingv1beta1.InternalNodeStatus{Conditions: []metav1.Condition{{Type: "Other", Status: "True"}}}
	want, differs := r.Status(others)
	if !differs || len(want.Conditions) != 2 || want.Conditions[1].ObservedGeneration != 3 || len(others.Conditions) != 1 {
		t.Errorf("%+v", want)
	}
	r.Time = noon.Add(time.Hour)
	again, differs := r.Status(want)
	if differs || !again.Conditions[1].LastTransitionTime.Time.Equal(noon.Truncate(time.Second)) {
		t.Errorf("%+v", again)
	}
	if c := condition(networkingv1beta1.ConditionTunnelsReady, networkingv1beta1.ReasonTunnelRefused, strings.Repeat("x", 10000)); len(c.Message) > maxMessage+10 || c.Status != "False" {
		t.Errorf("a message of %d bytes", len(c.Message))
	}
}
