package main

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/reflection"
	"github.com/sluice-net/sluice/virtualkubelet"
)

// minLease is the shortest lease: one sign of life each second.
const minLease = 4 * time.Second

// metricsAddress is where metrics are served by default.
const metricsAddress = ":8082"

// options are the flags of the virtual kubelet, checked.
type options struct {
	clusterID, peerID          string
	tenantNamespace, namespace string
	kubeconfig                 string // empty: as a pod
	address                    netip.Addr
	port                       uint16
	lease                      time.Duration
	policies                   map[string]reflection.Policy // by resource
	listen                     daemon.Addresses
	log                        daemon.Log
}

const usageHead = `virtualkubelet runs the virtual nodes that stand for one other
cluster, the provider. Pods that the scheduler assigns to such a node run at the
provider: each becomes a ShadowPod there, and the status of the pod that is
created from it is copied back. kubectl logs, exec, attach and port-forward work
as with any node.

Usage:
  virtualkubelet --cluster-id ID --peer-id ID --tenant-namespace NAME [flags]
  virtualkubelet status [--admin-socket PATH] [-o text|json]
  virtualkubelet metrics [--metrics-address IP:port]

It is configured by objects in the tenant namespace: the VirtualNodes of that
provider, which also name the Secret with the kubeconfig for the provider; the
NamespaceMap, with the names of the namespaces at the provider; and the
Configuration and the Connections of the peering. One process serves all virtual
nodes of a provider. When it stops, nodes and pods stay as they are.

Flags:
`

const usageTail = `
Examples:
  # What a Deployment in the tenant namespace runs.
  virtualkubelet --cluster-id rome --peer-id milan --tenant-namespace liqo-tenant-milan

  # From a terminal. The API server must reach --node-ip.
  virtualkubelet --cluster-id rome --peer-id milan --tenant-namespace liqo-tenant-milan \
      --kubeconfig rome.yaml --node-ip 192.0.2.10

Environment: POD_IP is the default of --node-ip. KUBERNETES_SERVICE_PORT is the
port at which offloaded pods reach the API server of this cluster (default 443).

Signals: SIGTERM and SIGINT stop virtualkubelet within two seconds.
Exit status: 0 after a signal, 1 after an error, which is printed.
`

const statusHead = `status shows the state of a running virtualkubelet: its nodes,
the number of pods on them, and what is wrong.

Usage:
  virtualkubelet status [--admin-socket PATH] [-o text|json]

Flags:
`

const statusTail = `
Examples:
  virtualkubelet status
  virtualkubelet status -o json | jq .Nodes
`

// aliases are Liqo's names.
var aliases = map[string]string{
	"home-cluster-id":    "cluster-id",
	"foreign-cluster-id": "peer-id",
	"liqo-namespace":     "namespace",
}

// parseFlags reads the command line. After --help and --version, which it answers on stdout, the error is pflag.ErrHelp.
func parseFlags(args []string, stdout io.Writer) (options, error) {
	var o options
	fs := daemon.NewFlagSet(string(program), aliases)
	fs.StringVar(&o.clusterID, "cluster-id", "", "`ID` of this cluster")
	fs.StringVar(&o.peerID, "peer-id", "", "`ID` of the provider")
	fs.StringVar(&o.tenantNamespace, "tenant-namespace", "", "`NAME` of the namespace of the peering in this cluster")
	fs.StringVar(&o.namespace, "namespace", "liqo", "`NAME` of the namespace of the installation")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of this cluster (default: the service account of the pod)")
	daemon.Func(fs, "node-ip", "", "`IP` of the virtual nodes, at which the API server reaches this process (default: POD_IP)", func(s string) (err error) {
		if s == "" {
			o.address = netip.Addr{}
			return nil
		}
		if o.address, err = netip.ParseAddr(s); err != nil || o.address.Zone() != "" || o.address.IsUnspecified() {
			return fmt.Errorf("%q is not an address of one host", s)
		}
		return nil
	})
	fs.Uint16Var(&o.port, "listen-port", 10250, "TCP `port` of the kubelet API")
	fs.DurationVar(&o.lease, "node-lease-duration", virtualkubelet.DefaultLeaseDuration, "`time` for which a node counts as alive after a heartbeat; four are sent in that time")
	o.policies = map[string]reflection.Policy{}
	for _, kind := range slices.Sorted(maps.Keys(reflection.Switchable)) {
		usage := "`TYPE` for this kind, as above"
		if kind == "configmap" {
			usage = "`TYPE`, which selects the objects to reflect: DenyList (all except those with liqo.io/skip-reflection), AllowList (those with liqo.io/allow-reflection) or None"
		}
		daemon.Func(fs, kind+"-reflection-type", string(reflection.DenyList), usage, func(s string) error {
			p := reflection.Policy(s)
			if !slices.Contains([]reflection.Policy{reflection.DenyList, reflection.AllowList, reflection.Nothing}, p) {
				return fmt.Errorf("%q is not DenyList, AllowList or None", s)
			}
			o.policies[reflection.Switchable[kind]] = p
			return nil
		})
	}
	program.Vars(fs, &o.listen, &o.log, metricsAddress, ":8081")
	if err := program.ParseFlags(fs, args, stdout, usageHead, usageTail, version); err != nil {
		return o, err
	}
	if err := o.check(); err != nil {
		return o, err
	}
	return o, daemon.CheckOverlap(fs, "metrics-address", "health-probe-address", "pprof-address")
}

// check judges what the parser does not.
func (o *options) check() error {
	for _, id := range []struct{ flag, value, what string }{
		{"cluster-id", o.clusterID, "the ID of this cluster"},
		{"peer-id", o.peerID, "the ID of the provider"},
		{"tenant-namespace", o.tenantNamespace, "the name of a namespace"},
		{"namespace", o.namespace, "the name of a namespace"},
	} {
		switch {
		case id.value == "":
			return daemon.Usagef("--%s is required: %s", id.flag, id.what)
		case len(validation.IsDNS1123Label(id.value)) > 0:
			return daemon.Usagef("--%s: %q is not %s: lower-case letters, digits, dashes", id.flag, id.value, id.what)
		}
	}
	if o.clusterID == o.peerID {
		return daemon.Usagef("--peer-id: %q is the ID of this cluster", o.peerID)
	}
	if o.port == 0 {
		return daemon.Usagef("--listen-port: 0 is not a TCP port")
	}
	if o.lease < minLease {
		return daemon.Usagef("--node-lease-duration: %v is less than %v", o.lease, minLease)
	}
	if !o.address.IsValid() {
		text := os.Getenv("POD_IP")
		address, err := netip.ParseAddr(text)
		if err != nil {
			return daemon.Usagef("--node-ip or POD_IP is required: where the API server reaches this process%s", suffix(text))
		}
		o.address = address
	}
	return nil
}

// suffix shows a value that does not parse.
func suffix(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf("; %q is no address", text)
}
