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

	"github.com/sluice-net/sluice/clusterdns"
	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/objects/mirror"
)

func TestParseFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args   string
		change func(*options)
	}{
		"in a pod": {"", func(*options) {}},
		"everything": {"--kubeconfig k --zone Example.org. --ttl 0 --listen-address 127.0.0.1:53 --metrics-address=0 --health-probe-address=:9", func(o *options) {
			o.kubeconfig, o.zone, o.ttl, o.address = "k", "Example.org.", 0, netip.MustParseAddrPort("127.0.0.1:53")
			o.listen.Metrics, o.listen.Health = netip.AddrPort{}, netip.MustParseAddrPort("[::]:9")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := options{
				zone: "clusterset.local", ttl: 5, address: netip.MustParseAddrPort("[::]:1053"),
				listen: daemon.Addresses{Metrics: netip.MustParseAddrPort("[::]:8082"), Health: netip.MustParseAddrPort("[::]:8081")},
			}
			c.change(&want)
			got, err := parseFlags(strings.Fields(c.args), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{}), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseFlagsRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--zone=.":                     `--zone: "." is not a domain, such as clusterset.local`,
		"--zone=a..b":                  `--zone: "a..b" is not a domain, such as clusterset.local`,
		"--ttl=86401":                  "--ttl: 86401 seconds are more than a day",
		"--listen-address=off":         "--listen-address: a DNS server without an address answers nobody",
		"--manifests=d --kubeconfig=k": "--manifests and --kubeconfig exclude each other: the Services are those of a gateway outside clusters, or of a cluster",
		"extra":                        `unknown command "extra"; the commands are: status, metrics`,
	} {
		err := dispatch(t.Context(), strings.Fields(args), nil, nil)
		if !errors.As(err, new(daemon.UsageError)) || err.Error() != want {
			t.Errorf("%q: got %v, want %s", args, err, want)
		}
	}
}

func TestHelp(t *testing.T) {
	for golden, args := range map[string][]string{"help.txt": {"--help"}, "help-status.txt": {"status", "-h"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); code != 0 || errs.Len() > 0 {
			t.Errorf("%v: exit code %d, %s", args, code, &errs)
		}
		daemontest.Golden(t, golden, out.String())
	}
}

func TestStatusAndMetrics(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	r := report{
		Version: "v1", Zone: "clusterset.local", Count: &clusterdns.Count{Services: 3, Endpoints: 4, Records: 17, Refused: 1},
		API: mirror.State{
			Away: now.Add(-time.Minute), Error: "connection refused",
			Watches: []mirror.WatchState{{Name: "endpointslices", Objects: 2, Synced: true}, {Name: "serviceimports", Objects: 3, Synced: true}},
		},
		Answers: map[string]uint64{"NOERROR": 12, "NXDOMAIN": 7},
	}
	var out bytes.Buffer
	if err := writeStatus(&out, r, now); err != nil {
		t.Fatal(err)
	}
	daemontest.Golden(t, "status.txt", out.String())
	daemontest.Metrics(t, "metrics.txt", metricsOf(func() report { return r }), "")
}

// TestMetricsCommand: whoever may run commands in the pod can read its metrics.
func TestMetricsCommand(t *testing.T) { daemontest.MetricsCommand(t, run) }
