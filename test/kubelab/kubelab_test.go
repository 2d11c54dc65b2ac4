package kubelab

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/lab"
)

//go:embed testdata/app.yaml
var app string

// long has the name of the flag of test/kubernetes, so that one command line does for
// both.
var long = flag.Bool("kubernetes.long", false, "also test what the long tests of test/kubernetes need")

// TestLab runs everything on one lab, which takes seconds to start. Every part
// leaves the clusters as it found them.
func TestLab(t *testing.T) {
	RestoreSysctls(t) // a lab that was killed leaves the machine changed, and New mends that
	before := hostSysctls(t)
	t.Cleanup(func() { // after the lab's own
		if after := hostSysctls(t); after != before {
			t.Errorf("the lab leaves the machine changed:\n%s, before:\n%s", after, before)
		}
	})
	l := New(t, Options{NetworkPolicies: true})
	for _, c := range l.Clusters {
		if _, err := c.KubectlInput(app, "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Kubectl("-n", "app", "rollout", "status", "ds/web", "--timeout=120s"); err != nil {
			t.Fatal(err)
		}
	}
	for _, part := range []struct {
		name string
		long bool
		run  func(*testing.T, *Lab)
	}{
		{"pods talk", false, testPodsTalk},
		{"services", false, testServices},
		{"Internet", false, testInternet},
		{"API server from a pod", false, testAPIFromPod},
		{"logs and exec", false, testKubelet},
		{"restricted pods only", false, testPodSecurity},
		{"expiry", false, testExpiry},
		{"NetworkPolicies", false, testPolicies},
		{"WAN", false, testWAN},
		{"usage", false, testUsage},
		{"API server", false, testAPIServer},
		{"kubelet and containerd", false, testRestarts},
		{"power", true, testPower},
	} {
		t.Run(part.name, func(t *testing.T) {
			if part.long && !*long {
				t.Skip("SKIPPED: only long tests need it: -kubernetes.long")
			}
			part.run(t, l)
		})
	}
}

// pods returns the pods of the app, one on each node, in the nodes' order.
func pods(t *testing.T, c *Cluster) []*Pod {
	t.Helper()
	var out []*Pod
	lab.Eventually(t, patience, "one pod on each node", func() (err error) {
		// A DaemonSet that has just been made is rolled out before it knows of any node.
		if _, err = c.Kubectl("-n", "app", "wait", "--for=condition=Ready", "pods", "-l", "app=web", "--timeout=10s"); err != nil {
			return err
		}
		out, err = c.Pods(t.Context(), "app", map[string]string{"app": "web"})
		if err == nil && len(out) != len(c.Nodes) {
			err = fmt.Errorf("%d pods", len(out))
		}
		return err
	})
	slices.SortFunc(out, func(a, b *Pod) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	return out
}

// answer is what kubelab/web says.
type answer struct{ Pod, Node, Client string }

// patience bounds what takes seconds on a machine that has nothing else to do.
const patience = 90 * time.Second

// ask sends an HTTP request from a pod, which is answered.
func ask(from *Pod, address string) (a answer, err error) {
	return askWithin(patience, from, address)
}

// unanswered sends one that is to get lost, and so waits for a short time only.
func unanswered(from *Pod, address string) error {
	if a, err := askWithin(time.Second, from, address); err == nil {
		return fmt.Errorf("%+v answers", a)
	}
	return nil
}

func askWithin(limit time.Duration, from *Pod, address string) (a answer, err error) {
	transport := &http.Transport{DialContext: from.DialContext}
	defer transport.CloseIdleConnections()
	h := http.Client{Transport: transport, Timeout: limit}
	r, err := h.Get("http://" + address + "/")
	if err != nil {
		return a, err
	}
	defer r.Body.Close()
	return a, json.NewDecoder(r.Body).Decode(&a)
}

func testPodsTalk(t *testing.T, l *Lab) {
	for _, c := range l.Clusters {
		p := pods(t, c)
		for _, from := range p {
			for _, to := range p {
				got, err := ask(from, net.JoinHostPort(to.Addr.String(), "8080"))
				if err != nil {
					t.Fatalf("%s to %s: %v", from.Name, to.Name, err)
				}
				if want := (answer{to.Name, to.Node.Name, from.Addr.String()}); got != want {
					t.Errorf("%s to %s: got %+v, want %+v", from.Name, to.Name, got, want)
				}
			}
		}
	}
}

func testServices(t *testing.T, l *Lab) {
	c := l.Cluster("a")
	for _, from := range pods(t, c) {
		seen := map[string]bool{}
		lab.Eventually(t, patience, "both pods answer at the Service's address", func() error {
			a, err := ask(from, "10.96.5.5")
			seen[a.Node] = seen[a.Node] || err == nil
			if len(seen) < 2 {
				return fmt.Errorf("answers from %v, error %w", seen, err)
			}
			return err
		})
	}
}

func testInternet(t *testing.T, l *Lab) {
	for _, c := range l.Clusters {
		for _, p := range pods(t, c) {
			for _, port := range []string{"80", "443"} {
				if a, err := ask(p, net.JoinHostPort(Internet, port)); err != nil || a.Client != c.Public.String() {
					t.Errorf("%s: got %+v, %v, want an answer to %s", p.Name, a, err, c.Public)
				}
			}
		}
	}
}

func testAPIFromPod(t *testing.T, l *Lab) {
	for _, c := range l.Clusters {
		for _, p := range pods(t, c) {
			out, err := p.Try("curl", "-sS", "--cacert", c.file("ca.crt"), "https://"+serviceAddr.String()+"/version")
			if err != nil || !strings.Contains(out, "gitVersion") {
				t.Errorf("%s: %v: %s", p.Name, err, out)
			}
		}
	}
	// The other cluster's, at its public address.
	p, b := pods(t, l.Cluster("a"))[1], l.Cluster("b")
	if out, err := p.Try("curl", "-sS", "--cacert", b.file("ca.crt"), fmt.Sprintf("https://%s:%d/version", b.Public, apiPort)); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func testKubelet(t *testing.T, l *Lab) {
	c := l.Cluster("b")
	p := pods(t, c)[1]
	if out, err := c.Kubectl("-n", "app", "logs", p.Name); err != nil || !strings.Contains(out, "listens") {
		t.Errorf("logs: %v: %q", err, out)
	}
	out, err := c.Kubectl("-n", "app", "exec", p.Name, "--", "web", "--nonsense")
	if err == nil || !strings.Contains(err.Error(), "addresses to serve at") {
		t.Errorf("exec: %v: %s", err, out)
	}
	// The kubelet's own door.
	if out, err := c.plane.Try("curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", fmt.Sprintf("https://%s:10250/pods", p.Node.Addr)); err != nil || out != "401" {
		t.Errorf("a stranger at the kubelet: got %v %s, want 401", err, out)
	}
}

func testPodSecurity(t *testing.T, l *Lab) {
	out, err := l.Cluster("a").Kubectl("-n", "app", "run", "root", "--image="+WebImage)
	if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("a pod that is not restricted: %v: %s", err, out)
	}
}

func testExpiry(t *testing.T, l *Lab) {
	c := l.Cluster("a")
	for _, tt := range []struct {
		left time.Duration
		want bool
	}{{time.Hour, true}, {-time.Minute, false}} {
		path, err := c.KubeconfigFor("guest", "system:masters", time.Now().Add(tt.left))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Kubectl("--kubeconfig", path, "get", "nodes"); (err == nil) != tt.want {
			t.Errorf("with %v left: %v", tt.left, err)
		}
	}
}

//go:embed testdata/policy.yaml
var policyManifest string

func testPolicies(t *testing.T, l *Lab) {
	c := l.Cluster("a")
	p := pods(t, c)
	at := net.JoinHostPort(p[1].Addr.String(), "8080")
	if _, err := ask(p[0], at); err != nil {
		t.Fatalf("without a policy: %v", err)
	}
	if _, err := c.KubectlInput(policyManifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	remove := func() {
		if _, err := c.KubectlInput(policyManifest, "delete", "--ignore-not-found", "-f", "-"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(remove)
	lab.Eventually(t, patience, "another pod is kept away", func() error {
		return unanswered(p[0], at)
	})
	// A node of the ipBlock may, and so may the pod's own node, which probes it.
	for _, n := range c.Nodes {
		if out, err := n.Host.Try("curl", "-sS", "-m", "60", "http://"+at); err != nil {
			t.Errorf("from node %s: %v: %s", n.Name, err, out)
		}
	}
	remove()
	lab.Eventually(t, patience, "the pod answers again", func() error {
		_, err := ask(p[0], at)
		return err
	})
}

func testWAN(t *testing.T, l *Lab) {
	a, b := l.Cluster("a"), l.Cluster("b")
	server := pods(t, b)[0]
	listener, err := server.ListenPacket("udp4", ":5000")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go echo(listener)
	client := pods(t, a)[1]
	var conn net.Conn
	if conn, err = client.DialContext(t.Context(), "udp4", net.JoinHostPort(b.Public.String(), "30500")); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lab.Eventually(t, patience, "the node port behind the router answers", func() error { return ping(conn, soon) })

	toAPIServer := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		conn, err := client.DialContext(ctx, "tcp4", netip.AddrPortFrom(b.Public, apiPort).String())
		if err == nil {
			conn.Close()
		}
		return err
	}

	l.Cut()
	if err := ping(conn, soon); err == nil {
		t.Error("an answer over the cut WAN")
	}
	if err := toAPIServer(patience); err != nil {
		t.Errorf("the other cluster's API server, over the cut WAN: %v", err)
	}
	l.Isolate()
	if err := ping(conn, soon); err == nil {
		t.Error("an answer from an isolated cluster")
	}
	if err := toAPIServer(soon); err == nil {
		t.Error("an isolated cluster reaches the other one's API server")
	}
	for _, c := range []*Cluster{a, b} {
		if _, err := c.Kubectl("get", "nodes"); err != nil {
			t.Errorf("the administrator's way: %v", err)
		}
	}
	l.Lose(50)
	answers := 0
	for range 60 {
		if ping(conn, soon) == nil {
			answers++
		}
	}
	// A quarter is expected, fewer where the machine is slow. More than 40, and none at
	// all, come once in millions of runs.
	if answers < 1 || answers > 40 {
		t.Errorf("%d answers of 60 with half of the packets lost each way", answers)
	}
	l.Mend()
	for range 20 {
		if err := ping(conn, patience); err != nil {
			t.Errorf("after Mend: %v", err)
		}
	}
}

// echo answers every datagram.
func echo(conn net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(buf[:n], from)
	}
}

// soon is how long a ping waits that is to be lost, or is sent again.
const soon = 100 * time.Millisecond

// pings numbers them, as the answer to an earlier one may come late.
var pings atomic.Uint64

// ping waits for the answer to one datagram.
func ping(conn net.Conn, wait time.Duration) error {
	var sent, got [8]byte
	binary.BigEndian.PutUint64(sent[:], pings.Add(1))
	if _, err := conn.Write(sent[:]); err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(wait))
	for got != sent {
		if _, err := conn.Read(got[:]); err != nil {
			return err
		}
	}
	return nil
}

func testUsage(t *testing.T, l *Lab) {
	p := pods(t, l.Cluster("a"))
	before, rss, err := p[0].Usage()
	if err != nil {
		t.Fatal(err)
	}
	if rss < 1<<20 || rss > 1<<30 {
		t.Errorf("resident memory %d", rss)
	}
	transport := &http.Transport{DialContext: p[1].DialContext}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("http://%s:8080/bytes?n=100000000", p[0].Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if n, err := io.Copy(io.Discard, r.Body); n != 100e6 {
		t.Fatalf("%d bytes: %v", n, err)
	}
	after, _, err := p[0].Usage()
	if err != nil {
		t.Fatal(err)
	}
	if after <= before {
		t.Errorf("100 MB took no processor time: %v, %v", before, after)
	}
	t.Logf("100 MB took %v, %d KiB resident", after-before, rss>>10)
}

func testAPIServer(t *testing.T, l *Lab) {
	c := l.Cluster("a")
	p := pods(t, c)
	c.StopAPIServer()
	if _, err := c.Kubectl("get", "nodes", "--request-timeout=2s"); err == nil {
		t.Error("it answers although it was stopped")
	}
	if _, err := ask(p[0], net.JoinHostPort(p[1].Addr.String(), "8080")); err != nil {
		t.Errorf("pods without it: %v", err)
	}
	c.StartAPIServer()
	if _, err := c.Kubectl("get", "nodes"); err != nil {
		t.Error(err)
	}
}

func testRestarts(t *testing.T, l *Lab) {
	c := l.Cluster("a")
	p := pods(t, c)
	p[1].Node.RestartKubelet()
	p[1].Node.RestartContainerd()
	if _, err := ask(p[0], net.JoinHostPort(p[1].Addr.String(), "8080")); err != nil {
		t.Errorf("the pod after its node's restarts: %v", err)
	}
	lab.Eventually(t, patience, "logs after the restarts", func() error {
		_, err := c.Kubectl("-n", "app", "logs", p[1].Name)
		return err
	})
}

func testPower(t *testing.T, l *Lab) {
	c := l.Cluster("b")
	p := pods(t, c)
	node := p[0].Node // the one to which the router leads node ports
	listener, err := p[1].ListenPacket("udp4", ":5000")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go echo(listener)
	conn, err := pods(t, l.Cluster("a"))[0].DialContext(t.Context(), "udp4", net.JoinHostPort(c.Public.String(), "30500"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if ping(conn, soon) == nil {
		t.Error("the node port leads to the second node")
	}
	start := time.Now()
	node.Kill()
	if err := unanswered(p[1], net.JoinHostPort(p[0].Addr.String(), "8080")); err != nil {
		t.Errorf("the dead node: %v", err)
	}
	lab.Eventually(t, patience, "the node port leads to the node that lives, for the same flow", func() error { return ping(conn, soon) })
	lab.Eventually(t, patience, "the dead node is not ready", func() error {
		var n corev1.Node
		if err := c.Client().Get(t.Context(), client.ObjectKey{Name: node.Name}, &n); err != nil {
			return err
		}
		if ready := condition(&n, corev1.NodeReady); ready.Status == corev1.ConditionTrue {
			return fmt.Errorf("last heard at %v", ready.LastHeartbeatTime)
		}
		return nil
	})
	t.Logf("not ready after %v", time.Since(start).Round(100*time.Millisecond))
	start = time.Now()
	node.Start()
	t.Logf("ready again after %v", time.Since(start).Round(100*time.Millisecond))
	lab.Eventually(t, patience, "the pod of the node answers again", func() error {
		p := pods(t, c)
		_, err := ask(p[1], net.JoinHostPort(p[0].Addr.String(), "8080"))
		return err
	})
	t.Logf("its pod answers again after %v", time.Since(start).Round(100*time.Millisecond))
	if err := ping(conn, patience); err != nil {
		t.Errorf("the node port, when the first node is back: %v", err)
	}
}

// hostSysctls are the values of the machine that a lab changes.
func hostSysctls(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, name := range nodeSysctls {
		value, err := os.ReadFile(filepath.Join(procSys, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %s", name, value)
	}
	return all.String()
}
