package main

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/kubelab"
)

// explain says what there is and how to look at it. It has asked every pod of
// the other cluster from each cluster before.
func (h *holding) explain(ctx context.Context) (string, error) {
	var pods strings.Builder
	for _, pair := range [][2]*kubelab.Cluster{{h.rome, h.milan}, {h.milan, h.rome}} {
		lines, err := seen(ctx, pair[0], pair[1])
		if err != nil {
			return "", err
		}
		pods.WriteString(lines)
	}
	url, err := firstURL(ctx, h.rome, h.milan)
	if err != nil {
		return "", err
	}
	return h.instructions(pods.String(), url), nil
}

// instructions say how to look around, given the lines about pods and the URL of one.
func (h *holding) instructions(pods, url string) string {
	return fmt.Sprintf(`Two Kubernetes clusters, rome and milan, are connected by Sluice. Both have pods in %[1]s, Services in %[2]s
and nodes in 192.168.50.0/24, each behind a router: %[3]s and %[4]s. CoreDNS answers their pods.

Pods of the one cluster as the other reaches them (checked just now):
%[5]s
A shell of the administrator, who sits between the clusters:

  ip netns exec %[6]s env PATH=%[7]s:$PATH KUBECONFIG=%[8]s:%[9]s bash

and in it:

  kubectl --context rome get pods -A -o wide
  kubectl --context rome -n app exec deploy/web -- web -get %[10]s
  liqoctl export service web -n app --context milan
  kubectl --context rome -n app exec deploy/web -- web -get http://web.app.svc.clusterset.local/
  liqoctl info --context rome
  liqoctl network status --context rome
  liqoctl network doctor --context rome --remote-context milan
  liqoctl test network --context rome --remote-context milan --rm
  liqoctl network disconnect --context rome --remote-context milan --wait

It was made by these commands, which can be repeated there:

  liqoctl %[13]s
  liqoctl %[14]s
  liqoctl %[15]s

A node's network: ip netns exec %[11]s ip route. Logs: %[12]s.
make lab-down removes everything.
`, kubelab.PodCIDR, kubelab.ServiceCIDR, h.rome.Public, h.milan.Public, pods,
		h.WAN.Namespace(), h.bin, h.rome.Kubeconfig, h.milan.Kubeconfig, url,
		h.rome.Nodes[0].Host.Namespace(), filepath.Join(h.Dir, "rome"),
		strings.Join(installArgs(h.rome), " "), strings.Join(installArgs(h.milan), " "), strings.Join(h.connectArgs(), " "))
}

// seen asks all web servers of a peer and lists them, with their addresses here.
func seen(ctx context.Context, c, peer *kubelab.Cluster) (string, error) {
	prefix, err := remotePodCIDR(ctx, c, peer)
	if err != nil {
		return "", err
	}
	servers, err := webPods(ctx, peer)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, p := range servers {
		addr := through(prefix, p.Addr)
		if _, err := c.Kubectl("-n", "app", "exec", "deploy/web", "--", "web", "-get", webURL(addr)); err != nil {
			return "", fmt.Errorf("from %s to %s of %s: %w", c.Name, p.Name, peer.Name, err)
		}
		fmt.Fprintf(&out, "  %-5s %s  is %s's %s on %s, there %s\n", c.Name, webURL(addr), peer.Name, p.Name, p.Node.Name, p.Addr)
	}
	return out.String(), nil
}

func firstURL(ctx context.Context, c, peer *kubelab.Cluster) (string, error) {
	prefix, err := remotePodCIDR(ctx, c, peer)
	if err != nil {
		return "", err
	}
	servers, err := webPods(ctx, peer)
	if err != nil {
		return "", err
	}
	return webURL(through(prefix, servers[0].Addr)), nil
}

func webURL(addr netip.Addr) string { return fmt.Sprintf("http://%s:8080/", addr) }

func webPods(ctx context.Context, c *kubelab.Cluster) ([]*kubelab.Pod, error) {
	pods, err := c.Pods(ctx, "app", map[string]string{"app": "web"})
	if err == nil && len(pods) == 0 {
		err = fmt.Errorf("no web server runs in %s", c.Name)
	}
	return pods, err
}

// remotePodCIDR is what the pods of a peer are called in a cluster.
func remotePodCIDR(ctx context.Context, c, peer *kubelab.Cluster) (netip.Prefix, error) {
	var list networkingv1beta1.ConfigurationList
	if err := c.Client().List(ctx, &list, client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: peer.Name}); err != nil {
		return netip.Prefix{}, err
	}
	for _, o := range list.Items {
		if o.Status.Remote != nil && len(o.Status.Remote.CIDR.Pod.List) > 0 {
			return o.Status.Remote.CIDR.Pod.List[0].Prefix()
		}
	}
	return netip.Prefix{}, fmt.Errorf("%s does not say yet how %s is called there", c.Name, peer.Name)
}

// through is the address of the same host in another prefix of whole bytes.
func through(p netip.Prefix, addr netip.Addr) netip.Addr {
	to, from := p.Addr().As4(), addr.As4()
	copy(to[p.Bits()/8:], from[p.Bits()/8:])
	return netip.AddrFrom4(to)
}
