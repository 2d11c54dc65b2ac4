package main

import (
	"io"
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"github.com/sluice-net/sluice/clusterdns"
	"github.com/sluice-net/sluice/cmd/internal/daemon"
)

// maxTTL is a day: a longer time only keeps what is wrong.
const maxTTL = 86400

// metricsAddress is where metrics are served by default.
const metricsAddress = ":8082"

// options are the flags, checked.
type options struct {
	kubeconfig string // empty: as a pod
	manifests  string // of a gateway outside clusters; empty: a cluster
	zone       string
	ttl        uint32
	address    netip.AddrPort
	listen     daemon.Addresses
	log        daemon.Log
}

const usageHead = `clusterdns answers DNS queries for Services that clusters
import from each other: web.shop.svc.clusterset.local is the ServiceImport web in
the namespace shop. It follows the ServiceImports of its cluster and their
EndpointSlices, no matter who writes them. Queries for all other domains are
refused.

Outside clusters it follows what a gateway hears of its peer: every name stands
for the ready pods of the Service, at the addresses by which they are reached.

Usage:
  clusterdns [flags]
  clusterdns status [--admin-socket PATH] [-o text|json]
  clusterdns metrics [--metrics-address IP:port]

The DNS server of the cluster must forward the domain to it. In CoreDNS:
  clusterset.local:53 {
      forward . ADDRESS-OF-ITS-SERVICE
  }

Flags:
`

const usageTail = `
Examples:
  # From a terminal. In a cluster a Deployment runs clusterdns.
  clusterdns --kubeconfig rome.yaml --listen-address 127.0.0.1:1053
  dig -p 1053 @127.0.0.1 web.shop.svc.clusterset.local

  # Beside a gateway outside clusters.
  clusterdns --manifests /etc/sluice --listen-address 127.0.0.1:1053

While the API server is unavailable, clusterdns answers from what it read last.

Signals: SIGTERM and SIGINT stop clusterdns within two seconds.
Exit status: 0 after a signal, 1 after an error, which is printed.
`

const statusHead = `status shows the state of a running clusterdns: the number of
Services that it knows, and its answers so far.

Usage:
  clusterdns status [--admin-socket PATH] [-o text|json]

Flags:
`

const statusTail = `
Examples:
  clusterdns status
  clusterdns status -o json | jq .answers
`

// parseFlags reads the command line. After --help and --version, which it answers on stdout, the error is pflag.ErrHelp.
func parseFlags(args []string, stdout io.Writer) (options, error) {
	var o options
	fs := daemon.NewFlagSet(string(program), nil)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default: the service account of the pod)")
	fs.StringVar(&o.manifests, "manifests", "", "`DIR` with the objects of a gateway outside clusters, which runs with --services")
	fs.StringVar(&o.zone, "zone", clusterdns.DefaultZone, "`DOMAIN` of the cluster set")
	fs.Uint32Var(&o.ttl, "ttl", clusterdns.DefaultTTL, "`seconds` for which an answer may be cached")
	daemon.AddrPortVar(fs, &o.address, "listen-address", ":1053", "`IP:port` of the DNS server, UDP and TCP")
	program.Vars(fs, &o.listen, &o.log, metricsAddress, ":8081")
	if err := program.ParseFlags(fs, args, stdout, usageHead, usageTail, version); err != nil {
		return o, err
	}
	if err := o.check(); err != nil {
		return o, err
	}
	return o, daemon.CheckOverlap(fs, "listen-address", "metrics-address", "health-probe-address", "pprof-address")
}

// check judges what the parser does not.
func (o *options) check() error {
	if o.manifests != "" && o.kubeconfig != "" {
		return daemon.Usagef("--manifests and --kubeconfig exclude each other: the Services are those of a gateway outside clusters, or of a cluster")
	}
	if _, ok := dns.IsDomainName(o.zone); !ok || o.zone == "" || o.zone == "." || strings.ContainsAny(o.zone, `\ `) {
		return daemon.Usagef("--zone: %q is not a domain, such as %s", o.zone, clusterdns.DefaultZone)
	}
	if o.ttl > maxTTL {
		return daemon.Usagef("--ttl: %d seconds are more than a day", o.ttl)
	}
	if !o.address.IsValid() {
		return daemon.Usagef("--listen-address: a DNS server without an address answers nobody")
	}
	return nil
}
