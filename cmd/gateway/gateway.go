package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/controlplane/gatewaysync"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/underlay"
	"github.com/sluice-net/sluice/tunnel"
)

// gateway is the process: the data plane, what feeds it, and what shows it.
type gateway struct {
	options   options
	log       *slog.Logger
	started   time.Time
	sync      *gatewaysync.Runner
	forwarder *dataplane.Forwarder
	latency   *prometheus.HistogramVec
	toPeer    atomic.Pointer[underlay.Conn] // the socket opened last
	ready     atomic.Bool
	servers   []server
}

// server is one HTTP server with its open listener.
type server struct {
	name     string
	listener net.Listener
	handler  http.Handler
}

// serve runs the gateway until ctx ends. Everything that can be wrong with the
// input is found before a socket is opened, and every socket is open before the
// first packet is forwarded.
func serve(ctx context.Context, o options, log *slog.Logger) error {
	g := &gateway{options: o, log: log, started: time.Now(), latency: newLatencyHistogram()}
	g.sync = gatewaysync.New(gatewaysync.Options{
		Dir: o.manifests, NodePort: o.genevePort, StrictSource: o.strictSource, Logger: log,
		OnLatency: func(clusterID string, d time.Duration) {
			g.latency.WithLabelValues(driver, clusterID).Observe(float64(d.Microseconds()))
		},
	})
	loaded, err := g.sync.Load()
	if err != nil {
		for _, w := range loaded.Warnings {
			err = fmt.Errorf("%w\nwarning: %s", err, w)
		}
		return fmt.Errorf("the manifests in %s are refused:\n%w", o.manifests, err)
	}
	// What is in the way of the servers must not wait for the data plane, nor
	// the other way round; but the data plane starts only if all is well.
	err = errors.Join(g.openServers(), g.openDataPlane())
	if err == nil {
		err = g.sync.Start(g.forwarder)
	}
	if err != nil {
		g.close()
		return err
	}
	return g.run(ctx)
}

// openDataPlane opens the sockets towards nodes and peer.
func (g *gateway) openDataPlane() error {
	o := g.options
	geneve, err := underlay.Listen(underlay.Config{Addr: netip.AddrPortFrom(o.bind, o.genevePort), GSO: o.udpGSO})
	if err != nil {
		return socketError("UDP", o.bind, o.genevePort, "the node tunnels", "--geneve-port or --bind-address", err)
	}
	g.forwarder, err = dataplane.New(dataplane.Options{
		Underlay: geneve,
		NodePort: o.genevePort,
		Tunnel:   tunnel.Options{Listen: g.listenTunnel, Logger: g.log},
		Logger:   g.log,
	})
	if err != nil {
		return errors.Join(err, geneve.Close())
	}
	return nil
}

// listenTunnel opens the socket towards the peer.
func (g *gateway) listenTunnel(port uint16) (tunnel.Socket, error) {
	o := g.options
	c, err := underlay.Listen(underlay.Config{Addr: netip.AddrPortFrom(o.bind, port), GSO: o.udpGSO, GRO: o.udpGRO})
	if err != nil {
		return nil, gatewaysync.EndpointError{
			Cause: socketError("UDP", o.bind, port, "WireGuard", "spec.endpoint.port of the GatewayServer, or --bind-address", err),
		}
	}
	g.toPeer.Store(c)
	return c, nil
}

// openServers opens the listeners for people and machines that look in.
func (g *gateway) openServers() error {
	admin, err := listenAdmin(g.options.adminSocket)
	if err != nil {
		return err
	}
	g.servers = append(g.servers, server{"admin socket", admin, adminHandler(g.report)})
	for _, s := range []struct {
		name, flag string
		addr       netip.AddrPort
		handler    http.Handler
	}{
		{"metrics", "--metrics-address", g.options.metrics, metricsHandler(g.report, g.latency)},
		{"health probes", "--health-probe-address", g.options.health, probeHandler(g.ready.Load)},
		{"profiler", "--pprof-address", g.options.pprof, pprofHandler()},
	} {
		if !s.addr.IsValid() {
			continue
		}
		l, err := net.Listen("tcp", s.addr.String())
		if err != nil {
			return socketError("TCP", s.addr.Addr(), s.addr.Port(), "the "+s.name, s.flag, err)
		}
		g.servers = append(g.servers, server{s.name, l, s.handler})
	}
	return nil
}

// close releases what a gateway has opened that does not run.
func (g *gateway) close() {
	for _, s := range g.servers {
		s.listener.Close()
	}
	if g.forwarder != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		g.forwarder.Run(ended) // its end is what closes it
	}
}

// run forwards packets and answers questions until ctx ends or something breaks.
func (g *gateway) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	part := func(name string, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	part("data plane", g.forwarder.Run)
	part("manifests", g.sync.Run)
	for _, s := range g.servers {
		part(s.name, s.run)
	}
	g.ready.Store(true)
	g.log.Info("gateway runs", "version", versionText(), "manifests", g.options.manifests,
		"admin-socket", g.options.adminSocket, "geneve-port", g.options.genevePort)
	<-ctx.Done()
	g.ready.Store(false)
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	g.log.Info("gateway ends")
	return nil
}

// run serves until ctx ends. Requests are short: those under way are cut off.
func (s server) run(ctx context.Context) error {
	h := http.Server{Handler: s.handler, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { h.Close() })()
	return h.Serve(s.listener)
}

// report gathers what is shown.
func (g *gateway) report() report {
	s := g.forwarder.Status()
	if c := g.toPeer.Load(); c != nil {
		s.Sockets["wireguard"] = dataplane.SocketStatus{LocalAddr: c.LocalAddr(), Stats: c.Stats()}
	}
	return report{
		Version: versionText(), Time: time.Now(), Started: g.started,
		Sync: g.sync.State(), DataPlane: s, Memory: readMemory(),
	}
}

// probeHandler answers the probes of a kubelet. Ready means that packets are
// forwarded; the peer may still be unknown, as its key may only be made once
// this gateway is ready.
func probeHandler(ready func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

func pprofHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// socketError says which socket could not be opened and what to do about it.
func socketError(network string, addr netip.Addr, port uint16, use, setting string, err error) error {
	where := fmt.Sprintf("%s port %d", network, port)
	if addr.IsValid() && !addr.IsUnspecified() {
		where += " of " + addr.String()
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s, for %s, is in use by another process: end that one, or choose another by %s", where, use, setting)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s, for %s: this host has no such address; choose another by %s", where, use, setting)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s, for %s: not permitted; ports below 1024 need a privilege, choose another by %s", where, use, setting)
	}
	return fmt.Errorf("open %s, for %s: %w", where, use, err)
}
