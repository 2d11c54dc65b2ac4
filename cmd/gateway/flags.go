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
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// options are the flags of the gateway, checked.
type options struct {
	manifests    string
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
  gateway status [--admin-socket PATH] [-o text|json]

DIR holds YAML files with the objects of the peering, as a cluster holds them:
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
	fs.StringVar(&o.manifests, "manifests", "", "`DIR` with the objects of the peering (required)")
	fs.Uint16Var(&o.genevePort, "geneve-port", 6091, "UDP `port` of the node tunnels, here and on the nodes")
	bind := fs.String("bind-address", "", "local `IP` of the node tunnels and of WireGuard (default: all addresses)")
	metrics := fs.String("metrics-address", "127.0.0.1:8082", "`IP:port` of the Prometheus metrics, /metrics; 0 is off")
	health := fs.String("health-probe-address", "127.0.0.1:8083", "`IP:port` of /healthz and /readyz; 0 is off")
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
	if o.manifests == "" {
		return o, usagef("--manifests is required: the directory with the objects of the peering")
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
