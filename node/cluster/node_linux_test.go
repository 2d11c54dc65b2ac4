package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/fabric"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/node/tunlink"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/source"
)

// agent is a node agent whose network is a namespace of the test's own; it
// reaches the API server where the test runs.
type agent struct {
	*fabric.Runner
	stop func()
}

func ip(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v\n%s", command, err, out)
	}
	return string(out)
}

// enterHost puts the test's goroutine into a network namespace with an uplink.
// The thread ends with the goroutine.
func enterHost(t *testing.T) (namespace *os.File) {
	t.Helper()
	source.NeedRoot(t, "ip")
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		source.Lacks(t, "it needs the right to make a network namespace: %v", err)
	}
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	for _, command := range []string{
		"link set lo up", "link add eth0 type veth peer name eth0p", "address add 172.18.0.2/24 dev eth0",
		"link set eth0p up", "link set eth0 up", "route add default via 172.18.0.1",
	} {
		ip(t, command)
	}
	return namespace
}

// run starts an agent in the namespace of the calling thread. What talks to the
// API server has goroutines of its own, which run on threads outside of it.
func run(t *testing.T, config *rest.Config, namespace *os.File) agent {
	t.Helper()
	host, err := hostnet.Open()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	ends, err := tunlink.New(tunlink.Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	link, err := New(config, Options{NodeName: node, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	a := agent{}
	if a.Runner, err = fabric.New(fabric.Options{NodeName: node, Host: host, Ends: ends, Feed: link, Reporter: link, Logger: log}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Errorf("enter the namespace: %v", err)
			return
		}
		if err := a.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	a.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		link.Disconnect()
		_ = host.Close()
	})
	t.Cleanup(a.stop)
	return a
}

// shows waits until ip(8) prints text, or until it does not any more.
func shows(t *testing.T, command, text string, want bool) {
	t.Helper()
	controlplanetest.Eventually(t, "ip "+command, func(context.Context) error {
		// An error is an answer, too: a table that does not exist yet.
		out, _ := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
		if strings.Contains(string(out), text) != want {
			return fmt.Errorf("%q is there: %v\n%s", text, !want, out)
		}
		return nil
	})
}

// A node from its first tunnel to its last, over a restart without an API server.
func testNode(t *testing.T, c *controlplanetest.Cluster, config *rest.Config) {
	namespace := enterHost(t)
	a := run(t, config, namespace)
	shows(t, "route show table 6091", "10.91.0.0/16", true)
	controlplanetest.Eventually(t, "the status", func(ctx context.Context) error {
		var n networkingv1beta1.InternalNode
		if err := c.Get(ctx, "", node, &n); err != nil {
			return err
		}
		if n.Status.NodeIP != (networkingv1beta1.NodeIP{Remote: "172.18.0.2"}) || len(n.Status.Conditions) != 2 || !strings.HasPrefix(n.Status.Conditions[0].Message, "Tunnels in place: 1") {
			return fmt.Errorf("is %+v", n.Status)
		}
		return nil
	})
	before := ip(t, "link show liqo.milan") + ip(t, "route show table 6091")

	a.stop()
	c.StopAPIServer()
	a = run(t, config, namespace)
	controlplanetest.Eventually(t, "it waits", func(context.Context) error {
		if ready, why := a.Ready(); ready || !strings.HasPrefix(why, "waiting: cannot read from the API server yet") {
			return fmt.Errorf("ready is %v: %s", ready, why)
		}
		return nil
	})
	if after := ip(t, "link show liqo.milan") + ip(t, "route show table 6091"); after != before {
		t.Errorf("a restart without an API server made of\n%sthis:\n%s", before, after)
	}
	if err := c.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "it is ready", func(context.Context) error {
		if ready, why := a.Ready(); !ready {
			return errors.New(why)
		}
		return nil
	})
	if s := a.State(); s.Applies != 0 || len(s.Drift) > 0 {
		t.Errorf("%d changes after a restart; drift: %q", s.Applies, s.Drift)
	}

	tunnel := networkingv1beta1.GeneveTunnel{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan-worker"}}
	if err := c.Client.Delete(context.Background(), &tunnel); err != nil {
		t.Fatal(err)
	}
	shows(t, "link show", "liqo.milan", false)
	shows(t, "rule show", "6091", false)
}
