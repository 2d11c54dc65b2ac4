package kubernetes

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/document"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// connectLines are the lines of `network connect --wait`, in their order.
func connectLines(t *testing.T) []string {
	t.Helper()
	return linesOf(document.Ours(t, document.Network).Blocks("(local) Connection is established")[0])
}

// told are the lines about steps that are done.
func told(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.HasPrefix(line, "INFO") || document.IsWait(line) })
}

// testInterruptions interrupts network connect after any line, politely and by
// force, and in a terminal. Whatever came before, the next run ends in the state of
// one that nobody interrupted. Then it interrupts a reset.
func testInterruptions(t *testing.T, w *world) {
	w.connect(t)
	sides, pe, lines := w.pairOfServers(t, 2), w.peering(), connectLines(t)
	want := pe.state(t)
	narrow := terminal{60, 20, true}
	for range repetitions() {
		w.apart(t)
		w.interruptOnTerminal(t, narrow)
		for _, signal := range []os.Signal{syscall.SIGKILL, syscall.SIGINT} {
			at, heard := signalAt(len(lines), signal)
			said, err := w.listen(t.Context(), heard, w.connectArgs()...)
			t.Logf("%v at line %d of %d: %v", signal, at, len(said), err)
			if signal == syscall.SIGINT && err != nil && !strings.Contains(strings.Join(said, "\n"), "interrupted") {
				t.Errorf("Ctrl-C: %v\n%q", err, said)
			}
		}
		w.connectOnTerminal(t, narrow)
		w.joined = true
		if diff := cmp.Diff(want, pe.state(t)); diff != "" {
			t.Errorf("after interruptions: another state (-want +got)\n%s", diff)
		}
		w.talk(t, sides)
	}
	if *long {
		for _, x := range []terminal{{120, 40, true}, {120, 40, false}, narrow} {
			w.apart(t)
			if waits := w.connectOnTerminal(t, x); waits < 2 {
				t.Errorf("while it waited nothing moved: %d different lines", waits)
			}
			w.joined = true
		}
	}
	t.Run("reset", func(t *testing.T) {
		_, heard := signalAt(4, syscall.SIGKILL)
		_, _ = w.listen(t.Context(), heard, w.both("network", "reset", "--wait", "--skip-confirm")...) // it was killed
		w.apart(t)
		w.nothingLeft(t)
	})
}

// testAPIServerAway takes the API server of a cluster away in the middle of network
// connect: it is waited for.
func testAPIServerAway(t *testing.T, w *world) {
	w.connect(t)
	sides, pe := w.pairOfServers(t, 2), w.peering()
	want := pe.state(t)
	for _, c := range []*kubelab.Cluster{w.a, w.b} {
		for _, stay := range []time.Duration{0, 25 * time.Second} {
			t.Run(fmt.Sprintf("%s for %v", c.Name, stay), func(t *testing.T) {
				w.apart(t)
				back := make(chan struct{})
				said, err := w.listen(t.Context(), func(line string, _ *os.Process) {
					if !strings.Contains(line, "(remote) Configuration applied successfully") {
						return
					}
					c.StopAPIServer()
					go func() {
						defer close(back)
						lasts(t.Context(), stay)
						c.StartAPIServer()
					}()
				}, w.connectArgs()...)
				<-back
				w.joined = true
				if err != nil {
					t.Errorf("an API server that comes back: %v\n%q", err, said)
				}
				if diff := cmp.Diff(want, pe.state(t)); diff != "" {
					t.Errorf("another state (-want +got)\n%s", diff)
				}
				w.talk(t, sides)
			})
		}
	}
}

// testTimeIsUp connects with a template whose image nobody has. What is missing
// comes, and the same command continues.
func testTimeIsUp(t *testing.T, w *world) {
	w.apart(t)
	server := w.peering().server
	template := strings.NewReplacer("sluice.local/gateway:"+tag, "sluice.local/gateway:none", `"name": "wireguard-server"`, `"name": "no-image"`,
		`"imagePullPolicy": "IfNotPresent"`, `"imagePullPolicy": "Never"`). // how long a pull takes to fail depends on the DNS
		Replace(w.kubectl(t, w.b, "get", "wggatewayservertemplates", "-n", liqoNamespace, "wireguard-server", "-o", "json"))
	server.apply(t, template)
	t.Cleanup(func() {
		if out, err := w.b.Kubectl("delete", "wggatewayservertemplates", "-n", liqoNamespace, "no-image"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	w.joined = true // half of it
	w.refuses(t, []string{
		"(remote) timed out after 12s while waiting for gateway pod gw-" + server.gateway + " to be ready", // which step
		"GatewayServer " + server.namespace + "/" + server.gateway,                                         // which object
		"Next: the node cannot pull the image: check its name in the template",                             // what to do
		"run the same command again to continue",
	}, w.connectArgs("--gw-server-template-name", "no-image", "--timeout", "12s")...)
	lab.Eventually(t, patience, "it is corrected", func() error {
		_, err := w.b.Kubectl("patch", "gatewayserver", server.gateway, "-n", server.namespace, "--type=merge", "-p", `{"spec":{"serverTemplateRef":{"name":"wireguard-server"}}}`)
		return err
	})
	w.liqoctl(t, w.connectArgs()...)
	w.talk(t, w.pairOfServers(t, 2))
}
