package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/dataplane"
)

func TestProbeFlags(t *testing.T) {
	o, err := parseProbeFlags([]string{"--size=100,1340", "--size", "9000", "-c3", "--limit=1500", "--timeout=200ms", "-ojson", "--admin-socket=s"}, nil)
	want := probeOptions{adminSocket: "s", json: true, probe: probeRequest{Sizes: []int{100, 1340, 9000}, Count: 3, Limit: 1500, Timeout: 200 * time.Millisecond}}
	if diff := cmp.Diff(want, o, cmp.AllowUnexported(probeOptions{})); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, tt := range []struct{ args, want string }{
		{"--size=27", "--size: 27 is not between 28 and 65455"},
		{"--size=65456", "--size: 65456 is not between"},
		{"--size=x", "--size: "},
		{"--size=" + strings.Repeat("100,", 16) + "100", "--size: 17 sizes are too many"},
		{"--count=0", "--count: 0 is not between 1 and 1000"},
		{"--count=1001", "--count: 1001"},
		{"--limit=10", "--limit: 10 is not between"},
		{"--timeout=0s", "--timeout: 0s is not between"},
		{"--timeout=1h", "--timeout: 1h0m0s"},
		{"-o=yaml", `-o: "yaml" is neither text nor json`},
		{"extra", `unexpected argument "extra"`},
	} {
		_, err := parseProbeFlags([]string{tt.args}, nil)
		if !errors.As(err, new(daemon.UsageError)) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.args, err, tt.want)
		}
	}
	var out bytes.Buffer
	if _, err := parseProbeFlags([]string{"--help"}, &out); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("%v", err)
	}
	daemontest.Golden(t, "help-probe.txt", out.String())
}

func TestProbeRequestOverTheSocket(t *testing.T) {
	want := probeRequest{Sizes: []int{100, 1340}, Count: 5, Limit: 1500, Timeout: 1500 * time.Millisecond}
	got, err := parseProbeRequest(want.query())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []url.Values{{}, {"count": {"1"}, "limit": {"0"}, "timeout": {"x"}}, {"count": {"1"}, "limit": {"0"}, "timeout": {"1s"}, "size": {"1"}}} {
		if r, err := parseProbeRequest(bad); err == nil {
			t.Errorf("%v is taken as %+v", bad, r)
		}
	}
}

func TestLargest(t *testing.T) {
	for _, tt := range []struct {
		name            string
		path            int // what passes
		expected, limit int
		want, mostTries int
	}{
		{"as expected, and all above", 9000, 1340, 1440, 1440, 2},
		{"as expected, and no more", 1340, 1340, 1440, 1340, 10},
		{"a bit above", 1397, 1340, 1440, 1397, 10},
		{"below", 1200, 1340, 1440, 1200, 14},
		{"little below", 1339, 1340, 1340, 1339, 14},
		{"the least", 28, 1340, 1440, 28, 14},
		{"nothing", 0, 1340, 1440, 0, 2},
		{"the limit is below what is expected", 9000, 500, 500, 500, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tries := 0
			got := largest(tt.expected, tt.limit, func(size int) bool {
				tries++
				if size > tt.limit || size < minProbe {
					t.Errorf("tries %d", size)
				}
				return size <= tt.path
			})
			if got != tt.want || tries > tt.mostTries {
				t.Errorf("%d after %d tries, want %d after %d", got, tries, tt.want, tt.mostTries)
			}
		})
	}
}

// line is a path with a round-trip time, a size that it takes, and every nth
// packet lost.
type line struct {
	rtt   time.Duration
	takes int
	lose  int
	pings chan int
}

func (l *line) ping(ctx context.Context, size int) (time.Duration, error) {
	n := <-l.pings
	l.pings <- n + 1
	if size > l.takes || l.lose > 0 && n%l.lose == 0 {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(l.rtt):
		return l.rtt, nil
	}
}

func TestProber(t *testing.T) {
	request := probeRequest{Count: 5, Timeout: time.Second}
	const rtt = 12 * time.Millisecond
	all := func(size int) pingReport {
		return pingReport{Size: size, Sent: 5, Received: 5, Min: rtt, Avg: rtt, Max: rtt}
	}
	for _, tt := range []struct {
		name    string
		line    line
		request probeRequest
		path    probePathMTU
		want    probeReport
		within  time.Duration
	}{
		{"a good path", line{takes: math.MaxInt}, request, probePathMTU{1500, 1440},
			probeReport{Largest: 1440, Limit: 1440, Pings: []pingReport{all(100), all(1340)}}, time.Second},
		{"nothing is known of it", line{takes: math.MaxInt}, request, probePathMTU{},
			probeReport{Largest: 1440, Limit: 1440, Pings: []pingReport{all(100), all(1340)}}, time.Second},
		{"jumbo frames", line{takes: 20000}, request, probePathMTU{65535, 65455},
			probeReport{Largest: 8940, Limit: 8940, Pings: []pingReport{all(100), all(1340)}}, time.Second},
		{"too small", line{takes: 1300}, request, probePathMTU{},
			probeReport{Largest: 1300, Limit: 1440, Pings: []pingReport{all(100), {Size: 1340, Sent: 5}}}, 5 * time.Second},
		{"every fourth is lost", line{takes: 1400, lose: 4}, probeRequest{Count: 8, Timeout: time.Second, Sizes: []int{500}}, probePathMTU{},
			probeReport{Largest: 1400, Limit: 1440, Pings: []pingReport{{Size: 500, Sent: 8, Received: 6, Min: rtt, Avg: rtt, Max: rtt}}}, 5 * time.Second},
		{"nobody answers", line{}, request, probePathMTU{},
			probeReport{Limit: 1440, Pings: []pingReport{{Size: 100, Sent: 5}, {Size: 1340, Sent: 5}}}, 1500 * time.Millisecond},
		{"a limit", line{takes: math.MaxInt}, probeRequest{Count: 1, Timeout: time.Second, Sizes: []int{200}, Limit: 600}, probePathMTU{},
			probeReport{Largest: 600, Limit: 600, Pings: []pingReport{{Size: 200, Sent: 1, Received: 1, Min: rtt, Avg: rtt, Max: rtt}}}, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.line.rtt, tt.line.pings = rtt, make(chan int, 1)
				tt.line.pings <- 1
				got := probeReport{MTU: 1340, Path: tt.path}
				start := time.Now()
				prober{tt.line.ping, tt.request}.run(t.Context(), &got)
				tt.want.MTU, tt.want.Path = 1340, tt.path
				if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if took := time.Since(start); took > tt.within {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// What the gateway itself has found to be too large for the path, no packet has.
func TestProbeOfDiscoveredPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mtu, carries = 8900, 1440
		l := line{takes: carries, rtt: time.Millisecond, pings: make(chan int, 1)}
		l.pings <- 1
		r := newProbeReport(time.Now(), netip.MustParseAddr("169.254.18.2"), dataplane.Status{MTU: mtu, PathMTU: carries})
		r.Path = probePathMTU{MTU: 9000, Inner: 8940}
		prober{l.ping, probeRequest{Count: 1, Timeout: time.Second}}.run(t.Context(), &r)
		if r.MTU != carries || r.Largest != carries || r.Limit != 8940 {
			t.Errorf("the report says %+v", r)
		}
		if text := largestText(r); strings.Contains(text, "WARNING") {
			t.Errorf("a warning of packets that do not leave: %s", text)
		}
	})
}

func TestWriteProbe(t *testing.T) {
	base := probeReport{
		Time: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Peer: netip.MustParseAddr("169.254.18.2"),
		Endpoint: netip.MustParseAddrPort("192.0.2.7:51840"), MTU: 1340, Limit: 1440,
	}
	ms := func(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }
	good := []pingReport{{100, 5, 5, ms(0.25), ms(0.312), ms(0.4)}, {1340, 5, 4, ms(12.3), ms(14.25), ms(30)}}
	for name, change := range map[string]func(*probeReport){
		"probe-good.txt":    func(r *probeReport) { r.Pings, r.Largest, r.Path = good, 1397, probePathMTU{1500, 1440} },
		"probe-limit.txt":   func(r *probeReport) { r.Pings, r.Largest = good, 1440 },
		"probe-small.txt":   func(r *probeReport) { r.Pings, r.Largest, r.Path = good, 1240, probePathMTU{1300, 1240} },
		"probe-nothing.txt": func(r *probeReport) { r.Pings, r.Endpoint = []pingReport{{Size: 100, Sent: 5}}, netip.AddrPort{} },
	} {
		t.Run(name, func(t *testing.T) {
			r := base
			change(&r)
			var out bytes.Buffer
			if err := writeProbe(&out, r); err != nil {
				t.Fatal(err)
			}
			daemontest.Golden(t, name, out.String())
			if got := r.err() != nil; got != (name == "probe-nothing.txt") {
				t.Errorf("error: %v", r.err())
			}
		})
	}
}

func TestPathMTU(t *testing.T) {
	for _, a := range []string{"127.0.0.1:9", "[::ffff:127.0.0.1]:9"} {
		if got := pathOf(netip.MustParseAddrPort(a)); got.MTU < 1280 || got.Inner < 1220 {
			t.Errorf("loopback takes %+v of %s", got, a)
		}
	}
	if got := pathOf(netip.AddrPort{}); got != (probePathMTU{}) {
		t.Errorf("no endpoint: %+v", got)
	}
}

// checkProbe asks a gateway that is connected to one on the same host.
func checkProbe(t *testing.T, p *pod) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"probe", "--admin-socket", p.socket, "-o=json", "--limit=9000", "-c2"}, &out, &errs); code != 0 {
		t.Fatalf("probe: %s", &errs)
	}
	var r probeReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Largest != 9000 || r.Limit != 9000 || len(r.Pings) != 2 || r.Pings[1].Size != r.MTU || r.Pings[1].Received != 2 || r.Path.MTU == 0 {
		t.Errorf("probe of %s: %+v", p.s.mode, r)
	}
	errs.Reset()
	if code := run(t.Context(), []string{"probe", "--admin-socket", p.socket, "--size=1"}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "--size: 1 is not between") {
		t.Errorf("probe with a size of 1: %d %s", code, &errs)
	}
}

// What is asked over the socket is refused, or within bounds and the same when
// asked again.
func FuzzParseProbeRequest(f *testing.F) {
	f.Add("count=5&limit=0&timeout=1s")
	f.Add("count=1&limit=1500&timeout=200ms&size=100&size=1340")
	f.Add("count=-1&limit=x&timeout=&size=99999999999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		q, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		r, err := parseProbeRequest(q)
		if err != nil {
			return
		}
		if err := r.validate(); err != nil {
			t.Fatalf("%q is taken, but %v", text, err)
		}
		again, err := parseProbeRequest(r.query())
		if diff := cmp.Diff(r, again); err != nil || diff != "" {
			t.Fatalf("%q: %v (-want +got):\n%s", text, err, diff)
		}
	})
}
