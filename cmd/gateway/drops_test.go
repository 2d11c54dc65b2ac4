package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/testlog"
	"github.com/sluice-net/sluice/tunnel"
)

// TestDrops: what is dropped is listed, and a follower is told of it until either of
// the two ends.
func TestDrops(t *testing.T) {
	b := newCaptureBench(t)
	drop := func() {
		b.send(dataplanetest.Build(dataplanetest.Packet{Src: netip.MustParseAddrPort("10.243.1.1:1"), Dst: netip.MustParseAddrPort("8.8.8.8:2"), Payload: []byte("secret")}))
	}
	list := func(args ...string) string {
		var out bytes.Buffer
		if err := dispatch(t.Context(), append([]string{"drops", "--admin-socket", b.socket}, args...), &out, io.Discard); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := list("--reason", "NoMapping"); got != "" {
		t.Errorf("before the first: %s", got)
	}
	drop()
	eventually(t, "a drop is listed", func() bool { return list("--reason", "NoMapping") != "" })
	const want = "  DropNoMapping             to the peer    UDP 10.243.1.1:1 > 8.8.8.8:2, 34 bytes, node worker-1\n    packets are sent to addresses outside the peer's CIDRs"
	if got := list(); !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := list("-o", "json", "--reason", "NoMapping"); !strings.Contains(got, `"direction":"egress","reason":"DropNoMapping","node":"worker-1","vni":7,"source":"10.243.1.1","destination":"8.8.8.8"`) || strings.Contains(got, "secret") {
		t.Errorf("got %s", got)
	}

	follow := func(ctx context.Context) (*testlog.Buffer, chan error) {
		out, done := new(testlog.Buffer), make(chan error, 1)
		go func() {
			done <- dispatch(ctx, []string{"drops", "--admin-socket", b.socket, "-f", "--reason", "NoMapping", "-o", "json"}, out, io.Discard)
		}()
		return out, done
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one, oneDone := follow(ctx)
	two, twoDone := follow(t.Context())
	lines := func(n int) func() bool {
		return func() bool {
			return strings.Count(one.String(), "\n") == n && strings.Count(two.String(), "\n") == n
		}
	}
	eventually(t, "followers see what was there", lines(1))
	drop()
	eventually(t, "followers see what is new", lines(2))
	cancel()
	if err := <-oneDone; err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	b.end()
	if err := <-twoDone; err == nil || err.Error() != "the gateway went away" {
		t.Errorf("after the gateway: %v", err)
	}
}

func TestDropsFlags(t *testing.T) {
	for _, tt := range []struct{ arg, want string }{
		{"--reason=Nothing", `--reason: unknown reason "Nothing"; the reasons are DropEncapsulation, `},
		{"-o=yaml", `-o: "yaml" is neither text nor json`},
		{"more", `unexpected argument "more"`},
	} {
		_, err := parseDropsFlags([]string{tt.arg}, nil)
		if !errors.As(err, new(daemon.UsageError)) || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.arg, err, tt.want)
		}
	}
	var out bytes.Buffer
	if _, err := parseDropsFlags([]string{"--help"}, &out); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("%v", err)
	}
	daemontest.Golden(t, "help-drops.txt", out.String())
}

// TestDropReasons: every reason that there is has its explanation, in this order.
func TestDropReasons(t *testing.T) {
	var want []string
	for _, v := range dataplane.Drops() {
		want = append(want, v.String())
	}
	var counted []string
	for _, d := range tunnelDrops(tunnel.Stats{}) {
		counted = append(counted, d.reason)
	}
	if diff := cmp.Diff(counted, tunnel.DropReasons[:]); diff != "" {
		t.Errorf("drops of the tunnel (-counted +named):\n%s", diff)
	}
	if diff := cmp.Diff(append(want, counted...), drops.Reasons()); diff != "" {
		t.Errorf("reasons (-exist +explained):\n%s", diff)
	}
}
