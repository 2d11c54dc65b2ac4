package controlplanetest

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/testlog"
)

// Controller is the service account of the controllers.
const Controller = "liqo-controller"

// RunManager runs what setup adds to a manager, under the roles that the
// installation gives the controllers. It returns what ends it; the end of the
// test does so too. Nothing of it runs any more when stop returns.
func (c *Cluster) RunManager(tb testing.TB, setup func(ctrl.Manager) error) (stop func()) {
	tb.Helper()
	skip := true // a name of a controller twice: once in each cluster, or after a restart
	mgr, err := ctrl.NewManager(c.ServiceAccount(LiqoNamespace, Controller), ctrl.Options{
		Scheme: kinds.Scheme(), Cache: kinds.Cache(),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip},
		Logger:     logr.FromSlogHandler(slog.NewTextHandler(testlog.Writer(tb), &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	if err != nil {
		tb.Fatalf("new manager: %v", err)
	}
	if err := setup(mgr); err != nil {
		tb.Fatalf("set up controllers: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil && !strings.Contains(err.Error(), "context canceled") {
			tb.Errorf("manager: %v", err)
		}
	}
	tb.Cleanup(stop)
	return stop
}

// Hold has the requests of mgr that which chooses wait until release is called, or their contexts end. It is called before
// mgr is started.
func Hold(mgr ctrl.Manager, which func(*http.Request) bool) (release func()) {
	released := make(chan struct{})
	c := mgr.GetHTTPClient() // all clients of mgr share it
	c.Transport = held{c.Transport, which, released}
	return sync.OnceFunc(func() { close(released) })
}

type held struct {
	http.RoundTripper
	which    func(*http.Request) bool
	released chan struct{}
}

// RoundTrip implements [http.RoundTripper].
func (h held) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.which(r) {
		select {
		case <-h.released:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return h.RoundTripper.RoundTrip(r)
}
