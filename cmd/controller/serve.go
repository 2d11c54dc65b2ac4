package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
)

// preflightTimeout is how long the API server may take to answer some dozens of
// questions.
const preflightTimeout = 20 * time.Second

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
	if err := preflight(ctx, cfg, o); err != nil {
		if ctx.Err() != nil {
			return nil // told to end meanwhile
		}
		return err
	}
	if o.Authentication != nil {
		if o.Authentication.APIServer.CA, err = certificateAuthority(o.apiServerCA, cfg); err != nil {
			return err
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

func preflight(ctx context.Context, cfg *rest.Config, o options) error {
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	return manager.Preflight(ctx, cfg, o.Options)
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
