package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/node/hostnet"
)

func countOf() countRequest {
	return countRequest{hostnet.Flow{Link: "liqo.milan", Pod: netip.MustParseAddr("10.243.1.5"), Peer: netip.MustParseAddr("10.71.2.20"), Port: 443}, time.Minute}
}

// FuzzCountRequest: what is accepted is within the bounds, and means the same when it
// is sent again.
func FuzzCountRequest(f *testing.F) {
	f.Add(countOf().query().Encode())
	f.Add("link=liqo.x&pod=fd00::1&peer=fd00::2&port=0&duration=1s")
	f.Add("link=liqo.x&pod=fe80::1%25eth0&peer=::ffff:10.0.0.1&port=65536&duration=-1s")
	f.Add("link=eth0&duration=1000h&pod=0.0.0.0&peer=224.0.0.1")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		r, err := parseCountRequest(q)
		if err != nil {
			return
		}
		if r.Duration <= 0 || r.Duration > maxCountDuration || r.Flow.Check() != nil {
			t.Errorf("%q is accepted: %+v", query, r)
		}
		again, err := parseCountRequest(r.query())
		if err != nil || again != r {
			t.Errorf("%+v becomes %+v, %v", r, again, err)
		}
	})
}

func TestServeCountRefuses(t *testing.T) {
	good := countOf()
	forever, elsewhere := good, good
	forever.Duration = maxCountDuration + 1
	elsewhere.Flow.Link = "eth0"
	busy := make(chan struct{}, maxCounts)
	for range maxCounts {
		busy <- struct{}{}
	}
	for _, tt := range []struct {
		request countRequest
		agent   agent
		code    int
		want    string
	}{
		{countRequest{}, agent{}, 400, "unable to parse IP"},
		{forever, agent{}, 400, "duration 10m0.000000001s is not between"},
		{elsewhere, agent{}, 400, `link "eth0" is not the name of a tunnel link`},
		{good, agent{counts: busy}, 409, "2 counts are under way already"},
		{good, agent{counts: make(chan struct{}, maxCounts), options: options{fullMasquerade: true}}, 409, "--full-masquerade"},
	} {
		w := httptest.NewRecorder()
		tt.agent.serveCount(w, httptest.NewRequest("GET", countPath+"?"+tt.request.query().Encode(), nil))
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%d %s, want %d %s", w.Code, w.Body, tt.code, tt.want)
		}
	}
}

// TestTellCounts: it ends with its time, its client and an error, and the last numbers
// come.
func TestTellCounts(t *testing.T) {
	counts := func(n *uint64) func() ([]hostnet.Passed, error) {
		return func() ([]hostnet.Passed, error) {
			*n++
			if *n == 100 {
				return nil, errors.New("somebody else has removed the counters")
			}
			return []hostnet.Passed{{Point: "pod", Outbound: true, Packets: *n}}, nil
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		d     time.Duration
		begin uint64
		want  string
		err   string
	}{
		{"the time is over", t.Context(), time.Nanosecond, 0, `{"passed":[{"point":"pod","outbound":true,"packets":2,"udp":0}]}`, ""},
		{"the client has gone", ended, time.Hour, 0, `{"passed":[{"point":"pod","outbound":true,"packets":2,"udp":0}]}`, ""},
		{"an error", t.Context(), time.Hour, 98, `{"passed":[{"point":"pod","outbound":true,"packets":99,"udp":0}]}`, "somebody else"},
	} {
		w, n := httptest.NewRecorder(), tt.begin
		err := tellCounts(tt.ctx, w, counts(&n), tt.d)
		lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
		if got := lines[len(lines)-1]; got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v\n%s", tt.name, err, w.Body)
		}
	}
}
