package kubernetes

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// star is a hub and two leaves, each with one server pod, and one node, which is
// all that the machine has room for. All of them use the same pod CIDR.
type star struct {
	*world
	hub, left, right *kubelab.Cluster
	pods             map[*kubelab.Cluster]*kubelab.Pod
}

// TestThreeClusters joins two clusters to a third one, and lets them reach each
// other: through it, pod by pod, and then directly.
//
//	left --- hub --- right
func TestThreeClusters(t *testing.T) {
	if !*long {
		t.Skip("SKIPPED: a lab of its own takes minutes: -kubernetes.long")
	}
	w := newWorld(t, kubelab.Options{Clusters: []string{"hub", "left", "right"}, Nodes: 1})
	defer w.explain(t)
	w.install(t, "--set", "services.enabled=true")
	s := &star{world: w, hub: w.Cluster("hub"), left: w.Cluster("left"), right: w.Cluster("right"), pods: make(map[*kubelab.Cluster]*kubelab.Pod)}
	for _, c := range w.Clusters {
		s.pods[c] = w.servers(t, c, 1)[0]
	}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the hub has the servers", func(t *testing.T) {
			// One node port of the hub for each leaf.
			s.join(t, s.left, s.hub, "30742")
			s.join(t, s.right, s.hub, "30743")
			s.leavesAndHub(t)
		}},
		{"leaf to leaf through the hub", s.transit},
		{"a Service of a leaf through the hub", s.passedOn},
		{"one peering ends, the other stays", func(t *testing.T) {
			w.liqoctl(t, w.between(s.left, s.hub, "network", "reset", "--wait", "--skip-confirm")...)
			s.reach(t, s.right, s.hub)
			s.reach(t, s.hub, s.right)
		}},
		{"a leaf has the server", func(t *testing.T) {
			s.join(t, s.hub, s.left, "30742")
			s.leavesAndHub(t)
		}},
		{"leaf to leaf directly", func(t *testing.T) {
			s.join(t, s.left, s.right, "30743")
			s.leavesAndHub(t)
			s.reach(t, s.left, s.right)
			s.reach(t, s.right, s.left)
			for _, c := range w.Clusters {
				s.peerings(t, c, 2)
			}
		}},
		{"reset", func(t *testing.T) {
			for _, pair := range [][2]*kubelab.Cluster{{s.hub, s.left}, {s.right, s.hub}, {s.left, s.right}} {
				w.liqoctl(t, w.between(pair[0], pair[1], "network", "reset", "--wait", "--skip-confirm")...)
			}
			for _, c := range w.Clusters {
				s.peerings(t, c, 0)
			}
		}},
	} {
		if !t.Run(step.name, step.run) {
			return // what follows begins with what this has left
		}
	}
	w.uninstall(t, "--purge")
}

// join connects two clusters: the first has the client, the other the server, at a
// node port of its own.
func (s *star) join(t *testing.T, client, server *kubelab.Cluster, port string) {
	t.Helper()
	s.liqoctl(t, s.between(client, server, "network", "connect", "--wait", "--gw-server-service-type", "NodePort",
		"--gw-server-service-nodeport", port, "--gw-client-address", server.Public.String())...)
}

// leavesAndHub demands that leaves and hub reach each other, and that the hub
// tells them apart.
func (s *star) leavesAndHub(t *testing.T) {
	t.Helper()
	for _, leaf := range []*kubelab.Cluster{s.left, s.right} {
		s.reach(t, leaf, s.hub)
		s.reach(t, s.hub, leaf)
	}
	left, errLeft := remoteCIDR(t.Context(), s.hub, s.left.Name)
	right, errRight := remoteCIDR(t.Context(), s.hub, s.right.Name)
	if errLeft != nil || errRight != nil || left.Overlaps(right) {
		t.Fatalf("the hub reaches the leaves as %s and %s (%v, %v)", left, right, errLeft, errRight)
	}
	t.Logf("the hub reaches the leaves as %s and %s", left, right)
	s.peerings(t, s.hub, 2)
}

// reach demands that the pod of one cluster reaches that of another, and is seen
// there under the address that it has there.
func (s *star) reach(t *testing.T, from, to *kubelab.Cluster) {
	t.Helper()
	at, known := s.remoteOf(t, from, to, s.pods[to].Addr), s.remoteOf(t, to, from, s.pods[from].Addr)
	s.answers(t, from, to, at, known)
}

// answers demands that the pod of a cluster answers under an address, and sees the
// one who asks under another.
func (s *star) answers(t *testing.T, from, to *kubelab.Cluster, at, known netip.Addr) {
	t.Helper()
	lab.Eventually(t, patience, fmt.Sprintf("%s reaches %s at %s", from.Name, to.Name, at), func() error {
		a, err := get(t.Context(), s.pods[from], at)
		if err != nil {
			return err
		}
		if a.Pod != s.pods[to].Name || a.Client != known {
			return fmt.Errorf("%+v answers, want %s to see %s", a, s.pods[to].Name, known)
		}
		return nil
	})
}

// transit gives the pods of the leaves addresses in the hub's external CIDR, by
// which the other leaf reaches them: the hub forwards in the name of its unknown
// sources.
func (s *star) transit(t *testing.T) {
	for _, way := range []struct{ from, to *kubelab.Cluster }{{s.left, s.right}, {s.right, s.left}} {
		inHub := s.remoteOf(t, s.hub, way.to, s.pods[way.to].Addr)
		name := "pod-of-" + way.to.Name
		if out, err := s.hub.KubectlInput(fmt.Sprintf(`{"apiVersion":"ipam.liqo.io/v1alpha1","kind":"IP","metadata":{"namespace":"default","name":%q},"spec":{"ip":%q}}`, name, inHub), "apply", "-f", "-"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		external := s.granted(t, name)
		at := through(externalCIDR(t, way.from, s.hub.Name), external)
		// The first address of the hub's external CIDR, as the leaf knows it.
		unknown := externalCIDR(t, way.to, s.hub.Name).Masked().Addr()
		t.Logf("the pod of %s is %s in the hub, %s outside, and %s in %s", way.to.Name, inHub, external, at, way.from.Name)
		s.answers(t, way.from, way.to, at, unknown)
	}
	s.kubectl(t, s.hub, "-n", "default", "delete", "ips", "--all")
}

// passedOn has the right leaf use a Service of the left one, which the hub passes on.
func (s *star) passedOn(t *testing.T) {
	const name = "through"
	s.kubectl(t, s.left, "expose", "deployment", "web", "-n", appNamespace, "--name="+name, fmt.Sprint("--port=", servicePort), fmt.Sprint("--target-port=", webPort))
	export := func(c *kubelab.Cluster) {
		s.liqoctl(t, "export", "service", name, "-n", appNamespace, "--timeout", patience.String(), "--kubeconfig", c.Kubeconfig)
	}
	export(s.left)
	lab.Eventually(t, patience, "the hub imports it", func() error {
		_, err := address(t.Context(), s.hub, appNamespace, name)
		return err
	})
	s.kubectl(t, s.hub, "annotate", "configurations", "-n", "liqo-tenant-"+s.left.Name, "--all", "liqo.io/pass-on-services="+appNamespace+"/"+name)
	export(s.hub)
	lab.Eventually(t, patience, s.right.Name+" reaches it", func() error {
		at, err := address(t.Context(), s.right, appNamespace, name)
		if err != nil {
			return err
		}
		a, err := getAt(t.Context(), s.pods[s.right], at)
		if err == nil && a.Pod != s.pods[s.left].Name {
			err = fmt.Errorf("it is %+v", a)
		}
		return err
	})
	s.kubectl(t, s.hub, "delete", "serviceexport", name, "-n", appNamespace)
	lab.Eventually(t, patience, "nothing is left of it", func() error {
		ips, err := s.hub.Kubectl("get", "ips", "-n", appNamespace, "-o", "name")
		if err != nil {
			return err
		}
		imports, err := s.right.Kubectl("get", "serviceimports", "-n", appNamespace, "-o", "name")
		if err != nil || strings.TrimSpace(ips+imports) != "" {
			return fmt.Errorf("%s%s (%w)", ips, imports, err)
		}
		return nil
	})
	s.kubectl(t, s.left, "delete", "service,serviceexport", name, "-n", appNamespace)
}

// granted waits for the address of an IP of the hub.
func (s *star) granted(t *testing.T, name string) (a netip.Addr) {
	t.Helper()
	lab.Eventually(t, patience, "IP "+name+" has an address", func() error {
		out, err := s.hub.Kubectl("-n", "default", "get", "ip", name, "-o", "jsonpath={.status.ip}")
		if err != nil {
			return err
		}
		a, err = netip.ParseAddr(strings.TrimSpace(out))
		return err
	})
	return a
}

// externalCIDR is what the external CIDR of a peer is called in c.
func externalCIDR(t *testing.T, c *kubelab.Cluster, peer string) netip.Prefix {
	t.Helper()
	var list networkingv1beta1.ConfigurationList
	if err := c.Client().List(t.Context(), &list, ofPeer(peer)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Status.Remote == nil || len(list.Items[0].Status.Remote.CIDR.External.List) != 1 {
		t.Fatalf("%s has no external CIDR for %s", c.Name, peer)
	}
	p, err := list.Items[0].Status.Remote.CIDR.External.List[0].Prefix()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// peerings demands that a cluster shows so many peerings, all of them well.
func (s *star) peerings(t *testing.T, c *kubelab.Cluster, n int) {
	t.Helper()
	lab.Eventually(t, patience, fmt.Sprintf("%s has %d peerings", c.Name, n), func() error {
		return s.tryPeerings(t.Context(), t, c, n)
	})
}

func (s *star) tryPeerings(ctx context.Context, t *testing.T, c *kubelab.Cluster, n int) error {
	stdout, stderr, err := s.tryLiqoctl(ctx, "network", "status", "--kubeconfig", c.Kubeconfig, "--interval", "0", "--exit-code")
	if err != nil {
		return err
	}
	connected := 0
	for line := range strings.Lines(stdout) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == string(networkingv1beta1.Connected) {
			connected++
		}
	}
	if connected != n {
		return fmt.Errorf("%d are connected:\n%s%s", connected, stdout, stderr)
	}
	t.Logf("%s:\n%s", c.Name, stdout)
	return nil
}
