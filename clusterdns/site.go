package clusterdns

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/reflection"
)

// Site makes zones of what a gateway outside clusters hears of its peer, and of the addresses by which that is reached.
// Without a kube-proxy no Service has an address of its own: every name stands for the ready pods.
type Site struct {
	options Options
	dir     string
	status  string // where the gateway writes

	mu    sync.Mutex
	state mirror.State
}

// hold is for how long pods stay ready after the network of the peering was lost, as in a cluster.
const hold = 30 * time.Second

// NewSite builds a Site of the directory of manifests that the gateway has.
func NewSite(dir string, o Options) *Site {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Site{options: o, dir: dir, status: filepath.Join(dir, manifests.StatusDir), state: mirror.State{
		Connected: true, Watches: []mirror.WatchState{{Name: "importedservices"}},
	}}
}

// Run gives set a Zone when everything was read once, and then after each change, until ctx ends. What cannot be read
// leaves the last one in force. Once the network of the peering was down for a while, no pod of the peer is ready.
func (s *Site) Run(ctx context.Context, set func(*Zone)) {
	changed := make(chan struct{}, 1)
	poke := func() {
		select {
		case changed <- struct{}{}:
		default: // somebody will look anyway
		}
	}
	degraded := func(err error) { s.options.Logger.Debug("changes are found by polling", "error", err) }
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { manifests.Watch(ctx, s.dir, poke, degraded) })
	wg.Go(func() { manifests.Watch(ctx, s.status, poke, degraded) })
	f := follower{Site: s, set: set, serial: uint32(time.Now().Unix())}
	poke()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
		again = nil
		if wait := f.update(time.Now()); wait > 0 {
			again = time.After(wait)
		}
	}
}

// follower is what Run remembers between two updates.
type follower struct {
	*Site
	set    func(*Zone)
	serial uint32
	failed string    // what was said last
	known  digests   // of what was decoded last, with or without success
	down   time.Time // since when the network of the peering is down; zero: it is not
}

// digests identify what a zone is made of.
type digests struct {
	manifests, services manifests.Digest
	lost                bool
}

// lost tells whether the network of the peering was down for so long that nothing of the peer counts as ready, or in how
// long it will have been. Without a word of the gateway it is not down.
func (f *follower) lost(now time.Time) (lost bool, again time.Duration) {
	var c networkingv1beta1.Connection
	_ = manifests.ReadStatus(f.dir, manifests.ConnectionFile, &c) // unreadable: not a word
	switch {
	case c.Status.Value == networkingv1beta1.Connected || c.Status.Value == "":
		f.down = time.Time{}
		return false, 0
	case f.down.IsZero():
		f.down = now
	}
	again = max(0, hold-now.Sub(f.down))
	return again == 0, again
}

// update reads what there is, unless it is what was read last, and says in how long it is to look again; zero: when
// something changes.
func (f *follower) update(now time.Time) (again time.Duration) {
	lost, again := f.lost(now)
	files, text, err := f.files()
	var services []Service
	imported := 0
	if err != nil {
		f.known = digests{}
	} else {
		is := digests{files.Digest, sha256.Sum256(text), lost}
		if is == f.known {
			return again
		}
		f.known = is
		services, imported, err = decode(f.dir, files, text)
		if lost {
			f.options.Logger.Warn("the network of the peering is down: no pod of the peer is ready")
			for i := range services {
				services[i].Endpoints = nil
			}
		}
	}
	f.note(imported, err)
	said := ""
	if err != nil {
		said = err.Error()
	} else {
		f.serial++
		f.set(Build(zoneName(f.options.Zone), f.options.TTL, f.serial, services))
	}
	if said != f.failed {
		f.failed = said
		if err != nil {
			f.options.Logger.Warn("the Services of the peer cannot be read", "error", said)
		} else {
			f.options.Logger.Info("the Services of the peer are read", "services", imported)
		}
	}
	return again
}

// State is what is read, for display.
func (s *Site) State() mirror.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *Site) note(services int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.state.Error, s.state.Connected = err.Error(), false
		if s.state.Away.IsZero() {
			s.state.Away = time.Now()
		}
		return
	}
	s.state = mirror.State{Connected: true, Watches: []mirror.WatchState{{Name: "importedservices", Objects: services, Synced: true}}}
}

// files reads the manifests, and what the gateway has heard.
func (s *Site) files() (files manifests.Files, imported []byte, err error) {
	if files, err = manifests.ReadFiles(s.dir); err != nil {
		return files, nil, err
	}
	if imported, err = os.ReadFile(filepath.Join(s.status, manifests.ServicesFile)); err != nil {
		err = errors.Join(errors.New("the gateway writes what it hears with --services"), err)
	}
	return files, imported, err
}

// decode returns the Services of the peer, and of how many it tells.
func decode(dir string, files manifests.Files, text []byte) (services []Service, imported int, err error) {
	objects, _, err := files.Decode(manifests.Reader{Name: "the DNS server", Kinds: []string{"Configuration"}})
	if err != nil {
		return nil, 0, err
	}
	if n := len(objects.Configurations); n != 1 {
		return nil, 0, fmt.Errorf("%s has %d Configurations, want one", dir, n)
	}
	var list networkingv1beta1.ImportedServiceList
	if err := yaml.Unmarshal(text, &list); err != nil {
		return nil, 0, fmt.Errorf("decode %s: %w", manifests.ServicesFile, err)
	}
	services, err = importedServices(list.Items, objects.Configurations[0].Object)
	return services, len(list.Items), err
}

// importedServices are the Services of a peer, with the endpoints that are ready and lead to its pods, or to those
// of other clusters that it passes on.
func importedServices(imported []networkingv1beta1.ImportedService, c *networkingv1beta1.Configuration) ([]Service, error) {
	addresses, err := reflection.NewAddresses(c)
	if err != nil {
		return nil, err
	}
	pods := addresses.Pods()
	cluster := c.Labels[networkingv1beta1.LabelRemoteClusterID]
	out := make([]Service, 0, len(imported))
	for i := range imported {
		d := &imported[i].Spec
		if d.Check() != nil {
			continue // the gateway writes none that is not valid
		}
		s := Service{Namespace: d.Namespace, Name: d.Name, Headless: true}
		for _, slice := range d.Slices {
			if slice.Cluster == cluster {
				continue // what is the peer's own has addresses of its pods
			}
			in, source := pods, cluster
			if slice.Cluster != "" { // the peer is a hub
				in, source = addresses.External(), slice.Cluster
			}
			var ports []Port
			for _, p := range slice.Ports {
				ports = append(ports, port(p.Name, p.Protocol, p.Port))
			}
			for _, e := range slice.Endpoints {
				if a := here(in, e.Addresses, slice.AddressType); e.Ready && len(a) > 0 {
					s.Endpoints = append(s.Endpoints, Endpoint{Cluster: source, Hostname: orEmpty(e.Hostname), Addresses: a, Ports: ports})
				}
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// here are the addresses by which endpoints of the peer are reached. What leads elsewhere is left out.
func here(in reflection.Addresses, there []string, family discoveryv1.AddressType) (out []netip.Addr) {
	for _, a := range parse(there) {
		at, known := in.Here(a)
		if known && a.Is4() == (family == discoveryv1.AddressTypeIPv4) && at.IsGlobalUnicast() {
			out = append(out, at)
		}
	}
	return out
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
