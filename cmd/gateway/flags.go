package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/controlplane/gatewaysync"
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// options are the flags of the gateway, checked.
type options struct {
	manifests    string         // empty: in a cluster
	cluster      clusterOptions // where manifests is empty
	ping         gatewaysync.Ping
	genevePort   uint16
	bind         netip.Addr
	metrics      netip.AddrPort // not valid: off
	health       netip.AddrPort // not valid: off
	pprof        netip.AddrPort // not valid: off
	adminSocket  string
	logLevel     slog.Level
	logJSON      bool
	strictSource bool
	udpGSO       bool
	udpGRO       bool
	version      bool
}

const usageHead = `gateway joins this cluster to one peer: it takes packets from the nodes in
Geneve (or VXLAN) tunnels, translates their addresses and carries them to the
peer's gateway through WireGuard. It needs no privilege.

Usage:
  gateway --manifests DIR [flags]
  gateway --name NAME --namespace NS --remote-cluster-id ID --mode server|client [flags]
  gateway status [--admin-socket PATH] [-o text|json]

It works by the objects of the peering, which come from one of two places.

In a cluster (--name) they come from the API server. The controller runs the
gateway so, in a pod of the Deployment gw-NAME; by hand it needs --kubeconfig and
the rights of a gateway's service account. It waits for what is not there yet,
and goes on by what it has while the API server is away. The state of the tunnel
is in the Connection gw-NAME. With --leader-election several replicas share one
peering: one carries the traffic, the others stand by to take over.

Standalone (--manifests), it needs no cluster: DIR holds YAML files with the same
objects:
  GatewayServer or GatewayClient   one; the end of the tunnel, its port and MTU
  Secret                           data.privateKey: this gateway's WireGuard key
  PublicKey                        the peer's key; may come later
  Configuration                    spec.local and spec.remote: the CIDRs of both
                                   clusters; status.remote: what stands for the
                                   peer's CIDRs here, where both use the same
  InternalFabric, InternalNode,    the nodes: address, VNI
  GeneveTunnel
  RouteConfiguration               which pods live on which node
  IP                               single hosts made reachable for the peer
Changes are applied within a second. Files with a mistake are refused as a
whole and reported; what was in force stays. The state of the tunnel is kept in
DIR/status/connection.yaml.

In a cluster, too, a change is applied within a second, or a few where there are
tens of thousands of pods. There a bad object is left out and reported in the
Connection; the rest is applied.

Flags:
`

const usageTail = `
Examples:
  # Run with the objects in /etc/sluice, and look at what it does.
  gateway --manifests /etc/sluice
  gateway status

  # Two gateways on one machine: give each an address and a socket of its own.
  gateway --manifests a --bind-address 127.0.0.1 --admin-socket a.sock
  gateway --manifests b --bind-address 127.0.0.2 --admin-socket b.sock \
      --metrics-address 127.0.0.2:8082 --health-probe-address 127.0.0.2:8083

  # What the controller runs in a pod, as one of several replicas.
  gateway --name milan --namespace liqo-tenant-milan --remote-cluster-id milan \
      --mode server --leader-election --pod-name gw-milan-7d4b9 --node-name worker-1 \
      --metrics-address :8082 --health-probe-address :8083

  # The same outside of a pod, to look into a problem.
  gateway --name milan --namespace liqo-tenant-milan --remote-cluster-id milan \
      --mode server --kubeconfig gateway.kubeconfig --keys-dir ./keys

Environment: GOMAXPROCS sets how many processors the gateway computes on; by
default half of those it may use, as the kernel needs the others.

Signals: SIGTERM and SIGINT end the gateway within two seconds.
Exit status: 0 after a signal, 1 for a mistake or a failure, with its reason.
`

// parseFlags reads the command line of the gateway. After --help, which it
// answers on stdout, the error is pflag.ErrHelp.
func parseFlags(args []string, stdout io.Writer) (options, error) {
	o := options{}
	fs := newFlagSet("gateway")
	fs.StringVar(&o.manifests, "manifests", "", "`DIR` with the objects of the peering; for a gateway outside of clusters")
	cluster := addClusterFlags(fs)
	fs.Uint16Var(&o.genevePort, "geneve-port", 6091, "UDP `port` of the node tunnels, here and on the nodes")
	bind := fs.String("bind-address", "", "local `IP` of the node tunnels and of WireGuard (default: all addresses)")
	metrics := fs.String("metrics-address", "127.0.0.1:8082", "`IP:port` of the Prometheus metrics, /metrics; 0 is off")
	health := fs.String("health-probe-address", "127.0.0.1:8083", "`IP:port` of /healthz and /readyz; 0 is off")
	fs.DurationVar(&o.ping.Interval, "ping-interval", 0, "`time` between two pings through the tunnel (default 2s)")
	fs.IntVar(&o.ping.LossThreshold, "ping-loss-threshold", 0, "`number` of intervals without an answer after which the Connection is in Error (default 5)")
	fs.DurationVar(&o.ping.UpdateInterval, "ping-update-status-interval", 0, "`time` after which the Connection gets a new latency (default 10s)")
	fs.StringVar(&o.adminSocket, "admin-socket", "", "`PATH` of the socket for 'gateway status' (default "+defaultSocketText+")")
	level := fs.String("log-level", "info", "`level` of the log: debug, info, warn or error")
	format := fs.String("log-format", "text", "`format` of the log: text or json")
	fs.BoolVar(&o.strictSource, "strict-source", false, "drop packets of a pod that come from another node than its route says")
	fs.BoolVar(&o.udpGSO, "udp-gso", true, "send runs of packets in one system call (UDP_SEGMENT); =false for kernels that spoil them")
	fs.BoolVar(&o.udpGRO, "udp-gro", true, "receive runs of packets in one system call (UDP_GRO); =false for kernels that spoil them")
	pprof := fs.String("pprof-address", "off", "`IP:port` of the Go profiler, or off")
	fs.BoolVar(&o.version, "version", false, "print the version and exit")
	if err := parse(fs, args, stdout, usageHead, usageTail); err != nil || o.version {
		return o, err
	}
	if err := o.takeMode(fs, cluster); err != nil {
		return o, err
	}
	if err := checkPing(o.ping); err != nil {
		return o, err
	}
	if o.genevePort == 0 {
		return o, usagef("--geneve-port: 0 is not a UDP port")
	}
	var err error
	if *bind != "" {
		if o.bind, err = netip.ParseAddr(*bind); err != nil {
			return o, usagef("--bind-address: %q is not an IP address", *bind)
		}
	}
	addresses := []struct {
		flag, text string
		to         *netip.AddrPort
	}{{"metrics-address", *metrics, &o.metrics}, {"health-probe-address", *health, &o.health}, {"pprof-address", *pprof, &o.pprof}}
	for i, a := range addresses {
		if *a.to, err = parseListenAddress(a.text); err != nil {
			return o, usagef("--%s: %w", a.flag, err)
		}
		for _, b := range addresses[:i] {
			if overlap(*a.to, *b.to) {
				return o, usagef("--%s and --%s ask for the same TCP port %d", b.flag, a.flag, a.to.Port())
			}
		}
	}
	if err := o.logLevel.UnmarshalText([]byte(*level)); err != nil {
		return o, usagef("--log-level: %q is not debug, info, warn or error", *level)
	}
	if o.logJSON = *format == "json"; !o.logJSON && *format != "text" {
		return o, usagef("--log-format: %q is neither text nor json", *format)
	}
	if o.adminSocket == "" {
		o.adminSocket = defaultAdminSocket()
	}
	return o, nil
}

func newFlagSet(name string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard) // messages are ours
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "health-probe-bind-address" { // Liqo's name
			name = "health-probe-address"
		}
		return pflag.NormalizedName(name)
	})
	fs.Usage = func() {}
	return fs
}

// parse reads args and answers --help.
func parse(fs *pflag.FlagSet, args []string, stdout io.Writer, head, tail string) error {
	switch err := fs.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, head, fs.FlagUsagesWrapped(100), tail)
		return err
	case err != nil:
		return usageError{plainFlagError(err)}
	case fs.NArg() > 0:
		return usagef("unexpected argument %q", fs.Arg(0))
	}
	return nil
}

// plainFlagError says what a flag takes instead of how parsing failed.
func plainFlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	name, value := invalid.GetFlag().Name, invalid.GetValue()
	switch invalid.GetFlag().Value.Type() {
	case "uint16":
		return fmt.Errorf("--%s: %q is not a port: 1 to 65535", name, value)
	case "bool":
		return fmt.Errorf("--%s: %q is neither true nor false", name, value)
	case "duration":
		return fmt.Errorf("--%s: %q is not a time such as 2s or 500ms", name, value)
	case "int":
		return fmt.Errorf("--%s: %q is not a number", name, value)
	}
	return err
}

// overlap tells whether two servers cannot listen both.
func overlap(a, b netip.AddrPort) bool {
	return a.IsValid() && b.IsValid() && a.Port() == b.Port() && a.Port() != 0 &&
		(a.Addr() == b.Addr() || a.Addr().IsUnspecified() || b.Addr().IsUnspecified())
}

// parseListenAddress reads "IP:port", ":port" for all addresses, or one of the
// words that mean off.
func parseListenAddress(s string) (netip.AddrPort, error) {
	switch s {
	case "", "0", "off":
		return netip.AddrPort{}, nil
	}
	if port, ok := strings.CutPrefix(s, ":"); ok {
		s = "[::]:" + port
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return a, fmt.Errorf("%q is not IP:port, such as 127.0.0.1:8082", s)
	}
	return a, nil
}

func newLogger(w io.Writer, o options) *slog.Logger {
	h := &slog.HandlerOptions{Level: o.logLevel}
	if o.logJSON {
		return slog.New(slog.NewJSONHandler(w, h))
	}
	return slog.New(slog.NewTextHandler(w, h))
}

// versionLine names the program and what it was built from.
func versionLine() string {
	return fmt.Sprintf("sluice gateway %s (%s, %s/%s)", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// version is set by the linker: see the Makefile.
var version string

// versionText is the version of the build, else that of the module, else the
// commit of a build from a work tree.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

// defaultSocketText explains defaultAdminSocket.
const defaultSocketText = "$XDG_RUNTIME_DIR/sluice/gateway.sock, else /run/sluice/gateway.sock, else in the temporary directory"

// defaultAdminSocket is the same for a gateway and for a status command of the
// same user. Several gateways of one user need --admin-socket. A runtime
// directory that cannot be used, as after su, is passed over.
func defaultAdminSocket() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && writable(dir) {
		return dir + "/sluice/gateway.sock"
	}
	if os.Getuid() == 0 || writable("/run/sluice") {
		return "/run/sluice/gateway.sock"
	}
	return fmt.Sprintf("%s/sluice-%d/gateway.sock", strings.TrimSuffix(os.TempDir(), "/"), os.Getuid())
}
