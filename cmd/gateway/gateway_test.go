package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

const testdata = "../../gateway/control/testdata/server"

// workspace is a directory of manifests and everything else a gateway needs for
// itself on this machine.
type workspace struct {
	dir, socket       string
	geneve, wireguard int
	metrics, health   string
	stdout, stderr    bytes.Buffer
	args              []string
}

func newWorkspace(t *testing.T) *workspace {
	t.Helper()
	w := &workspace{dir: t.TempDir(), socket: filepath.Join(daemontest.SocketDir(t), "s"), geneve: freeUDPPort(t), wireguard: freeUDPPort(t)}
	w.metrics, w.health = daemontest.FreeAddress(t), daemontest.FreeAddress(t)
	for _, name := range []string{"gateway.yaml", "network.yaml", "nodes.yml"} {
		data, err := os.ReadFile(filepath.Join(testdata, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.edit(t, "gateway.yaml", "port: 51840", fmt.Sprintf("port: %d", w.wireguard))
	w.args = []string{
		"--manifests", w.dir, "--bind-address", "127.0.0.1", "--geneve-port", fmt.Sprint(w.geneve), "--admin-socket", w.socket,
		"--metrics-address", w.metrics, "--health-probe-address", w.health,
	}
	return w
}

func (w *workspace) edit(t *testing.T, name, before, after string) {
	t.Helper()
	path := filepath.Join(w.dir, name)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), before) {
		t.Fatalf("%s does not contain %q", name, before)
	}
	// In place at once: a gateway that runs must not see half of it.
	whole := path + ".new"
	if err := errors.Join(os.WriteFile(whole, []byte(strings.Replace(string(data), before, after, 1)), 0o600), os.Rename(whole, path)); err != nil {
		t.Fatal(err)
	}
}

func freeUDPPort(t *testing.T) int {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return int(c.LocalAddr().(*net.UDPAddr).AddrPort().Port())
}

// get asks a gateway that is starting until it answers.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(controlplanetest.Patience); ; time.Sleep(10 * time.Millisecond) {
		resp, err := client.Get(url)
		if err == nil {
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusServiceUnavailable {
				return resp.StatusCode, string(text)
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer: %v", url, err)
		}
	}
}

func TestServe(t *testing.T) {
	defer goleak.VerifyNone(t)
	w := newWorkspace(t)
	w.edit(t, "gateway.yaml", "kind: PublicKey", "kind: Connection") // ready without the peer's key
	w.edit(t, "gateway.yaml", "  publicKey: n2T4fOWskIj28MVKtdDYPttxK4YqcTzqT/HAAwB7mQc=", "  type: Server")
	w.args = append(w.args, "--node-sockets=3")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	finished := make(chan int, 1)
	go func() { finished <- run(ctx, w.args, &w.stdout, &w.stderr) }()

	for _, path := range []string{"/readyz", "/healthz"} {
		if status, body := get(t, "http://"+w.health+path); status != http.StatusOK || body != "ok\n" {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	_, metrics := get(t, "http://"+w.metrics+"/metrics")
	for _, want := range []string{
		`liqo_peer_is_connected{cluster_id="milan",driver="wireguard"} 0`,
		`liqo_wireguard_implementation{driver="wireguard",implementation="userspace"} 1`,
		`sluice_drops_total{direction="egress",reason="DropNoMapping"} 0`,
		`sluice_socket_overruns_total{socket="wireguard"} 0`,
		"go_goroutines", "process_cpu_seconds_total",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	var text bytes.Buffer
	if code := run(ctx, []string{"status", "--admin-socket", w.socket}, &text, &text); code != 0 {
		t.Errorf("status: exit code %d", code)
	}
	for _, want := range []string{"GatewayServer tenant/server", "Connecting, latency N/A", "not known yet", "worker-2", "10.61.0.0/16", "geneve (3)", fmt.Sprintf("127.0.0.1:%d", w.wireguard)} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the status lacks %q:\n%s", want, &text)
		}
	}

	// A second one with the same sockets says what is in its way, all of it.
	var errs bytes.Buffer
	if code := run(ctx, w.args, &errs, &errs); code != 1 {
		t.Errorf("second gateway: exit code %d", code)
	}
	if want := "admin socket " + w.socket + ": another gateway serves it"; !strings.Contains(errs.String(), want) {
		t.Errorf("second gateway: %s", &errs)
	}
	if want := fmt.Sprintf("UDP port %d of 127.0.0.1, for the node tunnels, is in use by another process", w.geneve); !strings.Contains(errs.String(), want) {
		t.Errorf("second gateway: %s", &errs)
	}

	cancel()
	select {
	case code := <-finished:
		if code != 0 {
			t.Errorf("exit code %d: %s", code, &w.stderr)
		}
	case <-time.After(controlplanetest.Patience):
		t.Fatal("does not end")
	}
	if _, err := os.Stat(filepath.Join(w.dir, "status", "connection.yaml")); err != nil {
		t.Error(err)
	}
}

// Each of these ends with exit code 1 and a reason before a socket is opened.
func TestServeRefuses(t *testing.T) {
	tests := []struct {
		name, file, before, after, want string
	}{
		{"missing key", "gateway.yaml", "  privateKey: fk0HmUu2yPXTNihex5N2/5jkcEm3yjRyMRHVLi4VvB0=", "  other: aGk=", "gateway.yaml:27: Secret tenant/keys: data[privateKey]: is required"},
		{"short key", "gateway.yaml", "fk0HmUu2yPXTNihex5N2/5jkcEm3yjRyMRHVLi4VvB0=", "aGk=", "gateway.yaml:28: Secret tenant/keys: data[privateKey]: decodes to 2 bytes"},
		{"overlapping prefixes", "network.yaml", "[10.61.0.0/16,", "[10.243.0.0/16,", "network.yaml:20: Configuration tenant/milan: status.remote.cidr.pod[0]: 10.243.0.0/16 overlaps the local pod CIDR"},
		{"unequal prefixes", "network.yaml", "[10.61.0.0/16,", "[10.61.0.0/17,", "network.yaml:20: Configuration tenant/milan: status.remote.cidr.pod[0]: 10.61.0.0/17 cannot stand for 10.243.0.0/16"},
		{"MTU out of range", "gateway.yaml", "mtu: 1340", "mtu: 100", "gateway.yaml:11: GatewayServer tenant/server: spec.mtu: 100 is out of range"},
		{"unknown field", "gateway.yaml", "mtu: 1340", "mtuu: 100", "gateway.yaml:11: GatewayServer tenant/server: spec.mtuu: unknown field"},
		{"typo in the group", "gateway.yaml", "networking.liqo.io/v1beta1", "networking.liqo.com/v1beta1", "warning: gateway.yaml:2: GatewayServer tenant/server: networking.liqo.com/v1beta1 GatewayServer is not used by the gateway and ignored; did you mean"},
		{"two gateways", "network.yaml", "---\n", "---\napiVersion: networking.liqo.io/v1beta1\nkind: GatewayClient\nmetadata: {name: x}\n---\n", "network.yaml:23: GatewayClient x: is a second gateway"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorkspace(t)
			w.edit(t, tt.file, tt.before, tt.after)
			// If a socket was opened, this one would be in the way.
			blocker, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(w.geneve))))
			if err != nil {
				t.Fatal(err)
			}
			defer blocker.Close()
			if code := run(context.Background(), w.args, &w.stdout, &w.stderr); code != 1 {
				t.Errorf("exit code %d", code)
			}
			if got := w.stderr.String(); !strings.Contains(got, tt.want) || strings.Contains(got, "in use by") {
				t.Errorf("got:\n%swant:\n%s", got, tt.want)
			}
		})
	}
}

// Nothing that the gateway prints holds a key, wherever the manifests have it.
func TestServePrintsNoKey(t *testing.T) {
	const key = "fk0HmUu2yPXTNihex5N2/5jkcEm3yjRyMRHVLi4VvB0="
	for _, instead := range []string{"  privateKey: !!int " + key, "  " + key + ": privateKey", key + ": x"} {
		w := newWorkspace(t)
		w.edit(t, "gateway.yaml", "  privateKey: "+key, instead)
		w.args = append(w.args, "--log-level=debug")
		if code := run(context.Background(), w.args, &w.stdout, &w.stderr); code != 1 {
			t.Errorf("%s: exit code %d", instead, code)
		}
		if out := w.stdout.String() + w.stderr.String(); strings.Contains(out, key[:8]) {
			t.Errorf("%s: the key is shown:\n%s", instead, out)
		}
	}
}

func TestServeRefusesPorts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	peer, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	peerPort := peer.LocalAddr().(*net.UDPAddr).Port
	tests := []struct {
		name string
		args func(w *workspace) []string
		want string
	}{
		{"metrics", func(*workspace) []string { return []string{"--metrics-address", taken.Addr().String()} },
			"for the metrics, is in use by another process: end that one, or choose another by --metrics-address"},
		{"profiler", func(*workspace) []string { return []string{"--pprof-address", taken.Addr().String()} },
			"for the profiler, is in use by another process: end that one, or choose another by --pprof-address"},
		{"WireGuard", func(w *workspace) []string {
			w.edit(t, "gateway.yaml", fmt.Sprintf("port: %d", w.wireguard), fmt.Sprintf("port: %d", peerPort))
			return nil
		}, fmt.Sprintf("gateway: gateway.yaml:13: GatewayServer tenant/server: spec.endpoint.port: UDP port %d of 127.0.0.1, for WireGuard, is in use by another process: end that one, or choose another by spec.endpoint.port of the GatewayServer, or --bind-address", peerPort)},
		{"one port for two", func(w *workspace) []string { return []string{"--geneve-port", fmt.Sprint(w.wireguard)} },
			"is asked for twice: by --geneve-port and by the endpoint of the GatewayServer"},
		{"foreign address", func(*workspace) []string { return []string{"--bind-address", "192.0.2.1"} },
			"this host has no such address; choose another by --geneve-port or --bind-address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			w := newWorkspace(t)
			args := append(w.args, tt.args(w)...)
			if code := run(context.Background(), args, &w.stdout, &w.stderr); code != 1 {
				t.Errorf("exit code %d", code)
			}
			if got := w.stderr.String(); !strings.Contains(got, tt.want) {
				t.Errorf("got:\n%swant:\n%s", got, tt.want)
			}
		})
	}
}

// TestMain lets tests start the gateway as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_RUN_GATEWAY") != "" {
		main()
	}
	os.Exit(m.Run())
}

// A second signal does not skip what is written last.
func TestSecondSignal(t *testing.T) {
	w := newWorkspace(t)
	cmd := exec.Command(os.Args[0], w.args...)
	cmd.Env = append(os.Environ(), "TEST_RUN_GATEWAY=1")
	cmd.Stderr = &w.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	get(t, "http://"+w.health+"/readyz")
	for range 2 {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &w.stderr)
	}
	text, err := os.ReadFile(filepath.Join(w.dir, "status", "connection.yaml"))
	if err != nil || !strings.Contains(string(text), "value: Error\n") {
		t.Errorf("Connection after the end (%v):\n%s", err, text)
	}
}

func TestRunExplainsMistakes(t *testing.T) {
	for _, tt := range []struct {
		args       []string
		code       int
		out, error string
	}{
		{[]string{"--version"}, 0, "sluice gateway ", ""},
		{[]string{"version"}, 0, "sluice gateway ", ""},
		{[]string{"--help"}, 0, "Usage:", ""},
		{[]string{"help"}, 0, "Usage:", ""},
		{[]string{"status", "--help"}, 0, "Usage:", ""},
		{[]string{"statsu"}, 1, "", "gateway: unknown command \"statsu\"; the commands are: capture, drops, filter, metrics, probe, status\nTry 'gateway --help'.\n"},
		{[]string{"--oops"}, 1, "", "gateway: unknown flag: --oops\nTry 'gateway --help'.\n"},
		{[]string{"--manifests", "/missing"}, 1, "", "gateway: the manifests in /missing are refused:\n/missing: cannot read the manifests: no such file or directory\n"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(context.Background(), tt.args, &stdout, &stderr); code != tt.code {
			t.Errorf("%q: exit code %d, want %d", tt.args, code, tt.code)
		}
		if !strings.Contains(stdout.String(), tt.out) || stderr.String() != tt.error {
			t.Errorf("%q: stdout %q, stderr %q", tt.args, &stdout, &stderr)
		}
	}
}
