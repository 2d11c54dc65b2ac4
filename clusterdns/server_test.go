package clusterdns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a Server on loopback.
func start(t *testing.T, z *Zone) (s *Server, address string) {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = tcp.Addr().String()
	udp, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	s = new(Server)
	if z != nil {
		s.Set(z)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, udp, tcp) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, address
}

// resolver is Go's own, which shares no code with the server.
func resolver(address, network string) *net.Resolver {
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
}

// TestResolver asks by a resolver that others wrote.
func TestResolver(t *testing.T) {
	s, address := start(t, Build(DefaultZone, 5, 1, shop()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, network := range []string{"udp", "tcp"} {
		r := resolver(address, network)
		ips, err := r.LookupHost(ctx, "web.shop.svc.clusterset.local.")
		slices.Sort(ips)
		if got := fmt.Sprint(ips, err); got != "[10.96.0.7 fd00::7] <nil>" {
			t.Errorf("%s: web is %s", network, got)
		}
		_, srv, err := r.LookupSRV(ctx, "pg", "tcp", "db.shop.svc.clusterset.local.")
		var targets []string
		for _, r := range srv {
			targets = append(targets, fmt.Sprintf("%s%d", r.Target, r.Port))
		}
		slices.Sort(targets)
		want := "[10-80-0-9.milan.db.shop.svc.clusterset.local.5432 db-0.milan.db.shop.svc.clusterset.local.5432 db-0.rome.db.shop.svc.clusterset.local.5433] <nil>"
		if got := fmt.Sprint(targets, err); got != want {
			t.Errorf("%s: db's ports are %s", network, got)
		}
		_, err = r.LookupHost(ctx, "nobody.shop.svc.clusterset.local.")
		if e := (&net.DNSError{}); !errors.As(err, &e) || !e.IsNotFound {
			t.Errorf("%s: nobody: %v", network, err)
		}
	}
	// What changes is seen at the next question.
	s.Set(Build(DefaultZone, 5, 2, []Service{{Namespace: "shop", Name: "web", Addresses: addrs("10.96.0.8")}}))
	if ips, err := resolver(address, "udp").LookupHost(ctx, "web.shop.svc.clusterset.local."); fmt.Sprint(ips, err) != "[10.96.0.8] <nil>" {
		t.Errorf("after the change: %v %v", ips, err)
	}
	if n := s.Answers()["NXDOMAIN"]; n < 2 {
		t.Errorf("%d answers NXDOMAIN: %v", n, s.Answers())
	}
}

// TestBeforeTheFirstZone: while nothing is known, nothing is denied.
func TestBeforeTheFirstZone(t *testing.T) {
	_, address := start(t, nil)
	asker := dns.Client{Timeout: time.Minute}
	m, _, err := asker.Exchange(new(dns.Msg).SetQuestion("web.shop.svc.clusterset.local.", dns.TypeA), address)
	if err != nil || m.Rcode != dns.RcodeServerFailure {
		t.Errorf("%v %v, want SERVFAIL", m, err)
	}
}

// TestTruncated: what does not fit into a datagram comes over TCP.
func TestTruncated(t *testing.T) {
	s := Service{Namespace: "shop", Name: "db", Headless: true}
	for i := range 300 {
		s.Endpoints = append(s.Endpoints, Endpoint{Cluster: "milan", Addresses: addrs(fmt.Sprintf("10.80.%d.%d", i/250, i%250))})
	}
	_, address := start(t, Build(DefaultZone, 5, 1, []Service{s}))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	if ips, err := r.LookupHost(ctx, "db.shop.svc.clusterset.local."); len(ips) != 300 || err != nil {
		t.Errorf("%d addresses, want 300: %v", len(ips), err)
	}
}

// TestStrangers: garbage, answers and half of a message neither get an answer nor end the server.
func TestStrangers(t *testing.T) {
	_, address := start(t, Build(DefaultZone, 5, 1, shop()))
	question := new(dns.Msg).SetQuestion("web.shop.svc.clusterset.local.", dns.TypeA)
	works := func(network string) {
		t.Helper()
		c := &dns.Client{Net: network, Timeout: 30 * time.Second}
		if m, _, err := c.Exchange(question, address); err != nil || len(m.Answer) != 1 {
			t.Fatalf("%s: %v %v", network, m, err)
		}
	}
	udp, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	answer := question.Copy()
	answer.Response = true
	packed, err := answer.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{{}, {1}, packed, []byte(strings.Repeat("\xff", 1400)), make([]byte, 12)} {
		if _, err := udp.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	works("udp")
	// Nothing was sent back for them, or a short refusal: never more than came.
	udp.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	for buffer := make([]byte, 2000); ; {
		n, err := udp.Read(buffer)
		if err != nil {
			break
		}
		if n > 12 {
			t.Errorf("%d bytes were sent back for garbage: %x", n, buffer[:n])
		}
	}
	// Connections that say little: the others are served.
	for range 50 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write([]byte{0xff, 0xff, 1, 2})
	}
	works("tcp")
	// Several questions over one connection, the second in two parts.
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b, _ := question.Pack()
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
	c.Write(framed)
	c.Write(framed[:7])
	c.Write(framed[7:])
	for range 2 {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			t.Fatal(err)
		}
		m, body := new(dns.Msg), make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, body); err != nil || m.Unpack(body) != nil || len(m.Answer) != 1 {
			t.Fatalf("%v %v", m, err)
		}
	}
}
