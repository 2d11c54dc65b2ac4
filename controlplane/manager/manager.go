package manager

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/controlplane/foreigncluster"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/controlplane/network/addresses"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
	"github.com/sluice-net/sluice/controlplane/network/configuration"
	"github.com/sluice-net/sluice/controlplane/network/gatewaydeploy"
	"github.com/sluice-net/sluice/controlplane/network/gatewayrender"
	"github.com/sluice-net/sluice/controlplane/network/internalnetwork"
	"github.com/sluice-net/sluice/controlplane/network/prefixes"
	"github.com/sluice-net/sluice/controlplane/offloading"
	"github.com/sluice-net/sluice/controlplane/services"
)

// stopWithin bounds the end of the reconcilers, so that the lease is given back
// within the two seconds that are promised.
const stopWithin = 1200 * time.Millisecond

// off is controller-runtime's word for a server that is not wanted.
const off = "0"

// Options say how the controllers work.
type Options struct {
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
	// Bootstrap says what the administrator told about the cluster. Its namespace is
	// that above.
	Bootstrap bootstrap.Options
	// Pools are where prefixes come from that stand for others.
	Pools []netip.Prefix
	// Gateways says what is made beside the gateways. Its namespace is that above.
	Gateways gatewaydeploy.Options
	// Authentication lets clusters ask each other for resources; nil: they have a network and nothing else. Its namespace
	// is that above.
	Authentication *authentication.Options
	// Offloading lets pods of one cluster run in another; nil: they do not. It takes Authentication. Its namespace is that
	// above.
	Offloading *offloading.Options
	// Services lets clusters use each other's Services, by ServiceExports and ServiceImports; nil: they do not. Its namespace
	// is that above.
	Services *services.Options
	// NoForeignClusters leaves ForeignClusters to Liqo's controllers, which run beside these. Gateways of Liqo's templates are
	// not made then.
	NoForeignClusters bool
	// LeaderElection is nil where nothing else runs these controllers.
	LeaderElection *LeaderElection
	// MetricsAddress is the address of the metrics; empty: none.
	MetricsAddress string
	// HealthProbeAddress is the address of /healthz and /readyz; empty: none.
	HealthProbeAddress string
	// Concurrency is how many objects of one kind are looked at at the same time,
	// where the kind has no number of its own; zero: one.
	Concurrency int
	// Logger is where the controllers write.
	Logger logr.Logger
}

// LeaderElection holds the times of the Lease by which one of several replicas
// is chosen.
type LeaderElection struct {
	// LeaseDuration is how long the others wait after they saw the last sign of
	// the leader.
	LeaseDuration time.Duration
	// RenewDeadline is how long the leader tries to give such a sign before it
	// gives up.
	RenewDeadline time.Duration
	// RetryPeriod is how often all of them try.
	RetryPeriod time.Duration
}

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create,namespace=liqo
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=liqo-controller,verbs=get;update,namespace=liqo
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch,namespace=liqo

// New returns a manager with all controllers. It holds open the socket of the
// health probes, and nothing else, until it is started.
func New(cfg *rest.Config, o Options) (ctrl.Manager, error) {
	options := ctrl.Options{
		Scheme: kinds.Scheme(), Cache: kinds.Cache(), Logger: o.Logger,
		Metrics:                 metricsserver.Options{BindAddress: cmp.Or(o.MetricsAddress, off)},
		HealthProbeBindAddress:  cmp.Or(o.HealthProbeAddress, off),
		GracefulShutdownTimeout: new(stopWithin),
		Controller:              config.Controller{MaxConcurrentReconciles: o.Concurrency},
	}
	if e := o.LeaderElection; e != nil {
		options.LeaderElection = true
		options.LeaderElectionID = kinds.Lease
		options.LeaderElectionNamespace = o.LiqoNamespace
		options.LeaderElectionReleaseOnCancel = true // the process ends after the manager
		options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &e.LeaseDuration, &e.RenewDeadline, &e.RetryPeriod
	}
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("new manager: %w", err)
	}
	if err := SetupWithManager(mgr, o); err != nil {
		return nil, err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	return mgr, mgr.AddReadyzCheck("caches", cachesSynced(mgr))
}

// SetupWithManager adds the controllers to a manager, in the order in which data
// flows.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	o.Bootstrap.LiqoNamespace, o.Gateways.LiqoNamespace = o.LiqoNamespace, o.LiqoNamespace
	o.Gateways.Services = o.Services != nil
	for _, c := range []struct {
		name string
		err  error
	}{
		{"bootstrap", bootstrap.SetupWithManager(mgr, o.Bootstrap)},
		{"network", prefixes.SetupWithManager(mgr, prefixes.Options{LiqoNamespace: o.LiqoNamespace, Pools: o.Pools})},
		{"ip", addresses.SetupWithManager(mgr, addresses.Options{LiqoNamespace: o.LiqoNamespace})},
		{"configuration", configuration.SetupWithManager(mgr, configuration.Options{LiqoNamespace: o.LiqoNamespace})},
		{"gatewayrender", gatewayrender.SetupWithManager(mgr, gatewayrender.Options{LiqoNamespace: o.LiqoNamespace, BesideLiqo: o.NoForeignClusters})},
		{"gatewaydeploy", gatewaydeploy.SetupWithManager(mgr, o.Gateways)},
		{"internalnetwork", internalnetwork.SetupWithManager(mgr, internalnetwork.Options{LiqoNamespace: o.LiqoNamespace})},
	} {
		if c.err != nil {
			return fmt.Errorf("set up %s: %w", c.name, c.err)
		}
	}
	var secrets cache.Cache
	if a := o.Authentication; a != nil {
		var err error
		if secrets, err = authentication.PeeringCache(mgr); err != nil {
			return err
		}
		a.LiqoNamespace, a.NamespaceMaps = o.LiqoNamespace, o.Offloading != nil
		if err := authentication.SetupWithManager(mgr, secrets, *a); err != nil {
			return fmt.Errorf("set up authentication: %w", err)
		}
	}
	if f := o.Offloading; f != nil {
		f.LiqoNamespace = o.LiqoNamespace
		if err := offloading.SetupWithManager(mgr, secrets, *f); err != nil {
			return fmt.Errorf("set up offloading: %w", err)
		}
	}
	if s := o.Services; s != nil {
		s.LiqoNamespace = o.LiqoNamespace
		if err := services.SetupWithManager(mgr, *s); err != nil {
			return fmt.Errorf("set up services: %w", err)
		}
	}
	if o.NoForeignClusters {
		return nil
	}
	if err := foreigncluster.SetupWithManager(mgr, secrets, o.Offloading != nil); err != nil {
		return fmt.Errorf("set up foreigncluster: %w", err)
	}
	return nil
}

// cachesSynced is ready when the manager has seen all objects once. A replica
// that waits to lead watches nothing and is ready to.
func cachesSynced(mgr ctrl.Manager) healthz.Checker {
	return func(r *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(r.Context()) {
			return fmt.Errorf("the objects of the cluster have not all been read yet")
		}
		return nil
	}
}
