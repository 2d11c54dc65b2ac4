package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/admin/nettest"
)

// testNetwork runs `liqoctl test network` with all that can be reached here, and the
// commands that tell how things are. Not asked for: node ports and load balancers
// from the administrator's machine, to which the nodes behind their NATs have no
// address, and which has no load balancer.
func testNetwork(t *testing.T, w *world) {
	w.connect(t)
	serveInternet(t, w)
	start := time.Now()
	out, errs, err := w.tryLiqoctl(t.Context(), w.both("test", "network", "--rm", "--pod-np", "--ip", "--info",
		"--internet-address", "203.0.113.1", "-o", "json")...)
	took := time.Since(start)
	report := new(nettest.Report)
	if decoded := json.Unmarshal([]byte(out), report); decoded != nil {
		t.Fatalf("%v, %v\n%s%s", err, decoded, out, errs)
	}
	good := make(map[nettest.Kind]int)
	for _, o := range report.Outcomes {
		if !o.OK {
			t.Errorf("%s: %s -> %s at %s: %s", o.Kind, o.From.Name, o.To.Name, o.URL, o.Error)
		}
		good[o.Kind]++
	}
	if err != nil {
		t.Error(err)
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
	t.Logf("%d checks in %v: %v", len(report.Outcomes), took.Round(100*time.Millisecond), good)
	t.Run("status", func(t *testing.T) { checkStatus(t, w) })
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

// checkStatus wants the commands that tell how things are to say that they are well.
func checkStatus(t *testing.T, w *world) {
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{w.both("network", "status"), []string{w.b.Name, "Connected"}},
		{[]string{"info", "--kubeconfig", w.a.Kubeconfig}, []string{w.a.Name, w.b.Name}},
		{[]string{"info", "peer", w.b.Name, "--kubeconfig", w.a.Kubeconfig}, []string{w.b.Name, "10.71.0.0/16"}},
		{[]string{"info", "--kubeconfig", w.a.Kubeconfig, "--get", "clusterid"}, []string{w.a.Name}},
		{[]string{"get", "peerings", "--kubeconfig", w.b.Kubeconfig}, []string{w.a.Name}},
	} {
		out, _ := w.liqoctl(t, tt.args...)
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("liqoctl %s: no %q in\n%s", strings.Join(tt.args, " "), want, out)
			}
		}
	}
}
