package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

// serveName runs an HTTP server that answers with the host's name and the
// address that it sees, until the end of the test.
func serveName(t *testing.T, h *lab.Host, port uint16) {
	t.Helper()
	var listener net.Listener
	err := h.Do(func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", h.Name, err)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintln(w, h.Name, from)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
}

// answer is what serveName says: who answers whom.
type answer struct {
	server string
	client netip.Addr
}

func (a answer) String() string { return a.server + " sees " + a.client.String() }

// requests fetches each of the addresses by HTTP, each by a connection of its
// own.
func requests(t *testing.T, from *lab.Host, to ...netip.AddrPort) []answer {
	t.Helper()
	args := []string{"curl", "-gsS", "--fail-early", "--max-time", "30", "-H", "Connection: close"}
	for _, a := range to {
		args = append(args, fmt.Sprintf("http://%s/", a))
	}
	out, err := from.Try(args...)
	var answers []answer
	for line := range strings.Lines(out) {
		server, client, ok := strings.Cut(strings.TrimSpace(line), " ")
		addr, parseErr := netip.ParseAddr(client)
		if !ok || parseErr != nil {
			t.Errorf("%s: %s", from.Name, line)
			continue
		}
		answers = append(answers, answer{server, addr})
	}
	if err != nil || len(answers) != len(to) {
		t.Errorf("%s: %d of %d answers from %v: %v\n%s", from.Name, len(answers), len(to), to, err, out)
	}
	return answers
}

// times repeats an address.
func times(n int, to netip.AddrPort) []netip.AddrPort { return slices.Repeat([]netip.AddrPort{to}, n) }

// endpoint is a pod as a cluster addresses it.
type endpoint struct {
	node *lab.Node
	addr netip.Addr
	// remote says that it is a pod of the other cluster.
	remote bool
}

// endpoints are all pods, by their addresses of both families.
func endpoints(c *lab.Cluster) (all []endpoint) {
	for _, n := range c.Nodes {
		all = append(all, endpoint{n, n.PodAddr, false}, endpoint{n, n.PodAddr6, false})
	}
	for _, n := range c.Peer.Nodes {
		all = append(all, endpoint{n, c.Remote(n.PodAddr), true}, endpoint{n, c.Remote(n.PodAddr6), true})
	}
	return all
}

// podOf is the address of a node's pod, of the family of addr.
func podOf(n *lab.Node, addr netip.Addr) netip.Addr {
	if addr.Is6() {
		return n.PodAddr6
	}
	return n.PodAddr
}

// unknownSource is the address by which c knows everything of its peer that is
// no pod.
func unknownSource(c *lab.Cluster, like netip.Addr) netip.Addr {
	if like.Is6() {
		return c.RemoteExternal6.Addr()
	}
	return c.RemoteExternal.Addr()
}

// networkChecks are those of `liqoctl test network`, in its order.
var networkChecks = []struct {
	name string
	run  func(*testing.T, *fabricWorld, *lab.Cluster)
}{
	{"pod to pod", testPodToPod},
	{"pod to Service", testPodToService},
	{"node to pod", testNodeToPod},
	{"pod to NodePort", testPodToNodePort},
	{"external to NodePort", testExternalToNodePort},
	{"external to load balancer", testExternalToLoadBalancer},
	{"pod to Internet", testPodToInternet},
	{"pod to external IP", testPodToExternalIP},
}

func testNetwork(t *testing.T, w *fabricWorld) {
	for _, check := range networkChecks {
		t.Run(check.name, func(t *testing.T) {
			for _, c := range w.clusters() {
				check.run(t, w, c)
			}
		})
		if t.Failed() {
			return // what follows would wait for the same
		}
	}
}

// testPodToPod has every pod ask every pod. Pods see each other's addresses.
func testPodToPod(t *testing.T, _ *fabricWorld, c *lab.Cluster) {
	for _, n := range c.Nodes {
		wantPods(t, n.Pod, endpoints(c), func(e endpoint) []netip.Addr {
			if e.remote {
				return []netip.Addr{c.Peer.Remote(podOf(n, e.addr))}
			}
			return []netip.Addr{podOf(n, e.addr)}
		})
	}
}

// testNodeToPod has every node ask every pod. Remote pods see the unknown
// source; or, where the node chose the address that it has among its pods, that
// one.
func testNodeToPod(t *testing.T, _ *fabricWorld, c *lab.Cluster) {
	for _, n := range c.Nodes {
		wantPods(t, n.Host, endpoints(c), func(e endpoint) []netip.Addr {
			switch {
			case !e.remote:
				return nil // the CNI's affair
			case e.addr.Is6():
				return []netip.Addr{unknownSource(c.Peer, e.addr), c.Peer.Remote(n.PodNet6.Addr().Next())}
			default:
				return []netip.Addr{unknownSource(c.Peer, e.addr)}
			}
		})
	}
}

// wantPods asks pods from one host. source is what the pod may see, if it
// matters.
func wantPods(t *testing.T, from *lab.Host, to []endpoint, source func(endpoint) []netip.Addr) {
	t.Helper()
	var addrs []netip.AddrPort
	for _, e := range to {
		addrs = append(addrs, netip.AddrPortFrom(e.addr, httpPort))
	}
	answers := requests(t, from, addrs...)
	if len(answers) != len(to) {
		return
	}
	for i, e := range to {
		want := source(e)
		if answers[i].server != e.node.Pod.Name || want != nil && !slices.Contains(want, answers[i].client) {
			t.Errorf("%s to %s: %v, want %s and one of %v", from.Name, e.addr, answers[i], e.node.Pod.Name, want)
		}
	}
}

// replicas is the number of backends of the Service: all pods.
const replicas = 4

// wantService asks a Service twice as often as it has backends. They take turns,
// but for connections whose numbers are those of one not long ago; the remote
// ones see one of source.
func wantService(t *testing.T, from *lab.Host, c *lab.Cluster, to netip.AddrPort, source ...netip.Addr) {
	t.Helper()
	asked := map[string]int{}
	answers := requests(t, from, times(2*replicas, to)...)
	if len(answers) != 2*replicas {
		return
	}
	for _, a := range answers {
		asked[a.server]++
		if remote := strings.HasPrefix(a.server, c.Peer.Name+"-"); remote && !slices.Contains(source, a.client) {
			t.Errorf("%s to %s: %v, want %v", from.Name, to, a, source)
		}
	}
	for _, n := range slices.Concat(c.Nodes, c.Peer.Nodes) {
		if asked[n.Pod.Name] == 0 {
			t.Errorf("%s to %s: %s has not been asked: %v", from.Name, to, n.Pod.Name, asked)
		}
	}
}

func testPodToService(t *testing.T, _ *fabricWorld, c *lab.Cluster) {
	for _, n := range c.Nodes {
		for _, to := range []netip.Addr{clusterIP, clusterIP6} {
			wantService(t, n.Pod, c, netip.AddrPortFrom(to, httpPort), c.Peer.Remote(podOf(n, to)))
			wantService(t, n.Host, c, netip.AddrPortFrom(to, httpPort), unknownSource(c.Peer, to))
		}
	}
}

// nodePorts are the Service's at all nodes.
func nodePorts(c *lab.Cluster) (all []netip.AddrPort) {
	for _, n := range c.Nodes {
		all = append(all, netip.AddrPortFrom(n.Underlay, nodePort), netip.AddrPortFrom(n.Underlay6, nodePort6))
	}
	return all
}

// testPodToNodePort has pods and nodes ask node ports. Where a pod asks another
// node, the CNI has hidden it already.
func testPodToNodePort(t *testing.T, _ *fabricWorld, c *lab.Cluster) {
	for _, n := range c.Nodes {
		for _, to := range nodePorts(c) {
			wantService(t, n.Host, c, to, unknownSource(c.Peer, to.Addr()))
			source := []netip.Addr{unknownSource(c.Peer, to.Addr())}
			if to.Addr() == n.Underlay || to.Addr() == n.Underlay6 {
				source = append(source, c.Peer.Remote(podOf(n, to.Addr())))
			}
			wantService(t, n.Pod, c, to, source...)
		}
	}
}

func testExternalToNodePort(t *testing.T, w *fabricWorld, c *lab.Cluster) {
	for _, to := range nodePorts(c) {
		wantService(t, w.internet(c), c, to, unknownSource(c.Peer, to.Addr()))
	}
}

func testExternalToLoadBalancer(t *testing.T, w *fabricWorld, c *lab.Cluster) {
	wantService(t, w.internet(c), c, netip.AddrPortFrom(loadBalancer, httpPort), unknownSource(c.Peer, loadBalancer))
}

// internet is the host outside of a cluster.
func (w *fabricWorld) internet(c *lab.Cluster) *lab.Host {
	if c == w.A {
		return w.internetA
	}
	return w.internetB
}

// testPodToInternet is what the CNI's masquerade is for: it works on.
func testPodToInternet(t *testing.T, w *fabricWorld, c *lab.Cluster) {
	for _, n := range c.Nodes {
		for to, source := range map[netip.Addr]netip.Addr{lab.InternetAddr: n.Underlay, lab.InternetAddr6: n.Underlay6} {
			want := answer{w.internet(c).Name, source}
			if got := requests(t, n.Pod, netip.AddrPortFrom(to, httpPort)); len(got) == 1 && got[0] != want {
				t.Errorf("%s to %s: %v, want %v", n.Pod.Name, to, got[0], want)
			}
		}
	}
}

// testPodToExternalIP reaches a host of the Internet by the address that an IP
// object gives it: that of the own cluster, and that of the peer. The host sees
// a node.
func testPodToExternalIP(t *testing.T, w *fabricWorld, c *lab.Cluster) {
	remote := c.RemoteExternal.Addr().As4()
	host := internetIP.As4()
	copy(host[:2], remote[:2])
	for _, n := range c.Nodes {
		got := requests(t, n.Pod, netip.AddrPortFrom(internetIP, tlsPort), netip.AddrPortFrom(netip.AddrFrom4(host), tlsPort))
		if len(got) != 2 {
			continue
		}
		if want := (answer{w.internet(c).Name, n.Underlay}); got[0] != want {
			t.Errorf("%s by its own cluster's address: %v, want %v", n.Pod.Name, got[0], want)
		}
		nodes := []netip.Addr{c.Peer.Nodes[0].Underlay, c.Peer.Nodes[1].Underlay}
		if got[1].server != w.internet(c.Peer).Name || !slices.Contains(nodes, got[1].client) {
			t.Errorf("%s by the peer's address: %v, want %s to see one of %v", n.Pod.Name, got[1], w.internet(c.Peer).Name, nodes)
		}
	}
}
