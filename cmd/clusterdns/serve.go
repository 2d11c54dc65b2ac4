package main

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/clusterdns"
	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/objects/mirror"
)

// serve answers until ctx ends.
func serve(ctx context.Context, o options, log *slog.Logger) (err error) {
	from, err := sourceOf(o, log)
	if err != nil {
		return err
	}
	udp, tcp, err := listen(o)
	if err != nil {
		return err
	}
	defer udp.Close()
	defer tcp.Close()
	server := new(clusterdns.Server)
	state := func() report {
		r := report{Version: daemon.Version(version), Zone: o.zone, API: from.State(), Answers: server.Answers()}
		if z := server.Zone(); z != nil {
			r.Count = new(z.Count())
		}
		return r
	}
	servers, err := program.Listen(&o.listen, daemon.Pages{
		Status:  func() any { return state() },
		Metrics: daemon.MetricsHandler(metricsOf(state)),
		Ready: func() (bool, string) {
			return server.Zone() != nil, "the Services have not been read yet"
		},
	}, log)
	if err != nil {
		servers.Close()
		return err
	}
	defer servers.Close()
	parts, _ := daemon.NewGroup(ctx)
	parts.Go("Services", func(ctx context.Context) error { from.Run(ctx, server.Set); return nil })
	parts.Go("DNS", func(ctx context.Context) error { return server.Run(ctx, udp, tcp) })
	servers.Go(parts)
	log.Info("clusterdns runs", "version", daemon.Version(version), "zone", o.zone, "address", tcp.Addr())
	if err := parts.Wait(); err != nil {
		return err
	}
	log.Info("clusterdns ends")
	return nil
}

// source is where Services come from.
type source interface {
	Run(ctx context.Context, set func(*clusterdns.Zone))
	State() mirror.State
}

// sourceOf is the cluster or the directory that the flags name.
func sourceOf(o options, log *slog.Logger) (source, error) {
	d := clusterdns.Options{Zone: o.zone, TTL: o.ttl, Logger: log}
	if o.manifests != "" {
		return clusterdns.NewSite(o.manifests, d), nil
	}
	config, err := mirror.Config(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	return clusterdns.NewCluster(config, d)
}

// listen opens both sockets. A port that is free for one may be taken for the other.
func listen(o options) (udp net.PacketConn, tcp net.Listener, err error) {
	const what, flag = "DNS", "--listen-address"
	address := daemon.AddrPortText(o.address)
	if tcp, err = net.Listen("tcp", address); err != nil {
		return nil, nil, daemon.SocketError("TCP", o.address, what, flag, err)
	}
	if udp, err = net.ListenPacket("udp", address); err != nil {
		tcp.Close()
		return nil, nil, daemon.SocketError("UDP", o.address, what, flag, err)
	}
	return udp, tcp, nil
}

// report is what status shows.
type report struct {
	Version string            `json:"version"`
	Zone    string            `json:"zone"`
	API     mirror.State      `json:"api"`
	Count   *clusterdns.Count `json:"count,omitempty"` // nil: nothing was read yet
	Answers map[string]uint64 `json:"answers"`         // by response code
}

// status asks the running process and prints its answer.
func status(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := program.ParseStatusFlags(args, stdout, statusHead, statusTail, "")
	if err != nil {
		return err
	}
	return daemon.ShowStatus(ctx, program, o, stdout, func(w io.Writer, r report, _ bool) error { return writeStatus(w, r, time.Now()) })
}

func writeStatus(w io.Writer, r report, now time.Time) error {
	t := daemon.NewText(w, now)
	t.Line("clusterdns %s", r.Version)
	contact, objects := r.API.Text(t.Age)
	t.Line("%s", contact)
	t.Line("%s", objects)
	if c := r.Count; c != nil {
		t.Line("%s: %d services, %d endpoints of headless services, %d records", r.Zone, c.Services, c.Endpoints, c.Records)
		if c.Refused > 0 {
			t.Line("left out, since they are no DNS names: %d", c.Refused)
		}
	}
	t.Title("ANSWER", "COUNT")
	for _, code := range slices.Sorted(maps.Keys(r.Answers)) {
		t.Row(code, r.Answers[code])
	}
	return t.Flush()
}

// families are the metrics.
var families = []daemon.Metric[report]{
	daemon.Gauge("sluice_clusterdns_services", "Services in the zone.", func(r report, emit daemon.Emit) { emit(float64(r.count().Services)) }),
	daemon.Gauge("sluice_clusterdns_endpoints", "Endpoints of headless Services in the zone.", func(r report, emit daemon.Emit) { emit(float64(r.count().Endpoints)) }),
	daemon.Gauge("sluice_clusterdns_refused_names", "Services, endpoints and ports that were left out since their names are no DNS names.",
		func(r report, emit daemon.Emit) { emit(float64(r.count().Refused)) }),
	daemon.Gauge("sluice_clusterdns_api_connected", "1 while the API server answers.", func(r report, emit daemon.Emit) { emit(daemon.Bool(r.API.Connected)) }),
	daemon.Counter("sluice_clusterdns_answers_total", "Answers by response code.", func(r report, emit daemon.Emit) {
		for code, n := range r.Answers {
			emit(float64(n), code)
		}
	}, "code"),
}

func (r report) count() (c clusterdns.Count) {
	if r.Count != nil {
		c = *r.Count
	}
	return c
}

// metricsOf collects the metrics.
func metricsOf(state func() report) prometheus.Collector {
	return daemon.Collector[report]{Report: state, Metrics: families}
}
