package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/test/testlog"
	"github.com/sluice-net/sluice/tunnel"
)

// tunnelSwitch joins the own addresses of several fake data planes, as a tunnel
// does.
type tunnelSwitch struct {
	mu    sync.Mutex
	conns map[netip.AddrPort]*tunnelConn
}

type datagram struct {
	from net.Addr
	data []byte
}

type tunnelConn struct {
	net.PacketConn // nil: what is not written out here is not used
	hub            *tunnelSwitch
	local          netip.AddrPort
	queue          chan datagram
	closed         chan struct{}
	once           sync.Once
	wake           chan struct{} // closed by a deadline in the past
	wakeOnce       sync.Once
}

func (h *tunnelSwitch) listen(a netip.AddrPort) *tunnelConn {
	c := &tunnelConn{hub: h, local: a, queue: make(chan datagram, 100), closed: make(chan struct{}), wake: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns[a] = c
	return c
}

func (c *tunnelConn) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case d := <-c.queue:
		return copy(b, d.data), d.from, nil
	case <-c.wake:
		return 0, nil, os.ErrDeadlineExceeded
	case <-c.closed:
		return 0, nil, net.ErrClosed
	}
}

func (c *tunnelConn) WriteTo(b []byte, to net.Addr) (int, error) {
	c.hub.mu.Lock()
	peer := c.hub.conns[to.(*net.UDPAddr).AddrPort()]
	c.hub.mu.Unlock()
	if peer != nil {
		select {
		case peer.queue <- datagram{net.UDPAddrFromAddrPort(c.local), bytes.Clone(b)}:
		default:
		}
	}
	return len(b), nil
}

func (c *tunnelConn) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		c.wakeOnce.Do(func() { close(c.wake) })
	}
	return nil
}

func (c *tunnelConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.hub.mu.Lock()
		defer c.hub.mu.Unlock()
		if c.hub.conns[c.local] == c {
			delete(c.hub.conns, c.local)
		}
	})
	return nil
}

// fakeForwarder notes what is applied.
type fakeForwarder struct {
	hub     *tunnelSwitch
	applied chan dataplane.Config

	mu         sync.Mutex
	refuse     error
	handshakes int
	silence    time.Duration // of Unconfirmed
	released   time.Time
	usable     []bool // of SetUsable
}

func (f *fakeForwarder) Apply(c dataplane.Config) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	f.applied <- c
	return nil
}

func (f *fakeForwarder) Handshake() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handshakes++
	return true
}

func (f *fakeForwarder) Unconfirmed(silence time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silence = silence
}

func (f *fakeForwarder) ReleaseHandshake(before time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = before
}

func (f *fakeForwarder) Tunnel() tunnel.Stats { return tunnel.Stats{} }

func (f *fakeForwarder) SetUsable(usable []bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.usable = usable
}

func (f *fakeForwarder) ListenUDP(a netip.AddrPort) (net.PacketConn, error) {
	return f.hub.listen(a), nil
}

// running is a Runner at work over a copy of testdata/server.
type running struct {
	*Runner
	dir       string
	forwarder *fakeForwarder
	log       *testlog.Buffer
	stop      func()
}

func start(t *testing.T, hub *tunnelSwitch, edits ...string) running {
	t.Helper()
	r := running{dir: t.TempDir(), log: new(testlog.Buffer), forwarder: &fakeForwarder{hub: hub, applied: make(chan dataplane.Config, 100)}}
	copyFiles(t, "testdata/server", r.dir)
	for _, e := range edits {
		edit(t, r.dir, e)
	}
	r.Runner = New(Options{Dir: r.dir, Sources: dataplane.SourceStrict, Logger: slog.New(slog.NewTextHandler(r.log, nil))})
	if _, err := r.Load(); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(r.forwarder); err != nil {
		t.Fatal(err)
	}
	<-r.forwarder.applied
	r.run(t)
	return r
}

// run runs the Runner until stop, or the end of the test.
func (r *running) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	r.stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
}

// applied is how soon a change must be seen. The promise is a second; a loaded
// machine gets more before the test calls it broken.
const applied = 5 * time.Second

// eventually waits for what another goroutine brings about and has no channel for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(applied); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen", what)
		}
	}
}

func (r running) nextConfig(t *testing.T) dataplane.Config {
	t.Helper()
	select {
	case c := <-r.forwarder.applied:
		return c
	case <-time.After(applied):
		t.Fatal("nothing was applied")
		panic("unreachable")
	}
}

func TestRunnerAppliesChanges(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		r := start(t, &tunnelSwitch{conns: map[netip.AddrPort]*tunnelConn{}})
		edit(t, r.dir, "gateway.yaml: mtu: 1340 => mtu: 1400")
		if c := r.nextConfig(t); c.MTU != 1400 || c.Sources != dataplane.SourceStrict {
			t.Errorf("applied MTU %d, sources %v", c.MTU, c.Sources)
		}
		eventually(t, "generation 2", func() bool { return r.State().Generation == 2 })
	})
}

// Where any node can send as any pod, the log says so.
func TestUncheckedSourcesAreLogged(t *testing.T) {
	for _, tt := range []struct {
		sources  dataplane.SourceCheck
		noRoutes bool
		want     bool
	}{
		{dataplane.SourceRouted, false, false}, {dataplane.SourceRouted, true, true},
		{dataplane.SourceStrict, false, false}, {dataplane.SourceStrict, true, false},
		{dataplane.SourceUnchecked, false, true},
	} {
		log := new(testlog.Buffer)
		r := New(Options{Dir: "testdata/server", Sources: tt.sources, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if _, err := r.Load(); err != nil {
			t.Fatal(err)
		}
		if len(r.desired.DataPlane.Routes) == 0 {
			t.Fatal("the manifests have no routes")
		}
		if tt.noRoutes {
			r.desired.DataPlane.Routes = nil
		}
		hub := &tunnelSwitch{conns: map[netip.AddrPort]*tunnelConn{}}
		if err := r.Start(&fakeForwarder{hub: hub, applied: make(chan dataplane.Config, 1)}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "any node can send as any pod"); got != tt.want {
			t.Errorf("sources %v, without routes %v: said is %v\n%s", tt.sources, tt.noRoutes, got, log)
		}
	}
}

func TestRunnerRefusesBadFilesAsAWhole(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		r := start(t, &tunnelSwitch{conns: map[netip.AddrPort]*tunnelConn{}})
		good, err := os.ReadFile(filepath.Join(r.dir, "network.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(r.dir, "network.yaml"), strings.Replace(string(good), "external: 10.71.0.0/16", "external: 10.61.0.0/16", 1)+
			"---\n{apiVersion: v1, kind: secret, metadata: {name: x}}\n")
		eventually(t, "refusal", func() bool { return len(r.State().Refused) == 1 })
		s := r.State()
		if p := s.Refused[0]; p.File != "network.yaml" || p.Line != 21 || p.Field != "status.remote.cidr.external[0]" || !strings.Contains(p.Reason, "overlaps") {
			t.Errorf("problem: %+v", p)
		}
		if len(s.RefusedWarnings) != 1 || !strings.Contains(s.RefusedWarnings[0].Reason, "did you mean v1 Secret?") {
			t.Errorf("warnings: %v", s.RefusedWarnings)
		}
		if s.Generation != 1 || s.ReloadErrors != 1 || s.RefusedAt.IsZero() {
			t.Errorf("state: %+v", s)
		}
		for _, want := range []string{"file=network.yaml", "line=21", `field=status.remote.cidr.external[0]`, "overlaps", "refused", "did you mean v1 Secret?"} {
			if !strings.Contains(r.log.String(), want) {
				t.Errorf("the log does not say %q", want)
			}
		}
		select {
		case c := <-r.forwarder.applied:
			t.Errorf("applied %+v", c)
		default:
		}

		// The good file again ends the refusal, although nothing is new.
		write(t, filepath.Join(r.dir, "network.yaml"), string(good))
		eventually(t, "end of the refusal", func() bool { return len(r.State().Refused) == 0 })
	})
}

// The cause of a refusal may lie outside the files: it is tried again.
func TestRunnerTriesAgainWhatTheDataPlaneRefused(t *testing.T) {
	r := running{dir: t.TempDir(), forwarder: &fakeForwarder{applied: make(chan dataplane.Config, 10)}}
	copyFiles(t, "testdata/server", r.dir)
	r.Runner = New(Options{Dir: r.dir, Logger: slog.New(slog.DiscardHandler)})
	if _, err := r.Load(); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(r.forwarder); err != nil {
		t.Fatal(err)
	}
	r.forwarder.refuse = fmt.Errorf("tunnel: listen on port 51841: %w", EndpointError{Cause: errors.New("port 51841 is in use")})
	edit(t, r.dir, "gateway.yaml: port: 51840 => port: 51841")
	for range 3 {
		r.reload()
	}
	s := r.State()
	if len(s.Refused) != 1 || s.Refused[0].String() != "gateway.yaml:13: GatewayServer tenant/server: spec.endpoint.port: port 51841 is in use" || s.ReloadErrors != 1 {
		t.Errorf("state: %+v", s)
	}
	r.forwarder.refuse = nil
	r.reload()
	if s := r.State(); len(s.Refused) != 0 || s.Generation != 2 {
		t.Errorf("state: %+v", s)
	}
	if r.reload(); r.State().Generation != 2 {
		t.Error("the same files were applied twice")
	}

	// A directory that is away for a moment changes nothing.
	if err := os.Rename(r.dir, r.dir+".away"); err != nil {
		t.Fatal(err)
	}
	r.reload()
	if s := r.State(); len(s.Refused) != 1 || s.Generation != 2 {
		t.Errorf("state: %+v", s)
	}
	if err := os.Rename(r.dir+".away", r.dir); err != nil {
		t.Fatal(err)
	}
	if r.reload(); len(r.State().Refused) != 0 {
		t.Errorf("state: %+v", r.State())
	}
}

// Two Runners whose tunnels are joined find each other, and tell of it in their
// Connections.
func TestRunnersConnect(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		hub := &tunnelSwitch{conns: map[netip.AddrPort]*tunnelConn{}}
		server := start(t, hub)
		client := start(t, hub,
			"gateway.yaml: kind: GatewayServer => kind: GatewayClient",
			"gateway.yaml: mtu: 1340 => mtu: 1300",
			"gateway.yaml: port: 51840\n    serviceType: NodePort => port: 51840\n    addresses: [192.0.2.1]")
		for _, r := range []running{server, client} {
			eventually(t, "connected", func() bool { return r.State().Peer.Value == networkingv1beta1.Connected })
			var c networkingv1beta1.Connection
			eventually(t, "Connection", func() bool {
				text, err := os.ReadFile(filepath.Join(r.dir, manifests.StatusDir, manifests.ConnectionFile))
				if err != nil {
					return false
				}
				if err := yaml.UnmarshalStrict(text, &c); err != nil {
					t.Fatalf("%v in\n%s", err, text)
				}
				return c.Status.Value == networkingv1beta1.Connected
			})
			if c.Status.Latency.Value == "N/A" || c.Status.Latency.Timestamp.IsZero() {
				t.Errorf("latency %+v", c.Status.Latency)
			}
		}
		mismatch := "the peer's MTU is 1300, ours 1340"
		eventually(t, "MTU mismatch", func() bool { return strings.HasPrefix(server.State().Peer.MTUMismatch, mismatch) })

		// The same MTU ends it, and the ping goes on.
		edit(t, server.dir, "gateway.yaml: mtu: 1340 => mtu: 1300")
		eventually(t, "equal MTU", func() bool { return server.State().Peer.MTUMismatch == "" && server.State().Generation == 2 })
		if v := server.State().Peer.Value; v != networkingv1beta1.Connected {
			t.Errorf("the peer is %s after a change of the MTU", v)
		}

		// A gateway that has ended is not connected.
		server.stop()
		text, err := os.ReadFile(filepath.Join(server.dir, manifests.StatusDir, manifests.ConnectionFile))
		if err != nil || !strings.Contains(string(text), "value: Error\n") {
			t.Errorf("Connection after the end (%v):\n%s", err, text)
		}
	})
}

// TestLostPings: a ping is lost when a quarter of the interval after the next one was due
// nobody has answered.
func TestLostPings(t *testing.T) {
	for silence, want := range map[time.Duration]int{
		-time.Second: 0, 0: 0, 2400 * time.Millisecond: 0, 2500 * time.Millisecond: 1, 4400 * time.Millisecond: 1, 4500 * time.Millisecond: 2, 11 * time.Second: 5,
	} {
		if got := lost(silence, 2*time.Second); got != want {
			t.Errorf("after %v: %d, want %d", silence, got, want)
		}
	}
}
