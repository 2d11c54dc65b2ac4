package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// report is what a program of these tests shows.
type report struct{ N int }

var pages = Pages{
	Status:  func() any { return report{3} },
	Metrics: MetricsHandler(Collector[report]{func() report { return report{3} }, []Metric[report]{Gauge("test_n", "N.", func(r report, emit Emit) { emit(float64(r.N), "\xff") }, "l")}}),
	Ready:   func() (bool, string) { return false, "not ready" },
}

func TestServers(t *testing.T) {
	defer goleak.VerifyNone(t)
	any := netip.MustParseAddrPort("127.0.0.1:0")
	socket := filepath.Join(socketDir(t), "s")
	servers, err := gateway.Listen(&Addresses{AdminSocket: socket, Metrics: any, Health: any, Pprof: any}, pages, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g, _ := NewGroup(ctx)
	url := make(map[string]string)
	for _, s := range servers {
		url[s.name] = "http://" + s.listener.Addr().String()
	}
	servers.Go(g)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, tt := range []struct {
		server, path string
		code         int
		text         string
	}{
		{"health probes", "/healthz", 200, "ok\n"},
		{"health probes", "/readyz", 503, "not ready\n"},
		{"metrics", "/metrics", 200, `test_n{l="?"} 3`},
		{"metrics", "/metrics", 200, "go_goroutines"},
		{"profiler", "/debug/pprof/cmdline", 200, "daemon"},
	} {
		resp, err := client.Get(url[tt.server] + tt.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tt.code || !strings.Contains(string(body), tt.text) {
			t.Errorf("%s: %v, %d, %.200s", tt.path, err, resp.StatusCode, body)
		}
	}
	var out strings.Builder
	show := func(o StatusOptions) error {
		out.Reset()
		o.AdminSocket = socket
		return ShowStatus(t.Context(), gateway, o, &out, func(w io.Writer, r report, all bool) error {
			_, err := fmt.Fprintln(w, r.N, all)
			return err
		})
	}
	if err := show(StatusOptions{All: true}); err != nil || out.String() != "3 true\n" {
		t.Errorf("status: %v, %q", err, out.String())
	}
	if err := show(StatusOptions{JSON: true}); err != nil || out.String() != "{\n  \"N\": 3\n}\n" {
		t.Errorf("status as JSON: %v, %q", err, out.String())
	}
	cancel()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	var none NoAnswerError
	if err := show(StatusOptions{}); !errors.As(err, &none) || !slices.Equal(none.Silent, []string{socket}) {
		t.Errorf("status after the end: %v", err)
	}
}

func TestListenRefusesAPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := netip.MustParseAddrPort(taken.Addr().String())
	servers, err := gateway.Listen(&Addresses{AdminSocket: filepath.Join(socketDir(t), "s"), Pprof: addr}, pages, slog.New(slog.DiscardHandler))
	servers.Close()
	want := fmt.Sprintf("TCP port %d of 127.0.0.1, for the profiler, is in use by another process: end that one, or choose another by --pprof-address", addr.Port())
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSocketError(t *testing.T) {
	addr := netip.MustParseAddrPort("192.0.2.1:80")
	for _, tt := range []struct {
		addr netip.AddrPort
		err  error
		want string
	}{
		{addr, syscall.EADDRNOTAVAIL, "UDP port 80 of 192.0.2.1, for x: this host has no such address; choose another by --a"},
		{addr, syscall.EACCES, "UDP port 80 of 192.0.2.1, for x: not permitted; ports below 1024 need a privilege, choose another by --a"},
		{netip.AddrPortFrom(netip.Addr{}, 80), syscall.EADDRINUSE, "UDP port 80, for x, is in use by another process: end that one, or choose another by --a"},
		{addr, errors.New("broken"), "open UDP port 80 of 192.0.2.1, for x: broken"},
	} {
		if err := SocketError("UDP", tt.addr, "x", "--a", tt.err); err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}
