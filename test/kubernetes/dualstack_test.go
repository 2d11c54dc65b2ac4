package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// TestDualStack joins two clusters whose pods and Services have addresses of both families, with the same CIDRs, by a WAN that
// has IPv4 only.
func TestDualStack(t *testing.T) {
	if !*long {
		t.Skip("SKIPPED: a lab of its own takes minutes: -kubernetes.long")
	}
	w := newWorld(t, kubelab.Options{Clusters: []string{"rome", "milan"}, Nodes: 1, DNS: true, DualStack: true})
	defer w.explain(t)
	w.install(t, "--pod-cidr", kubelab.PodCIDR6, "--service-cidr", kubelab.ServiceCIDR6, "--set", "services.enabled=true", "--set", "services.alias=true", "--coredns")
	w.connect(t)
	s := &sharing{world: w}
	s.atHome(t, strings.ReplaceAll(shopText, "IMAGE", webImage), strings.Split(shopText, "---")[0]+"---"+strings.ReplaceAll(askerText, "IMAGE", webImage))
	w.kubectl(t, w.a, "rollout", "status", "-n", shop, "deployment/web", "--timeout="+patience.String())
	w.kubectl(t, w.b, "wait", "-n", shop, "--for=condition=Ready", "pod/asker", "--timeout="+patience.String())
	d := &dual{sharing: s}
	var err error
	if d.asker, err = w.b.Pod(t.Context(), shop, "asker"); err != nil {
		t.Fatal(err)
	}
	if d.servers, err = runningPods(t.Context(), w.a, shop, map[string]string{"app": "web"}, 2); err != nil {
		t.Fatal(err)
	}
	for _, p := range append(d.servers, d.asker) {
		if len(p.Addrs) != 2 || p.Addrs[0].Is4() == p.Addrs[1].Is4() {
			t.Fatalf("pod %s has the addresses %s", p.Name, p.Addrs)
		}
	}
	t.Run("pods", d.pods)
	t.Run("families", d.families)
	t.Run("SCTP", func(t *testing.T) { testSCTP(t, s) })
	t.Run("doctor", func(t *testing.T) { w.liqoctl(t, w.both("network", "doctor")...) })
	if !t.Failed() { // what explains a failure stays
		w.reset(t)
		w.uninstall(t, "--purge")
	}
}

// dual is servers of a with an address of each family, and a pod of b that asks them.
type dual struct {
	*sharing
	servers []*kubelab.Pod
	asker   *kubelab.Pod
}

// pods has the asker and the servers ask each other by all addresses. Each sees the other as its own cluster knows it.
func (d *dual) pods(t *testing.T) {
	for _, server := range d.servers {
		for _, there := range server.Addrs {
			i := slices.IndexFunc(d.asker.Addrs, func(a netip.Addr) bool { return a.Is4() == there.Is4() })
			here := d.asker.Addrs[i]
			for _, way := range []struct {
				from, to  *kubelab.Pod
				at, known netip.Addr
			}{
				{d.asker, server, d.remote(t, d.b, there), d.remote(t, d.a, here)},
				{server, d.asker, d.remote(t, d.a, here), d.remote(t, d.b, there)},
			} {
				lab.Eventually(t, patience, fmt.Sprintf("%s reaches %s at %s", way.from.Name, way.to.Name, way.at), func() error {
					a, err := get(t.Context(), way.from, way.at)
					if err == nil && (a.Pod != way.to.Name || a.Client != way.known) {
						err = fmt.Errorf("%+v answers, want %s to see %s", a, way.to.Name, way.known)
					}
					return err
				})
			}
		}
	}
}

// families exports a Service, of one family and then of another, and of both.
func (d *dual) families(t *testing.T) {
	const ip4, ip6 = string(corev1.IPv4Protocol), string(corev1.IPv6Protocol)
	for _, x := range []struct {
		service string
		has     []string
	}{
		{"four", []string{ip4}},
		{"six", []string{ip6}},
		{"both", []string{ip4, ip6}},
	} {
		t.Run(x.service, func(t *testing.T) {
			d.export(t, x.service, service(x.service, x.has))
			d.isReached(t, x.service, x.has)
		})
	}
	t.Run("one that changes", func(t *testing.T) {
		d.export(t, "changes", service("changes", []string{ip4}))
		d.isReached(t, "changes", []string{ip4})
		for _, has := range [][]string{{ip4, ip6}, {ip4}, {ip4, ip6}, {ip4}} {
			manifest{d.a, "", service("changes", has)}.apply(t)
			d.isReached(t, "changes", has)
		}
	})
}

// service is one of the servers, with addresses of some families.
func service(name string, families []string) string {
	policy := corev1.IPFamilyPolicySingleStack
	if len(families) > 1 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: shop}
spec: {ipFamilyPolicy: %s, ipFamilies: [%s], selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
`, name, policy, strings.Join(families, ", "))
}

// isReached demands that b has the Service by both of its names, with an address of each of the families and no other.
func (d *dual) isReached(t *testing.T, service string, families []string) {
	t.Helper()
	lab.Eventually(t, patience, fmt.Sprintf("%s has the Service %s by %s", d.b.Name, service, families), func() error {
		imported, err := addresses(t.Context(), d.b, shop, service)
		if err != nil {
			return err
		}
		alias := new(corev1.Service)
		if err := d.b.Client().Get(t.Context(), types.NamespacedName{Namespace: shop, Name: service}, alias); err != nil {
			return err
		}
		if len(alias.Spec.ClusterIPs) != len(families) || len(imported) != len(families) {
			return fmt.Errorf("the alias has %s, the ServiceImport %s", alias.Spec.ClusterIPs, imported)
		}
		for _, zone := range []string{"clusterset.local", "cluster.local"} {
			name := service + ".shop.svc." + zone
			found, err := lookUp(t.Context(), d.asker, name)
			if err != nil || len(found) != len(families) {
				return fmt.Errorf("%s is %s (%w)", name, found, err)
			}
			for _, at := range found {
				family := string(corev1.IPv4Protocol)
				if at.Is6() {
					family = string(corev1.IPv6Protocol)
				}
				if !slices.Contains(families, family) {
					return fmt.Errorf("%s is %s", name, at)
				}
				if _, err := getAt(t.Context(), d.asker, netip.AddrPortFrom(at, servicePort)); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
		return nil
	})
}

// lookUp asks the cluster's DNS server for the addresses of both families.
func lookUp(ctx context.Context, from *kubelab.Pod, name string) (all []netip.Addr, err error) {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return from.DialContext(ctx, network, netip.AddrPortFrom(kubelab.DNSAddress, 53).String())
	}}
	for _, network := range []string{"ip4", "ip6"} {
		found, err := r.LookupNetIP(ctx, network, name+".")
		if gone := new(net.DNSError); errors.As(err, &gone) && gone.IsNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, a := range found {
			all = append(all, a.Unmap())
		}
	}
	return all, nil
}
