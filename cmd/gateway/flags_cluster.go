package main

import (
	"time"

	"github.com/spf13/pflag"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/gateway/cluster"
	"github.com/sluice-net/sluice/gateway/control"
)

// clusterOptions are the flags of a gateway in a cluster, checked.
type clusterOptions struct {
	cluster.Options
	Kubeconfig string
	Elect      bool
	Election   cluster.ElectionOptions
}

// clusterFlags are the same before they are checked.
type clusterFlags struct {
	clusterOptions
	mode  string
	names []string // of all these flags
}

// addClusterFlags defines the flags.
func addClusterFlags(fs *pflag.FlagSet) *clusterFlags {
	f := &clusterFlags{}
	all := newFlagSet()
	all.StringVar(&f.Name, "name", "", "`name` of the GatewayServer or GatewayClient, for a gateway in a cluster")
	all.StringVar(&f.Namespace, "namespace", "", "`namespace` of the gateway and of the other objects of the peering")
	all.StringVar(&f.ClusterID, "remote-cluster-id", "", "`ID` of the peer's cluster")
	all.StringVar(&f.UID, "gateway-uid", "", "`UID` of the gateway object; others of the same name are ignored")
	all.StringVar(&f.mode, "mode", "", "`role` in the tunnel: server or client")
	all.StringVar(&f.LiqoNamespace, "liqo-namespace", "liqo", "`namespace` of the installation, which has the routes to the pods")
	all.StringVar(&f.NodeName, "node-name", "", "`name` of the node that the gateway runs on")
	all.StringVar(&f.Election.Identity, "pod-name", "", "`name` of the gateway's pod, for --leader-election")
	all.StringVar(&f.KeysDir, "keys-dir", "/etc/wireguard/keys", "`DIR` with the gateway's keys: the files privateKey and publicKey of its Secret")
	all.StringVar(&f.CacheDir, "cache-dir", "", "`DIR` that outlives the container, to store the objects: the gateway can start with them while the API server is unavailable (default: none)")
	all.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default: the service account of the pod)")
	all.BoolVar(&f.Elect, "leader-election", false, "carry traffic only while holding the Lease NAME.NS.MODE.connections.liqo.io")
	all.DurationVar(&f.Election.LeaseDuration, "leader-election-lease-duration", 15*time.Second, "`time` without a renewal after which another replica takes over")
	all.DurationVar(&f.Election.RenewDeadline, "leader-election-renew-deadline", 10*time.Second, "`time` that an attempt to renew may take")
	all.DurationVar(&f.Election.RetryPeriod, "leader-election-retry-period", 5*time.Second, "`time` between renewals, or attempts")
	all.VisitAll(func(flag *pflag.Flag) { f.names = append(f.names, flag.Name) })
	fs.AddFlagSet(all)
	return f
}

// takeMode decides between the two modes.
func (o *options) takeMode(fs *pflag.FlagSet, f *clusterFlags) error {
	switch {
	case o.manifests == "" && f.Name == "":
		return daemon.Usagef("--manifests DIR or --name NAME is required: where the objects of the peering come from")
	case o.manifests != "" && f.Name != "":
		return daemon.Usagef("--manifests and --name exclude each other: the objects come from files or from an API server")
	case o.manifests != "":
		for _, name := range f.names {
			if fs.Changed(name) {
				return daemon.Usagef("--%s is for a gateway in a cluster, with --name, not for --manifests", name)
			}
		}
		return nil
	}
	if err := f.check(); err != nil {
		return err
	}
	o.cluster = f.clusterOptions
	return nil
}

// check completes the options of a gateway in a cluster.
func (f *clusterFlags) check() error {
	switch f.mode {
	case "server":
		f.Type = networkingv1beta1.ConnectionServer
	case "client":
		f.Type = networkingv1beta1.ConnectionClient
	case "":
		return daemon.Usagef("--mode is required with --name: server or client")
	default:
		return daemon.Usagef("--mode: %q is neither server nor client", f.mode)
	}
	for _, required := range []struct{ flag, value, what string }{
		{"namespace", f.Namespace, "that of the gateway object"},
		{"remote-cluster-id", f.ClusterID, "the ID of the peer's cluster"},
		{"keys-dir", f.KeysDir, "the folder with the gateway's keys"},
		{"liqo-namespace", f.LiqoNamespace, "that of the installation"},
	} {
		if required.value == "" {
			return daemon.Usagef("--%s is required with --name: %s", required.flag, required.what)
		}
	}
	if !f.Elect {
		return nil
	}
	e := f.Election
	switch {
	case e.Identity == "":
		return daemon.Usagef("--pod-name is required with --leader-election: it tells the replicas apart")
	case e.RetryPeriod < 100*time.Millisecond:
		return daemon.Usagef("--leader-election-retry-period: %v is too short: 100ms at least", e.RetryPeriod)
	case e.RenewDeadline < e.RetryPeriod:
		return daemon.Usagef("--leader-election-renew-deadline: %v is shorter than --leader-election-retry-period, %v", e.RenewDeadline, e.RetryPeriod)
	case e.LeaseDuration <= e.RenewDeadline:
		return daemon.Usagef("--leader-election-lease-duration: %v must be longer than --leader-election-renew-deadline, %v", e.LeaseDuration, e.RenewDeadline)
	}
	return nil
}

// checkPing refuses what would be no watch over the peer.
func checkPing(p control.Ping) error {
	switch {
	case p.Interval < 0 || p.Interval > 0 && p.Interval < 10*time.Millisecond:
		return daemon.Usagef("--ping-interval: %v is too short: 10ms at least", p.Interval)
	case p.LossThreshold < 0:
		return daemon.Usagef("--ping-loss-threshold: %d is less than 1", p.LossThreshold)
	case p.UpdateInterval < 0:
		return daemon.Usagef("--ping-update-status-interval: %v is negative", p.UpdateInterval)
	}
	return nil
}
