package control

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/test/testlog"
)

// fakeFeed gives what a test puts into it, and takes what is reported.
type fakeFeed struct {
	mu      sync.Mutex
	version uint64
	objects func() Objects // nil: not there yet
	changed func()
	reports []Report
	closed  bool

	withdrawn bool
}

func (f *fakeFeed) Read(known manifests.Digest) (r Reading, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objects == nil {
		return r, manifests.Waiting{{Reason: "reading the objects of the cluster"}}
	}
	r.Digest[0] = 1
	binary.BigEndian.PutUint64(r.Digest[1:], f.version)
	if r.Digest != known {
		r.Objects = f.objects()
	}
	return r, nil
}

func (f *fakeFeed) Watch(ctx context.Context, changed func()) {
	f.mu.Lock()
	f.changed = changed
	f.mu.Unlock()
	changed() // for what was put before
	<-ctx.Done()
}

// put replaces the objects.
func (f *fakeFeed) put(objects func() Objects) {
	f.mu.Lock()
	f.objects = objects
	f.version++
	changed := f.changed
	f.mu.Unlock()
	if changed != nil {
		changed()
	}
}

func (f *fakeFeed) Report(r Report) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports = append(f.reports, r)
	return nil
}

func (f *fakeFeed) Withdraw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.withdrawn = true
}

func (f *fakeFeed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// last is the report that came last, and how many there were.
func (f *fakeFeed) last() (r Report, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n = len(f.reports); n > 0 {
		r = f.reports[n-1]
	}
	return r, n
}

// follow runs a Runner over a fakeFeed.
func follow(t *testing.T, feed *fakeFeed, o Options) running {
	t.Helper()
	r := running{log: new(testlog.Buffer), forwarder: &fakeForwarder{
		hub: &tunnelSwitch{conns: map[netip.AddrPort]*tunnelConn{}}, applied: make(chan dataplane.Config, 100),
	}}
	o.Feed, o.Reporter, o.Logger = feed, feed, slog.New(slog.NewTextHandler(r.log, nil))
	r.Runner = New(o)
	r.Attach(r.forwarder)
	r.run(t)
	return r
}

func TestRunnerWaitsForTheCluster(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		feed := &fakeFeed{}
		r := follow(t, feed, Options{Gateway: testGateway})
		eventually(t, "waiting", func() bool { return len(r.State().Waiting) == 1 })
		if ready, why := r.Ready(); ready || why != "waiting: reading the objects of the cluster" {
			t.Errorf("ready %v: %s", ready, why)
		}
		feed.put(func() Objects {
			o := inCluster(t)
			o.Secrets = nil
			return o
		})
		eventually(t, "waiting for keys", func() bool {
			return strings.Contains(r.State().Waiting.Error(), "there are no keys of this gateway yet")
		})
		feed.put(func() Objects { return inCluster(t) })
		r.nextConfig(t)
		eventually(t, "ready", func() bool { ready, _ := r.Ready(); return ready })

		// The same objects in a new version change nothing.
		feed.put(func() Objects { return inCluster(t) })
		feed.put(func() Objects {
			o := inCluster(t)
			o.GatewayServers[0].Object.Spec.MTU = 1400
			return o
		})
		if c := r.nextConfig(t); c.MTU != 1400 {
			t.Errorf("applied an MTU of %d: what was in force was applied again", c.MTU)
		}

		// What is in force stays when the gateway is gone.
		feed.put(func() Objects { return Objects{Cluster: &Cluster{ClusterID: "milan"}} })
		eventually(t, "waiting again", func() bool { return len(r.State().Waiting) == 1 })
		if s := r.State(); s.Generation != 2 {
			t.Errorf("generation %d", s.Generation)
		}
		r.stop()
		if last, _ := feed.last(); last.Peer.Value != networkingv1beta1.ConnectionError || last.Generation != 2 || !feed.closed {
			t.Errorf("the last report: %+v, closed %v", last, feed.closed)
		}
	})
}

func TestRunnerStandsBy(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		feed := &fakeFeed{objects: func() Objects { return inCluster(t) }}
		r := follow(t, feed, Options{StandBy: true})
		standing := r.nextConfig(t)
		if standing.Tunnel.PrivateKey.IsZero() || !standing.Tunnel.PeerKey.IsZero() || len(standing.Nodes)+len(standing.Remote)+len(standing.Routes) > 0 {
			t.Errorf("stands by with %+v", standing)
		}
		eventually(t, "ready", func() bool { ready, why := r.Ready(); return ready && why == "standing by" })
		time.Sleep(2 * healthInterval)
		if _, n := feed.last(); n > 0 {
			t.Errorf("reported %d times what the active replica reports", n)
		}

		// A role that cannot be taken, as the port is in use, is tried again.
		r.forwarder.mu.Lock()
		r.forwarder.refuse = errors.New("port 51840 is in use")
		r.forwarder.mu.Unlock()
		r.SetLeading(true)
		eventually(t, "refusal", func() bool { return len(r.State().Refused) == 1 })
		r.forwarder.mu.Lock()
		r.forwarder.refuse = nil
		r.forwarder.mu.Unlock()
		feed.put(func() Objects { return inCluster(t) })
		if c := r.nextConfig(t); c.Tunnel.PeerKey.IsZero() || len(c.Nodes) != 2 {
			t.Errorf("leads with %+v", c)
		}
		r.SetLeading(false)
		r.nextConfig(t)
		r.SetLeading(true)
		r.nextConfig(t)
		eventually(t, "a handshake", func() bool {
			r.forwarder.mu.Lock()
			defer r.forwarder.mu.Unlock()
			return r.forwarder.handshakes > 0
		})
		eventually(t, "a report", func() bool { last, _ := feed.last(); return last.Gateway == testGateway })

		r.SetLeading(false)
		r.SetLeading(false) // no change
		if c := r.nextConfig(t); !c.Tunnel.PeerKey.IsZero() {
			t.Errorf("stepped down with %+v", c)
		}
		feed.mu.Lock()
		feed.withdrawn = false
		feed.mu.Unlock()
		eventually(t, "the report is withdrawn", func() bool {
			feed.mu.Lock()
			defer feed.mu.Unlock()
			return feed.withdrawn
		})
		r.stop()
		if last, _ := feed.last(); last.Peer.Value == networkingv1beta1.ConnectionError {
			t.Error("a replica that stood by wrote its end into the Connection of the active one")
		}
	})
}

// Lost pings ask for a session, soon and not too often.
func TestRunnerHurries(t *testing.T) {
	feed := &fakeFeed{objects: func() Objects { return inCluster(t) }}
	start := time.Now()
	r := follow(t, feed, Options{Ping: Ping{Interval: 100 * time.Millisecond}}) // nobody answers
	handshakes := func() int {
		r.forwarder.mu.Lock()
		defer r.forwarder.mu.Unlock()
		return r.forwarder.handshakes
	}
	eventually(t, "a handshake", func() bool { return handshakes() > 0 })
	time.Sleep(3 * healthInterval)
	n := handshakes()
	if took := time.Since(start); n > 1+int(took/askInterval) {
		t.Errorf("asked %d times within %v, and may once in %v", n, took, askInterval)
	}
}

// The data plane is told whether another gateway may lead, as long as this one does.
func TestRunnerIsUnconfirmed(t *testing.T) {
	feed := &fakeFeed{objects: func() Objects { return inCluster(t) }}
	var unconfirmed atomic.Bool
	r := follow(t, feed, Options{StandBy: true, Unconfirmed: unconfirmed.Load, Ping: Ping{Interval: 100 * time.Millisecond}})
	r.nextConfig(t)
	told := func(want time.Duration) func() bool {
		return func() bool {
			r.forwarder.mu.Lock()
			defer r.forwarder.mu.Unlock()
			return r.forwarder.silence == want
		}
	}
	unconfirmed.Store(true)
	r.SetLeading(true)
	r.nextConfig(t)
	// Told before it takes the role, so that the first handshake is kept back.
	if !told(150 * time.Millisecond)() {
		t.Error("it leads, and the data plane was not told that nobody says so")
	}
	unconfirmed.Store(false)
	eventually(t, "it is confirmed", told(0))
	unconfirmed.Store(true)
	eventually(t, "it is not", told(150*time.Millisecond))
	r.SetLeading(false)
	r.nextConfig(t)
	eventually(t, "one that stands by has nothing to doubt", told(0))
	asked := time.Now()
	r.AskedInVain(asked)
	if got := r.forwarder.released; !got.Equal(asked) {
		t.Errorf("a handshake may begin that was kept back before %v, want %v", got, asked)
	}
}
