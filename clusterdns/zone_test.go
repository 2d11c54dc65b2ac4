package clusterdns

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/sluice-net/sluice/test/mutate"
)

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// shop is a cluster set with one Service of each kind.
func shop() []Service {
	return []Service{
		{Namespace: "shop", Name: "web", Addresses: addrs("10.96.0.7", "fd00::7"), Ports: []Port{{"http", "TCP", 80}, {"http3", "UDP", 443}, {"", "TCP", 9}}},
		{Namespace: "shop", Name: "db", Headless: true, Endpoints: []Endpoint{
			{Cluster: "milan", Hostname: "db-0", Addresses: addrs("10.80.0.1"), Ports: []Port{{"pg", "TCP", 5432}}},
			{Cluster: "rome", Hostname: "db-0", Addresses: addrs("10.81.0.1", "fd00:1::1"), Ports: []Port{{"pg", "TCP", 5433}}},
			{Cluster: "milan", Addresses: addrs("10.80.0.9"), Ports: []Port{{"pg", "TCP", 5432}}},
		}},
		{Namespace: "shop", Name: "gone", Headless: true},
	}
}

// ask puts a question and shows the answer: the code, each section's records without spaces and TTL, and flags.
func ask(z *Zone, name, kind string) string {
	q := new(dns.Msg)
	q.SetQuestion(name, dns.StringToType[kind])
	m := z.Answer(q, false)
	var lines []string
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		var records []string
		for _, r := range section {
			fields := strings.Fields(r.String())
			records = append(records, strings.Join(slices.Delete(fields, 1, 3), " "))
		}
		slices.Sort(records)
		lines = append(lines, strings.Join(records, ", "))
	}
	return strings.TrimRight(dns.RcodeToString[m.Rcode]+" | "+strings.Join(lines, " | "), " |")
}

func TestAnswers(t *testing.T) {
	services := shop()
	services[1].Endpoints = append(services[1].Endpoints, services[1].Endpoints...) // as with an alias
	z := Build("ClusterSet.local", 5, 42, services)
	const soa = "clusterset.local. SOA ns.dns.clusterset.local. hostmaster.clusterset.local. 42 7200 1800 86400 5"
	for _, tt := range []struct{ name, kind, want string }{
		{"web.shop.svc.clusterset.local.", "A", "NOERROR | web.shop.svc.clusterset.local. A 10.96.0.7"},
		{"web.shop.svc.clusterset.local.", "AAAA", "NOERROR | web.shop.svc.clusterset.local. AAAA fd00::7"},
		{"WEB.shop.svc.ClusterSet.local.", "A", "NOERROR | WEB.shop.svc.ClusterSet.local. A 10.96.0.7"},
		{"web.shop.svc.clusterset.local.", "MX", "NOERROR |  | " + soa},
		{"web.shop.svc.clusterset.local.", "ANY", `NOERROR | web.shop.svc.clusterset.local. HINFO "RFC8482" ""`},
		{"_http._tcp.web.shop.svc.clusterset.local.", "SRV", "NOERROR | _http._tcp.web.shop.svc.clusterset.local. SRV 0 100 80 web.shop.svc.clusterset.local. |  | " +
			"web.shop.svc.clusterset.local. A 10.96.0.7, web.shop.svc.clusterset.local. AAAA fd00::7"},
		{"_http3._udp.web.shop.svc.clusterset.local.", "SRV", "NOERROR | _http3._udp.web.shop.svc.clusterset.local. SRV 0 100 443 web.shop.svc.clusterset.local. |  | " +
			"web.shop.svc.clusterset.local. A 10.96.0.7, web.shop.svc.clusterset.local. AAAA fd00::7"},
		{"web.shop.svc.clusterset.local.", "SRV", "NOERROR | web.shop.svc.clusterset.local. SRV 0 100 443 web.shop.svc.clusterset.local., " +
			"web.shop.svc.clusterset.local. SRV 0 100 80 web.shop.svc.clusterset.local., web.shop.svc.clusterset.local. SRV 0 100 9 web.shop.svc.clusterset.local. |  | " +
			"web.shop.svc.clusterset.local. A 10.96.0.7, web.shop.svc.clusterset.local. AAAA fd00::7"},
		{"_http._udp.web.shop.svc.clusterset.local.", "SRV", "NXDOMAIN |  | " + soa},
		{"db.shop.svc.clusterset.local.", "A", "NOERROR | db.shop.svc.clusterset.local. A 10.80.0.1, db.shop.svc.clusterset.local. A 10.80.0.9, db.shop.svc.clusterset.local. A 10.81.0.1"},
		{"db-0.milan.db.shop.svc.clusterset.local.", "A", "NOERROR | db-0.milan.db.shop.svc.clusterset.local. A 10.80.0.1"},
		{"db-0.rome.db.shop.svc.clusterset.local.", "AAAA", "NOERROR | db-0.rome.db.shop.svc.clusterset.local. AAAA fd00:1::1"},
		{"10-80-0-9.milan.db.shop.svc.clusterset.local.", "A", "NOERROR | 10-80-0-9.milan.db.shop.svc.clusterset.local. A 10.80.0.9"},
		{"_pg._tcp.db.shop.svc.clusterset.local.", "SRV", "NOERROR | _pg._tcp.db.shop.svc.clusterset.local. SRV 0 100 5432 10-80-0-9.milan.db.shop.svc.clusterset.local., " +
			"_pg._tcp.db.shop.svc.clusterset.local. SRV 0 100 5432 db-0.milan.db.shop.svc.clusterset.local., " +
			"_pg._tcp.db.shop.svc.clusterset.local. SRV 0 100 5433 db-0.rome.db.shop.svc.clusterset.local. |  | " +
			"10-80-0-9.milan.db.shop.svc.clusterset.local. A 10.80.0.9, db-0.milan.db.shop.svc.clusterset.local. A 10.80.0.1, " +
			"db-0.rome.db.shop.svc.clusterset.local. A 10.81.0.1, db-0.rome.db.shop.svc.clusterset.local. AAAA fd00:1::1"},
		{"milan.db.shop.svc.clusterset.local.", "A", "NOERROR |  | " + soa}, // others are below it
		{"gone.shop.svc.clusterset.local.", "A", "NXDOMAIN |  | " + soa},
		{"api.shop.svc.clusterset.local.", "A", "NXDOMAIN |  | " + soa},
		{"shop.svc.clusterset.local.", "A", "NOERROR |  | " + soa},
		{"svc.clusterset.local.", "A", "NOERROR |  | " + soa},
		{"clusterset.local.", "SOA", "NOERROR | " + soa},
		{"clusterset.local.", "NS", "NOERROR | clusterset.local. NS ns.dns.clusterset.local."},
		{"clusterset.local.", "AXFR", "REFUSED"},
		{"web.shop.svc.cluster.local.", "A", "REFUSED"},
		{"notclusterset.local.", "A", "REFUSED"},
		{".", "NS", "REFUSED"},
	} {
		if got := ask(z, tt.name, tt.kind); got != tt.want {
			t.Errorf("%s %s\n got %s\nwant %s", tt.name, tt.kind, got, tt.want)
		}
	}
	if got, want := fmt.Sprintf("%+v", z.Count()), "{Services:2 Endpoints:3 Records:23 Refused:0}"; got != want {
		t.Errorf("count %s, want %s", got, want)
	}
}

// TestSCTP: the protocol is in the name, as with the others.
func TestSCTP(t *testing.T) {
	z := Build("clusterset.local", 5, 42, []Service{{Namespace: "shop", Name: "signal", Addresses: addrs("fd00::7"), Ports: []Port{{"m3ua", "SCTP", 2905}}}})
	const name, host = "_m3ua._sctp.signal.shop.svc.clusterset.local.", "signal.shop.svc.clusterset.local."
	if got, want := ask(z, name, "SRV"), "NOERROR | "+name+" SRV 0 100 2905 "+host+" |  | "+host+" AAAA fd00::7"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// TestNamesThatAreNone: what would be another name, or none, is left out, and the rest is there.
func TestNamesThatAreNone(t *testing.T) {
	bad := []string{"", "a.b", "A", "-a", "a-", "*", "a b", `a\.b`, "ä", "_a", strings.Repeat("a", 64), "a\x00"}
	services := shop()
	for _, s := range bad {
		services = append(services,
			Service{Namespace: s, Name: "web", Addresses: addrs("192.0.2.1")},
			Service{Namespace: "shop", Name: s, Addresses: addrs("192.0.2.1")},
			Service{Namespace: "shop", Name: "db", Headless: true, Endpoints: []Endpoint{{Cluster: s, Hostname: "x", Addresses: addrs("192.0.2.1")}}},
		)
		if s != "" { // those stand for none
			services = append(services,
				Service{Namespace: "shop", Name: "db", Headless: true, Endpoints: []Endpoint{{Cluster: "milan", Hostname: s, Addresses: addrs("192.0.2.1")}}},
				Service{Namespace: "shop", Name: "web", Addresses: addrs("10.96.0.7"), Ports: []Port{{s, "TCP", 1}}},
			)
		}
	}
	for _, protocol := range []string{"", "T.P", "ICMP"} {
		services = append(services, Service{Namespace: "shop", Name: "web", Addresses: addrs("10.96.0.7"), Ports: []Port{{"x", protocol, 1}}})
	}
	z, plain := Build(DefaultZone, 5, 1, services), Build(DefaultZone, 5, 1, shop())
	if got, want := fmt.Sprint(names(z)), fmt.Sprint(names(plain)); got != want {
		t.Errorf("names %s\nwant %s", got, want)
	}
	if got, want := z.Count().Refused, 5*len(bad)-2+3; got != want {
		t.Errorf("%d refused, want %d", got, want)
	}
}

func names(z *Zone) (out []string) {
	for name := range z.nodes {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// TestOrder: the order in which Services and endpoints are told changes nothing, and a name stands for a set.
func TestOrder(t *testing.T) {
	services := append(shop(), shop()...)
	want := dump(Build(DefaultZone, 5, 1, shop()))
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		random.Shuffle(len(services), func(i, j int) { services[i], services[j] = services[j], services[i] })
		for i := range services {
			e := slices.Clone(services[i].Endpoints)
			random.Shuffle(len(e), func(i, j int) { e[i], e[j] = e[j], e[i] })
			services[i].Endpoints = e
		}
		if got := dump(Build(DefaultZone, 5, 1, services)); got != want {
			t.Fatalf("another order, another zone:\n%s\nwant\n%s", got, want)
		}
	}
}

func dump(z *Zone) string {
	var b strings.Builder
	for _, name := range names(z) {
		fmt.Fprintln(&b, name)
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeSOA, dns.TypeNS} {
			var lines []string
			for _, r := range z.records(z.nodes[name], kind, name, maxRecords, 0) {
				lines = append(lines, r.String())
			}
			slices.Sort(lines)
			fmt.Fprintln(&b, strings.Join(lines, "\n"))
		}
	}
	return b.String()
}

func TestDashed(t *testing.T) {
	for in, want := range map[string]string{"10.0.0.7": "10-0-0-7", "fd00::7": "fd00--7", "::7": "0--7", "fd00::": "fd00--0", "::ffff:10.0.0.7": "10-0-0-7"} {
		if got := dashed(netip.MustParseAddr(in)); got != want || !isLabel(got) {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
}

// TestTooMany: an answer with more endpoints than a message holds is cut off, and says so; over UDP long before that.
func TestTooMany(t *testing.T) {
	s := Service{Namespace: "shop", Name: "db", Headless: true}
	for i := range 5000 {
		s.Endpoints = append(s.Endpoints, Endpoint{
			Cluster: "milan", Hostname: fmt.Sprintf("%s-%d", strings.Repeat("x", 50), i),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 80, byte(i >> 8), byte(i)})}, Ports: []Port{{"pg", "TCP", 5432}},
		})
	}
	z := Build(DefaultZone, 5, 1, []Service{s})
	for _, tt := range []struct {
		name    string
		kind    uint16
		udp     bool
		edns    uint16
		most    int
		cut     bool
		atLeast int
	}{
		{"db.shop.svc.clusterset.local.", dns.TypeA, false, 0, dns.MaxMsgSize, false, maxRecords},
		{"_pg._tcp.db.shop.svc.clusterset.local.", dns.TypeSRV, false, 0, dns.MaxMsgSize, true, 100},
		{"db.shop.svc.clusterset.local.", dns.TypeA, true, 0, dns.MinMsgSize, true, 1},
		{"db.shop.svc.clusterset.local.", dns.TypeA, true, 100, dns.MinMsgSize, true, 1},
		{"db.shop.svc.clusterset.local.", dns.TypeA, true, 65535, udpSize, true, 40},
		{"_pg._tcp.db.shop.svc.clusterset.local.", dns.TypeSRV, true, 4096, udpSize, true, 1},
	} {
		q := new(dns.Msg)
		q.SetQuestion(tt.name, tt.kind)
		if tt.edns > 0 {
			q.SetEdns0(tt.edns, false)
		}
		m := z.Answer(q, tt.udp)
		b, err := m.Pack()
		if err != nil || len(b) > tt.most || m.Truncated != tt.cut || len(m.Answer) < tt.atLeast {
			t.Errorf("%+v: %d bytes, %d answers, truncated %v: %v", tt, len(b), len(m.Answer), m.Truncated, err)
		}
	}
}

// TestHostilePorts: a peer that tells of as many endpoints as it may have, with as many ports each, takes neither the memory nor
// the time that a record of each would.
func TestHostilePorts(t *testing.T) {
	const services, endpoints, ports = 2000, 10, 100 // 20000 endpoints
	var all []Service
	for i := range services {
		s := Service{Namespace: "shop", Name: fmt.Sprintf("db-%d", i), Headless: true}
		var of []Port
		for j := range ports {
			of = append(of, Port{fmt.Sprintf("p%d", j), "TCP", uint16(1 + j)})
		}
		for j := range endpoints {
			if i%10 == 0 { // each endpoint with ports of its own
				of = slices.Clone(of)
				of[0].Number = uint16(1000 + j)
			}
			s.Endpoints = append(s.Endpoints, Endpoint{
				Cluster: "milan", Hostname: fmt.Sprintf("db-%d", j), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(j), byte(i >> 8), byte(i)})}, Ports: of,
			})
		}
		all = append(all, s)
	}
	var z *Zone
	before := memory()
	began := time.Now()
	z = Build(DefaultZone, 5, 1, all)
	took, grown := time.Since(began), int64(memory())-int64(before)
	t.Logf("%d records of %d endpoints: %v, %d MiB", z.Count().Records, z.Count().Endpoints, took, grown>>20)
	if grown > 200<<20 {
		t.Errorf("it takes %d MiB", grown>>20)
	}
	if got := ask(z, "_p99._tcp.db-1999.shop.svc.clusterset.local.", "SRV"); strings.Count(got, " SRV 0 100 100 db-") != endpoints {
		t.Error(got)
	}
	runtime.KeepAlive(all)
}

// memory is what is in use.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestShare: all records of a name come first now and then.
func TestShare(t *testing.T) {
	z := Build(DefaultZone, 5, 1, shop())
	q := new(dns.Msg)
	q.SetQuestion("db.shop.svc.clusterset.local.", dns.TypeA)
	first := map[string]bool{}
	for range 1000 { // each of three is missed by all of them in one of 10^176 runs
		first[z.Answer(q, true).Answer[0].(*dns.A).A.String()] = true
	}
	if len(first) != 3 {
		t.Errorf("first were %v, want all three", first)
	}
}

func TestUnusualMessages(t *testing.T) {
	z := Build(DefaultZone, 5, 1, shop())
	question := func() *dns.Msg { return new(dns.Msg).SetQuestion("web.shop.svc.clusterset.local.", dns.TypeA) }
	// BADSIG and BADVERS have the same number.
	for name, tt := range map[string]struct {
		change func(*dns.Msg)
		want   string
	}{
		"an update":      {func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, "NOTIMP"},
		"a notification": {func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, "NOTIMP"},
		"no question":    {func(m *dns.Msg) { m.Question = nil }, "FORMERR"},
		"two questions":  {func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, "FORMERR"},
		"CHAOS":          {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, "REFUSED"},
		"EDNS 1":         {func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }, "BADSIG"},
		"IXFR":           {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeIXFR }, "REFUSED"},
	} {
		q := question()
		tt.change(q)
		m := z.Answer(q, true)
		if _, err := m.Pack(); err != nil || dns.RcodeToString[m.Rcode] != tt.want || len(m.Answer) > 0 || m.RecursionAvailable {
			t.Errorf("%s: %v %v, want %s and no answer", name, m, err, tt.want)
		}
	}
	q := question()
	q.Response = true
	if m := z.Answer(q, true); m != nil {
		t.Errorf("an answer is answered: %v", m)
	}
}

// FuzzAnswer: no message makes an answer that cannot be sent, or that is larger than its transport carries.
func FuzzAnswer(t *testing.F) {
	f := mutate.New(t)
	z := Build(DefaultZone, 5, 1, shop())
	for _, name := range []string{"web.shop.svc.clusterset.local.", "_pg._tcp.db.shop.svc.clusterset.local.", "x.", "."} {
		for _, kind := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypeANY, dns.TypeAXFR} {
			q := new(dns.Msg).SetQuestion(name, kind)
			q.Id = 1 // else a random one, and no run would repeat another
			q.SetEdns0(4096, true)
			b, err := q.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, true)
			f.Add(b[:12], false)
		}
	}
	f.Fuzz(func(t *testing.T, message []byte, overUDP bool) {
		q := new(dns.Msg)
		if q.Unpack(message) != nil {
			return
		}
		m := z.Answer(q, overUDP)
		if m == nil {
			if !q.Response {
				t.Fatal("a question gets no answer")
			}
			return
		}
		b, err := m.Pack()
		if err != nil {
			t.Fatalf("%v: %v", m, err)
		}
		if overUDP && len(b) > udpSize || m.Id != q.Id || !m.Response {
			t.Fatalf("%d bytes: %v", len(b), m)
		}
		// The library names the question of a reply, whatever it was; nothing of ours is in a refusal.
		if m.Rcode != dns.RcodeSuccess && len(m.Answer) > 0 {
			t.Fatal(m)
		}
	})
}
