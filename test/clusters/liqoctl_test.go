package clusters

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/document"
)

// program is the path of a program.
type program string

// run runs the program and returns what it wrote.
func (p program) run(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, string(p), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// ok runs it and wants it to succeed.
func (p program) ok(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, err := p.run(t.Context(), args...)
	if err != nil {
		t.Fatalf("liqoctl %s: %v\n%s%s", strings.Join(args, " "), err, out, errs)
	}
	return out
}

// decode reads the JSON that it prints.
func (p program) decode(t *testing.T, into any, args ...string) {
	t.Helper()
	if err := json.Unmarshal([]byte(p.ok(t, args...)), into); err != nil {
		t.Fatalf("liqoctl %s: %v", strings.Join(args, " "), err)
	}
}

// refuses runs it and wants it to fail with an error that has all the words.
func (p program) refuses(t *testing.T, words []string, args ...string) string {
	t.Helper()
	out, errs, err := p.run(t.Context(), args...)
	if err == nil {
		t.Errorf("liqoctl %s: succeeds\n%s%s", strings.Join(args, " "), out, errs)
	}
	for _, w := range words {
		if !strings.Contains(errs, w) {
			t.Errorf("liqoctl %s: no %q in\n%s", strings.Join(args, " "), w, errs)
		}
	}
	return errs
}

// said is a line on stderr, and when it came.
type said struct {
	line string
	at   time.Duration
}

// listen runs it and notes when it says what. heard, if it is not nil, is called
// with every line.
func (p program) listen(ctx context.Context, heard func(line string, of *os.Process), args ...string) (lines []said, err error) {
	cmd := exec.CommandContext(ctx, string(p), args...)
	errs, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for in := bufio.NewScanner(errs); in.Scan(); {
		line := strings.TrimRight(in.Text(), " ")
		lines = append(lines, said{line, time.Since(start)})
		if heard != nil {
			heard(line, cmd.Process)
		}
	}
	return lines, cmd.Wait()
}

// both are the flags for the consumer as the local cluster, which gets the client,
// and the provider as the remote one.
func (p *pair) both(args ...string) []string {
	return append(args, "--kubeconfig", p.consumer.Kubeconfig, "--remote-kubeconfig", p.provider.Kubeconfig)
}

// known is the peering that liqoctl makes of the pair.
func (p *pair) known() *peering {
	return &peering{
		provider: end{side: p.provider, namespace: "liqo-tenant-" + p.consumer.id, peerID: p.consumer.id, gateway: p.consumer.id},
		consumer: end{side: p.consumer, namespace: "liqo-tenant-" + p.provider.id, peerID: p.provider.id, gateway: p.provider.id},
	}
}

// connectCommand connects the pair.
func (p *pair) connectCommand() []string {
	return p.both("network", "connect", "--gw-server-service-type", "NodePort", "--wait")
}

// connected connects the pair with liqoctl until the test ends.
func (p *pair) connected(t *testing.T) *peering {
	t.Helper()
	pe := p.known()
	t.Cleanup(func() { pe.remove(t) })
	pe.explainIfFailed(t)
	p.liqoctl.ok(t, p.connectCommand()...)
	return pe
}

// testLiqoctl runs the real program against both clusters.
func testLiqoctl(t *testing.T, p *pair) {
	for _, part := range []struct {
		name string
		long bool
		run  func(*testing.T, *pair)
	}{
		{"connect", false, testConnect},
		{"init and former flags", false, testFormerFlags},
		{"refusals", false, testRefusals},
		{"a pod that does not start", false, testTimeIsUp},
		{"walkthrough", false, testWalkthrough},
		{"declarative walkthrough", false, testDeclarativeWalkthrough},
		{"script", false, testScript},
		{"interruptions", false, testInterruptions},
		{"an API server goes away", true, testAPIServerAway},
		{"rotate-keys", false, testRotateKeys},
		{"support bundle", false, testSupportBundle},
		{"terminal", false, testTerminal},
	} {
		t.Run(part.name, func(t *testing.T) {
			if part.long && !*long {
				t.Skip("takes minutes: -clusters.long")
			}
			part.run(t, p)
		})
	}
}

// done are the lines about steps that are done, as the documents print them.
func done(lines []said) (texts []string) {
	for _, l := range lines {
		if text, ok := strings.CutPrefix(strings.TrimLeft(l.line, " "), "INFO   "); ok && !document.IsWait(l.line) {
			texts = append(texts, text)
		}
	}
	return texts
}

// inOrder tells whether all of want stand in got in that order.
func inOrder(want, got []string) (missing string) {
	for _, w := range want {
		i := slices.Index(got, w)
		if i < 0 {
			return w
		}
		got = got[i+1:]
	}
	return ""
}

// shell runs commands of a document as an administrator does: with kubectl,
// liqoctl and the rest from PATH, in a folder of his own.
type shell struct {
	dir        string
	kubeconfig string
	vars       []string
}

// newShell returns the shell of the administrator of one cluster. Those with the
// same folder hand over files there.
func (p *pair) newShell(t *testing.T, s *side, dir string) *shell {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"liqoctl": string(p.liqoctl), "kubectl": s.KubectlPath()} {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	return &shell{dir: dir, kubeconfig: s.Kubeconfig, vars: []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir}}
}

// set sets a variable for the commands to come.
func (s *shell) set(name, value string) { s.vars = append(s.vars, name+"="+value) }

// run runs commands. The error holds what they said.
func (s *shell) run(ctx context.Context, commands string) (stdout string, err error) {
	cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = s.dir, append(s.vars, "KUBECONFIG="+s.kubeconfig)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", commands, err, &out, &errs)
	}
	return out.String(), nil
}

// ok runs commands that must succeed.
func (s *shell) ok(t *testing.T, commands string) string {
	t.Helper()
	out, err := s.run(t.Context(), commands)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}
