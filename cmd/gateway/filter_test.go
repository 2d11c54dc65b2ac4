package main

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/filter"
)

// filterRules are for a gateway that TestFilterCommand asks.
const filterRules = `
apiVersion: networking.liqo.io/v1beta1
kind: FirewallConfiguration
metadata: {name: no-web}
spec:
  table:
    name: no-web
    family: IPV4
    chains:
    - name: web
      type: filter
      hook: forward
      priority: 0
      policy: accept
      rules:
        filterRules:
        - name: https
          match: [{op: eq, proto: {value: tcp}, port: {value: "443", position: dst}}]
          action: drop
`

// TestFilterCommand asks a gateway that runs.
func TestFilterCommand(t *testing.T) {
	b := newCaptureBench(t)
	if err := os.WriteFile(filepath.Join(b.dir, "rules.yml"), []byte(filterRules), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) string {
		var out bytes.Buffer
		if err := dispatch(t.Context(), append([]string{"filter", "--admin-socket", b.socket, "--from", "10.243.1.1:40000"}, args...), &out, io.Discard); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	eventually(t, "the rule is in force", func() bool {
		return ask("--to", "10.71.0.1:443", "--node", "worker-1") == "drop\n  no-web/web, rule https: drop\n"
	})
	if got := ask("--to", "10.71.0.1:80", "--then-to", "10.243.0.1", "-o", "json"); got != `{"action":"accept","steps":null}`+"\n" {
		t.Errorf("%s", got)
	}
	if got := ask("--to", "10.71.0.1:443", "--ingress", "-o", "json"); !strings.Contains(got, `"rule":"https"`) {
		t.Errorf("%s", got)
	}
}

func TestFilterFlags(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", "--from and --to are missing"},
		{"--from=10.0.0.1:1", "--from and --to are missing"},
		{"--from=host:1 --to=10.0.0.2:1", "--from: "},
		{"--from=10.0.0.1:1 --to=[fd00::1]:1", "10.0.0.1 and fd00::1 are not of the same family"},
		{"--from=10.0.0.1:1 --to=10.0.0.2:1 --then-to=fd00::1", "10.0.0.1 and fd00::1 are not of the same family"},
		{"--from=10.0.0.1:1 --to=10.0.0.2:1 --then-to=x", `--then-to: "x" is not an IP address`},
		{"--from=10.0.0.1:1 --to=10.0.0.2:1 -o=yaml", `-o: "yaml" is neither text nor json`},
		{"more", `unexpected argument "more"`},
	} {
		_, err := parseFilterFlags(strings.Fields(tt.args), nil)
		if !errors.As(err, new(daemon.UsageError)) || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.args, err, tt.want)
		}
	}
	var out bytes.Buffer
	if _, err := parseFilterFlags([]string{"--help"}, &out); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("%v", err)
	}
	daemontest.Golden(t, "help-filter.txt", out.String())
}

// TestFilterQuery: what is asked arrives, and what nobody may ask is refused.
func TestFilterQuery(t *testing.T) {
	want := dataplane.FilterQuery{
		Src: netip.MustParseAddrPort("[fd00::1]:1"), Dst: netip.MustParseAddrPort("[fd00::2]:2"), Answer: true,
		Way: filter.Way{Node: "worker & 1", Src: netip.MustParseAddr("fd01::1"), Dst: netip.MustParseAddr("fd01::2")},
	}
	got, err := parseFilterQuery(filterQueryText(want))
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, name := range []string{"from", "to", "then-from", "then-to"} {
		for _, wrong := range []string{"", "x", "10.0.0.1", "10.0.0.1:1"} {
			v := filterQueryText(want)
			v.Set(name, wrong)
			if _, err := parseFilterQuery(v); err == nil {
				t.Errorf("%s=%q is accepted", name, wrong)
			}
		}
	}
}
