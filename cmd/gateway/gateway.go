package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/gateway/cluster"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/gateway/services"
	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// gateway is the process: the data plane, what feeds it, and what shows it.
type gateway struct {
	options   options
	log       *slog.Logger
	started   time.Time
	runner    *control.Runner
	link      *cluster.Link    // nil: no cluster
	elector   *cluster.Elector // nil: the only replica
	forwarder *dataplane.Forwarder
	exchange  *services.Exchange          // nil: without --services
	exchanges func(context.Context) error // runs it
	latency   *prometheus.HistogramVec
	// nodeSockets is the number of sockets towards the nodes, all of whose readers send to the peer.
	nodeSockets int
	toPeer      peerSockets
	running     atomic.Bool
	servers     daemon.Servers
}

// serve runs the gateway until ctx ends. Everything that can be wrong with the
// input is found before a socket is opened, and every socket is open before the
// first packet is forwarded.
func serve(ctx context.Context, o options, log *slog.Logger) error {
	g := &gateway{options: o, log: log, started: time.Now(), latency: newLatencyHistogram()}
	prepare, start := g.openManifests, func() error { return g.runner.Start(g.forwarder) }
	if o.manifests == "" {
		// The running gateway puts the first configuration in force: the objects may come in any order, and late.
		prepare, start = g.openCluster, func() error { g.runner.Attach(g.forwarder); return nil }
	}
	if err := prepare(); err != nil {
		return err
	}
	// What is in the way of the servers must not wait for the data plane, nor
	// the other way round; but the data plane starts only if all is well.
	err := errors.Join(g.openServers(), g.openDataPlane())
	if err == nil {
		err = g.openServices()
	}
	if err == nil {
		err = start()
	}
	if err != nil {
		g.close()
		return err
	}
	return g.run(ctx)
}

// runnerOptions are what both modes share.
func (g *gateway) runnerOptions() control.Options {
	o := control.Options{
		NodePort: g.options.genevePort, Sources: g.options.sources, Ping: g.options.ping, Logger: g.log,
		OnLatency: func(clusterID string, d time.Duration) {
			g.latency.WithLabelValues(driver, clusterID).Observe(float64(d.Microseconds()))
		},
	}
	if g.options.pathMTU {
		o.Path = path{g}
	}
	return o
}

// openManifests reads and judges the directory.
func (g *gateway) openManifests() error {
	o := g.runnerOptions()
	o.Dir = g.options.manifests
	o.OnExported = func(e []*networkingv1beta1.ExportedService) {
		if g.exchange != nil {
			g.exchange.Offer(e)
		}
	}
	g.runner = control.New(o)
	loaded, err := g.runner.Load()
	if err == nil {
		return nil
	}
	for _, w := range loaded.Warnings {
		err = fmt.Errorf("%w\nwarning: %s", err, w)
	}
	return fmt.Errorf("the manifests in %s are refused:\n%w", o.Dir, err)
}

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
	o := g.runnerOptions()
	if g.elector != nil {
		o.Unconfirmed = g.elector.Unconfirmed
	}
	o.Feed, o.Reporter, o.StandBy = g.link, g.link, c.Elect
	o.Gateway = control.Gateway{Type: c.Type, Kind: "Gateway" + string(c.Type), Namespace: c.Namespace, Name: c.Name, ClusterID: c.ClusterID}
	g.runner = control.New(o)
	return nil
}

// ready tells whether the gateway does its work, and else why not. Ready means
// that packets are forwarded, or would be if this replica led; the peer may
// still be unknown, as its key may only be made once this gateway is ready.
func (g *gateway) ready() (bool, string) {
	if !g.running.Load() {
		return false, "not ready"
	}
	return g.runner.Ready()
}

// openDataPlane opens the sockets towards nodes and peer.
func (g *gateway) openDataPlane() error {
	o := g.options
	config := underlay.Config{Addr: netip.AddrPortFrom(o.bind, o.genevePort), GSO: o.udpGSO, GRO: o.udpGRO}
	sockets, err := underlay.ListenShared(config, cmp.Or(o.sockets, nodeSockets(runtime.GOMAXPROCS(0))))
	if err != nil && o.sockets == 0 {
		sockets, err = underlay.ListenShared(config, 1) // does where a system lets no others share the port
	}
	if err != nil {
		return daemon.SocketError("UDP", netip.AddrPortFrom(o.bind, o.genevePort), "the node tunnels", "--geneve-port or --bind-address", err)
	}
	g.nodeSockets = len(sockets)
	var underlays []dataplane.Underlay
	for _, s := range sockets {
		underlays = append(underlays, s)
	}
	g.forwarder, err = dataplane.New(dataplane.Options{
		Underlays: underlays,
		NodePort:  o.genevePort,
		Tunnel:    tunnel.Options{Listen: g.listenTunnel, Logger: g.log},
		Logger:    g.log,
	})
	if err != nil {
		for _, s := range sockets {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// listenTunnel opens a socket towards the peer.
func (g *gateway) listenTunnel(port uint16) (tunnel.Socket, error) {
	o := g.options
	c, err := underlay.Listen(underlay.Config{Addr: netip.AddrPortFrom(o.bind, port), GSO: o.udpGSO, GRO: o.udpGRO, Writers: g.nodeSockets})
	if err != nil {
		return nil, control.EndpointError{
			Cause: daemon.SocketError("UDP", netip.AddrPortFrom(o.bind, port), "WireGuard", "spec.endpoint.port of the GatewayServer, or --bind-address", err),
		}
	}
	return g.toPeer.add(c), nil
}

// openServices prepares the exchange of Services. It opens nothing before it runs.
func (g *gateway) openServices() error {
	switch {
	case !g.options.services:
	case g.link != nil:
		s, err := g.link.NewServices(g.forwarder)
		if err != nil {
			return err
		}
		g.exchange, g.exchanges = s.Exchange, s.Run
	default:
		s := newFiledServices(g.forwarder, g.options.manifests, g.log)
		g.exchange, g.exchanges = s.Exchange, s.Run
	}
	return nil
}

// openServers opens the listeners for people and machines that look in.
func (g *gateway) openServers() (err error) {
	g.servers, err = program.Listen(&g.options.listen, daemon.Pages{
		Status: func() any { return g.report() },
		Admin: map[string]http.Handler{ // what the commands besides status ask for
			"GET " + capturePath: http.HandlerFunc(g.serveCapture),
			"GET " + dropsPath:   http.HandlerFunc(g.serveDrops),
			"GET " + filterPath:  http.HandlerFunc(g.serveFilter),
			"GET " + probePath:   http.HandlerFunc(g.serveProbe),
		},
		Metrics: daemon.MetricsHandler(metricsOf(g.report), g.latency),
		Ready:   g.ready,
	}, g.log)
	return err
}

// close releases what a gateway has opened that does not run.
func (g *gateway) close() {
	g.servers.Close()
	if g.forwarder != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		g.forwarder.Run(ended) // its end is what closes it
	}
}

// run forwards packets and answers questions until ctx ends or something breaks.
func (g *gateway) run(ctx context.Context) error {
	told := ctx
	ctx, end := context.WithCancel(ctx)
	defer end()
	parts, ctx := daemon.NewGroup(ctx)
	parts.Go("data plane", g.forwarder.Run)
	parts.Go("objects", g.runner.Run)
	if g.exchanges != nil {
		parts.Go("services", g.exchanges)
	}
	g.servers.Go(parts)
	resign := g.elect(ctx)
	g.running.Store(true)
	from, where := "manifests", g.options.manifests
	if g.link != nil {
		from, where = "name", g.options.cluster.Namespace+"/"+g.options.cluster.Name
	}
	g.log.Info("gateway runs", "version", daemon.Version(version), from, where,
		"admin-socket", g.options.listen.AdminSocket, "geneve-port", g.options.genevePort)
	select {
	case <-ctx.Done():
	case <-daemon.Noticed(told):
		before := g.forwarder.Tunnel()
		if g.elector != nil { // it forwards until another replica does
			g.elector.HandOver(ctx)
		}
		g.relay(ctx, before)
		end()
	}
	g.running.Store(false)
	err := parts.Wait()
	resign()
	if g.link != nil {
		g.link.Disconnect()
	}
	if err != nil {
		return err
	}
	g.log.Info("gateway ends")
	return nil
}

// lookFirst is how long a gateway waits for its objects before it takes part in
// the election all the same: one that cannot read them leads in order to say so.
const lookFirst = 5 * time.Second

// elect takes part in the election from when the objects are read. What it returns
// gives the lead up, if it is still held after everything else has ended.
func (g *gateway) elect(running context.Context) (resign func()) {
	if g.elector == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-running.Done():
			return
		case <-g.runner.Synced():
		case <-time.After(lookFirst):
		}
		g.elector.Run(ctx, g.runner)
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// report gathers what is shown.
func (g *gateway) report() report {
	s := g.forwarder.Status()
	if c, ok := g.toPeer.status(s.Tunnel.ListenPort); ok {
		s.Sockets["wireguard"] = c
	}
	r := report{
		Version: daemon.Version(version), Time: time.Now(), Started: g.started, Manifests: g.options.manifests,
		Sync: g.runner.State(), DataPlane: s, Memory: daemon.ReadMemory(),
	}
	if g.link != nil {
		r.Cluster = &clusterReport{API: g.link.State()}
	}
	if g.exchange != nil {
		r.Services = new(g.exchange.Status())
	}
	if g.elector != nil {
		r.Cluster.Election = new(g.elector.State())
	}
	return r
}
