// Package daemontest is what the tests of the long-running commands have in
// common.
package daemontest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/test/golden"
)

// Golden compares got with testdata/<name>, but for blanks at the end of lines,
// which editors and reviewers drop.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	var text strings.Builder
	for line := range strings.Lines(got) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	golden.Compare(t, filepath.Join("testdata", name), text.String())
}

// Metrics compares what a collector exports with testdata/<name>, and with the
// customs of Prometheus. Names that begin with foreign are somebody else's.
func Metrics(t *testing.T, name string, c prometheus.Collector, foreign string) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	path := filepath.Join(t.TempDir(), "metrics")
	if err := prometheus.WriteToTextfile(path, r); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	Golden(t, name, string(text))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if foreign == "" || !strings.HasPrefix(p.Metric, foreign) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// Status serves a report on an admin socket and wants the status command to
// show all of it: as text the same that write prints, as JSON the same report.
func Status[R any](t *testing.T, p daemon.Program, run func(ctx context.Context, args []string, stdout, stderr io.Writer) int,
	want R, write func(io.Writer, R, bool) error, options ...cmp.Option,
) {
	t.Helper()
	path := filepath.Join(SocketDir(t), "s")
	l, err := p.ListenAdmin(path)
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: daemon.AdminHandler(func() any { return want }, nil)}
	go server.Serve(l)
	defer server.Close()

	var text, jsonText, direct bytes.Buffer
	if code := run(t.Context(), []string{"status", "--admin-socket", path}, &text, &text); code != 0 {
		t.Fatalf("exit code %d: %s", code, &text)
	}
	if err := write(&direct, want, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(direct.String(), text.String()); diff != "" {
		t.Errorf("what comes over the socket differs (-want +got):\n%s", diff)
	}
	if code := run(t.Context(), []string{"status", "--admin-socket", path, "-o", "json"}, &jsonText, &jsonText); code != 0 {
		t.Fatalf("exit code %d: %s", code, &jsonText)
	}
	var got R
	if err := json.Unmarshal(jsonText.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	options = append(options, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, netip.AddrPort{}))
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// SocketDir is shorter than t.TempDir, whose paths may exceed a socket's.
func SocketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// given are the addresses that FreeAddress has returned: the system can offer one twice.
var given sync.Map

// FreeAddress is one on which nobody listens, another each time.
func FreeAddress(t *testing.T) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if _, twice := given.LoadOrStore(l.Addr().String(), true); !twice {
			return l.Addr().String()
		}
	}
}

// MetricsCommand serves metrics and wants the metrics command to print them.
func MetricsCommand(t *testing.T, run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	t.Helper()
	const metrics = "some_metric 1\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, metrics)
	}))
	defer server.Close()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"metrics", "--metrics-address", strings.TrimPrefix(server.URL, "http://")}, &stdout, &stderr)
	if code != 0 || stdout.String() != metrics || stderr.Len() > 0 {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, &stdout, &stderr)
	}
}
