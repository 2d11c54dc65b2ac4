package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// forward makes a port of the test's own network that of the API server, which
// is in another one. It must be called on the thread of the node, and net opens
// listeners on the thread that asks for them.
func (n *node) forward(host string) {
	n.t.Helper()
	u, err := url.Parse(host)
	if err != nil {
		n.t.Fatal(err)
	}
	l, err := net.Listen("tcp", u.Host)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { l.Close() })
	go func() { // on another thread: sockets that it opens are in the network of the API server
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", u.Host)
			if err != nil {
				here.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{here, there}, {there, here}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					pair[0].Close()
				}()
			}
		}
	}()
}

// TestAgentInACluster runs the agent by an API server.
func TestAgentInACluster(t *testing.T) {
	c := controlplanetest.Start(t)
	c.Namespace(t, "tenant", nil)
	objects, err := os.ReadFile("testdata/node/node.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(string(objects))
	// By default tunnels are found by these labels, which the controllers set.
	if out, err := c.Kubectl("-n", "tenant", "label", "genevetunnels", "milan-edge", "networking.liqo.io/internal-node-name=edge"); err != nil {
		t.Fatalf("%s%v", out, err)
	}

	n := newNode(t)
	n.forward(c.Config.Host)
	args := []string{"--nodename=edge", "--podname=liqo-fabric-x", "--enable-nft-monitor=false", "--kubeconfig", c.Kubeconfig, "--link=vxlan", "--admin-socket", n.socket,
		"--metrics-address=0", "--health-probe-bind-address=127.0.0.1:0"}
	stop := n.start(args...)
	controlplanetest.Eventually(t, "the link", func(context.Context) error {
		return exec.Command("ip", "link", "show", "liqo.abcdefghij").Run()
	})
	controlplanetest.Eventually(t, "the status of the InternalNode", func(ctx context.Context) error {
		var node networkingv1beta1.InternalNode
		if err := c.Get(ctx, "", "edge", &node); err != nil {
			return err
		}
		if node.Status.NodeIP.Remote != "192.0.2.2" || len(node.Status.Conditions) == 0 {
			return fmt.Errorf("%+v", node.Status)
		}
		return nil
	})
	_, text, _ := n.run("status", "--admin-socket", n.socket)
	n.says("status", text, "in a cluster; in contact with the API server", "1 genevetunnels", "tenant/milan", "192.0.2.9:6091", "10.61.0.0/16")

	// The node does its work while the API server is away.
	statusSays := func(what, text string) {
		t.Helper()
		controlplanetest.Eventually(t, what, func(context.Context) error {
			if _, got, errs := n.run("status", "--admin-socket", n.socket); !strings.Contains(got, text) {
				return fmt.Errorf("%s%s", got, errs)
			}
			return nil
		})
	}
	c.StopAPIServer()
	statusSays("the agent notices", "no contact with the API server")
	n.ip("link show liqo.abcdefghij")
	stop()

	// One that starts meanwhile waits, and leaves everything as it is.
	routes := n.ip("route show table all")
	_, stop = n.launch(args...)
	statusSays("an agent that starts waits for the API server", "no contact with the API server")
	n.ip("link show liqo.abcdefghij")
	if got := n.ip("route show table all"); got != routes {
		t.Errorf("routes before\n%s\nand after the start without an API server\n%s", routes, got)
	}
	if err := c.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	statusSays("the agent is in contact again", "in contact with the API server")
	n.ip("link show liqo.abcdefghij")
	stop()
	if code, _, errs := n.run("cleanup"); code != 0 {
		t.Errorf("cleanup: exit code %d: %s", code, errs)
	}
}
