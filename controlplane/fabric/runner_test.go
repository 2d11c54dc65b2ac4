package fabric

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/hostnet"
	"github.com/sluice-net/sluice/controlplane/manifests"
	"github.com/sluice-net/sluice/dataplane/nodelink"
)

// fakeKernel is a Host whose state are the links that it was told to have.
type fakeKernel struct {
	mu          sync.Mutex
	links       map[string]hostnet.Link
	translation hostnet.Translation
	paths       map[netip.Addr]hostnet.Path
	support     []hostnet.KindSupport
	refuse      map[string]error // by link; "" for everything
	foreign     string           // a link of somebody else's
	noNFT       bool
	done        []string // what was applied, and what the ends were told
	tell        func(hostnet.Event)
}

// fakeStep is a step that this package can make: what it does is a function.
type fakeStep struct {
	hostnet.Step
	line, link string
	do         func()
}

func (s fakeStep) String() string { return s.line }

func newKernel(w *world) *fakeKernel {
	k := &fakeKernel{links: make(map[string]hostnet.Link), paths: maps.Clone(w.Paths), refuse: make(map[string]error)}
	for _, kind := range hostnet.Kinds {
		k.support = append(k.support, hostnet.KindSupport{Kind: kind, OK: true})
	}
	return k
}

func (k *fakeKernel) Read() (a hostnet.Actual, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(k.links)) {
		l := k.links[name]
		al := hostnet.ActualLink{Name: name, Kind: l.Kind, MTU: l.MTU, Alias: hostnet.AliasPrefix + l.Owner, Up: true}
		if l.Kind != hostnet.KindTUN {
			al.VNI, al.Gateway, al.Port = l.VNI, l.Gateway, l.Port
		}
		a.Links = append(a.Links, al)
		for _, p := range l.Routes {
			a.Routes = append(a.Routes, hostnet.Route{Dst: p, Device: name})
		}
	}
	a.Translation.Available = !k.noNFT
	if k.noNFT {
		a.Translation.Reason = "this kernel has no nf_tables"
	}
	return a, nil
}

// diff takes the place of hostnet.Diff.
func (k *fakeKernel) diff(want hostnet.Desired, have hostnet.Actual) (p hostnet.Plan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	step := func(link string, do func(), format string, args ...any) {
		p.Steps = append(p.Steps, fakeStep{line: fmt.Sprintf(format, args...), link: link, do: do})
	}
	there := make(map[string]bool)
	for i := range have.Links {
		there[have.Links[i].Name] = true
	}
	wanted := make(map[string]bool)
	for _, l := range want.Links {
		wanted[l.Name] = true
		switch is := k.links[l.Name]; {
		case l.Name == k.foreign:
			p.Problems = append(p.Problems, &hostnet.LinkError{Link: l.Name, Err: errors.New("is somebody else's")})
		case !there[l.Name]:
			step(l.Name, func() { k.links[l.Name] = l }, "add %s %s %d %s", l.Name, l.Kind, l.VNI, l.Gateway)
		case !reflect.DeepEqual(is, l):
			step(l.Name, func() { k.links[l.Name] = l }, "set %s %s %d %s", l.Name, l.Kind, l.VNI, l.Gateway)
		}
	}
	for name := range there {
		if !wanted[name] && !slices.Contains(want.Keep, name) {
			step(name, func() { delete(k.links, name) }, "remove %s", name)
		}
	}
	if !reflect.DeepEqual(k.translation, want.Translation) && !k.noNFT {
		step("", func() { k.translation = want.Translation }, "translate %v", want.Translation.Remote)
	}
	return p
}

func (k *fakeKernel) Apply(p hostnet.Plan) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.refuse[""]; err != nil {
		return err
	}
	var errs []error
	for _, e := range p.Problems {
		errs = append(errs, e)
	}
	for _, s := range p.Steps {
		f := s.(fakeStep)
		if err := k.refuse[f.link]; err != nil {
			errs = append(errs, &hostnet.LinkError{Link: f.link, Err: err})
			continue
		}
		f.do()
		k.done = append(k.done, f.line)
	}
	return errors.Join(errs...)
}

func (k *fakeKernel) Watch(ctx context.Context, f func(hostnet.Event)) error {
	k.mu.Lock()
	k.tell = f
	k.mu.Unlock()
	f(hostnet.Event{Ours: true, Paths: true})
	<-ctx.Done()
	return nil
}

func (k *fakeKernel) Path(a netip.Addr, _ uint16) (hostnet.Path, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p, ok := k.paths[a]; ok {
		return p, nil
	}
	return hostnet.Path{}, hostnet.ErrNoRoute
}

func (k *fakeKernel) Probe() []hostnet.KindSupport {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.support)
}

// tamper changes the kernel as another program does, which the kernel tells.
func (k *fakeKernel) tamper(e hostnet.Event, f func()) {
	k.mu.Lock()
	f()
	tell := k.tell
	k.mu.Unlock()
	tell(e)
}

// took returns what was done since the last call.
func (k *fakeKernel) took() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	done := k.done
	k.done = nil
	return done
}

// fakeEnds notes what it is told in the log of the kernel.
type fakeEnds struct{ kernel *fakeKernel }

func (e fakeEnds) Apply(ts []nodelink.Tunnel) error {
	var names []string
	for _, t := range ts {
		names = append(names, fmt.Sprintf("%s %d", t.Device, t.VNI))
	}
	e.kernel.mu.Lock()
	defer e.kernel.mu.Unlock()
	e.kernel.done = append(e.kernel.done, fmt.Sprint("ends ", names))
	return nil
}

func (e fakeEnds) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (e fakeEnds) Status() nodelink.Status {
	return nodelink.Status{Tunnels: []nodelink.TunnelStatus{{Device: "liqo.milan", RxPackets: 5, LastSeen: time.Now()}}}
}

// fakeFeed is a Feed and a Reporter.
type fakeFeed struct {
	mu      sync.Mutex
	world   *world
	waiting manifests.Waiting
	version byte
	changed func()
	reports []string
	status  networkingv1beta1.InternalNodeStatus
}

func (f *fakeFeed) Read(known manifests.Digest) (r manifests.Reading, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) > 0 {
		return r, f.waiting
	}
	if r.Digest[0], r.Digest[1] = 1, f.version; r.Digest != known {
		r.Objects = f.world.objects(true).Objects
	}
	return r, nil
}

func (f *fakeFeed) Watch(ctx context.Context, changed func()) {
	f.mu.Lock()
	f.changed = changed
	f.mu.Unlock()
	<-ctx.Done()
}

func (f *fakeFeed) Report(r Report) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var differs bool
	if f.status, differs = r.Status(f.status); differs {
		line := fmt.Sprintf("%s/%s", f.status.NodeIP.Local, f.status.NodeIP.Remote)
		for _, c := range f.status.Conditions {
			line += " " + c.Reason
		}
		f.reports = append(f.reports, line)
	}
	return nil
}

func (f *fakeFeed) Close() {}

// edit changes the objects.
func (f *fakeFeed) edit(change func(*world)) {
	f.mu.Lock()
	change(f.world)
	f.version++
	changed := f.changed
	f.mu.Unlock()
	changed()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// running is a Runner at work on fakes.
type running struct {
	*Runner
	t      *testing.T
	kernel *fakeKernel
	feed   *fakeFeed
	out    *lockedBuffer
	stop   func()
}

// start starts a Runner, in a bubble of synctest: whoever waits for time gets it
// at once.
func start(t *testing.T, change func(*running), o Options) *running {
	t.Helper()
	w := newWorld()
	w.Facts.Paths = maps.Clone(w.Paths)
	x := &running{t: t, kernel: newKernel(w), feed: &fakeFeed{world: w}, out: new(lockedBuffer)}
	if change != nil {
		change(x)
	}
	o.NodeName, o.Host, o.Ends, o.Feed, o.Reporter = "worker", x.kernel, fakeEnds{x.kernel}, x.feed, x.feed
	o.Logger = slog.New(slog.NewTextHandler(x.out, nil))
	var err error
	if x.Runner, err = New(o); err != nil {
		t.Fatal(err)
	}
	x.Runner.diff = x.kernel.diff
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := x.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	x.stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(func() {
		x.stop()
		if t.Failed() {
			t.Log(x.out.String())
		}
	})
	synctest.Wait()
	return x
}

// expect lets time pass and compares what was done in it.
func (x *running) expect(what string, within time.Duration, want ...string) {
	x.t.Helper()
	time.Sleep(within)
	synctest.Wait()
	if diff := cmp.Diff(want, x.kernel.took()); diff != "" {
		x.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// says checks how often the log has a text.
func (x *running) says(text string, times int) {
	x.t.Helper()
	if n := strings.Count(x.out.String(), text); n != times {
		x.t.Errorf("the log says %q %d times instead of %d", text, n, times)
	}
}

func (x *running) condition(t networkingv1beta1.ConditionType) (reason, message string) {
	for _, c := range x.State().Conditions {
		if c.Type == string(t) {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

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
		time.Sleep(time.Hour)
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
		time.Sleep(time.Hour)
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
			time.Sleep(pathsSettle)
			synctest.Wait()
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
		time.Sleep(pathsSettle)
		synctest.Wait()
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
		time.Sleep(time.Second)
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
		x.expect("later the best is tried first", maxRetry, "ends []", addMilan, addRome)
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
		x.expect("another VNI", 0, "ends [liqo.rome 8]", "set liqo.milan tun 70 10.0.0.11", "ends [liqo.milan 70 liqo.rome 8]")
		x.feed.edit(func(w *world) { w.fabrics[0].Spec.MTU = 9000 })
		x.expect("one that stays as it is", 0)
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
