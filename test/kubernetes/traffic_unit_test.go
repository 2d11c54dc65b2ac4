package kubernetes

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/lab"
)

// here is the test process as a place.
type here struct{}

func (here) Do(fn func() error) error { return fn() }

func loopback(name string) path {
	return path{name: name, from: here{}, to: here{}, at: netip.MustParseAddr("127.0.0.1")}
}

// TestTraffic runs traffic over loopback, breaks one of two connections, and ends.
func TestTraffic(t *testing.T) {
	before := runtime.NumGoroutine()
	x := startTraffic(t, loopback("one"), loopback("two"))
	start := time.Now()
	if o := x.since(start); len(o.lost) != 0 || len(o.tcp) != 2 || len(o.udp) != 2 {
		t.Errorf("nothing happened, and what is seen is: %v", o)
	}

	x.streams[1].ends[1].Close()
	lab.Eventually(t, setUp, "the loss of a connection", func() error {
		_, err := x.streams[1].lost()
		if err == nil {
			return errors.New("it lives")
		}
		return nil
	})
	x.back(t, setUp) // the others go on
	o := x.since(start)
	if len(o.lost) != 1 || len(o.tcp) != 1 || o.streams != 2 || !strings.Contains(o.String(), "two: ") {
		t.Errorf("one of two connections is broken, and what is seen is: %v", o)
	}
	if o := x.since(time.Now()); len(o.lost) != 0 || o.outage != 0 {
		t.Errorf("what broke before is seen again: %v", o)
	}

	x.pings[0].ends[1].Close() // the server; the others do not mind
	silent := time.Now()
	lab.Eventually(t, setUp, "silence of the pings", func() error {
		o := x.since(silent)
		if o.outage < 4*pingPause || o.outage != time.Duration(o.missing)*pingPause || x.pings[0].longest(silent) < o.outage {
			return fmt.Errorf("what is seen is: %v", o)
		}
		return nil
	})
	if err := x.silent(time.Now()); err == nil {
		t.Error("pings that nobody answers are not silent")
	}
	x.end()
	lab.Eventually(t, setUp, "the end of all goroutines", func() error {
		if now := runtime.NumGoroutine(); now > before {
			return fmt.Errorf("%d goroutines, before %d", now, before)
		}
		return nil
	})
}

func TestSilences(t *testing.T) {
	start := time.Now().Add(-time.Minute)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	a := &arrivals{last: start}
	for _, ms := range []int{5, 10, 110, 115, 400, 405} {
		a.note(at(ms))
	}
	a.last = time.Now().Add(time.Hour) // whatever the machine does, no silence goes on
	for _, tt := range []struct {
		name  string
		since int
		want  time.Duration
	}{
		{"all", 0, 285 * time.Millisecond},
		{"one that goes on counts from its start", 399, 285 * time.Millisecond},
		{"those that are over do not count", 400, 0},
	} {
		if got := a.longest(at(tt.since)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	want := []silence{{at(10), at(110)}, {at(115), at(400)}}
	if diff := cmp.Diff(want, a.all(start), cmp.AllowUnexported(silence{})); diff != "" {
		t.Errorf("silences (-want +got):\n%s", diff)
	}
	a.last = time.Now().Add(-time.Second)
	if got := a.longest(time.Now()); got < time.Second {
		t.Errorf("a silence of a second that goes on is %v", got)
	}
}

func TestSeries(t *testing.T) {
	var hundred series
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	for _, tt := range []struct {
		name            string
		s               series
		p50, p99, worst time.Duration
	}{
		{"none", nil, 0, 0, 0},
		{"one", series{7}, 7, 7, 7},
		{"two", series{9, 7}, 7, 9, 9},
		{"a hundred", hundred, 50, 99, 100},
	} {
		if p50, p99, worst := tt.s.p50(), tt.s.p99(), tt.s.worst(); p50 != tt.p50 || p99 != tt.p99 || worst != tt.worst {
			t.Errorf("%s: p50 %d p99 %d worst %d, want %d %d %d", tt.name, p50, p99, worst, tt.p50, tt.p99, tt.worst)
		}
	}
}

// TestFaultReport: one fault that happened twice to one pair of pods and once to another.
func TestFaultReport(t *testing.T) {
	now := time.Now()
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	var r faultReport
	r.add("power cut", outcome{streams: 1, udp: series{ms(1103), 0}, tcp: series{ms(1800)}, silences: [][]silence{{{at(-3), at(1100)}, {at(2000), at(2040)}}, nil}, sent: 10, missing: 4}, now)
	r.add("power cut", outcome{streams: 1, udp: series{ms(900)}, silences: [][]silence{{{at(10), at(910)}}}, lost: []error{errors.New("reset")}, sent: 10, missing: 5}, now)
	if diff := cmp.Diff(`| fault | times | silence p50 | p99 | worst | of TCP, worst | pings lost | TCP connections lost |
|---|---|---|---|---|---|---|---|
| power cut | 2 | 900ms | 1.103s | 1.103s | 1.8s | 9 of 20 | 1 of 2 |
`, r.markdown()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	want := "4100 | -3:1100 2000:2040; none"
	if got := observation([][]silence{{{at(-3), at(1100)}, {at(2000), at(2040)}}, nil}, now, at(4100)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if lines := strings.Split(r.timeLines(), "\n"); len(lines) != 5 || !strings.HasSuffix(lines[2], "| -3:1100 2000:2040; none |") || !strings.HasSuffix(lines[3], "| 10:910 |") {
		t.Errorf("%q", lines)
	}
}
