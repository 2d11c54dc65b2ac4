package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/lab"
)

// fabricWorld is two clusters of two nodes each, whose tunnels are made by the
// node agent: on every node one, configured by the manifests of the gateways.
type fabricWorld struct {
	*world
	B2 *lab.Node
	// kind is what --link says.
	kind    string
	gateway string // the program
	fabric  string
	agents  map[*lab.Node]*lab.Fabric
	// internetA and internetB are hosts outside of the clusters, with the same
	// address.
	internetA, internetB *lab.Host
	// nodeIPs are where nodes' packets come from, if not from their Underlay.
	nodeIPs map[*lab.Node]netip.Addr
	// extra are nodes of cluster a that are no hosts of the lab.
	extra []lab.NodeManifest
	// before is what each node's network was before there was an agent.
	before map[*lab.Node][]string
	// echoes says whose pods have an echo server, which lives as long as testing.
	echoes  map[*lab.Node]bool
	testing *testing.T
}

// What the clusters offer besides pods.
var (
	clusterIP    = netip.MustParseAddr("10.96.0.80")
	clusterIP6   = netip.MustParseAddr("fd00:10:96::80")
	loadBalancer = netip.MustParseAddr("172.30.0.100")
	// internetIP is the address of the external CIDR by which the host of the
	// Internet is known.
	internetIP = netip.MustParseAddr("10.70.0.5")
)

const (
	httpPort  = 80
	tlsPort   = 443
	nodePort  = 30080
	nodePort6 = 30086
	// tunnelLink is the name that the manifests give the nodes' tunnel.
	tunnelLink = "liqo.abcdefghij"
)

// newFabricWorld builds everything but gateways and agents.
func newFabricWorld(t *testing.T, kind string) *fabricWorld {
	t.Helper()
	l := lab.New(t, tools...)
	if kind == "geneve" && !hasGeneve(t, l) {
		t.Skip("SKIPPED: this kernel has no geneve; make kernel-interop brings one that has")
	}
	topo := l.NewTopology(
		[]lab.NodeSpec{{Agent: true}, {Agent: true}},
		[]lab.NodeSpec{{Agent: true, NodesSeePods: true}, {Agent: true, NodesSeePods: true}},
	)
	w := &fabricWorld{
		world: &world{Topology: topo, A1: topo.A.Nodes[0], A2: topo.A.Nodes[1], B1: topo.B.Nodes[0]},
		B2:    topo.B.Nodes[1],
		kind:  kind, gateway: lab.Build(t, lab.GatewayPackage), fabric: lab.Build(t, lab.FabricPackage),
		agents: map[*lab.Node]*lab.Fabric{}, before: map[*lab.Node][]string{},
		echoes: map[*lab.Node]bool{}, testing: t,
		internetA: topo.A.JoinInternet(), internetB: topo.B.JoinInternet(),
	}
	for _, c := range w.clusters() {
		w.offer(t, c)
	}
	for _, n := range w.nodes() {
		w.before[n] = network(t, n, true)
	}
	return w
}

// hasGeneve tells whether the kernel of this machine has the device.
func hasGeneve(t *testing.T, l *lab.Lab) bool {
	t.Helper()
	_, err := l.Host("probe").Try("ip", "link", "add", "probe0", "type", "geneve", "id", "1", "remote", "192.0.2.1")
	return err == nil
}

func (w *fabricWorld) clusters() []*lab.Cluster { return []*lab.Cluster{w.A, w.B} }
func (w *fabricWorld) nodes() []*lab.Node       { return slices.Concat(w.A.Nodes, w.B.Nodes) }

// clusterOf is the cluster of a node.
func (w *fabricWorld) clusterOf(n *lab.Node) *lab.Cluster {
	if slices.Contains(w.A.Nodes, n) {
		return w.A
	}
	return w.B
}

// offer starts the servers of a cluster and its Services, whose backends are
// the pods of both clusters.
func (w *fabricWorld) offer(t *testing.T, c *lab.Cluster) {
	t.Helper()
	internet := map[*lab.Cluster]*lab.Host{w.A: w.internetA, w.B: w.internetB}[c]
	serveName(t, internet, httpPort)
	serveName(t, internet, tlsPort)
	var backends, backends6 []netip.Addr
	for _, n := range c.Nodes {
		serveName(t, n.Pod, httpPort)
		backends, backends6 = append(backends, n.PodAddr), append(backends6, n.PodAddr6)
	}
	for _, n := range c.Peer.Nodes {
		backends, backends6 = append(backends, c.Remote(n.PodAddr)), append(backends6, c.Remote(n.PodAddr6))
	}
	c.Nodes[0].Host.IP("addr add %s/32 dev lan0", loadBalancer) // which then answers for it
	c.Serve(lab.Service{Name: "web", ClusterIP: clusterIP, Port: httpPort, NodePort: nodePort, LoadBalancer: loadBalancer, Backends: backends})
	c.Serve(lab.Service{Name: "web6", ClusterIP: clusterIP6, Port: httpPort, NodePort: nodePort6, Backends: backends6})
}

// manifests are those of a cluster's gateway and agents.
func (w *fabricWorld) manifests(c *lab.Cluster) *lab.Manifests {
	m := c.Manifests()
	m.IPs = []lab.IPManifest{{Name: "internet", IP: lab.InternetAddr, Remapped: internetIP, Masquerade: true}}
	if c == w.A {
		m.Nodes = append(m.Nodes, w.extra...)
	}
	for i, n := range c.Nodes {
		if ip, ok := w.nodeIPs[n]; ok {
			m.Nodes[i].Underlay = ip
		}
	}
	return m
}

// startAgent starts the agent of a node, with the arguments of the world.
func (w *fabricWorld) startAgent(n *lab.Node) *lab.Fabric {
	f := n.StartFabric(w.fabric, lab.FabricOptions{Link: w.kind})
	w.agents[n] = f
	return f
}

// start runs agents and gateways and waits for the connection.
func (w *fabricWorld) start(t *testing.T) {
	t.Helper()
	w.startAgents(t)
	w.startGateways(t)
}

func (w *fabricWorld) startAgents(t *testing.T) {
	t.Helper()
	for _, n := range w.nodes() {
		w.agents[n] = n.StartFabric(w.fabric, lab.FabricOptions{Link: w.kind, Manifests: w.manifests(w.clusterOf(n))})
	}
	for _, n := range w.nodes() {
		took := w.agents[n].Ready(lab.Patience)
		t.Logf("%s: ready after %v", n.Host.Name, took.Round(time.Millisecond))
	}
}

func (w *fabricWorld) startGateways(t *testing.T) {
	t.Helper()
	start := time.Now()
	w.gatewayA = w.A.StartGateway(w.gateway, lab.GatewayOptions{Manifests: w.manifests(w.A)})
	w.gatewayB = w.B.StartGateway(w.gateway, lab.GatewayOptions{Manifests: w.manifests(w.B)})
	w.gatewayA.WaitConnected(lab.Patience)
	w.gatewayB.WaitConnected(lab.Patience)
	t.Logf("connected after %v", time.Since(start).Round(time.Millisecond))
}

// report logs what gateways and agents say when t has failed.
func (w *fabricWorld) report(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	w.world.report(t)
	for _, n := range w.nodes() {
		if f := w.agents[n]; f != nil && f.Running() {
			t.Logf("the agent of %s says:\n%s", n.Host.Name, f.StatusText())
		}
	}
}

// network is what configures the network of a node; see lab.Host.Network.
func network(t *testing.T, n *lab.Node, same bool) []string {
	t.Helper()
	lines, err := n.Host.Network(same)
	if err != nil {
		t.Fatalf("%s: %v", n.Host.Name, err)
	}
	return lines
}

// TestFabric is everything that the agent does on the nodes of two clusters, by
// kind of link.
func TestFabric(t *testing.T) {
	for _, kind := range []string{"vxlan", "tun", "geneve"} {
		t.Run(kind, func(t *testing.T) {
			w := newFabricWorld(t, kind)
			w.start(t)
			for _, part := range []struct {
				name string
				run  func(*testing.T, *fabricWorld)
			}{
				{"as configured", testConfigured},
				{"network test", testNetwork},
				{"paths", testPaths},
				{"restart under load", testAgentRestart},
				{"tampering under load", testTampering},
				{"the gateway moves", testGatewayMoves},
				{"cleanup", testCleanup},
			} {
				t.Run(part.name, func(t *testing.T) {
					defer w.report(t)
					start := time.Now()
					part.run(t, w)
					t.Logf("took %v", time.Since(start).Round(time.Millisecond))
				})
			}
		})
	}
}

// testConfigured looks at what the agents have made: by the tools of the system,
// and by the agent's own word.
func testConfigured(t *testing.T, w *fabricWorld) {
	for _, n := range w.nodes() {
		link := n.Host.IP("-d link show %s", tunnelLink)
		for _, want := range append([]string{"mtu 1340", "sluice: "}, map[string][]string{
			"vxlan":  {"vxlan id " + fmt.Sprint(n.VNI), "remote 172.30.0.254", "dstport 6091"},
			"geneve": {"geneve id " + fmt.Sprint(n.VNI), "remote 172.30.0.254", "dstport 6091"},
			"tun":    {"tun type tun", "multi_queue", "vnet_hdr on", "persist on"},
		}[w.kind]...) {
			if !strings.Contains(link, want) {
				t.Errorf("%s: the link does not say %q:\n%s", n.Host.Name, want, link)
			}
		}
		w.wantStatus(t, n)
		if text := w.agents[n].StatusText(); !strings.Contains(text, tunnelLink) || !strings.Contains(text, w.kind) {
			t.Errorf("%s: the status does not speak of %s, a %s link:\n%s", n.Host.Name, tunnelLink, w.kind, text)
		}
		rss, err := w.agents[n].RSS()
		if err != nil || rss > 60<<20 {
			t.Errorf("%s: the agent has %d MiB resident, %v", n.Host.Name, rss>>20, err)
		}
		t.Logf("%s: %.1f MiB resident", n.Host.Name, float64(rss)/(1<<20))
	}
	t.Logf("status of %s:\n%s", w.A1.Host.Name, w.agents[w.A1].StatusText())
}

// wantStatus reads the status of an agent, by which all is as it should be.
func (w *fabricWorld) wantStatus(t *testing.T, n *lab.Node) {
	t.Helper()
	s, err := w.agents[n].Status()
	if err != nil {
		t.Errorf("%s: %v", n.Host.Name, err)
		return
	}
	if s.Link.Kind != w.kind || s.Link.Reason == "" || len(s.Rules) != 2 || len(s.Drift) > 0 || s.NodeIP.Remote != n.Underlay.String() {
		t.Errorf("%s: the status is %+v", n.Host.Name, s)
	}
	if len(s.Tunnels) != 1 || s.Tunnels[0].Status != "up" || s.Tunnels[0].Name != tunnelLink || s.Tunnels[0].VNI != n.VNI || len(s.Tunnels[0].Routes) != 5 {
		t.Errorf("%s: the tunnels are %+v", n.Host.Name, s.Tunnels)
	}
	for _, c := range s.Conditions {
		if c.Status != "True" {
			t.Errorf("%s: condition %+v", n.Host.Name, c)
		}
	}
	if len(s.Conditions) != 2 {
		t.Errorf("%s: conditions %+v", n.Host.Name, s.Conditions)
	}
}

// testPaths runs the checks of the gateways: who answers, what size passes.
func testPaths(t *testing.T, w *fabricWorld) {
	runChecks(t, w.world, pathChecks, false)
	t.Run("UDP", func(t *testing.T) {
		server := w.B1.Pod.StartIperf()
		defer server.Stop(lab.Patience)
		for length, rate := range map[int]string{512: "5M", 1300: "10M", 4000: "10M"} {
			for _, reverse := range []bool{false, true} {
				if err := losslessly(w.A2.Pod, w.B1.Pod, lab.Iperf{To: w.fromA(w.B1.PodAddr), UDPLength: length, Bitrate: rate, Reverse: reverse, Amount: "500"}); err != nil {
					t.Errorf("%d bytes at %s, reverse %v: %v", length, rate, reverse, err)
				}
			}
		}
	})
	t.Run("TCP", func(t *testing.T) {
		server := w.B1.Pod.StartIperf()
		defer server.Stop(lab.Patience)
		for _, reverse := range []bool{false, true} {
			wantTransfer(t, w.A1.Pod, lab.Iperf{To: w.fromA(w.B1.PodAddr), Reverse: reverse, Amount: "64M"})
		}
	})
}

// testCleanup ends the agents, which changes nothing, and removes what they
// made, which leaves everything else as it was.
func testCleanup(t *testing.T, w *fabricWorld) {
	for _, n := range w.nodes() {
		if out, err := n.Cleanup(w.fabric); err == nil {
			t.Errorf("%s: cleanup beside a running agent: want a refusal, got %q", n.Host.Name, out)
		} else {
			t.Logf("%s: cleanup beside a running agent: %v", n.Host.Name, err)
		}
		made := network(t, n, true)
		if _, err := w.agents[n].Stop(lab.Patience); err != nil {
			t.Errorf("%s: %v", n.Host.Name, err)
		}
		if diff := cmp.Diff(withoutCarrier(made), withoutCarrier(network(t, n, true))); diff != "" {
			t.Errorf("%s: the end of the agent changes (-before +after)\n%s", n.Host.Name, diff)
		}
		out, err := n.Cleanup(w.fabric)
		if err != nil {
			t.Errorf("%s: %v", n.Host.Name, err)
		}
		t.Logf("%s: cleanup says\n%s", n.Host.Name, out)
		if diff := cmp.Diff(w.before[n], network(t, n, true)); diff != "" {
			t.Errorf("%s: left after the cleanup (-before the agent +after)\n%s", n.Host.Name, diff)
		}
		if out, err := n.Cleanup(w.fabric); err != nil {
			t.Errorf("%s: a second cleanup: %v: %s", n.Host.Name, err, out)
		}
	}
}
