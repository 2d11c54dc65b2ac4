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
// leaves the last one in force.
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
	l := look{Site: s, set: set, serial: uint32(time.Now().Unix())}
	poke()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			l.look()
		}
	}
}

// look is what Run has seen.
type look struct {
	*Site
	set    func(*Zone)
	serial uint32
	failed string  // what was said last
	known  digests // of what was decoded last, with or without success
}

// digests identify what a zone is made of.
type digests struct{ manifests, services manifests.Digest }

// look reads what there is, unless it is what was read last.
func (l *look) look() {
	files, text, err := l.files()
	var services []Service
	heard := 0
	if err != nil {
		l.known = digests{}
	} else {
		is := digests{files.Digest, sha256.Sum256(text)}
		if is == l.known {
			return
		}
		l.known = is
		services, heard, err = decode(l.dir, files, text)
	}
	l.note(heard, err)
	said := ""
	if err != nil {
		said = err.Error()
	} else {
		l.serial++
		l.set(Build(zoneName(l.options.Zone), l.options.TTL, l.serial, services))
	}
	if said != l.failed {
		l.failed = said
		if err != nil {
			l.options.Logger.Warn("the Services of the peer cannot be read", "error", said)
		} else {
			l.options.Logger.Info("the Services of the peer are read", "services", heard)
		}
	}
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
func (s *Site) files() (files manifests.Files, heard []byte, err error) {
	if files, err = manifests.ReadFiles(s.dir); err != nil {
		return files, nil, err
	}
	if heard, err = os.ReadFile(filepath.Join(s.status, manifests.ServicesFile)); err != nil {
		err = errors.Join(errors.New("the gateway writes what it hears with --services"), err)
	}
	return files, heard, err
}

// decode returns the Services of the peer, and of how many it tells.
func decode(dir string, files manifests.Files, text []byte) (services []Service, heard int, err error) {
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
	services, err = heardOf(list.Items, objects.Configurations[0].Object)
	return services, len(list.Items), err
}

// heardOf are the Services of a peer, with the endpoints that are ready and lead to its pods, or to those
// of other clusters that it passes on.
func heardOf(imported []networkingv1beta1.ImportedService, c *networkingv1beta1.Configuration) ([]Service, error) {
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
