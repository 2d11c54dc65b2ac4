package clusterdns

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sluice-net/sluice/objects/mirror"
)

// Options say what a Cluster or a Site makes a zone of.
type Options struct {
	// Zone is the domain; empty: DefaultZone.
	Zone string
	// TTL is in seconds; 0: nothing is kept by those who ask.
	TTL uint32
	// Logger gets the loss of the API server and its return. Nil: slog.Default().
	Logger *slog.Logger
}

// Cluster makes zones of the ServiceImports of a cluster, whoever writes them, and of the EndpointSlices behind them.
type Cluster struct {
	options Options
	clients *mirror.Clients
	mirror  *mirror.Mirror
	imports *mirror.Store[mcsv1beta1.ServiceImport, *mcsv1beta1.ServiceImport]
	slices  *mirror.Store[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice]
}

// NewCluster builds a Cluster. Nothing is asked of the API server until Run.
func NewCluster(c *rest.Config, o Options) (*Cluster, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	clients, err := mirror.NewClients(c, "sluice-clusterdns",
		mirror.Group{Version: mcsv1beta1.SchemeGroupVersion, AddToScheme: mcsv1beta1.Install},
		mirror.Group{Version: discoveryv1.SchemeGroupVersion, AddToScheme: discoveryv1.AddToScheme},
	)
	if err != nil {
		return nil, err
	}
	k := &Cluster{
		options: o, clients: clients, mirror: mirror.New(o.Logger),
		imports: mirror.NewStore[mcsv1beta1.ServiceImport](), slices: mirror.NewStore[discoveryv1.EndpointSlice](),
	}
	k.imports.Trim = func(i *mcsv1beta1.ServiceImport) { i.Status = mcsv1beta1.ServiceImportStatus{} }
	k.slices.Trim = trim
	mirror.Add(k.mirror, mirror.Watched{Client: clients.For(mcsv1beta1.SchemeGroupVersion), Resource: mcsv1beta1.ServiceImportPluralName}, k.imports)
	mirror.Add(k.mirror, mirror.Watched{
		Client: clients.For(discoveryv1.SchemeGroupVersion), Resource: "endpointslices", Labels: mcsv1beta1.LabelServiceName,
	}, k.slices)
	return k, nil
}

// trim keeps of an EndpointSlice what a zone is made of.
func trim(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		*e = discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: discoveryv1.EndpointConditions{Ready: e.Conditions.Ready}, Hostname: e.Hostname}
	}
}

// Run gives set a Zone when everything was read once, and then after each change, until ctx ends. While the API server
// is away the last one stays.
func (k *Cluster) Run(ctx context.Context, set func(*Zone)) {
	// Serials grow over restarts (RFC 1982): those who compare them see a new zone.
	serial := uint32(time.Now().Unix())
	k.mirror.Run(ctx, func() {
		_, imports := k.imports.Size()
		if _, slices := k.slices.Size(); !imports || !slices {
			return
		}
		serial++
		set(Build(zoneName(k.options.Zone), k.options.TTL, serial, Services(k.imports.List(), k.slices.List())))
	})
	k.clients.Disconnect()
}

// zoneName is the domain of an option.
func zoneName(option string) string { return cmp.Or(option, DefaultZone) }

// State is what is read and whether the API server answers, for display.
func (k *Cluster) State() mirror.State { return k.mirror.State() }

// Services are what ServiceImports stand for, with the ready endpoints of the headless ones.
func Services(imports []*mcsv1beta1.ServiceImport, slices []*discoveryv1.EndpointSlice) []Service {
	out := make([]Service, 0, len(imports))
	headless := map[types.NamespacedName]int{} // where they are in out
	for _, i := range imports {
		s := Service{Namespace: i.Namespace, Name: i.Name, Headless: i.Spec.Type == mcsv1beta1.Headless}
		if s.Headless {
			headless[types.NamespacedName{Namespace: i.Namespace, Name: i.Name}] = len(out)
		} else {
			s.Addresses = parse(i.Spec.IPs)
			for _, p := range i.Spec.Ports {
				s.Ports = append(s.Ports, port(p.Name, p.Protocol, p.Port))
			}
		}
		out = append(out, s)
	}
	for _, s := range slices {
		if n, ok := headless[types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[mcsv1beta1.LabelServiceName]}]; ok {
			out[n].Endpoints = append(out[n].Endpoints, endpoints(s)...)
		}
	}
	return out
}

// endpoints are the ready ones of a slice.
func endpoints(s *discoveryv1.EndpointSlice) (out []Endpoint) {
	var ports []Port
	for _, p := range s.Ports {
		if p.Name == nil || p.Port == nil {
			continue
		}
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		ports = append(ports, port(*p.Name, protocol, *p.Port))
	}
	for _, e := range s.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		hostname := ""
		if e.Hostname != nil {
			hostname = *e.Hostname
		}
		// A name of another type than an address (FQDN) parses as none.
		if a := parse(e.Addresses); len(a) > 0 {
			out = append(out, Endpoint{Cluster: s.Labels[mcsv1beta1.LabelSourceCluster], Hostname: hostname, Addresses: a, Ports: ports})
		}
	}
	return out
}

// port takes a port as the API server has judged it.
func port(name string, protocol corev1.Protocol, number int32) Port {
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	return Port{Name: name, Protocol: string(protocol), Number: uint16(number)}
}

// parse leaves out what is no address.
func parse(texts []string) (out []netip.Addr) {
	for _, s := range texts {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			out = append(out, a)
		}
	}
	return out
}
