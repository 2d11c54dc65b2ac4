package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/node/cluster"
	"github.com/sluice-net/sluice/node/fabric"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/node/tunlink"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/objects/mirror"
)

// agent is the process: what changes the network, what it is changed by, and
// what shows it.
type agent struct {
	options options
	log     *slog.Logger
	started time.Time
	host    *hostnet.Conn
	ends    *tunlink.Endpoint
	api     *cluster.Link // nil: standalone
	runner  *fabric.Runner
	servers daemon.Servers
	counts  chan struct{} // one for each count that is under way
}

// serve runs the agent until ctx ends. Everything that can be wrong with the
// input is found before anything is changed.
func serve(ctx context.Context, o options, log *slog.Logger) (err error) {
	a := &agent{options: o, log: log, started: time.Now(), counts: make(chan struct{}, maxCounts)}
	for _, name := range o.idle {
		log.Info("flag has no effect", "flag", "--"+name, "reason", idleFlags[name])
	}
	defer func() { err = errors.Join(err, a.close()) }()
	err = a.open(ctx)
	if errors.Is(err, errEnded) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := a.openServers(); err != nil {
		return err
	}
	return a.run(ctx)
}

// open prepares the parts; nothing is changed yet.
func (a *agent) open(ctx context.Context) (err error) {
	o := a.options
	options := fabric.Options{
		NodeName: o.nodeName, Link: o.link, Port: o.port, RulePriority: o.rulePriority, HideAll: o.fullMasquerade,
		TakeOver: o.takeOver, LiqoTables: o.liqoTables, Dir: o.manifests, Logger: a.log,
	}
	if o.manifests == "" {
		config, err := mirror.Config(o.kubeconfig)
		if err != nil {
			return err
		}
		if a.api, err = cluster.New(config, cluster.Options{NodeName: o.nodeName, Logger: a.log}); err != nil {
			return err
		}
		options.Feed, options.Reporter, options.Reserved = a.api, a.api, reserved(config)
	}
	if a.host, err = a.openHost(ctx); err != nil {
		return err
	}
	if a.ends, err = tunlink.New(tunlink.Options{Port: o.port, Queues: o.queues, GSO: o.udpGSO, GRO: o.udpGRO, Logger: a.log}); err != nil {
		return err
	}
	options.Host, options.Ends = a.host, a.ends
	if a.runner, err = fabric.New(options); err != nil {
		return err
	}
	if o.manifests == "" {
		return nil // the objects may come in any order, and late
	}
	err = a.runner.Load()
	if errors.As(err, new(manifests.Problems)) {
		return fmt.Errorf("the manifests in %s are refused:\n%w", o.manifests, err)
	}
	return err
}

// lockWait is how long the agent before this one may take to end: somewhat more
// than daemon.StopWithin.
const lockWait = 3 * time.Second

// errEnded says that the agent was told to end before it was at work.
var errEnded = errors.New("told to end")

// openHost opens the network of the host. After a restart the agent before this
// one may still be ending.
func (a *agent) openHost(ctx context.Context) (*hostnet.Conn, error) {
	tick := time.NewTicker(50 * time.Millisecond) // the lock tells nobody when it is free
	defer tick.Stop()
	began, waits := time.Now(), false
	for {
		host, err := hostnet.Open()
		if !errors.Is(err, hostnet.ErrInUse) || time.Since(began) > lockWait {
			return host, err
		}
		if !waits {
			waits = true
			a.log.Info("another node agent runs in this network namespace, waiting for its end", "at-most", lockWait)
		}
		select {
		case <-ctx.Done():
			return nil, errEnded
		case <-tick.C:
		}
	}
}

// reserved is the API server, if its address says where it is: a tunnel that took
// its packets would be the last thing that is heard of.
func reserved(c *rest.Config) []fabric.Reserved {
	u, err := url.Parse(c.Host)
	if err != nil {
		return nil // the clients say what is wrong with it
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil // a name, which may mean different addresses in time
	}
	return []fabric.Reserved{{Prefix: netip.PrefixFrom(ip, ip.BitLen()), What: "the API server"}}
}

// openServers opens the listeners for people and machines that look in.
func (a *agent) openServers() (err error) {
	a.servers, err = program.Listen(&a.options.listen, daemon.Pages{
		Status:  func() any { return a.report() },
		Admin:   map[string]http.Handler{"GET " + countPath: http.HandlerFunc(a.serveCount)},
		Metrics: daemon.MetricsHandler(metricsOf(a.report)),
		Ready:   a.runner.Ready,
	}, a.log)
	return err
}

// run keeps the network as it is desired until ctx ends or something breaks.
func (a *agent) run(ctx context.Context) error {
	parts, _ := daemon.NewGroup(ctx)
	parts.Go("network", a.runner.Run)
	a.servers.Go(parts)
	from, where := "manifests", a.options.manifests
	if a.api != nil {
		from, where = "kubeconfig", a.options.kubeconfig
	}
	a.log.Info("fabric runs", "version", daemon.Version(version), "node", a.options.nodeName, from, where,
		"link", a.options.link, "admin-socket", a.options.listen.AdminSocket, "geneve-port", a.options.port)
	err := parts.Wait()
	if a.api != nil {
		a.api.Disconnect()
	}
	if err != nil {
		return err
	}
	a.log.Info("fabric ends")
	return nil
}

// close releases what is open. The network stays as it is.
func (a *agent) close() error {
	a.servers.Close()
	if a.host != nil {
		return a.host.Close()
	}
	return nil
}
