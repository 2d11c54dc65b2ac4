package clusters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// testCapture captures the traffic of a peering with `liqoctl network capture`, which
// asks the gateway's pod through the API server.
func testCapture(t *testing.T, p *pair) {
	pe := p.connected(t)
	controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
	at, err := pe.consumer.here(t.Context(), p.provider.pods[1])
	if err != nil {
		t.Fatal(err)
	}
	p.consumer.pods[0].stream(t, at)
	c := &capturing{pair: p, pe: pe, dir: t.TempDir()}

	t.Run("every point", func(t *testing.T) { c.everyPoint(t, at.String()) })
	t.Run("the remote end", c.remoteEnd)
	t.Run("into a pipe", c.pipe)
	t.Run("Ctrl-C", c.interrupt)
	t.Run("a client that is killed", c.kill)
	t.Run("a file of its own", c.ownFile)
	t.Run("refusals", c.refusals)
	controlplanetest.Eventually(t, "no capture is left", c.idle)
}

// capturing is a peering with traffic whose packets are captured in the consumer.
type capturing struct {
	*pair
	pe  *peering
	dir string
}

// args are a command line for the consumer's gateway.
func (c *capturing) args(args ...string) []string {
	return append([]string{"network", "capture", "--kubeconfig", c.consumer.Kubeconfig}, args...)
}

// idle tells whether the gateways capture nothing.
func (c *capturing) idle(ctx context.Context) error {
	for _, e := range c.pe.ends() {
		n, err := e.captures(ctx)
		if err != nil {
			return err
		}
		if n != 0 {
			return fmt.Errorf("%d captures in the gateway of %s", n, e.id)
		}
	}
	return nil
}

// captures is how many are under way in the gateway of this end.
func (e *end) captures(ctx context.Context) (int, error) {
	pods, err := e.gatewayPods(ctx)
	if err != nil || len(pods) != 1 {
		return 0, fmt.Errorf("%d gateway pods: %w", len(pods), err)
	}
	out, err := e.kubelet.Exec(ctx, e.namespace, pods[0].Name, "status", "--admin-socket=/run/sluice/gateway.sock")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Captures" {
			var n int
			_, err := fmt.Sscan(f[1], &n)
			return n, err
		}
	}
	return 0, nil
}

// tshark returns fields of the packets of a file, one line each.
func tshark(t *testing.T, file string, args ...string) (lines []string) {
	t.Helper()
	cmd := exec.Command("tshark", append([]string{"-r", file}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		t.Skip("SKIPPED: there is no tshark; apt-get install --no-install-recommends tshark")
	case err != nil:
		t.Fatalf("tshark: %v: %s", err, &errs)
	case strings.Contains(errs.String(), "cut short"), strings.Contains(errs.String(), "damaged"):
		t.Errorf("tshark: %s", &errs)
	}
	return slices.Collect(strings.Lines(string(out)))
}

// everyPoint looks at one stream at all points: with the addresses and in the wrapping
// of each.
func (c *capturing) everyPoint(t *testing.T, at string) {
	file := filepath.Join(c.dir, "all.pcapng")
	_, errs, err := c.liqoctl.run(t.Context(), c.args("provider", "--point", "all", "-w", file, "-c", "400", "--duration", "20s")...)
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	if want := "INFO   400 packets captured, 0 lost, "; !strings.Contains(errs, want) || !strings.Contains(errs, " in "+file+": 400 packets are captured") {
		t.Errorf("no %q in\n%s", want, errs)
	}
	real := c.provider.pods[1].addr.String()
	for _, tt := range []struct{ filter, protocols, name string }{
		{"ip.dst == " + at, "eth:ethertype:ip:tcp", "node:"},
		{"ip.dst == " + real + ` && frame.interface_name == "translated"`, "raw:ip:tcp", "translated"},
		{"ip.dst == " + real + ` && frame.interface_name == "tunnel"`, "raw:ip:tcp", "tunnel"},
		{"wg.type == 4", "raw:ip:udp:wg", "wire"},
	} {
		lines := tshark(t, file, "-Y", tt.filter, "-T", "fields", "-E", "separator=|", "-e", "frame.protocols", "-e", "frame.interface_name", "-e", "frame.packet_flags_direction")
		if len(lines) == 0 {
			t.Errorf("no packets for %s", tt.filter)
		}
		for _, line := range lines {
			f := strings.Split(strings.TrimSpace(line), "|")
			if len(f) != 3 || !strings.HasPrefix(f[0], tt.protocols) || !strings.HasPrefix(f[1], tt.name) || tt.name != "wire" && f[2] != "0x00000002" {
				t.Errorf("%s: %s, want %s at %s, outbound", tt.filter, line, tt.protocols, tt.name)
				break
			}
		}
		t.Logf("%d packets for %s", len(lines), tt.filter)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// remoteEnd captures in the gateway of the provider.
func (c *capturing) remoteEnd(t *testing.T) {
	file := filepath.Join(c.dir, "remote.pcapng")
	c.liqoctl.ok(t, c.both("network", "capture", "provider", "--remote", "--point", "tunnel", "--filter", "tcp", "-w", file, "-c", "20")...)
	src := c.consumer.pods[0].addr.String() // in the tunnel pods have their own addresses
	if n := len(tshark(t, file, "-Y", "tcp && (ip.src == "+src+" || ip.dst == "+src+")")); n != 20 {
		t.Errorf("%d of 20 packets are of pod %s", n, src)
	}
	c.liqoctl.refuses(t, []string{`this cluster is "provider", not "milan"`}, c.both("network", "capture", "milan", "--remote")...)
	c.liqoctl.refuses(t, []string{"--remote: which cluster that is, --remote-kubeconfig"}, c.args("provider", "--remote")...)
}

// pipe shows packets as they come. The only peer needs no name.
func (c *capturing) pipe(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("SKIPPED: there is no tshark")
	}
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{"-eu", "-o", "pipefail", "-c", `"$0" "$@" | tshark -r - -Y tcp -T fields -e frame.interface_name`,
		string(c.liqoctl)}, c.args("-w", "-", "-c", "50", "--point", "node,tunnel")...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	if n := strings.Count(stdout.String(), "\n"); n < 40 || !strings.Contains(stdout.String(), "tunnel") {
		t.Errorf("%d of 50 packets are TCP:\n%s\n%s", n, &stdout, &stderr)
	}
}

// begin starts a capture and waits until packets are in the file.
func (c *capturing) begin(t *testing.T, file string) (cmd *exec.Cmd, errs *bytes.Buffer) {
	t.Helper()
	cmd, errs = exec.Command(string(c.liqoctl), c.args("provider", "--point", "node", "-w", file)...), new(bytes.Buffer)
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "packets come", func(context.Context) error {
		if info, err := os.Stat(file); err != nil || info.Size() < 4000 {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
	return cmd, errs
}

// interrupt ends a capture with Ctrl-C: the file is complete, nothing is left in the
// gateway.
func (c *capturing) interrupt(t *testing.T) {
	file := filepath.Join(c.dir, "interrupted.pcapng")
	cmd, errs := c.begin(t, file)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	n := len(tshark(t, file))
	if want := fmt.Sprintf("INFO   %d packets captured, 0 lost, ", n); err != nil || !strings.Contains(errs.String(), want) || !strings.Contains(errs.String(), ": interrupted") {
		t.Errorf("%v: no %q in\n%s", err, want, errs)
	}
	controlplanetest.Eventually(t, "the gateway ends it", c.idle)
}

// kill leaves the gateway with a client that is gone without a word.
func (c *capturing) kill(t *testing.T) {
	file := filepath.Join(c.dir, "killed.pcapng")
	cmd, _ := c.begin(t, file)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	start := time.Now()
	controlplanetest.Eventually(t, "the gateway ends it", c.idle)
	t.Logf("ended after %v, %d packets are in the file", time.Since(start).Round(time.Millisecond), len(tshark(t, file)))
}

// ownFile: without -w the file is named after peer and time.
func (c *capturing) ownFile(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(string(c.liqoctl), c.args("provider", "--duration", "500ms")...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	names, err := filepath.Glob(filepath.Join(dir, "provider-20??????-??????.pcapng"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%v, %v", names, err)
	}
	if len(tshark(t, names[0])) == 0 {
		t.Error("no packets")
	}
}

// refusals say what is wrong, and leave no file.
func (c *capturing) refusals(t *testing.T) {
	file := filepath.Join(c.dir, "refused.pcapng")
	c.liqoctl.refuses(t, []string{"the gateway refuses: --filter: column 10: port needs a number", "tcp port http\n"}, c.args("provider", "-w", file, "--filter", "tcp port http")...)
	c.liqoctl.refuses(t, []string{`the gateway refuses: --point: there is no point "pod": the points are node,`}, c.args("provider", "-w", file, "--point", "pod")...)
	c.liqoctl.refuses(t, []string{`the gateway refuses: --max-size: "many" is not a size`}, c.args("provider", "-w", file, "--max-size", "many")...)
	c.liqoctl.refuses(t, []string{`there is no peering with "milan": this cluster's are with provider`}, c.args("milan", "-w", file)...)
	c.consumer.Apply(fmt.Sprintf(infoUser, c.pe.consumer.namespace))
	config, err := c.consumer.WriteKubeconfig("looker", rest.CopyConfig(c.consumer.ServiceAccount("default", "looker")))
	if err != nil {
		t.Fatal(err)
	}
	c.liqoctl.refuses(t, []string{"pods/exec"}, "network", "capture", "provider", "-w", file, "--kubeconfig", config, "-n", c.pe.consumer.namespace)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("there is a file: %v", err)
	}
}
