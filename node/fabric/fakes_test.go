package fabric

import (
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

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/node/tunlink"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/test/testlog"
)

// fakeKernel is a Host whose state are the links that it was told to have.
type fakeKernel struct {
	mu           sync.Mutex
	links        map[string]hostnet.Link
	translation  hostnet.Translation
	paths        map[netip.Addr]hostnet.Path
	networks     []hostnet.Network
	support      []hostnet.KindSupport
	refuse       map[string]error // by link; "" for everything
	foreign      string           // a link of somebody else's
	detours      []hostnet.Detour
	liqoLinks    []hostnet.ForeignLink // until they are taken over
	left         hostnet.Left
	lookedLeft   []hostnet.Predecessor // at what was looked
	noDetours    error
	noNFT        bool
	noForwarding bool
	idle         bool     // nobody has TUN devices open
	done         []string // what was applied, and what the ends were told
	asked        int      // for paths
	tell         func(hostnet.Event)
}

// fakeStep is a step of a fakeKernel: what it does is a function.
type fakeStep struct {
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
		al := hostnet.ActualLink{Name: name, Kind: l.Kind, MTU: l.MTU, Alias: hostnet.AliasPrefix + l.Owner, Up: true, Carrier: !k.idle}
		al.VNI, al.Gateway, al.Port = l.VNI, l.Gateway, l.Port
		if l.Address.IsValid() {
			al.Addresses = append(al.Addresses, netip.PrefixFrom(l.Address, l.Address.BitLen()))
			a.Routes = append(a.Routes, hostnet.Route{Dst: netip.PrefixFrom(l.GatewayAddress, l.GatewayAddress.BitLen()), Src: l.Address, Device: name})
		}
		a.Links = append(a.Links, al)
		for _, p := range l.Routes {
			a.Routes = append(a.Routes, hostnet.Route{Dst: p, Device: name})
		}
	}
	a.Foreign = k.liqoLinks
	a.Translation.Available = !k.noNFT
	a.NoForwarding.IPv4 = k.noForwarding
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
		f, ok := s.(fakeStep)
		if !ok {
			f = fakeStep{line: s.String(), do: func() { k.liqoLinks = nil }}
		}
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
	k.asked++
	if p, ok := k.paths[a]; ok {
		return p, nil
	}
	return hostnet.Path{}, hostnet.ErrNoRoute
}

func (k *fakeKernel) Networks() ([]hostnet.Network, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.networks), nil
}

func (k *fakeKernel) Detours([]hostnet.Link, []netip.Prefix) ([]hostnet.Detour, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.detours), k.noDetours
}

func (k *fakeKernel) Left(p hostnet.Predecessor) (hostnet.Left, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lookedLeft = append(k.lookedLeft, p)
	return k.left, nil
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

// allow has what was refused for a link be done from now on, which the kernel does not tell.
func (k *fakeKernel) allow(link string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.refuse, link)
}

// looked returns what was looked for as left of Liqo's agent.
func (k *fakeKernel) looked() []hostnet.Predecessor {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.lookedLeft)
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

func (e fakeEnds) Apply(ts []tunlink.Tunnel) error {
	var names []string
	for _, t := range ts {
		names = append(names, fmt.Sprintf("%s %d", t.Device, t.VNI))
	}
	e.kernel.mu.Lock()
	defer e.kernel.mu.Unlock()
	e.kernel.done = append(e.kernel.done, fmt.Sprint("ends ", names))
	e.kernel.idle = e.kernel.idle && len(ts) == 0
	return nil
}

func (e fakeEnds) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (e fakeEnds) Status() tunlink.Status {
	return tunlink.Status{Tunnels: []tunlink.TunnelStatus{{Device: "liqo.milan", RxPackets: 5, LastSeen: time.Now()}}}
}

// fakeFeed is a Feed and a Reporter.
type fakeFeed struct {
	mu       sync.Mutex
	world    *world
	waiting  manifests.Waiting
	version  byte
	changed  func()
	reports  []string
	refuse   error // of Report
	reserved []Reserved
	status   networkingv1beta1.InternalNodeStatus
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

func (f *fakeFeed) Reserved() []Reserved {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reserved
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
	return f.refuse
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

// running is a Runner at work on fakes.
type running struct {
	*Runner
	t      *testing.T
	kernel *fakeKernel
	feed   *fakeFeed
	out    *testlog.Buffer
	stop   func()
}

// start starts a Runner, in a bubble of synctest: whoever waits for time gets it
// at once.
func start(t *testing.T, change func(*running), o Options) *running {
	t.Helper()
	w := newWorld()
	w.Facts.Paths = maps.Clone(w.Paths)
	x := &running{t: t, kernel: newKernel(w), feed: &fakeFeed{world: w}, out: new(testlog.Buffer)}
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

// pass lets time pass, and what is due at its end be done: a test that goes on in
// the middle of that meets something else each time.
func (x *running) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// expect lets time pass and compares what was done in it.
func (x *running) expect(what string, within time.Duration, want ...string) {
	x.t.Helper()
	x.pass(within)
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
