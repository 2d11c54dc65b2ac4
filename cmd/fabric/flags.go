package main

import (
	"io"
	"math"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/node/fabric"
	"github.com/sluice-net/sluice/node/hostnet"
)

// metricsAddress is where metrics are served by default.
const metricsAddress = "127.0.0.1:8092"

// options are the flags of the node agent, checked.
type options struct {
	nodeName       string
	manifests      string // empty: in a cluster
	kubeconfig     string // where manifests is empty; empty: as a pod
	link           string // auto, or a hostnet.Kind
	port           uint16
	rulePriority   uint32
	fullMasquerade bool
	takeOver       bool
	liqoTables     []string
	udpGSO         bool
	udpGRO         bool
	queues         int // zero: by processors
	listen         daemon.Addresses
	log            daemon.Log
	idle           []string // flags of Liqo that have no effect
}

// maxQueues is how many queues node/tunlink uses at most.
const maxQueues = 16

const usageHead = `fabric is the node agent. It connects the pods of this node with the gateways of
the peerings: a tunnel to each gateway, the routes that lead into it, and rules
that keep the addresses of pods from being masqueraded. It needs the capability
NET_ADMIN in the network namespace of the node, and nothing else.

Usage:
  fabric --node-name NAME [--kubeconfig FILE] [flags]
  fabric --node-name NAME --manifests DIR [flags]
  fabric status [--admin-socket PATH] [-o text|json] [-a]
  fabric metrics [--metrics-address IP:port]
  fabric cleanup [--dry-run] [--leave-links]
  fabric count --link LINK --pod ADDR --peer ADDR [--port PORT]

It is configured by the objects InternalFabric, GeneveTunnel and InternalNode, and
by the CIDRs of Configuration, Network and IP. In a cluster they come from the API
server, and a DaemonSet runs one fabric on each node. Standalone (--manifests)
they are YAML files in DIR, the same as the gateway's, so that a host outside a
cluster can be a node. The gateway must know the address that the node's packets
come from: it is in the status of the InternalNode, in the API server or in
DIR/status/internalnode.yaml.

A tunnel is the first of these that the kernel supports:
  geneve   a Geneve device of the kernel
  vxlan    a VXLAN device of the kernel, on the same UDP port; gateways answer in
           VXLAN
  tun      a TUN device; fabric speaks Geneve itself
The log, the metrics and 'fabric status' show which one was chosen, and why.

Everything that fabric makes carries its mark, and it touches nothing else: links
named liqo.* with an alias that begins with "sluice: ", routing table 6091, one
rule for each IP version, and the nftables table sluice-fabric. When fabric stops,
all of it stays, so that a restart loses no packet (links of kind tun pause).
'fabric cleanup' removes it.

With --take-over-liqo it takes the place of Liqo's node agent: Liqo's Geneve links
become its own, and Liqo's rules, routes and nftables tables go as soon as everything
of fabric is in force. 'fabric cleanup --leave-links' is the way back.

Flags:
`

const usageTail = `
Examples:
  # On a host outside a cluster, with the objects in /etc/sluice.
  fabric --manifests /etc/sluice --node-name edge-1
  fabric status

  # On a node, from a terminal instead of in a pod.
  fabric --node-name worker-1 --kubeconfig fabric.kubeconfig

  # On a node where Liqo's node agent was at work until now.
  fabric --node-name worker-1 --take-over-liqo --liqo-table milan-masquerade-bypass

  # Remove everything that fabric made on this node, after it has stopped.
  fabric cleanup --dry-run
  fabric cleanup

The flags of Liqo's node agent are accepted, too; the log names those that have no
effect here.

Environment: NODE_NAME is the default of --node-name. GOMAXPROCS sets the number
of processors that fabric uses.

Signals: SIGTERM and SIGINT stop fabric within two seconds.
Exit status: 0 after a signal, 1 after an error, which is printed.
`

const statusHead = `status shows the state of a running fabric: tunnels and their traffic, addresses,
routes, rules and translation, and how they differ from the desired state. If no
fabric is running, it shows what is in the kernel.

Usage:
  fabric status [--admin-socket PATH] [-o text|json] [-a]

Flags:
`

const statusTail = `
Examples:
  fabric status
  fabric status -o json | jq .tunnels
`

// aliases are Liqo's names.
var aliases = map[string]string{
	"nodename":                  "node-name",
	"health-probe-bind-address": "health-probe-address",
}

// parseFlags reads the command line of the node agent. After --help
// and --version, which it answers on stdout, the error is pflag.ErrHelp.
func parseFlags(args []string, stdout io.Writer) (options, error) {
	o := options{}
	fs := daemon.NewFlagSet(string(program), aliases)
	fs.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "`NAME` of this node's InternalNode; in a cluster it is the name of the Node")
	fs.StringVar(&o.manifests, "manifests", "", "`DIR` with the objects, for a host outside a cluster")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default: the service account of the pod)")
	fs.StringVar(&o.link, "link", fabric.LinkAuto, "`kind` of the tunnels: auto, geneve, vxlan or tun")
	fs.Uint16Var(&o.port, "geneve-port", geneve.DefaultPort, "UDP `port` of the tunnels, here and at the gateways")
	fs.Uint32Var(&o.rulePriority, "rule-priority", hostnet.RulePriority, "`priority` of the policy rules that lead to the tunnels: after those of the CNI, before 32766")
	fs.BoolVar(&o.fullMasquerade, "full-masquerade", false, "hide the addresses of pods from the peers, behind the unknown-source address")
	fs.BoolVar(&o.takeOver, "take-over-liqo", false, "take the place of Liqo's node agent: keep its Geneve links, and remove its rules, routes and tables as soon as those of fabric are in force")
	fs.StringSliceVar(&o.liqoTables, "liqo-table", nil, "with --take-over-liqo: `NAME` of an nftables table of Liqo's node agent (spec.table.name of a FirewallConfiguration); may be repeated")
	fs.BoolVar(&o.udpGSO, "udp-gso", true, "links of kind tun: send runs of packets in one system call (UDP_SEGMENT); =false if the kernel corrupts them")
	fs.BoolVar(&o.udpGRO, "udp-gro", true, "links of kind tun: receive runs of packets in one system call (UDP_GRO); =false if the kernel corrupts them")
	fs.IntVar(&o.queues, "tun-queues", 0, "links of kind tun: `number` of queues of a device (default: depends on the processors)")
	program.Vars(fs, &o.listen, &o.log, metricsAddress, "127.0.0.1:8091")
	addIdleFlags(fs)
	if err := program.ParseFlags(fs, args, stdout, usageHead, usageTail, version); err != nil {
		return o, err
	}
	o.idle = setIdleFlags(fs)
	if err := o.check(fs); err != nil {
		return o, err
	}
	return o, daemon.CheckOverlap(fs, "metrics-address", "health-probe-address", "pprof-address")
}

// check judges what the parser does not.
func (o *options) check(fs *pflag.FlagSet) error {
	switch {
	case o.nodeName == "":
		return daemon.Usagef("--node-name NAME or NODE_NAME is required: which InternalNode this node is")
	case o.manifests != "" && o.kubeconfig != "":
		return daemon.Usagef("--manifests and --kubeconfig exclude each other: the objects come from files or from an API server")
	case fs.Changed("manifests") && o.manifests == "":
		return daemon.Usagef("--manifests: the name of the directory is empty")
	case o.link != fabric.LinkAuto && !slices.Contains(hostnet.Kinds, hostnet.Kind(o.link)):
		return daemon.Usagef("--link: %q is not auto, geneve, vxlan or tun", o.link)
	case o.port == 0:
		return daemon.Usagef("--geneve-port: 0 is not a UDP port")
	case o.rulePriority == 0 || o.rulePriority >= mainPriority:
		return daemon.Usagef("--rule-priority: %d is not from 1 to %d: the main table, which comes at %d, would get the packets first", o.rulePriority, mainPriority-1, mainPriority)
	case len(o.liqoTables) > 0 && !o.takeOver:
		return daemon.Usagef("--liqo-table is of no use without --take-over-liqo")
	case o.queues < 0 || o.queues > maxQueues:
		return daemon.Usagef("--tun-queues: %d is not from 1 to %d, or 0 for a number by processors", o.queues, maxQueues)
	}
	for _, name := range o.liqoTables {
		if why := badLiqoTable(name); why != "" {
			return daemon.Usagef("--liqo-table: %q %s", name, why)
		}
	}
	return nil
}

// mainPriority is where the kernel puts the rule that leads to the main table.
const mainPriority = math.MaxInt16 - 1
