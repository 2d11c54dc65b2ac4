package page

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/admin/progress"
)

// This file has the doctor look at clusters, for the page.

// pair are the clusters of a peering as the doctor and the bundle want them: two if both
// were given.
func (s *Server) pair(i int, peer string) []*access.Cluster {
	if j, known := s.place(peer); known && j != i {
		return []*access.Cluster{s.named(i, access.Local), s.named(j, access.Remote)}
	}
	return []*access.Cluster{s.named(i, "")}
}

func (s *Server) doctorOptions(clusters []*access.Cluster, peer string) doctor.Options {
	o := doctor.Options{Version: s.config.Version}
	for _, c := range clusters {
		o.Clusters = append(o.Clusters, doctor.Target{Name: c.Name, Origin: c.Origin, Cluster: c})
	}
	if len(clusters) == 1 {
		o.Peer = peer
	}
	return o
}

// serveDoctor examines the peering of ?cluster with ?peer, or without it all of the
// cluster. The answer is lines of JSON: steps as they come, then the report or an error.
func (s *Server) serveDoctor(w http.ResponseWriter, r *http.Request) error {
	i, err := s.index(r, "cluster")
	if err != nil {
		return err
	}
	peer := r.URL.Query().Get("peer")
	if peer != "" {
		if _, _, err := s.peer(r); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), examineTimeout)
	defer cancel()
	w.Header().Set("Content-Type", "application/x-ndjson")
	line := func(kind string, value any) {
		text, err := bounded(map[string]any{kind: value}, maxText, maxAnswer)
		if err != nil {
			text, _ = json.Marshal(map[string]string{"error": err.Error()}) // a string can be
		}
		_, _ = w.Write(append(text, '\n')) // the page may be gone
		_ = http.NewResponseController(w).Flush()
	}
	steps := 0
	report, err := s.examine(ctx, s.doctorOptions(s.pair(i, peer), peer), func(e progress.Event) {
		if steps++; e.Kind != progress.Ended && steps <= maxList {
			line("step", map[string]any{"cluster": e.Cluster, "text": e.Text, "waiting": e.Kind == progress.Waiting, "failed": e.Kind == progress.Failed})
		}
	})
	if err != nil {
		line("error", err.Error())
		return nil
	}
	type shown struct {
		doctor.Finding
		Title string `json:"title"`
	}
	out := struct {
		*doctor.Report
		Findings []shown `json:"findings"`
	}{Report: report, Findings: []shown{}}
	for _, f := range report.Findings {
		out.Findings = append(out.Findings, shown{f, doctor.Title(f.Check)})
	}
	line("report", out)
	return nil
}

// diagnose asks the doctor about an unhealthy peering.
func (s *Server) diagnose(ctx context.Context, p Peering) *Diagnosis {
	d := &Diagnosis{}
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	i, err := strconv.Atoi(p.Ends[0].Cluster)
	if err == nil {
		var report *doctor.Report
		peer := p.Ends[0].Status.Peer
		report, err = s.examine(ctx, s.doctorOptions(s.pair(i, peer), peer), nil)
		if err == nil {
			d.Findings, d.cut = telling(report.Findings), cutOff(report.Findings)
		}
	}
	if err != nil {
		d.Problem = err.Error()
	}
	d.Time = time.Now().UTC()
	return d
}

// cutOff tells whether a failure was found that keeps packets out of the tunnel.
func cutOff(all []doctor.Finding) bool {
	return slices.ContainsFunc(all, func(f doctor.Finding) bool {
		switch f.Check {
		case "gateway-pods", "service", "endpoint", "keys", "network-policies", "reachability", "handshake", "ping":
			return f.Status == doctor.Failed
		}
		return false
	})
}

// telling are the findings that show what is wrong, the worst first.
func telling(all []doctor.Finding) (out []doctor.Finding) {
	for _, status := range []doctor.Status{doctor.Failed, doctor.Warning} {
		for _, f := range all {
			if f.Status == status && len(out) < maxTelling {
				out = append(out, f)
			}
		}
	}
	return out
}
