package tunnel

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestFollowerDecidesWhenToLookUp(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	config := Config{PeerKey: PublicKey(testKey(2)), Endpoint: "gw.example:1"}
	at := func(d time.Duration) time.Time { return start.Add(d) }
	session := func(d time.Duration, rx uint64) peerStats { return peerStats{LastHandshake: at(d), RxBytes: rx} }

	var f follower
	f.configure(config, start)
	check := func(what string, now, want time.Duration) {
		t.Helper()
		if got := f.next(at(now)); got != want {
			t.Errorf("%s: next lookup in %v, want %v", what, got, want)
		}
	}
	check("just configured", 0, 0)
	f.lookedUp = at(0)
	check("after a failed lookup", time.Second, 4*time.Second)
	f.lookedUp = at(11 * time.Minute)
	check("failing for long", 11*time.Minute, lookupSlow)
	f.observe(session(11*time.Minute, 1), 0, at(11*time.Minute))
	check("failing for long, the peer contacted us", 11*time.Minute, lookupSlow)
	f.owed = false
	check("session", 11*time.Minute, lookupFast)
	if !f.alive() {
		t.Error("session does not count as alive")
	}

	f.observe(session(11*time.Minute, 1), 5, at(12*time.Minute))
	f.observe(session(11*time.Minute, 1), 6, at(12*time.Minute+silence-1))
	if !f.alive() {
		t.Error("ended before the silence was long enough")
	}
	f.observe(session(11*time.Minute, 2), 7, at(12*time.Minute+silence))
	f.observe(session(11*time.Minute, 2), 7, at(13*time.Minute))
	if !f.alive() {
		t.Error("an answer, and then nothing sent, ended it")
	}
	f.observe(session(11*time.Minute, 2), 8, at(13*time.Minute))
	f.observe(session(11*time.Minute, 2), 9, at(13*time.Minute+silence))
	if f.alive() {
		t.Error("packets without an answer did not end it")
	}
	check("ended by silence", 13*time.Minute+silence, 0)
	f.lookedUp = at(13*time.Minute + silence)
	check("ended, looked up", 13*time.Minute+silence+time.Second, 4*time.Second)
	f.lookedUp = at(24 * time.Minute)
	check("ended for long", 24*time.Minute, lookupSlow)
	f.observe(session(24*time.Minute, 3), 9, at(24*time.Minute))
	f.observe(session(24*time.Minute, 3), 9, at(27*time.Minute))
	if f.alive() {
		t.Error("a session of 180 s did not end")
	}

	f.configure(config, at(time.Hour))
	if f.applied != start {
		t.Error("the same configuration started it anew")
	}
	config.Endpoint = "192.0.2.1:1"
	f.configure(config, at(time.Hour))
	if f.owed || f.lookedUp.IsZero() {
		t.Error("an address is looked up although Apply has set it")
	}
	f.configure(Config{}, at(time.Hour))
	if !f.idle() {
		t.Error("nothing to follow, but not idle")
	}
}

func TestFollowerChooses(t *testing.T) {
	now := time.Unix(1000, 0)
	one, two, three := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:1"), netip.MustParseAddrPort("192.0.2.3:1")
	for _, tt := range []struct {
		name    string
		current netip.AddrPort
		found   []netip.AddrPort
		tried   time.Duration
		want    netip.AddrPort
	}{
		{"none yet", netip.AddrPort{}, []netip.AddrPort{one, two}, time.Hour, one},
		{"the name moved", three, []netip.AddrPort{one, two}, 0, one},
		{"still trying", one, []netip.AddrPort{one, two}, tryFor - 1, one},
		{"the next one", one, []netip.AddrPort{one, two}, tryFor, two},
		{"the first again", two, []netip.AddrPort{one, two}, tryFor, one},
		{"only one", one, []netip.AddrPort{one}, time.Hour, one},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := follower{moved: now.Add(-tt.tried)}
			if got := f.choose(tt.current, tt.found, now); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestLookupProblemIsSteady(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, "it has no usable address"},
		{&net.DNSError{Err: "no such host", Name: "gw.example", Server: "192.0.2.53:53", IsNotFound: true}, "no such host"},
		{&net.DNSError{Err: "read udp 192.0.2.1:40001->192.0.2.53:53: i/o timeout", IsTimeout: true}, "the name server does not answer"},
		{&net.DNSError{Err: "read udp 192.0.2.1:40001->192.0.2.53:53: read: connection refused"}, "the name server gave no usable answer"},
		{errTest, errTest.Error()},
	} {
		if got := lookupProblem(tt.err); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.err, got, tt.want)
		}
	}
}

func TestLookupKeepsUsableAddresses(t *testing.T) {
	tun, err := New(Options{
		Overlay: newMemOverlay(), Listen: newMemNet().listen("192.0.2.1"),
		Resolve: func(_ context.Context, _ string) ([]netip.Addr, error) {
			return []netip.Addr{
				{}, netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("224.0.0.1"),
				netip.MustParseAddr("::ffff:192.0.2.1"), netip.MustParseAddr("2001:db8::1"),
			}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	found, err := tun.lookup(t.Context(), "gw.example:7")
	if err != nil || len(found) != 2 || found[0] != netip.MustParseAddrPort("192.0.2.1:7") || found[1] != netip.MustParseAddrPort("[2001:db8::1]:7") {
		t.Errorf("%v, %v", found, err)
	}
	found, err = tun.lookup(t.Context(), "192.0.2.9:7")
	if err != nil || len(found) != 1 || found[0] != netip.MustParseAddrPort("192.0.2.9:7") {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := tun.lookup(t.Context(), "x"); err == nil {
		t.Error("no error for an endpoint without port")
	}
}
