package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/cmd/internal/daemontest"
)

func TestParseFlags(t *testing.T) {
	tests := []struct {
		name   string
		env    string // NODE_NAME
		args   string
		change func(*options)
	}{
		{"in a pod", "worker-1", "", func(o *options) { o.nodeName = "worker-1" }},
		{"a flag wins over the environment", "worker-1", "--node-name=edge", func(o *options) { o.nodeName = "edge" }},
		{"everything", "", "--node-name=edge --manifests=d --link=tun --geneve-port=7000 --rule-priority=9 --full-masquerade --udp-gso=false --udp-gro=false --tun-queues=2 " +
			"--metrics-address=[::1]:1 --health-probe-address=:2 --admin-socket=s --log-level=debug --log-format=json --pprof-address=127.0.0.1:3",
			func(o *options) {
				*o = options{
					nodeName: "edge", manifests: "d", link: "tun", port: 7000, rulePriority: 9, fullMasquerade: true, queues: 2,
					log: daemon.Log{Level: slog.LevelDebug, JSON: true},
					listen: daemon.Addresses{
						AdminSocket: "s",
						Metrics:     netip.MustParseAddrPort("[::1]:1"), Health: netip.MustParseAddrPort("[::]:2"), Pprof: netip.MustParseAddrPort("127.0.0.1:3"),
					},
				}
			}},
		{"in Liqo's place", "worker-1", "--take-over-liqo --liqo-table=a,b --liqo-table=c",
			func(o *options) { o.nodeName, o.takeOver, o.liqoTables = "worker-1", true, []string{"a", "b", "c"} }},
		// What Liqo's DaemonSet passes.
		{"as Liqo's node agent", "", "--nodename=worker-1 --podname=liqo-fabric-x --metrics-address=:8082 --health-probe-bind-address=:8081 --enable-nft-monitor=false " +
			"--enable-route-monitor --disable-arp --geneve-cleanup-interval=30m --reconcile-timeout=10s --disable-kernel-version-check --minimum-kernel-version=5.10.0 " +
			"--global-labels=a=b,c=d --global-annotations=e=f --geneve-port=6091",
			func(o *options) {
				o.nodeName = "worker-1"
				o.listen.Metrics, o.listen.Health = netip.MustParseAddrPort("[::]:8082"), netip.MustParseAddrPort("[::]:8081")
				o.idle = []string{"podname", "enable-nft-monitor", "enable-route-monitor", "disable-arp", "geneve-cleanup-interval", "reconcile-timeout",
					"disable-kernel-version-check", "minimum-kernel-version", "global-labels", "global-annotations"}
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("NODE_NAME", tt.env)
			got, err := parseFlags(strings.Fields(tt.args), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := options{
				link: "auto", port: 6091, rulePriority: 600, udpGSO: true, udpGRO: true,
				listen: daemon.Addresses{
					Metrics: netip.MustParseAddrPort("127.0.0.1:8092"), Health: netip.MustParseAddrPort("127.0.0.1:8091"),
				},
			}
			tt.change(&want)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{}), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			for _, name := range got.idle {
				if idleFlags[name] == "" {
					t.Errorf("no reason why --%s has no effect", name)
				}
			}
		})
	}
}

func TestParseFlagsRefuses(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for args, want := range map[string]string{
		"":                           "--node-name NAME or NODE_NAME is required: which InternalNode this node is",
		"--node=n":                   "unknown flag: --node",
		"--node-name=n extra":        `unexpected argument "extra"`,
		"--node-name=n --manifests=": "--manifests: the name of the directory is empty",
		"--node-name=n --manifests=d --kubeconfig=k":                            "--manifests and --kubeconfig exclude each other: the objects come from files or from an API server",
		"--node-name=n --link=wireguard":                                        `--link: "wireguard" is not auto, geneve, vxlan or tun`,
		"--node-name=n --geneve-port=0":                                         "--geneve-port: 0 is not a UDP port",
		"--node-name=n --geneve-port=x":                                         `--geneve-port: "x" is not a port: 1 to 65535`,
		"--node-name=n --rule-priority=32766":                                   "--rule-priority: 32766 is not from 1 to 32765: the main table, which comes at 32766, would get the packets first",
		"--node-name=n --rule-priority=0":                                       "--rule-priority: 0 is not from 1 to 32765: the main table, which comes at 32766, would get the packets first",
		"--node-name=n --rule-priority=-1":                                      `--rule-priority: "-1" is not a number`,
		"--node-name=n --liqo-table=t":                                          "--liqo-table is of no use without --take-over-liqo",
		"--node-name=n --take-over-liqo --liqo-table=t,nat":                     `--liqo-table: "nat" is a table of iptables`,
		"--node-name=n --take-over-liqo --liqo-table=sluice-fabric":             `--liqo-table: "sluice-fabric" is the table of fabric itself`,
		"--node-name=n --take-over-liqo --liqo-table=ip/t":                      `--liqo-table: "ip/t" is not the name of a table: give spec.table.name of a FirewallConfiguration`,
		"--node-name=n --tun-queues=17":                                         "--tun-queues: 17 is not from 1 to 16, or 0 for a number by processors",
		"--node-name=n --health-probe-address=:9 --metrics-address=127.0.0.1:9": "--metrics-address and --health-probe-address ask for the same TCP port 9",
	} {
		_, err := parseFlags(strings.Fields(args), nil)
		if !errors.As(err, new(daemon.UsageError)) || err.Error() != want {
			t.Errorf("%q: got %v, want %s", args, err, want)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for _, tt := range []struct {
		golden string
		args   []string
	}{
		{"help.txt", []string{"--help"}},
		{"help-status.txt", []string{"status", "-h"}},
		{"help-cleanup.txt", []string{"cleanup", "--help"}},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), tt.args, &out, &errs); code != 0 || errs.Len() > 0 {
			t.Errorf("%v: exit code %d, %s", tt.args, code, &errs)
		}
		daemontest.Golden(t, tt.golden, out.String())
	}
	var errs bytes.Buffer
	if code := run(t.Context(), []string{"stat"}, nil, &errs); code != 1 || !strings.Contains(errs.String(), `unknown command "stat"; the commands are: status, metrics, cleanup, count`) {
		t.Errorf("unknown command: exit code %d, %s", code, &errs)
	}
	if _, err := parseFlags([]string{"-h"}, new(bytes.Buffer)); !errors.Is(err, pflag.ErrHelp) {
		t.Error(err)
	}
}

func TestProcessors(t *testing.T) {
	for _, tt := range []struct{ available, queues, want int }{{1, 0, 1}, {2, 0, 2}, {64, 0, 4}, {64, 8, 8}, {2, 8, 2}} {
		if got := processors(tt.queues)(tt.available); got != tt.want {
			t.Errorf("of %d processors, with %d queues: %d, want %d", tt.available, tt.queues, got, tt.want)
		}
	}
}
