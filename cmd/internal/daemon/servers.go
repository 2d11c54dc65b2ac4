package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// Addresses are where a program answers people and machines that look in.
type Addresses struct {
	AdminSocket            string         // empty: the first of Program.AdminSockets that can be had
	Metrics, Health, Pprof netip.AddrPort // not valid: off
}

// Vars defines the flags of the addresses, with those defaults of the metrics and of the health, and of the log.
func (p Program) Vars(fs *pflag.FlagSet, to *Addresses, log *Log, metrics, health string) {
	AddrPortVar(fs, &to.Metrics, "metrics-address", metrics, "`IP:port` of the Prometheus metrics, /metrics; off if 0 or empty")
	AddrPortVar(fs, &to.Health, "health-probe-address", health, "`IP:port` of /healthz and /readyz; off if 0 or empty")
	fs.StringVar(&to.AdminSocket, "admin-socket", "", "`PATH` of the socket for '"+string(p)+" status' (default "+p.AdminSocketText()+")")
	LogVar(fs, log)
	AddrPortVar(fs, &to.Pprof, "pprof-address", "off", "`IP:port` of the Go profiler, or off")
}

// Pages are what it answers.
type Pages struct {
	Status  func() any              // on the admin socket, as JSON
	Admin   map[string]http.Handler // more of the admin socket: see AdminHandler
	Metrics http.Handler            // of /metrics
	Ready   func() (bool, string)   // whether it does its work, and else why not
}

// server is one HTTP server with its open listener.
type server struct {
	name     string
	listener net.Listener
	handler  http.Handler
}

// Servers are those of a program.
type Servers []server

// Listen opens the listeners. After an error some may be open: close them. In a
// it notes which admin socket it has opened, if any.
func (p Program) Listen(a *Addresses, pages Pages, log *slog.Logger) (servers Servers, err error) {
	admin, err := p.listenAdmin(a.AdminSocket, log)
	if err != nil {
		return nil, err
	}
	if admin != nil {
		a.AdminSocket = admin.Addr().String()
		servers = append(servers, server{"admin socket", admin, AdminHandler(pages.Status, pages.Admin)})
	}
	for _, s := range []struct {
		name, flag string
		addr       netip.AddrPort
		handler    http.Handler
	}{
		{"metrics", "--metrics-address", a.Metrics, pages.Metrics},
		{"health probes", "--health-probe-address", a.Health, probeHandler(pages.Ready)},
		{"profiler", "--pprof-address", a.Pprof, pprofHandler()},
	} {
		if !s.addr.IsValid() {
			continue
		}
		l, err := net.Listen("tcp", AddrPortText(s.addr))
		if err != nil {
			return servers, SocketError("TCP", s.addr, "the "+s.name, s.flag, err)
		}
		servers = append(servers, server{s.name, l, s.handler})
	}
	return servers, nil
}

// shutdownTimeout is how long answers under way may go on when the program ends.
const shutdownTimeout = 300 * time.Millisecond

// ErrEnding is the cause for which the context of a request ends with the program.
// Otherwise it is the client that wants no more.
var ErrEnding = errors.New("the program ends")

// run serves until ctx ends. The contexts of requests end with it: a stream can
// say so, and what takes longer than shutdownTimeout is cut off.
func (s server) run(ctx context.Context) error {
	requests, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	h := http.Server{
		Handler: s.handler, ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(s.listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		end(ErrEnding)
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if h.Shutdown(limit) != nil {
		h.Close()
	}
	return <-served
}

// Go runs the servers as parts of the program.
func (s Servers) Go(parts *Group) {
	for _, one := range s {
		parts.Go(one.name, one.run)
	}
}

// Close closes the listeners of servers that do not run.
func (s Servers) Close() {
	for _, one := range s {
		one.listener.Close()
	}
}

// probeHandler answers the probes of a kubelet.
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

// SocketError says which socket could not be opened and what to do about it. An
// address that is not valid stands for all.
func SocketError(network string, addr netip.AddrPort, use, setting string, err error) error {
	where := fmt.Sprintf("%s port %d", network, addr.Port())
	if a := addr.Addr(); a.IsValid() && !a.IsUnspecified() {
		where += " of " + a.String()
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
