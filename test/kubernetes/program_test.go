package kubernetes

import (
	"bufio"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-net/sluice/test/kubelab"
)

// decode runs liqoctl and reads the JSON that it prints.
func (w *world) decode(t *testing.T, into any, args ...string) {
	t.Helper()
	out, _ := w.liqoctl(t, args...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("liqoctl %s: %v in\n%s", strings.Join(args, " "), err, out)
	}
}

// refuses runs liqoctl, which must fail and write all the words to stderr.
func (w *world) refuses(t *testing.T, words []string, args ...string) {
	t.Helper()
	out, errs, err := w.run(t.Context(), w.command(args...))
	if err == nil {
		t.Errorf("liqoctl %s: succeeds\n%s%s", strings.Join(args, " "), out, errs)
	}
	for _, word := range words {
		if !strings.Contains(errs, word) {
			t.Errorf("liqoctl %s: no %q in\n%s", strings.Join(args, " "), word, errs)
		}
	}
}

// listen runs liqoctl and returns the lines that it writes to stderr. heard, if it
// is not nil, is called with each as it comes.
func (w *world) listen(ctx context.Context, heard func(line string, of *os.Process), args ...string) (lines []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := w.command(args...)
	errs, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := w.WAN.Do(cmd.Start); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	for in := bufio.NewScanner(errs); in.Scan(); {
		line := strings.TrimSpace(in.Text())
		lines = append(lines, line)
		if heard != nil {
			heard(line, cmd.Process)
		}
	}
	return lines, cmd.Wait()
}

// signalAt sends a signal when one of so many lines has come, whichever: the
// moment does not depend on how fast the machine is.
func signalAt(lines int, signal os.Signal) (at int, heard func(string, *os.Process)) {
	at = 1 + rand.IntN(lines)
	n := 0
	return at, func(_ string, of *os.Process) {
		if n++; n == at {
			_ = of.Signal(signal) // it may have ended
		}
	}
}

// kubeconfig writes a copy of an administrator's kubeconfig with a change.
func (w *world) kubeconfig(t *testing.T, c *kubelab.Cluster, name string, change func(*api.Cluster, *api.AuthInfo)) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	current := config.Contexts[config.CurrentContext]
	change(config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo])
	path := filepath.Join(t.TempDir(), name)
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
