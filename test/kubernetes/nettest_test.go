package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/admin/nettest"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// testNetwork runs `liqoctl test network` with all that can be reached here. Not asked
// for: node ports and load balancers from the administrator's machine, to which the
// nodes behind their NATs have no address, and which has no load balancer.
func testNetwork(t *testing.T, w *world) {
	w.connect(t)
	serveInternet(t, w)
	basic := w.both("test", "network", "--rm", "--internet-address", "")
	t.Run("interrupted, and it cleans up", func(t *testing.T) {
		var once sync.Once // a second signal ends it without cleaning up
		said, err := w.listen(t.Context(), func(line string, of *os.Process) {
			if strings.Contains(line, "pods are ready to test") {
				once.Do(func() { _ = of.Signal(os.Interrupt) }) // it may have ended
			}
		}, basic...)
		if err == nil {
			t.Errorf("it succeeds:\n%q", said)
		}
		for _, c := range w.Clusters {
			noNamespaceOfTests(t, w, c)
		}
	})
	t.Run("all is well", func(t *testing.T) {
		report, err := w.networkTest(t, w.both("test", "network", "--rm", "--pod-np", "--ip", "--info", "--internet-address", "203.0.113.1")...)
		if err != nil {
			t.Error(err)
		}
		good := outcomes(report, true)
		for _, o := range report.Outcomes {
			if !o.OK {
				t.Errorf("%s: %s -> %s at %s: %s", o.Kind, o.From.Name, o.To.Name, o.URL, o.Error)
			}
		}
		// Two pods and two nodes in each cluster.
		for kind, atLeast := range map[nettest.Kind]int{
			nettest.PodToPod: 12, nettest.PodToPodLarge: 8, nettest.PodToService: 4, nettest.NodeToPod: 8, nettest.PodToNodePort: 8,
			nettest.PodToInternet: 4, nettest.PodToExternalIP: 4,
		} {
			if good[kind] < atLeast {
				t.Errorf("%d checks %s, want at least %d", good[kind], kind, atLeast)
			}
		}
		if len(report.Skipped) > 0 {
			t.Errorf("skipped: %q", report.Skipped)
		}
		t.Logf("%d checks: %v", len(report.Outcomes), good)
		for _, c := range w.Clusters {
			noNamespaceOfTests(t, w, c)
		}
	})
	if !*long {
		return
	}
	t.Run("a node hides its pods", func(t *testing.T) {
		for _, n := range w.a.Nodes { // before the agent claims what pods send
			n.Host.Nft("table ip hides { chain post { type nat hook postrouting priority 50; oifname \"liqo.*\" masquerade; } }")
			defer n.Host.Nft("delete table ip hides")
		}
		report, err := w.networkTest(t, append(basic, "--basic")...)
		hidden := 0
		for _, o := range report.Outcomes {
			if strings.Contains(o.Error, "a node there masquerades pod addresses") {
				hidden++
			}
		}
		if err == nil || hidden == 0 {
			t.Errorf("%d checks tell of it (%v): %+v", hidden, err, report.Outcomes)
		}
	})
	t.Run("no connection", func(t *testing.T) {
		w.peering().client.kubectl(t, "delete", "publickeies", "--all")
		sides := w.pairOfServers(t, 2)
		lab.Eventually(t, patience, "nothing gets through", func() error {
			if w.reach(t.Context(), t, sides[0], sides[1]) == nil {
				return errors.New("pods reach each other")
			}
			return nil
		})
		report, err := w.networkTest(t, append(basic, "--basic")...)
		if bad := outcomes(report, false); err == nil || bad[nettest.PodToPod] < 8 {
			t.Errorf("failed checks: %v (%v)", bad, err)
		}
		w.liqoctl(t, w.connectArgs()...)
	})
	t.Run("an image that nobody has", func(t *testing.T) {
		w.refuses(t, []string{"not finished within 5s (--timeout): ", " waiting for the pods in namespace liqo-test-network: pod prober-"},
			append(basic, "--image", "example.org/nothing:1", "--timeout", "5s")...)
	})
}

// networkTest runs `liqoctl test network`. The error is its verdict.
func (w *world) networkTest(t *testing.T, args ...string) (*nettest.Report, error) {
	t.Helper()
	out, errs, err := w.tryLiqoctl(t.Context(), append(args, "-o", "json")...)
	report := new(nettest.Report)
	if decoded := json.Unmarshal([]byte(out), report); decoded != nil {
		t.Fatalf("%v, %v\n%s%s", err, decoded, out, errs)
	}
	return report, err
}

// outcomes counts the checks that succeeded, or those that failed.
func outcomes(r *nettest.Report, ok bool) map[nettest.Kind]int {
	n := make(map[nettest.Kind]int)
	for _, o := range r.Outcomes {
		if o.OK == ok {
			n[o.Kind]++
		}
	}
	return n
}

// noNamespaceOfTests checks that a network test has left nothing.
func noNamespaceOfTests(t *testing.T, w *world, c *kubelab.Cluster) {
	t.Helper()
	if got := w.kubectl(t, c, "get", "namespaces", nettest.Namespace, nettest.HostNamespace, "--ignore-not-found", "-o", "name"); got != "" {
		t.Errorf("left in %s: %s", c.Name, got)
	}
}

// serveInternet has the administrator's machine play the Internet: HTTP, and a port
// that takes connections.
func serveInternet(t *testing.T, w *world) {
	t.Helper()
	for _, port := range []string{"80", "443"} {
		var l net.Listener
		if err := w.WAN.Do(func() (err error) {
			l, err = net.Listen("tcp", "203.0.113.1:"+port)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		s := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintln(rw, "the Internet")
		})}
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		t.Cleanup(func() {
			s.Close()
			if err := <-done; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
	}
}
