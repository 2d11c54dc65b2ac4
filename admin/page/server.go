package page

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/bundle"
	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/admin/trace"
)

//go:embed assets
var embedded embed.FS

// Config says what is shown.
type Config struct {
	// Version is that of the program that serves.
	Version string
	// Clusters are those of the map, in its order; their names are not used.
	Clusters []*access.Cluster
	// Prometheus is what keeps the metrics of a cluster, by its ID; that of "" keeps those
	// of all others.
	Prometheus map[string]*Prometheus
	// Interval is the time between two surveys of a cluster. Zero: DefaultInterval.
	Interval time.Duration
}

// DefaultInterval shows changes soon, and costs an API server about as much as
// `kubectl get -w` of ten kinds.
const DefaultInterval = 5 * time.Second

// maxClusters bounds how many clusters are read at once.
const maxClusters = 64

// Server serves the page.
type Server struct {
	config   Config
	listener net.Listener
	guard    guard
	watch    *watcher
	// reads and long have a place for each piece of work that is more than telling a state.
	reads, long chan struct{}
	// opened is closed when the page has asked for the first time.
	opened chan struct{}

	// What is asked of clusters. Tests have their own.
	examine func(context.Context, doctor.Options, progress.Func) (*doctor.Report, error)
	follow  func(context.Context, trace.Options) (*trace.Way, error)
	dropped readDrops
	pack    func(context.Context, io.Writer, bundle.Options, progress.Func, ...*access.Cluster) (bundle.Summary, error)
}

const (
	// maxReads and maxLong are how much is read for pages at a time, and how many doctors and bundles are under way.
	maxReads, maxLong = 6, 2
	// readLimit is how long one reading may take. Packets are watched for some seconds of it.
	readLimit = 30 * time.Second
)

// New listens on a port of loopback, 0 for any that is free.
func New(config Config, port uint16) (*Server, error) {
	if n := len(config.Clusters); n == 0 || n > maxClusters {
		return nil, fmt.Errorf("%d clusters cannot be shown: name 1 to %d", n, maxClusters)
	}
	if config.Interval == 0 {
		config.Interval = DefaultInterval
	}
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("listen on loopback port %d: %w; choose another with --port (0 for any free port)", port, err)
	}
	_, p, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &Server{
		config: config, listener: l, reads: make(chan struct{}, maxReads), long: make(chan struct{}, maxLong), opened: make(chan struct{}),
		examine: doctor.Examine,
		follow:  trace.Follow,
		dropped: survey.ReadDrops,
		pack:    bundle.Write,
	}
	s.guard = guard{
		hosts: []string{"127.0.0.1:" + p, "localhost:" + p}, token: newToken(), seen: sync.OnceFunc(func() { close(s.opened) }),
	}
	s.watch = newWatcher(config.Clusters, config.Interval, s.diagnose)
	return s, nil
}

// URL opens the page. The token is in the fragment, which a browser does not send.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/#" + s.guard.token }

// Opened is closed when somebody has opened the page.
func (s *Server) Opened() <-chan struct{} { return s.opened }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	watched := make(chan struct{})
	go func() { s.watch.run(ctx); close(watched) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	err := server.Serve(s.listener)
	cancel()
	<-watched
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *Server) handler() http.Handler {
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // the pattern of go:embed above has changed
	}
	api := http.NewServeMux()
	s.routes(api)
	return s.guard.protect(http.FileServerFS(assets), api)
}
