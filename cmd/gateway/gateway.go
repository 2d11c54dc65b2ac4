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
	"github.com/sluice-net/sluice/controlplane/gatewaysync/cluster"
	"github.com/sluice-net/sluice/controlplane/mirror"
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
	link      *cluster.Link    // nil: no cluster
	elector   *cluster.Elector // nil: the only replica
	forwarder *dataplane.Forwarder
	latency   *prometheus.HistogramVec
	toPeer    atomic.Pointer[underlay.Conn] // the socket opened last
	running   atomic.Bool
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
	prepare, start := g.openManifests, g.startManifests
	if o.manifests == "" {
		prepare, start = g.openCluster, g.startCluster
	}
	if err := prepare(); err != nil {
		return err
	}
	// What is in the way of the servers must not wait for the data plane, nor
	// the other way round; but the data plane starts only if all is well.
	err := errors.Join(g.openServers(), g.openDataPlane())
	if err == nil {
		err = start()
	}
	if err != nil {
		g.close()
		return err
	}
	return g.run(ctx)
}

// syncOptions are what both modes share.
func (g *gateway) syncOptions() gatewaysync.Options {
	return gatewaysync.Options{
		NodePort: g.options.genevePort, StrictSource: g.options.strictSource, Ping: g.options.ping, Logger: g.log,
		OnLatency: func(clusterID string, d time.Duration) {
			g.latency.WithLabelValues(driver, clusterID).Observe(float64(d.Microseconds()))
		},
	}
}

// openManifests reads and judges the directory.
func (g *gateway) openManifests() error {
	o := g.syncOptions()
	o.Dir = g.options.manifests
	g.sync = gatewaysync.New(o)
	loaded, err := g.sync.Load()
	if err == nil {
		return nil
	}
	for _, w := range loaded.Warnings {
		err = fmt.Errorf("%w\nwarning: %s", err, w)
	}
	return fmt.Errorf("the manifests in %s are refused:\n%w", o.Dir, err)
}

// startManifests puts the directory in force.
func (g *gateway) startManifests() error { return g.sync.Start(g.forwarder) }

// openCluster prepares the ties to the API server, which may be away.
func (g *gateway) openCluster() error {
	c := g.options.cluster
	config, err := mirror.Config(c.Kubeconfig)
	if err != nil {
		return err
	}
	c.Logger, c.UpdateInterval = g.log, g.options.ping.UpdateInterval
	if g.link, err = cluster.New(config, c.Options); err != nil {
		return err
	}
	if c.Elect {
		g.elector = g.link.NewElector(c.Election)
	}
	o := g.syncOptions()
	o.Feed, o.Reporter, o.StandBy = g.link, g.link, c.Elect
	o.Gateway = gatewaysync.Gateway{Type: c.Type, Kind: "Gateway" + string(c.Type), Namespace: c.Namespace, Name: c.Name, ClusterID: c.ClusterID}
	g.sync = gatewaysync.New(o)
	return nil
}

// startCluster leaves the first configuration to the running gateway: the
// objects may come in any order, and late.
func (g *gateway) startCluster() error {
	g.sync.Attach(g.forwarder)
	return nil
}

// ready tells whether the gateway does its work, and else why not.
func (g *gateway) ready() (bool, string) {
	if !g.running.Load() {
		return false, "not ready"
	}
	return g.sync.Ready()
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
		{"health probes", "--health-probe-address", g.options.health, probeHandler(g.ready)},
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
	part("objects", g.sync.Run)
	for _, s := range g.servers {
		part(s.name, s.run)
	}
	resign := g.elect()
	g.running.Store(true)
	from, where := "manifests", g.options.manifests
	if g.link != nil {
		from, where = "name", g.options.cluster.Namespace+"/"+g.options.cluster.Name
	}
	g.log.Info("gateway runs", "version", versionText(), from, where,
		"admin-socket", g.options.adminSocket, "geneve-port", g.options.genevePort)
	<-ctx.Done()
	g.running.Store(false)
	wg.Wait()
	resign()
	if g.link != nil {
		g.link.Disconnect()
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	g.log.Info("gateway ends")
	return nil
}

// elect takes part in the election. What it returns gives the lead up, after
// everything else has ended: a lease that is free means that nobody forwards.
func (g *gateway) elect() (resign func()) {
	if g.elector == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { g.elector.Run(ctx, g.sync.SetLeading) })
	return func() {
		cancel()
		wg.Wait()
	}
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
	r := report{
		Version: versionText(), Time: time.Now(), Started: g.started, Manifests: g.options.manifests,
		Sync: g.sync.State(), DataPlane: s, Memory: readMemory(),
	}
	if g.link != nil {
		r.Cluster = &clusterReport{API: g.link.State()}
	}
	if g.elector != nil {
		r.Cluster.Election = new(g.elector.State())
	}
	return r
}

// probeHandler answers the probes of a kubelet. Ready means that packets are
// forwarded, or would be if this replica led; the peer may still be unknown, as
// its key may only be made once this gateway is ready.
func probeHandler(ready func() (bool, string)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ok, why := ready()
		if !ok {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, why)
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
