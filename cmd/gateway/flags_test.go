package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/gateway/cluster"
	"github.com/sluice-net/sluice/gateway/control"
)

func TestParseFlags(t *testing.T) {
	defaults := options{
		manifests: "d", genevePort: 6091, udpGSO: true, udpGRO: true,
		listen: daemon.Addresses{
			Metrics: netip.MustParseAddrPort("127.0.0.1:8082"), Health: netip.MustParseAddrPort("127.0.0.1:8083"),
		},
	}
	tests := []struct {
		name   string
		args   []string
		change func(*options)
	}{
		{"defaults", nil, func(*options) {}},
		{"everything", []string{
			"--geneve-port=7000", "--bind-address=::1", "--metrics-address=[::1]:1", "--health-probe-address=:2", "--admin-socket=s",
			"--log-level=debug", "--log-format=json", "--strict-source", "--udp-gso=false", "--udp-gro=false", "--wireguard-workers", "--node-sockets=3", "--path-mtu-discovery", "--pprof-address=127.0.0.1:3",
		}, func(o *options) {
			*o = options{
				manifests: "d", genevePort: 7000, bind: netip.MustParseAddr("::1"), log: daemon.Log{Level: slog.LevelDebug, JSON: true}, sources: dataplane.SourceStrict, sockets: 3, pathMTU: true,
				listen: daemon.Addresses{
					AdminSocket: "s",
					Metrics:     netip.MustParseAddrPort("[::1]:1"), Health: netip.MustParseAddrPort("[::]:2"), Pprof: netip.MustParseAddrPort("127.0.0.1:3"),
				},
			}
		}},
		{"off", []string{"--metrics-address=0", "--health-probe-address=off"}, func(o *options) {
			o.listen.Metrics, o.listen.Health = netip.AddrPort{}, netip.AddrPort{}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseFlags(append([]string{"--manifests=d"}, tt.args...), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := defaults
			tt.change(&want)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{}), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

// What the default templates pass.
func TestParseFlagsInACluster(t *testing.T) {
	got, err := parseFlags([]string{
		"--name=milan", "--namespace=tenant", "--remote-cluster-id=milan", "--gateway-uid=u-1", "--mode=client", "--node-name=worker-1",
		"--pod-name=gw-milan-a", "--leader-election", "--ping-interval=1s", "--ping-loss-threshold=3", "--ping-update-status-interval=5s",
		"--metrics-address=:8082", "--health-probe-bind-address=:8083", "--admin-socket=/run/sluice/gateway.sock",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := options{
		cluster: clusterOptions{
			Options: cluster.Options{
				Name: "milan", Namespace: "tenant", Type: networkingv1beta1.ConnectionClient, ClusterID: "milan", UID: "u-1",
				LiqoNamespace: "liqo", NodeName: "worker-1", KeysDir: "/etc/wireguard/keys",
			},
			Elect: true,
			Election: cluster.ElectionOptions{
				Identity: "gw-milan-a", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second,
			},
		},
		ping:       control.Ping{Interval: time.Second, LossThreshold: 3, UpdateInterval: 5 * time.Second},
		genevePort: 6091, udpGSO: true, udpGRO: true,
		listen: daemon.Addresses{
			AdminSocket: "/run/sluice/gateway.sock",
			Metrics:     netip.MustParseAddrPort("[::]:8082"), Health: netip.MustParseAddrPort("[::]:8083"),
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{}), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

func TestParseFlagsRefuses(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{nil, "--manifests DIR or --name NAME is required: where the objects of the peering come from"},
		{[]string{"--manifest=d"}, "unknown flag: --manifest"},
		{[]string{"--manifests=d", "--name=n"}, "--manifests and --name exclude each other: the objects come from files or from an API server"},
		{[]string{"--manifests=d", "--mode=server"}, "--mode is for a gateway in a cluster, with --name, not for --manifests"},
		{[]string{"--name=n"}, "--mode is required with --name: server or client"},
		{[]string{"--name=n", "--mode=both"}, `--mode: "both" is neither server nor client`},
		{[]string{"--name=n", "--mode=server"}, "--namespace is required with --name: that of the gateway object"},
		{[]string{"--name=n", "--mode=server", "--namespace=t"}, "--remote-cluster-id is required with --name: the ID of the peer's cluster"},
		{[]string{"--name=n", "--mode=server", "--namespace=t", "--remote-cluster-id=p", "--leader-election"}, "--pod-name is required with --leader-election: it tells the replicas apart"},
		{[]string{"--name=n", "--mode=server", "--namespace=t", "--remote-cluster-id=p", "--leader-election", "--pod-name=a", "--leader-election-lease-duration=5s"},
			"--leader-election-lease-duration: 5s must be longer than --leader-election-renew-deadline, 10s"},
		{[]string{"--name=n", "--mode=server", "--namespace=t", "--remote-cluster-id=p", "--leader-election", "--pod-name=a", "--leader-election-renew-deadline=1s"},
			"--leader-election-renew-deadline: 1s is shorter than --leader-election-retry-period, 5s"},
		{[]string{"--name=n", "--mode=server", "--leader-election-retry-period=2"}, `--leader-election-retry-period: "2" is not a time, such as 2s or 500ms`},
		{[]string{"--manifests=d", "--ping-interval=1ms"}, "--ping-interval: 1ms is too short: 10ms at least"},
		{[]string{"--manifests=d", "--ping-loss-threshold=-1"}, "--ping-loss-threshold: -1 is less than 1"},
		{[]string{"--manifests=d", "--ping-loss-threshold=many"}, `--ping-loss-threshold: "many" is not a number`},
		{[]string{"--manifests=d", "--ping-update-status-interval=-1s"}, "--ping-update-status-interval: -1s is negative"},
		{[]string{"--manifests=d", "extra"}, `unexpected argument "extra"`},
		{[]string{"--manifests=d", "--geneve-port=65536"}, `--geneve-port: "65536" is not a port: 1 to 65535`},
		{[]string{"--manifests=d", "--udp-gso=maybe"}, `--udp-gso: "maybe" is neither true nor false`},
		{[]string{"--manifests=d", "--metrics-address=:9", "--health-probe-address=127.0.0.1:9"}, "--metrics-address and --health-probe-address ask for the same TCP port 9"},
		{[]string{"--manifests=d", "--node-sockets=33"}, "--node-sockets: 33 is not a number of sockets: 1 to 32, or 0 for the default"},
		{[]string{"--manifests=d", "--node-sockets=-1"}, "--node-sockets: -1 is not a number of sockets: 1 to 32, or 0 for the default"},
		{[]string{"--manifests=d", "--geneve-port=0"}, "--geneve-port: 0 is not a UDP port"},
		{[]string{"--manifests=d", "--bind-address=localhost"}, `--bind-address: "localhost" is not an IP address`},
		{[]string{"--manifests=d", "--metrics-address=8082"}, `--metrics-address: "8082" is not IP:port, such as 127.0.0.1:8080`},
		{[]string{"--manifests=d", "--health-probe-address=a:1"}, `--health-probe-address: "a:1" is not IP:port, such as 127.0.0.1:8080`},
		{[]string{"--manifests=d", "--pprof-address=:x"}, `--pprof-address: ":x" is not IP:port, such as 127.0.0.1:8080`},
		{[]string{"--manifests=d", "--log-level=loud"}, `--log-level: "loud" is not debug, info, warn or error`},
		{[]string{"--manifests=d", "--log-format=xml"}, `--log-format: "xml" is neither text nor json`},
	}
	for _, tt := range tests {
		_, err := parseFlags(tt.args, nil)
		if !errors.As(err, new(daemon.UsageError)) || err.Error() != tt.want {
			t.Errorf("%q: got %v, want %s", tt.args, err, tt.want)
		}
	}
	if _, err := program.ParseStatusFlags([]string{"-o", "yaml"}, nil, statusHead, statusTail, daemon.WholeLists); !errors.As(err, new(daemon.UsageError)) {
		t.Errorf("status -o yaml: %v", err)
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if _, err := parseFlags([]string{"--help"}, &out); !errors.Is(err, pflag.ErrHelp) {
		t.Error(err)
	}
	daemontest.Golden(t, "help.txt", out.String())
	out.Reset()
	if _, err := program.ParseStatusFlags([]string{"-h"}, &out, statusHead, statusTail, daemon.WholeLists); !errors.Is(err, pflag.ErrHelp) {
		t.Error(err)
	}
	daemontest.Golden(t, "help-status.txt", out.String())
}
