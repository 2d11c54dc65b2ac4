package cluster

import (
	"cmp"
	"context"
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/gatewaysync"
	"github.com/sluice-net/sluice/dataplane/health"
)

// Options say which gateway this is.
type Options struct {
	// Name, Namespace and Type name the GatewayServer or GatewayClient.
	Name, Namespace string
	Type            networkingv1beta1.ConnectionType
	// UID is that object's; empty: whichever has the name. One that was deleted and
	// made anew is another gateway, with another pod.
	UID string
	// ClusterID is the peer's.
	ClusterID string
	// LiqoNamespace holds what all gateways share.
	LiqoNamespace string
	// NodeName is the node that the gateway runs on; empty: not known.
	NodeName string
	// KeysDir holds the gateway's keys, a file for each entry of their Secret.
	KeysDir string
	// UpdateInterval is how long a Connection may show an old latency.
	UpdateInterval time.Duration
	// Logger gets changes of state. Nil: slog.Default().
	Logger *slog.Logger
}

// Link is a gateway's tie to its API server: gatewaysync.Feed and
// gatewaysync.Reporter. Build it with New, and give it to a Runner.
type Link struct {
	options Options
	log     *slog.Logger
	clients clients
	contact *contact
	keys    keyFolder
	watches []func(context.Context)       // each follows one watch
	sizes   map[string]func() (int, bool) // of the stores that Read needs
	version atomic.Uint64                 // of what Read returns; zero: never anything
	kick    chan struct{}                 // one slot: the version has changed
	heavy   atomic.Bool                   // the next Read is the first that is complete

	servers    *store[networkingv1beta1.GatewayServer, *networkingv1beta1.GatewayServer]
	gwClients  *store[networkingv1beta1.GatewayClient, *networkingv1beta1.GatewayClient]
	configs    *store[networkingv1beta1.Configuration, *networkingv1beta1.Configuration]
	publicKeys *store[networkingv1beta1.PublicKey, *networkingv1beta1.PublicKey]
	fabrics    *store[networkingv1beta1.InternalFabric, *networkingv1beta1.InternalFabric]
	nodes      *store[networkingv1beta1.InternalNode, *networkingv1beta1.InternalNode]
	tunnels    *store[networkingv1beta1.GeneveTunnel, *networkingv1beta1.GeneveTunnel]
	routes     *store[networkingv1beta1.RouteConfiguration, *networkingv1beta1.RouteConfiguration]
	ips        *store[ipamv1alpha1.IP, *ipamv1alpha1.IP]
	firewalls  []*store[networkingv1beta1.FirewallConfiguration, *networkingv1beta1.FirewallConfiguration]

	reporter *reporter
}

// New builds a Link. Nothing is asked of the API server until Watch.
func New(c *rest.Config, o Options) (*Link, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.UpdateInterval = cmp.Or(o.UpdateInterval, health.DefaultUpdateInterval)
	clients, err := newClients(c)
	if err != nil {
		return nil, err
	}
	l := &Link{
		options: o, log: o.Logger, clients: clients, contact: newContact(o.Logger), keys: keyFolder{dir: o.KeysDir},
		sizes: make(map[string]func() (int, bool)), kick: make(chan struct{}, 1),
	}
	l.heavy.Store(true)
	l.selectObjects()
	l.reporter = newReporter(l)
	return l, nil
}

// add adds a watch to those that Read needs.
func add[T any, P object[T]](l *Link, w watched, s *store[T, P]) {
	l.sizes[w.name()] = s.size
	l.watches = append(l.watches, func(ctx context.Context) { follow(ctx, w, s, l.contact) })
}

// bump tells that Read returns something else now.
func (l *Link) bump() {
	l.version.Add(1)
	select {
	case l.kick <- struct{}{}:
	default: // a look is due already
	}
}

// Watch implements gatewaysync.Feed. It also keeps what the reporter needs.
func (l *Link) Watch(ctx context.Context, changed func()) {
	var wg sync.WaitGroup
	for _, w := range l.watches {
		wg.Go(func() { w(ctx) })
	}
	wg.Go(func() {
		gatewaysync.WatchAll(ctx, l.options.KeysDir, func() {
			if l.keys.load() {
				l.bump()
			}
		}, func(err error) { l.log.Warn("no file events for the keys, polling instead", "error", err) })
	})
	wg.Go(func() { l.reporter.run(ctx) })
	l.pace(ctx, changed)
	wg.Wait()
}

const (
	// settle is how long a change waits for others that belong to it.
	settle = 50 * time.Millisecond
	// spacing lies between two changes that are passed on: a hundred pods a second
	// make four changes of the data plane.
	spacing = 250 * time.Millisecond
)

// pace passes changes on, none at once and not too many.
func (l *Link) pace(ctx context.Context, changed func()) {
	var last time.Time
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.kick:
		}
		timer.Reset(max(settle, time.Until(last.Add(spacing))))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		last = time.Now()
		changed()
	}
}

// Read implements gatewaysync.Feed.
func (l *Link) Read(known gatewaysync.Digest) (gatewaysync.Reading, error) {
	var r gatewaysync.Reading
	// Before the objects are read: what comes in between is read again.
	version := l.version.Load()
	if waiting := l.waiting(); len(waiting) > 0 {
		return r, gatewaysync.Waiting(waiting)
	}
	r.Digest[0] = 1 // never zero
	binary.BigEndian.PutUint64(r.Digest[1:], version)
	if r.Digest == known {
		return r, nil
	}
	r.Heavy = l.heavy.Swap(false)
	r.Objects = l.objects()
	r.Objects.Secrets, r.Warnings = l.keys.get()
	return r, nil
}

// waiting says what must be read before anything can be built: an incomplete
// list of anything looks as if the rest had been deleted.
func (l *Link) waiting() gatewaysync.Problems {
	for _, size := range l.sizes {
		if _, synced := size(); synced {
			continue
		}
		if failing := l.contact.problems(); len(failing) > 0 {
			return failing
		}
		return gatewaysync.Problems{{Reason: "reading the objects of the cluster"}}
	}
	return nil
}

// State is what the Link does now, for display.
type State struct {
	// Connected says that the API server answers everything that is asked.
	Connected bool `json:"connected"`
	// Away is since when it does not.
	Away time.Time `json:"away,omitzero"`
	// Error is one reason.
	Error string `json:"error,omitempty"`
	// Watches are the objects at hand.
	Watches []WatchState `json:"watches"`
}

// WatchState describes one watch.
type WatchState struct {
	Name string `json:"name"`
	// Objects counts those that concern this gateway.
	Objects int `json:"objects"`
	// Synced says that the list was complete once.
	Synced bool `json:"synced"`
}

// State returns what the Link does now.
func (l *Link) State() State {
	s := State{}
	s.Away, s.Error = l.contact.away()
	s.Connected = s.Away.IsZero()
	for name, size := range l.sizes {
		n, synced := size()
		s.Watches = append(s.Watches, WatchState{Name: name, Objects: n, Synced: synced})
		s.Connected = s.Connected && synced
	}
	sortWatches(s.Watches)
	return s
}
