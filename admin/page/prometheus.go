package page

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/drops"
)

// Prometheus is where the metrics of a cluster's gateways are kept.
type Prometheus struct {
	base *url.URL
	// labels are those that distinguish its metrics from those of other clusters:
	// `,cluster="rome"`.
	labels string
	client *http.Client
}

// NewPrometheus reads an address, such as http://localhost:9090. The parameters of the
// address are labels of the metrics: ?cluster=rome.
func NewPrometheus(address string) (*Prometheus, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("the URL is not valid") // err repeats the URL, which may contain a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "":
		return nil, errors.New("the URL is not valid: write https://HOST:PORT, or, if clusters share a Prometheus, add labels as parameters: https://HOST:PORT?cluster=rome")
	}
	p := &Prometheus{client: &http.Client{
		Timeout: 30 * time.Second,
		// The user did not choose the other address, and only this machine may be able to reach it.
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it redirects to another address: use that one instead")
		},
	}}
	labels := u.Query()
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || name[0] >= '0' && name[0] <= '9' {
			return nil, fmt.Errorf("%q is not a valid label name", name)
		}
		p.labels += "," + name + "=" + strconv.Quote(labels.Get(name))
	}
	u.RawQuery = ""
	p.base = u.JoinPath("api/v1/query_range")
	return p, nil
}

// Bounds of what Prometheus is asked, and of what it may answer.
const (
	points     = 700 // in a plot: about its width
	minStep    = 15 * time.Second
	minWindow  = 5 * time.Minute // of a rate: some scrapes
	maxMatrix  = 4 << 20         // bytes of one answer
	maxColumns = 100             // series of one answer
)

// query is one of those that make a Series.
type query struct {
	number string // one of plotted; empty: drops by reason
	text   string // L: the labels, W: the window, M: its minutes
}

func (q *query) filled(labels string, window time.Duration) string {
	return strings.NewReplacer("L", labels, "W", fmt.Sprintf("%ds", int(window.Seconds())), "M", fmt.Sprint(window.Minutes())).Replace(q.text)
}

var queries = []query{
	{"egressBytes", `sum(rate(sluice_bytes_total{direction="egress",L}[W]))`},
	{"ingressBytes", `sum(rate(sluice_bytes_total{direction="ingress",L}[W]))`},
	{"egressPackets", `sum(rate(sluice_packets_total{direction="egress",L}[W]))`},
	{"ingressPackets", `sum(rate(sluice_packets_total{direction="ingress",L}[W]))`},
	{"latency", `max(liqo_peer_latency_us{L} > 0) / 1000`},
	// The age of a handshake falls when there is another one.
	{"handshakes", `sum(resets(sluice_handshake_age_seconds{L}[W])) / M`},
	{"memory", `max(process_resident_memory_bytes{L})`},
	{"", `sum by (reason) (rate(sluice_drops_total{L}[W]))`},
}

// series is what was kept of the gateways in a namespace.
func (p *Prometheus) series(ctx context.Context, namespace string, from, to time.Time) (Series, error) {
	step := max(minStep, to.Sub(from)/points).Round(time.Second)
	window := max(minWindow, step)
	labels := "namespace=" + strconv.Quote(namespace) + p.labels
	grid := grid{first: from.Truncate(step), step: step, n: int(to.Sub(from.Truncate(step))/step) + 1}
	out := Series{Numbers: make(map[string][]*float64), Drops: make(map[string][]float64)}
	for i := range grid.n {
		out.Times = append(out.Times, grid.first.Add(time.Duration(i)*step).UnixMilli())
	}
	answers, errs := access.Parallel(queries, len(queries), func(q query) ([]row, error) {
		return p.ask(ctx, q.filled(labels, window), &grid)
	})
	if err := cmp.Or(errs...); err != nil {
		return Series{}, err
	}
	for i, q := range queries {
		for _, row := range answers[i] {
			if q.number != "" {
				out.Numbers[q.number] = row.values
				continue
			}
			reason := row.reason
			if _, known := drops.Explain(reason); !known {
				reason = otherReasons
			}
			if out.Drops[reason] == nil {
				out.Drops[reason] = make([]float64, grid.n)
			}
			for i, v := range row.values {
				if v != nil {
					out.Drops[reason][i] += *v
				}
			}
		}
	}
	// A reason without drops gets no line.
	maps.DeleteFunc(out.Drops, func(_ string, v []float64) bool { return slices.Max(v) == 0 })
	return out, nil
}

// grid are the times that are asked for.
type grid struct {
	first time.Time
	step  time.Duration
	n     int
}

// row is one series of an answer, on the grid.
type row struct {
	reason string
	values []*float64
}

// ask sends one query. The answer is not trusted: it is bounded, and whatever is not on the
// grid, or not a number, is left out.
func (p *Prometheus) ask(ctx context.Context, text string, g *grid) ([]row, error) {
	u := *p.base
	last := g.first.Add(time.Duration(g.n-1) * g.step)
	u.RawQuery = url.Values{
		"query": {text}, "start": {strconv.FormatInt(g.first.Unix(), 10)}, "end": {strconv.FormatInt(last.Unix(), 10)}, "step": {strconv.Itoa(int(g.step.Seconds()))},
	}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := p.client.Do(r)
	if err != nil {
		if cause := (*url.Error)(nil); errors.As(err, &cause) {
			err = cause.Err // without the address, which may hold a password
		}
		return nil, fmt.Errorf("ask Prometheus at %s: %w", p.base.Host, err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, maxMatrix+1))
	if err != nil || len(raw) > maxMatrix {
		return nil, fmt.Errorf("read the answer of Prometheus at %s: it is incomplete or larger than %d MiB", p.base.Host, maxMatrix>>20)
	}
	var a struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Type   string `json:"resultType"`
			Result []struct {
				Metric struct {
					Reason string `json:"reason"`
				} `json:"metric"`
				Values [][2]json.RawMessage `json:"values"`
			} `json:"result"`
		} `json:"data"`
	}
	switch err := json.Unmarshal(raw, &a); {
	case err == nil && a.Status == "error":
		return nil, fmt.Errorf("Prometheus at %s refused the query: %s", p.base.Host, harmless(a.Error, 200))
	case err != nil || a.Status != "success" || a.Data.Type != "matrix" || len(a.Data.Result) > maxColumns:
		return nil, fmt.Errorf("the server at %s, which answered %q, is not a Prometheus", p.base.Host, answer.Status)
	}
	var rows []row
	for _, s := range a.Data.Result {
		values := make([]*float64, g.n)
		for _, v := range s.Values {
			var at float64
			var number string
			if json.Unmarshal(v[0], &at) != nil || json.Unmarshal(v[1], &number) != nil || math.Abs(at) > math.MaxInt32 {
				continue
			}
			n, err := strconv.ParseFloat(number, 64)
			after := int64(at) - g.first.Unix()
			if i := after / int64(g.step.Seconds()); err == nil && n >= 0 && !math.IsInf(n, 0) && after >= 0 && i < int64(g.n) {
				values[i] = &n
			}
		}
		rows = append(rows, row{s.Metric.Reason, values})
	}
	return rows, nil
}

// longest is how far plots reach back.
const longest = 30 * 24 * time.Hour

// servePast: ?end is the key of an end, ?hours how far back.
func (s *Server) servePast(w http.ResponseWriter, r *http.Request) error {
	cluster, peer, _ := strings.Cut(r.URL.Query().Get("end"), "/")
	hours, err := strconv.Atoi(r.URL.Query().Get("hours"))
	if err != nil || hours < 1 || hours > int(longest.Hours()) {
		return refuse("hours: must be from 1 to %d", int(longest.Hours()))
	}
	i, err := strconv.Atoi(cluster)
	if err != nil || i < 0 || i >= len(s.config.Clusters) {
		return refuse("end: no such cluster")
	}
	read := s.watch.surveyOf(i)
	if read == nil {
		return errors.New("the cluster has not been read yet: try again in a moment")
	}
	p := s.config.prometheus(read.Installation.ClusterID)
	if p == nil {
		return refuse("no Prometheus is configured for the cluster: start 'liqoctl console' with --prometheus")
	}
	of := read.Peer(peer)
	if of == nil || of.Gateway == nil {
		return refuse("the cluster has no gateway for %q", peer)
	}
	now := time.Now()
	out, err := p.series(r.Context(), of.Gateway.Namespace, now.Add(-time.Duration(hours)*time.Hour), now)
	if err != nil {
		return err
	}
	answer(w, out)
	return nil
}

// prometheus is that of a cluster, nil if there is none.
func (c *Config) prometheus(id string) *Prometheus {
	if p := c.Prometheus[id]; p != nil && id != "" {
		return p
	}
	return c.Prometheus[""]
}
