package main

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/reflection"
	"github.com/sluice-net/sluice/virtualkubelet"
)

const required = "--cluster-id rome --peer-id milan --tenant-namespace liqo-tenant-milan"

func TestParseFlags(t *testing.T) {
	t.Setenv("POD_IP", "10.0.0.7")
	for name, c := range map[string]struct {
		args   string
		change func(*options)
	}{
		"in a pod": {required, func(*options) {}},
		"everything": {required + " --namespace sluice --kubeconfig k --node-ip fd00::7 --listen-port 10251 --node-lease-duration=8s --secret-reflection-type AllowList --metrics-address=0 --health-probe-address=:9", func(o *options) {
			o.namespace, o.kubeconfig, o.address, o.port = "sluice", "k", netip.MustParseAddr("fd00::7"), 10251
			o.lease, o.policies["secrets"] = 8*time.Second, reflection.AllowList
			o.listen.Metrics, o.listen.Health = netip.AddrPort{}, netip.MustParseAddrPort("[::]:9")
		}},
		"by Liqo's names": {"--home-cluster-id=rome --foreign-cluster-id=milan --tenant-namespace=liqo-tenant-milan --liqo-namespace=liqo", func(*options) {}},
	} {
		t.Run(name, func(t *testing.T) {
			want := options{
				clusterID: "rome", peerID: "milan", tenantNamespace: "liqo-tenant-milan", namespace: "liqo", address: netip.MustParseAddr("10.0.0.7"), port: 10250, lease: 40 * time.Second,
				policies: map[string]reflection.Policy{
					"configmaps": reflection.DenyList, "events": reflection.DenyList, "ingresses": reflection.DenyList,
					"secrets": reflection.DenyList, "services": reflection.DenyList,
				},
				listen: daemon.Addresses{Metrics: netip.MustParseAddrPort("[::]:8082"), Health: netip.MustParseAddrPort("[::]:8081")},
			}
			c.change(&want)
			got, err := parseFlags(strings.Fields(c.args), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{}), cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseFlagsRefuses(t *testing.T) {
	t.Setenv("POD_IP", "")
	for args, want := range map[string]string{
		"":                  "--cluster-id is required: the ID of this cluster",
		"--cluster-id=Rome": `--cluster-id: "Rome" is not the ID of this cluster: lower-case letters, digits, dashes`,
		"--cluster-id=rome --peer-id=rome --tenant-namespace=x": `--peer-id: "rome" is the ID of this cluster`,
		required:                                   "--node-ip or POD_IP is required: where the API server reaches this process",
		required + " --node-ip=0.0.0.0":            `--node-ip: "0.0.0.0" is not an address of one host`,
		required + " --listen-port=0":              "--listen-port: 0 is not a TCP port",
		required + " --node-lease-duration=3s":     "--node-lease-duration: 3s is less than 4s",
		required + " --secret-reflection-type=all": `--secret-reflection-type: "all" is not DenyList, AllowList or None`,
		required + " --kubelet-port=1":             "unknown flag: --kubelet-port",
		required + " --node-ip=::1 extra":          `unexpected argument "extra"`,
	} {
		_, err := parseFlags(strings.Fields(args), nil)
		if !errors.As(err, new(daemon.UsageError)) || err.Error() != want {
			t.Errorf("%q: got %v, want %s", args, err, want)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Setenv("POD_IP", "")
	for golden, args := range map[string][]string{"help.txt": {"--help"}, "help-status.txt": {"status", "-h"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); code != 0 || errs.Len() > 0 {
			t.Errorf("%v: exit code %d, %s", args, code, &errs)
		}
		daemontest.Golden(t, golden, out.String())
	}
	var errs bytes.Buffer
	if code := run(t.Context(), []string{"stat"}, nil, &errs); code != 1 || !strings.Contains(errs.String(), `unknown command "stat"; the commands are: status, metrics`) {
		t.Errorf("unknown command: exit code %d, %s", code, &errs)
	}
}

func example() virtualkubelet.State {
	return virtualkubelet.State{
		State: mirror.State{Connected: true}, Network: "Connection milan is Error", Waiting: 12,
		Nodes: []virtualkubelet.NodeState{{Name: "milan", Pods: 7, Namespaces: 2}, {Name: "milan-gpu", Provider: "the provider's API server does not answer: connection refused"}},
	}
}

func TestStatusAndMetrics(t *testing.T) {
	var out bytes.Buffer
	if err := writeStatus(&out, report{Version: "v1", State: example()}, false); err != nil {
		t.Fatal(err)
	}
	daemontest.Golden(t, "status.txt", out.String())
	daemontest.Metrics(t, "metrics.txt", metricsOf(example), "")
}

// TestMetricsCommand: whoever may run commands in the pod can read its metrics.
func TestMetricsCommand(t *testing.T) { daemontest.MetricsCommand(t, run) }
