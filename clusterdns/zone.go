package clusterdns

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

const (
	// DefaultZone is the domain of the cluster set that KEP-1645 names.
	DefaultZone = "clusterset.local"
	// DefaultTTL is for how many seconds an answer may be kept: CoreDNS's default for the Services of a cluster.
	DefaultTTL = 5
	// maxRecords bounds the records of one name and type. More than these would not fit into a message of 64 KiB anyway.
	maxRecords = 1000
	// srvPriority and srvWeight are those of every SRV record: clients choose at random (RFC 2782).
	srvPriority, srvWeight = 0, 100
)

// Zone is everything that there is to know of the cluster set. It does not change: a new one takes its place.
type Zone struct {
	name  string // with a dot at its end, in lower case
	ttl   uint32
	soa   *dns.SOA
	nodes map[string]node
	count Count
}

// node is what one name has. A name without records has others below it (RFC 8020).
type node map[uint16][]dns.RR

// Count is what is in a Zone.
type Count struct {
	Services  int `json:"services"`
	Endpoints int `json:"endpoints"` // of headless Services
	Records   int `json:"records"`
	// Refused is how many names were left out since they are none.
	Refused int `json:"refused"`
}

// Build makes a Zone. The same Services make the same Zone in any order, but for its serial, which the caller counts
// up. name is the domain, ttl is in seconds.
func Build(name string, ttl, serial uint32, services []Service) *Zone {
	name = dns.CanonicalName(name)
	z := &Zone{name: name, ttl: ttl, nodes: make(map[string]node, 4*len(services))}
	server := "ns.dns." + name
	z.soa = &dns.SOA{
		Hdr: z.header(name, dns.TypeSOA), Ns: server, Mbox: "hostmaster." + name,
		Serial: serial, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}
	z.node(name)[dns.TypeSOA] = []dns.RR{z.soa}
	z.node(name)[dns.TypeNS] = []dns.RR{&dns.NS{Hdr: z.header(name, dns.TypeNS), Ns: server}}
	z.node("svc." + name)
	for i := range services {
		z.add(&services[i])
	}
	for _, n := range z.nodes {
		for _, records := range n {
			slices.SortFunc(records, func(a, b dns.RR) int { return cmp.Compare(a.String(), b.String()) })
			z.count.Records += len(records)
		}
	}
	return z
}

// Count is what is in the Zone.
func (z *Zone) Count() Count { return z.count }

// add puts a Service into the zone.
func (z *Zone) add(s *Service) {
	if !isLabel(s.Namespace) || !isLabel(s.Name) {
		z.count.Refused++
		return
	}
	name := s.Name + "." + s.Namespace + ".svc." + z.name
	if !s.Headless {
		z.count.Services++
		z.addresses(name, s.Addresses)
		for _, p := range s.Ports {
			z.port(name, name, p)
		}
		return
	}
	ready := false
	for i := range s.Endpoints {
		ready = z.endpoint(name, &s.Endpoints[i]) || ready
	}
	if ready {
		z.count.Services++
	}
}

// endpoint puts an endpoint of a headless Service into the zone, and tells whether it could.
func (z *Zone) endpoint(service string, e *Endpoint) bool {
	hostname := e.Hostname
	if hostname == "" && len(e.Addresses) > 0 {
		hostname = dashed(e.Addresses[0])
	}
	if !isLabel(hostname) || !isLabel(e.Cluster) || len(e.Addresses) == 0 {
		z.count.Refused++
		return false
	}
	name := hostname + "." + e.Cluster + "." + service
	if z.nodes[name] == nil { // an endpoint may be told of twice, as those of a Service with an alias are
		z.count.Endpoints++
	}
	z.addresses(service, e.Addresses)
	z.addresses(name, e.Addresses)
	for _, p := range e.Ports {
		z.port(service, name, p)
	}
	return true
}

// addresses gives a name addresses.
func (z *Zone) addresses(name string, addresses []netip.Addr) {
	n := z.node(name)
	for _, a := range addresses {
		if a = a.Unmap(); a.Is4() {
			n.add(&dns.A{Hdr: z.header(name, dns.TypeA), A: a.AsSlice()})
		} else {
			n.add(&dns.AAAA{Hdr: z.header(name, dns.TypeAAAA), AAAA: a.AsSlice()})
		}
	}
}

// port gives a Service a port at target: under the name of the port, if it has one, and under that of the Service, where
// CoreDNS has all ports of a Service of its cluster.
func (z *Zone) port(service, target string, p Port) {
	protocol := strings.ToLower(p.Protocol)
	if p.Name != "" && !isLabel(p.Name) || protocol != "tcp" && protocol != "udp" && protocol != "sctp" {
		z.count.Refused++
		return
	}
	names := []string{service}
	if p.Name != "" {
		names = append(names, "_"+p.Name+"._"+protocol+"."+service)
	}
	for _, name := range names {
		z.node(name).add(&dns.SRV{
			Hdr: z.header(name, dns.TypeSRV), Priority: srvPriority, Weight: srvWeight, Port: p.Number, Target: target,
		})
	}
}

// node is what a name has. It and all names above it exist from now on.
func (z *Zone) node(name string) node {
	n, ok := z.nodes[name]
	if ok {
		return n
	}
	n = node{}
	z.nodes[name] = n
	if name != z.name {
		_, above, _ := strings.Cut(name, ".")
		z.node(above)
	}
	return n
}

// add adds a record that is not there yet: a name stands for a set (RFC 2181, section 5).
func (n node) add(r dns.RR) {
	kind := r.Header().Rrtype
	if len(n[kind]) < maxRecords && !slices.ContainsFunc(n[kind], func(have dns.RR) bool { return dns.IsDuplicate(have, r) }) {
		n[kind] = append(n[kind], r)
	}
}

func (z *Zone) header(name string, kind uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: z.ttl}
}

// dashed is the host name of a pod that has none, as the DNS of a cluster makes it: 10-0-0-7, fd00--7.
func dashed(a netip.Addr) string {
	s := strings.NewReplacer(".", "-", ":", "-").Replace(a.Unmap().String())
	// "::7" would begin with a dash, which is no host name.
	if s[0] == '-' {
		s = "0" + s
	}
	if s[len(s)-1] == '-' {
		s += "0"
	}
	return s
}

// isLabel tells whether s is a label of lower-case letters, digits and dashes (RFC 1123).
func isLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}
