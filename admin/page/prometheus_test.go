package page

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// keeper stands for a Prometheus: it answers range queries about one gateway, as the HTTP
// API of Prometheus says. It has kept something for some days.
type keeper struct {
	days    int
	mu      sync.Mutex
	queries []string
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	start, _ := strconv.ParseInt(q.Get("start"), 10, 64)
	end, _ := strconv.ParseInt(q.Get("end"), 10, 64)
	step, _ := strconv.ParseInt(q.Get("step"), 10, 64)
	user, password, _ := r.BasicAuth()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/kept/api/v1/query_range" || user != "me" || password != "secret" || step < 1 || (end-start)/step > 11_000 {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"status":"error","errorType":"bad_data","error":"not so"}`)
		return
	}
	k.mu.Lock()
	k.queries = append(k.queries, q.Get("query"))
	k.mu.Unlock()
	type series struct {
		Metric map[string]string `json:"metric"`
		Values [][2]any          `json:"values"`
	}
	result := []series{}
	add := func(metric map[string]string, value func(hour float64) float64) {
		s := series{Metric: metric}
		for t := max(start, time.Now().AddDate(0, 0, -k.days).Unix()/step*step+step); t <= end; t += step {
			s.Values = append(s.Values, [2]any{t, strconv.FormatFloat(value(float64(t)/3600), 'g', -1, 64)})
		}
		result = append(result, s)
	}
	wave := func(middle float64) func(float64) float64 {
		return func(hour float64) float64 {
			return middle * (1 + 0.6*math.Sin(hour/24*2*math.Pi) + 0.1*math.Sin(hour*5))
		}
	}
	switch query := q.Get("query"); {
	case !strings.Contains(query, `namespace="liqo-tenant-milan"`) || !strings.Contains(query, `cluster="rome"`):
	case strings.Contains(query, "sluice_bytes_total"):
		add(nil, wave(60e6))
	case strings.Contains(query, "sluice_packets_total"):
		add(nil, wave(50e3))
	case strings.Contains(query, "sluice_drops_total"):
		add(map[string]string{"reason": "DropNoMapping"}, wave(3))
		add(map[string]string{"reason": "DropMadeUp"}, wave(1))
		add(map[string]string{"reason": "<b>other"}, wave(1))
		add(map[string]string{"reason": "DropFilter"}, func(float64) float64 { return 0 })
	case strings.Contains(query, "liqo_peer_latency_us"):
		add(nil, wave(1.2))
	case strings.Contains(query, "sluice_handshake_age_seconds"):
		add(nil, func(float64) float64 { return 0.5 })
	case strings.Contains(query, "process_resident_memory_bytes"):
		add(nil, wave(24<<20))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": result}})
}

// keeping serves what stands for a Prometheus, and returns what asks it.
func keeping(t *testing.T, h http.Handler) *Prometheus {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	p, err := NewPrometheus(strings.Replace(server.URL, "http://", "http://me:secret@", 1) + "/kept?cluster=rome")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPast: what is asked, and what becomes of the answers.
func TestPast(t *testing.T) {
	k := &keeper{days: 2}
	now := time.Now()
	s, err := keeping(t, k).series(t.Context(), "liqo-tenant-milan", now.Add(-4*24*time.Hour), now)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.Times); n < points || n > points+2 || s.Times[n-1] > now.UnixMilli() || s.Times[n-1] < now.Add(-10*time.Minute).UnixMilli() {
		t.Errorf("%d times, up to %d", n, s.Times[len(s.Times)-1])
	}
	for _, name := range plotted {
		known := 0
		for _, v := range s.Numbers[name] {
			if v != nil {
				known++
			}
		}
		// Half of the time is that from which something was kept.
		if all := len(s.Times); len(s.Numbers[name]) != all || known < all/2-2 || known > all/2+2 {
			t.Errorf("%s: %d values, %d known, of %d", name, len(s.Numbers[name]), known, all)
		}
	}
	if len(s.Drops) != 2 || len(s.Drops["DropNoMapping"]) != len(s.Times) || len(s.Drops[otherReasons]) != len(s.Times) {
		t.Errorf("drops: %v", s.Drops)
	}
	if len(k.queries) != len(queries) {
		t.Errorf("%d questions", len(k.queries))
	}
	want := `sum by (reason) (rate(sluice_drops_total{namespace="liqo-tenant-milan",cluster="rome"}[494s]))`
	if !strings.Contains(strings.Join(k.queries, "\n"), want) {
		t.Errorf("%s\nlack %s", strings.Join(k.queries, "\n"), want)
	}
}

// TestHostilePrometheus: an answer is bounded, and what makes no sense is left out or said.
func TestHostilePrometheus(t *testing.T) {
	now := time.Now()
	matrix := func(values string) string {
		return `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"reason":"DropFilter"},"values":[` + values + `]}]}}`
	}
	at := now.Add(-30 * time.Minute).Unix()
	for _, tt := range []struct {
		name, answer string
		code         int
		want         string // of the error; empty: nothing is known
	}{
		{"no numbers", matrix(fmt.Sprintf(`[%d,"NaN"],[%[1]d,"+Inf"],[%[1]d,"-1"],[%[1]d,"x"],[%[1]d,7],["a","1"],[null,null]`, at)), 200, ""},
		{"times that nobody asked for", matrix(fmt.Sprintf(`[%d,"1"],[%d,"1"],[-1e300,"1"],[1e300,"1"],[0,"1"]`, now.Add(-3*time.Hour).Unix(), now.Add(time.Hour).Unix())), 200, ""},
		{"too much", matrix(strings.Repeat(fmt.Sprintf(`[%d,"1"],`, at), 1<<18)), 200, "larger than 4 MiB"},
		{"too many series", `{"status":"success","data":{"resultType":"matrix","result":[{}` + strings.Repeat(",{}", maxColumns) + `]}}`, 200, "is not a Prometheus"},
		{"another kind of answer", `{"status":"success","data":{"resultType":"vector","result":[]}}`, 200, "is not a Prometheus"},
		{"a page", "<html>", 404, `which answered "404 Not Found", is not a Prometheus`},
		{"a refusal", `{"status":"error","error":"parse\u202e error` + strings.Repeat("x", 1000) + `"}`, 400, "refused the query: parse\ufffd error"},
		{"another address", "", 302, "redirects to another address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := keeping(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(tt.code)
				_, _ = w.Write([]byte(tt.answer))
			}))
			s, err := p.series(t.Context(), "n", now.Add(-time.Hour), now)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") || len(err.Error()) > 500 {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || len(s.Drops) > 0 {
				t.Fatalf("%v, %v", err, s.Drops)
			}
			for name, values := range s.Numbers {
				for _, v := range values {
					if v != nil {
						t.Fatalf("%s: %v", name, *v)
					}
				}
			}
		})
	}
}

func TestPrometheusAddress(t *testing.T) {
	for address, want := range map[string]string{
		"http://localhost:9090": "", "https://me:secret@prometheus.example/of/us?cluster=rome": "",
		"localhost:9090": "not valid", "ftp://x": "not valid", "http://": "not valid", "http://a b:secret": "not valid", "http://x?a-b=c": `"a-b" is not a valid label name`, "http://x?1=c": "not a valid label name",
	} {
		_, err := NewPrometheus(address)
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if p, _ := NewPrometheus(`http://x?b=%22}+or+c&a=1`); p == nil || p.labels != `,a="1",b="\"} or c"` {
		t.Errorf("%+v", p)
	}
}

// TestServePast: whose past is asked for, and where there is none.
func TestServePast(t *testing.T) {
	w := &stand{}
	s := start(t, []string{"rome", "milan"}, func(s *Server) {
		w.serve(s)
		s.config.Prometheus = map[string]*Prometheus{"rome": keeping(t, &keeper{days: 2})}
	})
	token := map[string]string{"Authorization": "Bearer " + s.guard.token}
	do(t, s, http.MethodGet, "/api/state", token)
	for deadline := time.Now().Add(time.Minute); s.watch.surveyOf(0) == nil || s.watch.surveyOf(1) == nil; {
		if time.Now().After(deadline) {
			t.Fatal("the clusters are not read")
		}
		time.Sleep(time.Millisecond)
	}
	for query, want := range map[string]string{
		"end=0/milan&hours=24": `"egressBytes":[`, "end=0/milan&hours=0": "hours: must be from 1 to 720", "end=0/milan&hours=99999": "hours: must be from 1", "end=7/milan&hours=6": "no such cluster",
		"end=0/nobody&hours=6": `no gateway for "nobody"`, "end=1/rome&hours=6": "no Prometheus is configured", "end=" + url.QueryEscape("?turin/x") + "&hours=6": "no such cluster",
	} {
		if _, _, body := do(t, s, http.MethodGet, "/api/past?"+query, token); !strings.Contains(body, want) {
			t.Errorf("%s: %.300s", query, body)
		}
	}
}
