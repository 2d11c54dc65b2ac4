package main

import (
	"cmp"
	"io"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/controlplane/cidr"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
	"github.com/sluice-net/sluice/controlplane/offloading"
	"github.com/sluice-net/sluice/controlplane/services"
)

// metricsAddress is where metrics are served by default.
const metricsAddress = ":8080"

// options are the flags of the controller, checked.
type options struct {
	manager.Options
	kubeconfig string
	// apiServerCA is what --api-server-ca says.
	apiServerCA string
	qps         float32
	burst       int
	log         daemon.Log
}

const usageHead = `controller is the control plane of the network between clusters. One runs in
each cluster and serves all of its peerings: it remaps CIDRs that both clusters
use, starts a gateway for each GatewayServer and GatewayClient, and connects the
gateways with the nodes. It carries no traffic: while it is down, connections
stay up and changes wait.

Usage:
  controller --cluster-id ID --pod-cidr CIDR [flags]
  controller metrics [--metrics-address IP:port]

When it first starts it creates, in the Liqo namespace, the ConfigMap
liqo-clusterid-configmap and the Networks pod-cidr, service-cidr, external-cidr
and internal-cidr. Those that exist already, from a chart or an earlier start,
are left unchanged, and their flags may be omitted.

Flags:
`

const usageTail = `
Flags for several CIDRs take them separated by commas, or can be repeated.

Examples:
  # In a cluster (deploy/manifests holds the Deployment and the roles).
  controller --cluster-id rome --pod-cidr 10.244.0.0/16

  # From a terminal, for a cluster that is set up already: it waits until no
  # replica in the cluster leads.
  controller --kubeconfig rome.yaml --log-level debug \
      --metrics-address 127.0.0.1:8080 --health-probe-address 0

Environment: POD_NAMESPACE is the default of --liqo-namespace. KUBECONFIG names
the kubeconfig files if --kubeconfig is not set. Without either, the service
account of the pod is used.

Signals: SIGTERM and SIGINT stop the controller within two seconds; another
replica leads at once.
Exit status: 0 after a signal, 1 after an error, which is printed.
`

// parseFlags reads the command line. After --help and --version, which it answers
// on stdout, the error is pflag.ErrHelp.
func parseFlags(args []string, stdout io.Writer) (options, error) {
	var o options
	pools := cidr.DefaultPools()
	external, internal := netip.MustParsePrefix("10.70.0.0/16"), netip.MustParsePrefix("10.80.0.0/16")
	election := new(manager.LeaderElection)

	var metrics, health netip.AddrPort
	fs := daemon.NewFlagSet(string(program), nil)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` with the address of the API server and the credentials")
	fs.StringVar(&o.LiqoNamespace, "liqo-namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "liqo"), "`NAME` of the namespace of the installation")
	fs.StringVar(&o.Bootstrap.ClusterID, "cluster-id", "", "`ID` of this cluster, different from those of its peers: lower-case letters, digits, dashes (required unless its ConfigMap exists)")
	fs.Var(&prefixesFlag{to: &o.Bootstrap.PodCIDRs}, "pod-cidr", "`CIDR` of the pods of this cluster, or several (required unless its Network exists)")
	fs.Var(&prefixesFlag{to: &o.Bootstrap.ServiceCIDRs}, "service-cidr", "`CIDR` of the Services, or several (default: from the API server, Kubernetes 1.33 or later)")
	fs.Var(prefixFlag{&external}, "external-cidr", "`CIDR` under which peers reach addresses that do not belong to pods; unless set, another one is chosen if the default is in use")
	fs.Var(prefixFlag{&internal}, "internal-cidr", "`CIDR` between nodes and gateways; unless set, another one is chosen if the default is in use")
	fs.Var(&prefixesFlag{to: &o.Bootstrap.ReservedCIDRs}, "reserved-cidr", "`CIDR` of a network around the cluster, or several; never used to remap a peer's CIDRs")
	fs.Var(&prefixesFlag{to: &pools}, "ipam-pools", "`CIDRs` from which peers' CIDRs are remapped, in this order")
	gw := &o.Gateways
	fs.BoolVar(&gw.NetworkPolicies, "network-policies", true, "create a NetworkPolicy for each gateway; =false removes them")
	fs.StringVar(&gw.MetricsNamespace, "metrics-namespace", "monitoring", "`NAME` of the namespace from which the NetworkPolicies allow reading metrics; empty: none")
	fs.Uint16Var(&gw.GenevePort, "geneve-port", 6091, "UDP `port` of the node tunnels, for the NetworkPolicies")
	fs.BoolVar(&gw.DisruptionBudgets, "disruption-budgets", true, "create a PodDisruptionBudget for each gateway with several replicas; =false removes them")
	fs.StringVar(&gw.Role, "gateway-role", "liqo-gateway", "`NAME` of the ClusterRole, and of the Role in the Liqo namespace, that gateways get")
	foreignClusters := fs.Bool("foreign-clusters", true, "report on each peer in a ForeignCluster; =false leaves that to the controllers of Liqo, and makes no gateways of Liqo's templates")
	authenticate := fs.Bool("authentication", false, "let clusters ask each other for resources: identities, Tenants, ResourceSlices")
	var auth authentication.Options
	var apiServerCA string
	fs.StringVar(&auth.APIServer.URL, "api-server-url", "", "`URL` at which consumers reach this cluster's API server (default: the endpoint of Service default/kubernetes)")
	fs.StringVar(&apiServerCA, "api-server-ca", "", "`FILE` with the certificate authority of that API server, in PEM; system: those of the consumer's system (default: that of the service account)")
	fs.DurationVar(&auth.CertificateLifetime, "client-certificate-lifetime", 0, "`time` for which certificates of consumers are valid, at least 10m; 0: the signer decides")
	fs.BoolVar(&auth.Slices.DefaultClass, "default-resource-slices", true, "grant what ResourceSlices of class default ask for; =false denies them")
	fs.StringToStringVar(&auth.Slices.NodeLabels, "cluster-labels", nil, "`LABELS` (key=value,...) that virtual nodes of this cluster have in the clusters of its consumers")
	fs.Lookup("cluster-labels").DefValue = "" // not []
	fs.Var(&classesFlag{to: &auth.Slices.IngressClasses}, "ingress-classes", "`NAMES` (name,name;default,...) of the ingress classes offered to consumers (default: all of this cluster)")
	fs.Var(&classesFlag{to: &auth.Slices.LoadBalancerClasses}, "load-balancer-classes", "`NAMES` (name,name;default,...) of the load balancer classes offered to consumers")
	offload := fs.Bool("offloading", false, "let pods of this cluster run in other clusters, and theirs in this one; needs --authentication")
	var off offloading.Options
	var enforcement string
	off.NamespaceQuota = defaultQuota()
	fs.StringVar(&off.PodSecurity, "pod-security-level", "baseline", "PodSecurity `level` of the namespaces of other clusters: restricted, baseline or privileged")
	fs.IntVar(&off.MaxNamespaces, "max-namespaces", 100, "`number` of namespaces that another cluster may have here")
	fs.Var(&quotaFlag{to: &off.NamespaceQuota}, "namespace-quota", "`resource=number` of objects allowed in each of these namespaces, or several, named as in a ResourceQuota; empty: no limit (default: those of the chart's value offloading.namespaceQuota)")
	fs.Lookup("namespace-quota").DefValue = "" // long
	fs.BoolVar(&off.NoAPIServerAccess, "no-api-server-access", false, "give pods that run in other clusters no access to the API server of this one")
	fs.StringVar(&enforcement, "limits-enforcement", "None", "what containers of other clusters must declare: None, Soft (requests of CPU and memory) or Hard (limits, equal to the requests)")
	withServices := fs.Bool("services", false, "let clusters use each other's Services, by ServiceExports and ServiceImports")
	var svc services.Options
	fs.BoolVar(&svc.Alias, "service-alias", false, "give imported Services their own name as well, unless the label liqo.io/service-alias of a namespace says otherwise")
	leaderElection := fs.Bool("leader-election", true, "elect one of several replicas as leader, with Lease "+kinds.Lease)
	fs.DurationVar(&election.LeaseDuration, "leader-election-lease-duration", 10*time.Second, "`time` without a renewal after which another replica takes over")
	fs.DurationVar(&election.RenewDeadline, "leader-election-renew-deadline", 7*time.Second, "`time` after which a leader that cannot renew its Lease gives up leading")
	fs.DurationVar(&election.RetryPeriod, "leader-election-retry-period", 2*time.Second, "`time` between attempts to get or renew the Lease")
	daemon.AddrPortVar(fs, &metrics, "metrics-address", metricsAddress, "`IP:port` of the Prometheus metrics, /metrics; off if 0 or empty")
	daemon.AddrPortVar(fs, &health, "health-probe-address", ":8081", "`IP:port` of /healthz and /readyz; off if 0 or empty")
	fs.Float32Var(&o.qps, "kube-api-qps", 200, "`requests` per second to the API server; -1: no limit except the server's")
	fs.IntVar(&o.burst, "kube-api-burst", 4000, "`requests` allowed in a burst")
	fs.IntVar(&o.Concurrency, "concurrency", 4, "`number` of objects of a kind that are reconciled at the same time, unless the kind has its own limit")
	daemon.LogVar(fs, &o.log)
	if err := program.ParseFlags(fs, args, stdout, usageHead, usageTail, version); err != nil {
		return o, err
	}
	o.Bootstrap.ExternalCIDR = bootstrap.Range{Prefix: external, Fixed: fs.Changed("external-cidr")}
	o.Bootstrap.InternalCIDR = bootstrap.Range{Prefix: internal, Fixed: fs.Changed("internal-cidr")}
	o.Pools = pools
	if *authenticate {
		o.Authentication, o.apiServerCA = &auth, apiServerCA
	}
	if *offload {
		off.LimitsEnforcement = offloadingv1beta1.LimitsEnforcement(enforcement)
		o.Offloading = &off
		auth.Slices.Volumes = volumes(off.NamespaceQuota)
	}
	o.NoForeignClusters = !*foreignClusters
	if *withServices {
		o.Services = &svc
	}
	if *leaderElection {
		o.LeaderElection = election
	}
	if err := o.check(); err != nil {
		return o, err
	}
	o.MetricsAddress, o.HealthProbeAddress = daemon.AddrPortText(metrics), daemon.AddrPortText(health)
	return o, daemon.CheckOverlap(fs, "metrics-address", "health-probe-address")
}

// check judges what no single flag can.
func (o *options) check() error {
	if len(validation.IsDNS1123Label(o.LiqoNamespace)) > 0 {
		return daemon.Usagef("--liqo-namespace: %q is not the name of a namespace", o.LiqoNamespace)
	}
	if err := o.Bootstrap.Validate(); err != nil {
		return daemon.AsUsage(err)
	}
	if e := o.LeaderElection; e != nil {
		switch {
		case e.RetryPeriod <= 0:
			return daemon.Usagef("--leader-election-retry-period must be more than zero")
		case e.RenewDeadline <= e.RetryPeriod*6/5: // client-go spreads the period by that
			return daemon.Usagef("--leader-election-renew-deadline must be longer than 1.2 times --leader-election-retry-period")
		case e.LeaseDuration <= e.RenewDeadline:
			return daemon.Usagef("--leader-election-lease-duration must be longer than --leader-election-renew-deadline, or two replicas may lead")
		}
	}
	if a := o.Authentication; a != nil {
		switch u, err := url.Parse(a.APIServer.URL); {
		case a.APIServer.URL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != ""):
			return daemon.Usagef("--api-server-url: %q is not an https URL, such as https://203.0.113.7:6443", a.APIServer.URL)
		case a.CertificateLifetime != 0 && a.CertificateLifetime < 10*time.Minute:
			return daemon.Usagef("--client-certificate-lifetime: API servers sign nothing for less than 10m")
		}
	}
	if off := o.Offloading; off != nil {
		switch {
		case o.Authentication == nil:
			return daemon.Usagef("--offloading needs --authentication: clusters ask each other for resources first")
		case !slices.Contains([]string{"restricted", "baseline", "privileged"}, off.PodSecurity):
			return daemon.Usagef("--pod-security-level: %q is not restricted, baseline or privileged", off.PodSecurity)
		case off.MaxNamespaces < 1:
			return daemon.Usagef("--max-namespaces: %d is no namespace at all", off.MaxNamespaces)
		case !slices.Contains([]offloadingv1beta1.LimitsEnforcement{"None", "Soft", "Hard"}, off.LimitsEnforcement):
			return daemon.Usagef("--limits-enforcement: %q is not None, Soft or Hard", off.LimitsEnforcement)
		}
	}
	switch ns := o.Gateways.MetricsNamespace; {
	case ns != "" && len(validation.IsDNS1123Label(ns)) > 0:
		return daemon.Usagef("--metrics-namespace: %q is not the name of a namespace", ns)
	case len(validation.IsDNS1123Subdomain(o.Gateways.Role)) > 0:
		return daemon.Usagef("--gateway-role: %q is not the name of a role", o.Gateways.Role)
	case o.Gateways.GenevePort == 0:
		return daemon.Usagef("--geneve-port: 0 is not a UDP port")
	}
	switch {
	case o.Concurrency < 1:
		return daemon.Usagef("--concurrency: %d objects at the same time is none", o.Concurrency)
	case o.qps == 0:
		return daemon.Usagef("--kube-api-qps: 0 is no request at all; -1 is no limit")
	case o.qps > 0 && o.burst < 1:
		return daemon.Usagef("--kube-api-burst must be at least 1")
	}
	return nil
}
