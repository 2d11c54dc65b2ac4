package clusterdns

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
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
	nodes map[string]*node
	count Count
}

// node is what one name has. One that has nothing has others below it (RFC 8020). Its records are made when somebody asks: of
// each port of each endpoint of a headless Service there are two, and a peer may tell of 20000 endpoints with 100 ports each.
type node struct {
	own       []dns.RR // SOA and NS of the zone
	addresses []netip.Addr
	locations []location
	located   int // hosts in locations
}

// location is a port at some hosts: the SRV records that differ in nothing else.
type location struct {
	port  uint16
	hosts []string // full names; not changed any more
}

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
	z := &Zone{name: name, ttl: ttl, nodes: make(map[string]*node, 4*len(services))}
	server := "ns.dns." + name
	z.soa = &dns.SOA{
		Hdr: z.header(name, dns.TypeSOA), Ns: server, Mbox: "hostmaster." + name,
		Serial: serial, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}
	z.node(name).own = []dns.RR{z.soa, &dns.NS{Hdr: z.header(name, dns.TypeNS), Ns: server}}
	z.node("svc." + name)
	for i := range services {
		z.add(&services[i])
	}
	for _, n := range z.nodes {
		slices.SortFunc(n.addresses, netip.Addr.Compare)
		n.addresses = slices.Clip(slices.Compact(n.addresses)) // a name stands for a set (RFC 2181, section 5)
		z.count.Records += len(n.own) + min(len(n.family(true)), maxRecords) + min(len(n.family(false)), maxRecords) + min(n.located, maxRecords)
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
		itself := []string{name}
		for _, p := range s.Ports {
			z.port(name, itself, p)
		}
		return
	}
	at := hosts{all: map[string]*group{}}
	for i := range s.Endpoints {
		z.endpoint(name, &s.Endpoints[i], &at)
	}
	if len(at.all) > 0 {
		z.count.Services++
	}
	for _, key := range slices.Sorted(maps.Keys(at.all)) {
		g := at.all[key]
		slices.Sort(g.hosts)
		g.hosts = slices.Compact(g.hosts)
		for _, p := range g.ports {
			z.port(name, g.hosts, p)
		}
	}
}

// group are hosts that have the same ports.
type group struct {
	ports []Port
	hosts []string
}

// hosts are those of the endpoints of a Service, by what their ports are.
type hosts struct {
	all  map[string]*group
	last *group
}

// add adds a host. Those of one EndpointSlice share their list of ports, which is read once then.
func (h *hosts) add(ports []Port, host string) {
	if h.last == nil || len(ports) != len(h.last.ports) || len(ports) > 0 && &ports[0] != &h.last.ports[0] {
		var key []byte
		for _, p := range ports {
			key = strconv.AppendUint(strconv.AppendQuote(strconv.AppendQuote(key, p.Name), p.Protocol), uint64(p.Number), 10)
		}
		g := h.all[string(key)]
		if g == nil {
			g = &group{ports: ports}
			h.all[string(key)] = g
		}
		h.last = g
	}
	h.last.hosts = append(h.last.hosts, host)
}

// endpoint puts an endpoint of a headless Service into the zone, and adds its host to those with the same ports.
func (z *Zone) endpoint(service string, e *Endpoint, at *hosts) {
	hostname := e.Hostname
	if hostname == "" && len(e.Addresses) > 0 {
		hostname = dashed(e.Addresses[0])
	}
	if !isLabel(hostname) || !isLabel(e.Cluster) || len(e.Addresses) == 0 {
		z.count.Refused++
		return
	}
	name := hostname + "." + e.Cluster + "." + service
	if z.nodes[name] == nil { // an endpoint may be told of twice, as those of a Service with an alias are
		z.count.Endpoints++
	}
	z.addresses(service, e.Addresses)
	z.addresses(name, e.Addresses)
	at.add(e.Ports, name)
}

// addresses gives a name addresses.
func (z *Zone) addresses(name string, addresses []netip.Addr) {
	n := z.node(name)
	for _, a := range addresses {
		n.addresses = append(n.addresses, a.Unmap())
	}
}

// port gives a Service a port at hosts: under the name of the port, if it has one, and under that of the Service, where
// CoreDNS has all ports of a Service of its cluster.
func (z *Zone) port(service string, hosts []string, p Port) {
	protocol := strings.ToLower(p.Protocol)
	if p.Name != "" && !isLabel(p.Name) || protocol != "tcp" && protocol != "udp" && protocol != "sctp" {
		z.count.Refused++
		return
	}
	z.node(service).locate(p.Number, hosts)
	if p.Name != "" {
		z.node("_"+p.Name+"._"+protocol+"."+service).locate(p.Number, hosts)
	}
}

// locate gives a name a port at hosts, unless it has as many as are told of. It may have this one already, of another protocol.
func (n *node) locate(port uint16, hosts []string) {
	for _, l := range slices.Backward(n.locations) { // those of the same hosts were added one after the other
		if len(l.hosts) != len(hosts) || &l.hosts[0] != &hosts[0] {
			break
		}
		if l.port == port {
			return
		}
	}
	if n.located < maxRecords {
		n.locations, n.located = append(n.locations, location{port, hosts}), n.located+len(hosts)
	}
}

// node is what a name has. It and all names above it exist from now on.
func (z *Zone) node(name string) *node {
	n, ok := z.nodes[name]
	if ok {
		return n
	}
	n = new(node)
	z.nodes[name] = n
	if name != z.name {
		_, above, _ := strings.Cut(name, ".")
		z.node(above)
	}
	return n
}

// family are the addresses of one family: IPv4 addresses are the first.
func (n *node) family(is4 bool) []netip.Addr {
	i, _ := slices.BinarySearchFunc(n.addresses, true, func(a netip.Addr, _ bool) int {
		if a.Is4() {
			return -1
		}
		return 1
	})
	if is4 {
		return n.addresses[:i]
	}
	return n.addresses[i:]
}

// records makes the records of one type that a name has, at most so many, beginning with any: clients that take the first share
// the load by that. They are for asked, which is the name as somebody writes it.
func (z *Zone) records(n *node, kind uint16, asked string, most, begin int) (out []dns.RR) {
	header := z.header(asked, kind)
	switch kind {
	case dns.TypeA, dns.TypeAAAA:
		all := n.family(kind == dns.TypeA)
		for i := range min(len(all), most) {
			a := all[(begin%len(all)+i)%len(all)]
			if a.Is4() {
				out = append(out, &dns.A{Hdr: header, A: a.AsSlice()})
			} else {
				out = append(out, &dns.AAAA{Hdr: header, AAAA: a.AsSlice()})
			}
		}
	case dns.TypeSRV:
		type server struct {
			port uint16
			host string
		}
		seen := map[server]bool{} // an endpoint may be told of twice, with other ports
		l, h := n.location(begin)
		for range n.located {
			at := server{n.locations[l].port, n.locations[l].hosts[h]}
			if !seen[at] {
				seen[at] = true
				out = append(out, &dns.SRV{Hdr: header, Priority: srvPriority, Weight: srvWeight, Port: at.port, Target: at.host})
			}
			if len(out) == most {
				break
			}
			if h++; h == len(n.locations[l].hosts) {
				l, h = (l+1)%len(n.locations), 0
			}
		}
	default:
		for _, r := range n.own {
			if r.Header().Rrtype == kind {
				r = dns.Copy(r)
				r.Header().Name = asked
				out = append(out, r)
			}
		}
	}
	return out
}

// location finds a host among those of all locations: counted from 0, and once more from the beginning after the last.
func (n *node) location(i int) (location, host int) {
	if n.located == 0 {
		return 0, 0
	}
	for i %= n.located; i >= len(n.locations[location].hosts); location++ {
		i -= len(n.locations[location].hosts)
	}
	return location, i
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
