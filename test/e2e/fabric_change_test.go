package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/lab"
)

// testGatewayMoves gives the gateway of cluster a another address, as a new pod
// has. The agents follow.
func testGatewayMoves(t *testing.T, w *fabricWorld) {
	l := w.startLoad(t)
	to := netip.MustParseAddr("172.30.0.252")
	old := w.A.Underlay
	start := time.Now()
	if _, err := w.gatewayA.Stop(lab.Patience); err != nil {
		t.Error(err)
	}
	w.A.Gateway.IP("addr del %s/24 dev eth0", old)
	w.A.Gateway.IP("addr add %s/24 dev eth0", to)
	w.A.Underlay = to
	w.gatewayA = w.A.StartGateway(w.gateway, lab.GatewayOptions{Manifests: w.manifests(w.A)})
	for _, n := range w.A.Nodes {
		w.agents[n].Write(w.manifests(w.A))
	}
	w.gatewayA.WaitConnected(lab.Patience)
	connected := time.Since(start)
	for _, n := range w.A.Nodes {
		for w.B1.Pod.Ping(w.fromB(n.PodAddr), "-c1 -W1").Received == 0 {
			if time.Since(start) > lab.Patience {
				t.Fatalf("%s cannot be reached", n.Pod.Name)
			}
		}
	}
	l.recovered(t)
	s := l.since(start, underWay)
	t.Logf("connected after %v, with the start of a new gateway; %v", connected.Round(time.Millisecond), s)
	if len(s.broken) > 0 {
		t.Errorf("connections broke: %v", s.broken)
	}
	testPing(t, w.world)
}

// TestFabricKind changes what the links of both clusters are made of, node by
// node, while the gateways run on: they answer each node in kind.
func TestFabricKind(t *testing.T) {
	w := newFabricWorld(t, "vxlan")
	w.start(t)
	defer w.report(t)
	l := w.startLoad(t)
	l.recovered(t)
	for _, kind := range []string{"tun", "vxlan"} {
		w.kind = kind
		for _, n := range w.nodes() {
			start := time.Now()
			if _, err := w.agents[n].Stop(lab.Patience); err != nil {
				t.Errorf("%s: %v", n.Host.Name, err)
			}
			w.startAgent(n).Ready(lab.Patience)
			l.recovered(t)
			s := l.since(start, underWay)
			t.Logf("%s: %s: %v", n.Host.Name, kind, s)
			if len(s.broken) > 0 {
				t.Errorf("%s: %v", n.Host.Name, s.broken)
			}
			w.wantStatus(t, n)
		}
	}
}

// TestFabricGatewayOnNode has the gateway of cluster a run as a pod of its first node:
// the node reaches it from another address than from that of the underlay, and
// what it sends to the other node passes the masquerade of the CNI.
func TestFabricGatewayOnNode(t *testing.T) {
	w := newFabricWorld(t, "vxlan")
	gatewayOnNode(w.Lab, w.A, w.A1)
	for _, first := range []string{"agents", "gateway"} {
		t.Run(first+" first", func(t *testing.T) {
			defer w.report(t)
			if first == "agents" {
				w.startAgents(t)
				w.reported(t)
				w.startGateways(t)
			} else {
				// Its first packets to the other node are masqueraded, as nobody says that they
				// should not be; and so are all that follow, unless somebody cares.
				for _, n := range w.nodes() {
					if _, err := w.agents[n].Stop(lab.Patience); err != nil {
						t.Error(err)
					}
					if out, err := n.Cleanup(w.fabric); err != nil {
						t.Errorf("%v: %s", err, out)
					}
				}
				for _, g := range []*lab.Gateway{w.gatewayA, w.gatewayB} {
					if _, err := g.Stop(lab.Patience); err != nil {
						t.Error(err)
					}
				}
				w.startGateways(t)
				w.B1.Pod.Ping(w.fromB(w.A2.PodAddr), "-c10 -i0.1 -W1")
				w.startAgents(t)
			}
			for _, n := range w.A.Nodes {
				start := time.Now()
				for w.B1.Pod.Ping(w.fromB(n.PodAddr), "-c1 -W1").Received == 0 {
					if time.Since(start) > lab.Patience {
						t.Fatalf("%s cannot be reached", n.Pod.Name)
					}
				}
				t.Logf("%s: reached after %v", n.Host.Name, time.Since(start).Round(time.Millisecond))
			}
			testNetwork(t, w)
		})
	}
}

// gatewayOnNode makes the gateway's host a pod of a node, as CNIs do that route.
func gatewayOnNode(l *lab.Lab, c *lab.Cluster, n *lab.Node) {
	pod, router := netip.MustParseAddr("10.243.1.254"), n.PodNet.Addr().Next()
	l.Link(c.Gateway, "eth1", n.Host, "gateway0")
	n.Host.IP("route add %s dev gateway0", pod)
	c.Gateway.IP("addr flush dev eth0")
	c.Gateway.IP("addr add %s/32 dev eth1", pod)
	c.Gateway.IP("route add %s dev eth1", router)
	c.Gateway.IP("route add default via %s", router)
	c.Underlay = pod
}

// reported waits until the agents of cluster a have told from where they reach
// the gateway, which the gateway's manifests say from then on.
func (w *fabricWorld) reported(t *testing.T) {
	t.Helper()
	w.nodeIPs = map[*lab.Node]netip.Addr{}
	for _, n := range w.A.Nodes {
		lab.Eventually(t, lab.Patience, n.Host.Name+": the node's address", func() error {
			text, err := os.ReadFile(filepath.Join(w.agents[n].Manifests, "status", "internalnode.yaml"))
			if err != nil {
				return err
			}
			for _, where := range []string{"remote", "local"} {
				if match := regexp.MustCompile(where + `: "?([0-9a-f.:]+)"?\n`).FindSubmatch(text); match != nil {
					w.nodeIPs[n] = netip.MustParseAddr(string(match[1]))
					t.Logf("%s: nodeIP.%s is %s", n.Host.Name, where, w.nodeIPs[n])
					return nil
				}
			}
			return fmt.Errorf("it says\n%s", text)
		})
	}
}

// TestFabricRefuses gives the agent what it cannot carry out. It says what is
// wrong and what to do, and leaves the node as it was.
func TestFabricRefuses(t *testing.T) {
	l := lab.New(t, tools...)
	topo := l.NewTopology([]lab.NodeSpec{{Agent: true}}, []lab.NodeSpec{{Agent: true}})
	n := topo.A.Nodes[0]
	binary := lab.Build(t, lab.FabricPackage)
	families := func(m *lab.Manifests) { m.Internal = netip.MustParseAddr("fd00:80::254") }
	large := func(m *lab.Manifests) { m.MTU = 1480 }
	same := func(*lab.Manifests) {}
	before := network(t, n, true)
	for _, c := range []struct {
		name   string
		opts   lab.FabricOptions
		change func(*lab.Manifests)
		want   []string
	}{
		{"unknown node", lab.FabricOptions{Args: []string{"--node-name", "elsewhere"}}, same, []string{"InternalNode elsewhere", "there are: node1", "--node-name"}},
		{"address families", lab.FabricOptions{}, families, []string{"fabric.yaml:", "fd00:80::254", "10.80.0.1", "give both addresses of the same"}},
		{"MTU above the underlay's", lab.FabricOptions{}, large, []string{"fabric.yaml:", "spec.mtu: 1480 does not fit", "carries 1500", "1450 or less"}},
		{"a kind that the kernel lacks", lab.FabricOptions{Link: "geneve"}, same, []string{"--link=geneve", "modprobe geneve", "--link=auto"}},
		{"no privilege", lab.FabricOptions{Unprivileged: true}, same, []string{"NET_ADMIN", "securityContext"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.opts.Link == "geneve" && hasGeneve(t, l) {
				t.Skip("SKIPPED: this kernel has it")
			}
			c.opts.Manifests = topo.A.Manifests()
			c.change(c.opts.Manifests)
			f := n.StartFabric(binary, c.opts)
			select {
			case <-f.Done():
			case <-time.After(10 * time.Second):
				t.Fatalf("the agent runs:\n%s", f.Log())
			}
			t.Logf("it says\n%s", f.Log())
			wantLog(t, f, c.want)
			if f.ExitCode() != 1 {
				t.Errorf("exit code %d", f.ExitCode())
			}
			if diff := cmp.Diff(before, network(t, n, true)); diff != "" {
				t.Errorf("it changes the node (-before +after)\n%s", diff)
			}
		})
	}
	t.Run("while it runs", func(t *testing.T) {
		m := topo.A.Manifests()
		f := n.StartFabric(binary, lab.FabricOptions{Manifests: m})
		f.Ready(lab.Patience)
		good := network(t, n, true)
		large(m)
		f.Write(m)
		wantLog(t, f, []string{"spec.mtu", "1480 does not fit", "carries 1500", "1450 or less"})
		if diff := cmp.Diff(good, network(t, n, true)); diff != "" {
			t.Errorf("it changes the node (-before +after)\n%s", diff)
		}
		// A gateway that is not there yet may be tomorrow: the tunnel waits for it.
		m = topo.A.Manifests()
		m.Gateway = netip.MustParseAddr("203.0.113.9")
		f.Write(m)
		wantLog(t, f, []string{"203.0.113.9 cannot be reached", "ip route get 203.0.113.9"})
		lab.Eventually(t, lab.Patience, "the condition", func() error {
			s, err := f.Status()
			for _, c := range s.Conditions {
				if c.Type == "TunnelsReady" && c.Status == "False" && c.Reason == "GatewayUnreachable" {
					return err
				}
			}
			return fmt.Errorf("%+v, %w", s.Conditions, err)
		})
		f.Write(topo.A.Manifests())
		lab.Eventually(t, lab.Patience, "all is well again", func() error {
			if diff := cmp.Diff(good, network(t, n, true)); diff != "" {
				return fmt.Errorf("the network (-before +after):\n%s", diff)
			}
			return nil
		})
		f.Ready(lab.Patience)
	})
}

// wantLog waits until the agent has said all of it.
func wantLog(t *testing.T, f *lab.Fabric, want []string) {
	t.Helper()
	lab.Eventually(t, lab.Patience, "the message", func() error {
		for _, text := range want {
			if !strings.Contains(f.Log(), text) {
				return fmt.Errorf("it does not say %q:\n%s", text, f.Log())
			}
		}
		return nil
	})
}
