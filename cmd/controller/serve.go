package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/controlplane/offloading/virtualnode"
)

// preflightTimeout is how long the API server may take to answer some dozens of
// questions.
const preflightTimeout = 20 * time.Second

// preflightPause is how long one that did not answer is left alone.
const preflightPause = 2 * time.Second

// serve runs the controllers until ctx ends.
func serve(ctx context.Context, o options, log *slog.Logger) error {
	log = slog.New(quietHandler{log.Handler(), ctx})
	// Both libraries log through globals, and klog otherwise in a format of its
	// own.
	o.Logger = logr.FromSlogHandler(log.Handler())
	ctrl.SetLogger(o.Logger)
	klog.SetSlogLogger(log)

	cfg, err := restConfig(o)
	if err != nil {
		return err
	}
	if err := preflight(ctx, cfg, o, log); err != nil {
		if ctx.Err() != nil {
			return nil // told to end meanwhile
		}
		return err
	}
	if a := o.Authentication; a != nil {
		if a.APIServer.CA, err = certificateAuthority(o.apiServerCA, cfg); err != nil {
			return err
		}
		var refused []string
		if a.Slices.NodeLabels, refused = virtualnode.NodeLabels(a.Slices.NodeLabels); len(refused) > 0 {
			log.Warn("--cluster-labels: left out what consumers refuse: invalid labels, and labels that describe nodes", "labels", refused)
		}
	}
	mgr, err := manager.New(cfg, o.Options)
	if err != nil {
		return explain(err)
	}
	log.Info("starting", "version", daemon.Version(version), "apiServer", cfg.Host, "liqoNamespace", o.LiqoNamespace, "leaderElection", o.LeaderElection != nil)
	if err := mgr.Start(ctx); err != nil {
		return explain(err)
	}
	log.Info("stopped")
	return nil
}

// preflight finds out whether the controllers can work, as soon as the API server
// answers. One that ended while it is away would be started again after pauses that grow
// to five minutes.
func preflight(ctx context.Context, cfg *rest.Config, o options, log *slog.Logger) error {
	var told string
	var probes *http.Server
	defer func() {
		if probes != nil {
			probes.Close() // the manager answers from now on
		}
	}()
	for {
		err := ask(ctx, cfg, o)
		if !errors.As(err, new(*manager.AwayError)) || ctx.Err() != nil {
			return err
		}
		if err.Error() != told {
			told = err.Error()
			log.Warn("waiting for the API server", "apiServer", cfg.Host, "err", err)
		}
		if probes == nil {
			if probes, err = answerProbes(ctx, o.HealthProbeAddress); err != nil {
				return explain(err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(preflightPause):
		}
	}
}

func ask(ctx context.Context, cfg *rest.Config, o options) error {
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	return manager.Preflight(ctx, cfg, o.Options)
}

// answerProbes answers the probes of a kubelet in place of the manager: the program
// lives, and is not ready.
func answerProbes(ctx context.Context, address string) (*http.Server, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "waiting for the API server", http.StatusServiceUnavailable)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: preflightPause}
	if address == "" || address == "0" {
		return server, nil // nobody asks
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("health probes: %w", err)
	}
	go func() { _ = server.Serve(l) }() // until Close
	return server, nil
}

// explain adds what to do to the errors of a manager that need it.
func explain(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("%w\nChoose another port with --metrics-address or --health-probe-address; 0 is off", err)
	}
	return err
}

// restConfig finds the API server: by flag, by environment, or as a pod does.
func restConfig(o options) (*rest.Config, error) {
	cfg, err := loadConfig(o.kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, daemon.Usagef("no cluster: this is not a pod, and neither --kubeconfig nor KUBECONFIG is set")
	case err != nil:
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	cfg.UserAgent = "sluice-controller/" + daemon.Version(version)
	cfg.QPS, cfg.Burst = o.qps, o.burst
	return cfg, nil
}

func loadConfig(file, environment string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file, Precedence: filepath.SplitList(environment)}
	if file == "" && environment == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
}
