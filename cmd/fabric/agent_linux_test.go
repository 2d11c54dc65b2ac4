package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/node/fabric"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/test/source"
)

// asFabric, in the environment, makes this test binary the node agent.
const asFabric = "SLUICE_TEST_AS_FABRIC"

func TestMain(m *testing.M) {
	if os.Getenv(asFabric) != "" {
		main()
	}
	os.Exit(m.Run())
}

// node is a network namespace with manifests for the agent in it. What it runs,
// it runs on the test's thread, which is in that namespace.
type node struct {
	t           *testing.T
	dir, socket string
}

func newNode(t *testing.T) *node {
	t.Helper()
	source.NeedRoot(t, "ip")
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		source.Lacks(t, "it needs the right to make a network namespace: %v", err)
	}
	n := &node{t: t, dir: t.TempDir(), socket: filepath.Join(daemontest.SocketDir(t), "s")}
	n.write(func(s string) string { return s })
	// Duplicate address detection would add routes of the kernel's a second or two later.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"link set lo up", "link add lan0 type veth peer name lan1", "link set lan1 up", "link set lan0 up", "addr add 192.0.2.2/24 dev lan0"} {
		n.ip(args)
	}
	return n
}

// write puts the manifests in place, changed.
func (n *node) write(change func(string) string) {
	n.t.Helper()
	text, err := os.ReadFile("testdata/node/node.yaml")
	if err == nil {
		err = os.WriteFile(filepath.Join(n.dir, "node.yaml"), []byte(change(string(text))), 0o600)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) ip(args string) string {
	n.t.Helper()
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("ip %s: %v: %s", args, err, out)
	}
	return string(out)
}

// command is one of the agent's, not started.
func (n *node) command(args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	cmd, stdout, stderr = exec.Command(os.Args[0], args...), new(bytes.Buffer), new(bytes.Buffer)
	cmd.Env = append(os.Environ(), asFabric+"=1", "NODE_NAME=")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// run runs a command to its end.
func (n *node) run(args ...string) (code int, stdout, stderr string) {
	n.t.Helper()
	cmd, out, errs := n.command(args...)
	if err := cmd.Run(); cmd.ProcessState == nil {
		n.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// flags are those of the agent.
func (n *node) flags(more ...string) []string {
	return append([]string{"--manifests", n.dir, "--node-name=edge", "--admin-socket", n.socket, "--metrics-address=0", "--health-probe-address=127.0.0.1:0"}, more...)
}

// start starts the agent and waits until its first state is in force. What it
// returns ends it.
func (n *node) start(args ...string) (stop func()) {
	n.t.Helper()
	began := time.Now()
	stderr, stop := n.launch(args...)
	for deadline := began.Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		body, err := program.FetchStatus(n.t.Context(), n.socket)
		var r report
		if err == nil {
			err = json.Unmarshal(body, &r)
		}
		if err == nil && r.Generation > 0 {
			n.t.Logf("in force after %v, %s resident", time.Since(began).Round(time.Millisecond), daemon.Size(r.Memory.Resident))
			return stop
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("nothing is in force: %v\n%s", err, stderr)
		}
	}
}

// launch starts the agent and does not wait. What it returns ends it.
func (n *node) launch(args ...string) (stderr *bytes.Buffer, stop func()) {
	n.t.Helper()
	cmd, _, stderr := n.command(args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	n.t.Cleanup(func() { _ = cmd.Process.Kill() }) // or it has ended
	return stderr, func() {
		n.t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			n.t.Fatal(err)
		}
		if err := <-ended; err != nil { // or if it did not end within daemon.StopWithin
			n.t.Errorf("%v: %s", err, stderr)
		}
	}
}

// says wants texts in what a command printed.
func (n *node) says(where, got string, want ...string) {
	n.t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			n.t.Errorf("%s lacks %q:\n%s", where, w, got)
		}
	}
}

func TestAgent(t *testing.T) {
	for _, kind := range []string{"vxlan", "tun"} {
		t.Run(kind, func(t *testing.T) {
			n := newNode(t)
			stop := n.start(n.flags("--link=" + kind)...)
			links := n.ip("-d link show liqo.abcdefghij")
			n.says("ip link", links, kind, "mtu 1340", "alias sluice: InternalFabric tenant/milan")
			_, text, _ := n.run("status", "--admin-socket", n.socket)
			n.says("status", text, "edge, fabric ", kind+": asked for by --link="+kind, "192.0.2.9:6091", "10.61.0.0/16", "600: not from all fwmark 0x5c lookup 6091", "resident")

			flow := []string{"count", "--link", "liqo.abcdefghij", "--pod", "10.243.1.5", "--peer", "10.61.2.20", "--duration", "1ms", "--admin-socket", n.socket}
			code, text, errs := n.run(flow...)
			n.says("count", fmt.Sprint(code, text, errs), `0{"passed":[{"point":"pod","outbound":true,"packets":0,"udp":0}`)
			flow[2] = "eth0"
			code, _, errs = n.run(flow...)
			n.says("count at another link", fmt.Sprint(code, errs), `1fabric: link "eth0" is not the name of a tunnel link`)

			// The network is in use: nobody else may make it another one.
			code, _, errs = n.run("cleanup")
			n.says("cleanup beside an agent", fmt.Sprint(code, errs), "1fabric: another node agent runs in this network namespace", "delete daemonset liqo-fabric")
			if kind == "tun" {
				code, _, errs = n.run(append(n.flags(), "--admin-socket", n.socket+"2")...)
				n.says("a second agent", fmt.Sprint(code, errs), "waiting for its end", "fabric: another node agent runs in this network namespace: stop it first")
			}
			code, text, errs = n.run("status", "--admin-socket", n.socket+"2")
			n.says("status by another socket", text, "one runs here, but does not answer on this socket; this is what the kernel holds", "10.61.0.0/16")
			n.says("status by another socket", fmt.Sprint(code, errs), "1fabric: no fabric answers on "+n.socket+"2", "One does run in this network namespace")
			if code, out, _ := n.run("cleanup", "--dry-run"); code != 0 || !strings.Contains(out, "remove link liqo.abcdefghij") {
				t.Errorf("cleanup --dry-run: exit code %d: %s", code, out)
			}

			stop()
			n.ip("link show liqo.abcdefghij") // it has outlived the agent
			code, text, errs = n.run("status", "--admin-socket", n.socket)
			n.says("status without an agent", text, "none runs here", "liqo.abcdefghij", "10.61.0.0/16")
			n.says("status without an agent", fmt.Sprint(code, errs), "1fabric: no fabric answers on "+n.socket, "fabric cleanup")

			lock, err := hostnet.Open()
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(300*time.Millisecond, func() { lock.Close() }) // as by one that is still ending
			stop = n.start(n.flags("--link=" + kind)...)                  // takes over what is there
			if again := n.ip("-d link show liqo.abcdefghij"); index(again) != index(links) {
				t.Errorf("the link was made anew:\n%s%s", links, again)
			}
			stop()

			code, out, errs := n.run("cleanup")
			n.says("cleanup", out, "remove link liqo.abcdefghij", "remove rule 600: not from all fwmark 0x5c lookup 6091")
			if code != 0 {
				t.Errorf("cleanup: exit code %d: %s", code, errs)
			}
			if code, out, errs := n.run("cleanup"); code != 0 || out != "nothing to remove\n" {
				t.Errorf("cleanup of nothing: exit code %d: %s%s", code, out, errs)
			}
			code, text, errs = n.run("status", "--admin-socket", n.socket)
			if want := "Agent  none runs here; the kernel holds nothing of fabric\n"; code != 1 || text != want || strings.Count(errs, "\n") != 1 {
				t.Errorf("status of nothing: exit code %d: %s%s", code, text, errs)
			}
			if left := n.ip("link") + n.ip("rule"); strings.Contains(left, "liqo.") || strings.Contains(left, "6091") {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}

// index is the number of a link in what ip(8) prints.
func index(text string) string {
	n, _, _ := strings.Cut(text, ":")
	return n
}

// Each of these ends with exit code 1 and what to do, and leaves nothing behind.
func TestAgentRefuses(t *testing.T) {
	n := newNode(t)
	replace := func(before, after string) func(string) string {
		return func(s string) string { return strings.Replace(s, before, after, 1) }
	}
	same := func(s string) string { return s }
	for _, tt := range []struct {
		name   string
		change func(string) string
		args   []string
		want   []string
	}{
		{"a node that is not there", same, n.flags("--node-name=elsewhere"),
			[]string{"the manifests in " + n.dir + " are refused:\nInternalNode elsewhere: does not exist", "edge", "set --node-name"}},
		{"an MTU above the underlay's", replace("mtu: 1340", "mtu: 1490"), n.flags("--link=vxlan"), []string{"node.yaml:19: InternalFabric tenant/milan: spec.mtu: 1490 does not fit", "1450"}},
		{"addresses of two families", replace("ip: 10.80.0.1", "ip: fd00:80::1"), n.flags(), []string{"InternalFabric tenant/milan: spec.interface.gateway.ip"}},
		{"a directory that is not there", same, n.flags("--manifests=/missing"), []string{"the manifests in /missing are refused:\n/missing: cannot read the manifests: no such file or directory"}},
		{"a kubeconfig that is not there", same, []string{"--node-name=edge", "--kubeconfig=/missing"}, []string{"read --kubeconfig /missing: stat /missing: no such file or directory"}},
		{"neither files nor a cluster", same, []string{"--node-name=edge"}, []string{"--kubeconfig"}},
		{"a port that is taken", same, n.flags("--metrics-address=127.0.0.1:7001", "--pprof-address=127.0.0.1:7002", "--health-probe-address=192.0.2.3:7003"),
			[]string{"TCP port 7003 of 192.0.2.3, for the health probes: this host has no such address; choose another by --health-probe-address"}},
	} {
		n.write(tt.change)
		code, stdout, stderr := n.run(tt.args...)
		if code != 1 || stdout != "" {
			t.Errorf("%s: exit code %d, stdout %s", tt.name, code, stdout)
		}
		n.says(tt.name, stderr, append(tt.want, "fabric: ")...)
	}
	if left := n.ip("link") + n.ip("rule"); strings.Contains(left, "liqo.") || strings.Contains(left, "6091") {
		t.Errorf("left behind:\n%s", left)
	}
}

func TestAgentWithoutPrivilege(t *testing.T) {
	n := newNode(t)
	// Of this thread only, which ends with the test.
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{n.flags(), {"cleanup"}} {
		code, _, stderr := n.run(args...)
		n.says("without privilege", fmt.Sprint(code, stderr), "1fabric: not permitted", "NET_ADMIN")
	}
	code, out, _ := n.run("cleanup", "--dry-run")
	n.says("cleanup --dry-run", fmt.Sprint(code, out), "0nothing to remove\n", "not seen for the lack of the capability NET_ADMIN: whether there is a table inet sluice-fabric")
	_, out, _ = n.run("status", "--admin-socket", n.socket)
	n.says("status", out, "the kernel holds nothing of fabric", "TRANSLATION  not seen: nf_tables may not be used: grant the capability NET_ADMIN\n")
}

// An agent that waits for the end of another one can be told to end.
func TestOpenHostEnds(t *testing.T) {
	newNode(t)
	lock, err := hostnet.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&agent{log: slog.New(slog.DiscardHandler)}).openHost(ctx); !errors.Is(err, errEnded) {
		t.Errorf("got %v, want %v", err, errEnded)
	}
}

func TestReserved(t *testing.T) {
	for host, want := range map[string]string{
		"https://10.96.0.1:443": "10.96.0.1/32", "https://[fd00::1]:6443": "fd00::1/128", "https://api.example.com": "", "127.0.0.1:6443": "", "https://%": "",
	} {
		var got fabric.Reserved
		if all := reserved(&rest.Config{Host: host}); len(all) > 0 {
			got = all[0]
		}
		text := ""
		if got.Prefix.IsValid() {
			text = got.Prefix.String()
		}
		if text != want {
			t.Errorf("%s: got %s, want %s", host, text, want)
		}
	}
}
