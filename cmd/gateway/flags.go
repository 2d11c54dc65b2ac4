package main

import (
	"io"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/tunnel"
)

// metricsAddress is where metrics are served by default.
const metricsAddress = "127.0.0.1:8082"

// options are the flags of the gateway, checked.
type options struct {
	manifests  string         // empty: in a cluster
	cluster    clusterOptions // where manifests is empty
	ping       control.Ping
	genevePort uint16
	bind       netip.Addr
	listen     daemon.Addresses
	log        daemon.Log
	sources    dataplane.SourceCheck
	udpGSO     bool
	udpGRO     bool
	sockets    int // towards the nodes; 0: as many as nodeSockets says
	services   bool
	pathMTU    bool
}

const usageHead = `gateway connects this cluster to one peer: it receives packets from the nodes in
Geneve (or VXLAN) tunnels, translates their addresses and sends them to the
peer's gateway through WireGuard. It needs no privileges.

Usage:
  gateway --manifests DIR [flags]
  gateway --name NAME --namespace NS --remote-cluster-id ID --mode server|client [flags]
  gateway status [--admin-socket PATH] [-o text|json]
  gateway metrics [--metrics-address IP:port]
  gateway probe [flags]
  gateway capture -w FILE [flags]
  gateway drops [-f] [flags]
  gateway filter --from IP:port --to IP:port [flags]

The gateway is configured by the objects of the peering, from one of two sources.

In a cluster (--name) they come from the API server. This is how the controller
runs the gateway, in a pod of the Deployment gw-NAME; by hand it needs
--kubeconfig and the rights of a gateway's service account. It waits for objects
that do not exist yet, and keeps working with those it has while the API server
is unavailable. The state of the tunnel is in the Connection gw-NAME. With
--leader-election several replicas share one peering: one carries the traffic,
the others stand by.

Standalone (--manifests) it needs no cluster: DIR holds YAML files with the same
objects:
  GatewayServer or GatewayClient   one; the end of the tunnel, its port and MTU
  Secret                           data.privateKey: this gateway's WireGuard key
  PublicKey                        the peer's key; may come later
  Configuration                    spec.local and spec.remote: the CIDRs of both
                                   clusters; status.remote: the CIDRs by which
                                   the peer is reached here
  InternalFabric, InternalNode,    the nodes: address, VNI
  GeneveTunnel
  RouteConfiguration               which pods live on which node
  IP                               single hosts made reachable for the peer
  ExportedService                  with --services: Services offered to the peer
Changes take effect within a second. If a file has a mistake, the gateway reports
it and keeps the configuration in force. It writes the state of the tunnel to
DIR/status/connection.yaml, and with --services what the peer offers to
DIR/status/services.yaml, from which clusterdns --manifests DIR answers.

In a cluster, changes also take effect within a second, or within a few with tens
of thousands of pods. A bad object is left out and reported in the Connection;
the rest is applied.

Flags:
`

const usageTail = `
Examples:
  # Run with the objects in /etc/sluice, and show the status.
  gateway --manifests /etc/sluice
  gateway status

  # Two gateways on one machine: each needs an address and a socket of its own.
  gateway --manifests a --bind-address 127.0.0.1 --admin-socket a.sock
  gateway --manifests b --bind-address 127.0.0.2 --admin-socket b.sock \
      --metrics-address 127.0.0.2:8082 --health-probe-address 127.0.0.2:8083

  # What the controller runs in a pod, as one of several replicas.
  gateway --name milan --namespace liqo-tenant-milan --remote-cluster-id milan \
      --mode server --leader-election --pod-name gw-milan-7d4b9 --node-name worker-1 \
      --metrics-address :8082 --health-probe-address :8083

  # The same outside a pod, to debug a problem.
  gateway --name milan --namespace liqo-tenant-milan --remote-cluster-id milan \
      --mode server --kubeconfig gateway.kubeconfig --keys-dir ./keys

Environment: GOMAXPROCS sets the number of processors that the gateway uses. The
default is half of the available processors, as the kernel needs the others; of
two it uses both, one for each direction. From three on, all but one encrypt what
the nodes send, and as many decrypt what the peer sends if that is much
(--node-sockets).

Signals: SIGINT and SIGTERM stop the gateway within two seconds. With
--leader-election, a leader that receives SIGTERM frees its Lease and keeps
forwarding until another replica leads, for 20 seconds at most.
Exit status: 0 after a signal, 1 after an error, which is printed.
`

const statusHead = `status shows the state of a running gateway: the peer, the nodes, translations,
routes, flows, drops by reason, the offloads in use and memory.

Usage:
  gateway status [--admin-socket PATH] [-o text|json] [-a]

Flags:
`

const statusTail = `
Examples:
  gateway status
  gateway status -o json | jq .dataPlane.egress.verdicts
`

// parseFlags reads the command line of the gateway. After --help
// and --version, which it answers on stdout, the error is pflag.ErrHelp.
func parseFlags(args []string, stdout io.Writer) (options, error) {
	o := options{}
	fs := newFlagSet()
	fs.StringVar(&o.manifests, "manifests", "", "`DIR` with the objects of the peering, for a gateway outside a cluster")
	cluster := addClusterFlags(fs)
	fs.Uint16Var(&o.genevePort, "geneve-port", 6091, "UDP `port` of the node tunnels, here and on the nodes")
	bind := fs.String("bind-address", "", "local `IP` of the node tunnels and of WireGuard (default: all addresses)")
	daemon.AddrPortVar(fs, &o.listen.Metrics, "metrics-address", metricsAddress, "`IP:port` of the Prometheus metrics, /metrics; off if 0 or empty")
	daemon.AddrPortVar(fs, &o.listen.Health, "health-probe-address", "127.0.0.1:8083", "`IP:port` of /healthz and /readyz; off if 0 or empty")
	fs.DurationVar(&o.ping.Interval, "ping-interval", 0, "`time` between pings through the tunnel (default 2s)")
	fs.IntVar(&o.ping.LossThreshold, "ping-loss-threshold", 0, "`number` of unanswered intervals after which the Connection is in Error (default 5)")
	fs.DurationVar(&o.ping.UpdateInterval, "ping-update-status-interval", 0, "`time` between updates of the latency in the Connection; ten times as long, but 100s at most, while it stays about the same (default 10s)")
	fs.StringVar(&o.listen.AdminSocket, "admin-socket", "", "`PATH` of the socket for 'gateway status' (default "+program.AdminSocketText()+")")
	daemon.LogVar(fs, &o.log)
	fs.TextVar(&o.sources, "strict-source", dataplane.SourceRouted, "routed: drop packets of a pod that come from a node other than that of its route; strict: also drop packets of pods without a route, such as new ones for a moment; off: any node can send as any pod")
	fs.Lookup("strict-source").NoOptDefVal = dataplane.SourceStrict.String()
	fs.BoolVar(&o.udpGSO, "udp-gso", true, "send runs of packets in one system call (UDP_SEGMENT); =false if the kernel corrupts them")
	fs.BoolVar(&o.udpGRO, "udp-gro", true, "receive runs of packets in one system call (UDP_GRO); =false if the kernel corrupts them")
	fs.IntVar(&o.sockets, "node-sockets", 0, "`number` of UDP sockets of the node tunnels, each read by a processor of its own, which encrypts what it reads; as many decrypt what the peer sends (default: one less than GOMAXPROCS, 1 to 4)")
	fs.BoolVar(&o.pathMTU, "path-mtu-discovery", false, "find the largest packet that the path to the peer carries, and use this size, up to spec.mtu; the links of nodes keep spec.mtu as their MTU")
	fs.Bool("wireguard-workers", false, "")
	_ = fs.MarkDeprecated("wireguard-workers", "it does nothing: see --node-sockets") // fails for unknown flags only
	fs.BoolVar(&o.services, "services", false, "exchange Services with the peer's gateway, on TCP port 6092 in the tunnel")
	daemon.AddrPortVar(fs, &o.listen.Pprof, "pprof-address", "off", "`IP:port` of the Go profiler, or off")
	if err := program.ParseFlags(fs, args, stdout, usageHead, usageTail, version); err != nil {
		return o, err
	}
	if err := o.takeMode(fs, cluster); err != nil {
		return o, err
	}
	if err := checkPing(o.ping); err != nil {
		return o, err
	}
	if most := tunnel.MaxReaders + 1; o.sockets < 0 || o.sockets > most {
		return o, daemon.Usagef("--node-sockets: %d is not a number of sockets: 1 to %d, or 0 for the default", o.sockets, most)
	}
	if o.genevePort == 0 {
		return o, daemon.Usagef("--geneve-port: 0 is not a UDP port")
	}
	if *bind != "" {
		var err error
		if o.bind, err = netip.ParseAddr(*bind); err != nil {
			return o, daemon.Usagef("--bind-address: %q is not an IP address", *bind)
		}
	}
	return o, daemon.CheckOverlap(fs, "metrics-address", "health-probe-address", "pprof-address")
}

func newFlagSet() *pflag.FlagSet {
	return daemon.NewFlagSet(string(program), map[string]string{"health-probe-bind-address": "health-probe-address"}) // Liqo's name
}
