package clusters

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/document"
)

func inNamespace(name string) client.ListOption { return client.InNamespace(name) }

// testServices exposes the gateway server in the other ways.
func testServices(t *testing.T, p *pair) {
	d := document.Read(t, document.Declarative)
	t.Run("LoadBalancer", func(t *testing.T) {
		pe := newPeering(t, p, "balanced")
		ip := p.provider.kubelet.Loopback.LoadBalancer(77).String()
		start := time.Now()
		pe.apply(t, d, func(manifest string) string { return p.balanced(manifest, ip) })
		pe.established(t, start)
		pe.provider.hasEndpoint(t, ip, 51840)
	})
	t.Run("LoadBalancer that chooses", func(t *testing.T) {
		pe := newPeering(t, p, "any-balancer")
		pe.apply(t, d, func(manifest string) string {
			return strings.Replace(manifest, nodePort, "    serviceType: LoadBalancer\n", 1)
		})
		controlplanetest.Eventually(t, "the status has an address", func(ctx context.Context) error {
			g := new(networkingv1beta1.GatewayServer)
			if err := pe.provider.Get(ctx, pe.provider.namespace, "server", g); err != nil {
				return err
			}
			if g.Status.Endpoint == nil {
				return fmt.Errorf("none: %+v", g.Status.Conditions)
			}
			return nil
		})
	})
	t.Run("ClusterIP", func(t *testing.T) {
		pe := newPeering(t, p, "inside")
		pe.apply(t, d, func(manifest string) string {
			return strings.Replace(manifest, nodePort, "    serviceType: ClusterIP\n", 1)
		})
		var ip string
		controlplanetest.Eventually(t, "there is a Service", func(context.Context) (err error) {
			ip, err = pe.provider.Kubectl("get", "service", "gw-server", "-n", pe.provider.namespace, "-o", "jsonpath={.spec.clusterIP}")
			return err
		})
		pe.provider.hasEndpoint(t, ip, 51840)
	})
}

// nodePort is how the document exposes its gateway server.
var nodePort = fmt.Sprintf("    serviceType: NodePort\n    nodePort: %d\n", wgNodePort)

// balanced puts a load balancer with a fixed address into a manifest, so that
// the client can be told beforehand, where the document has a node port.
func (p *pair) balanced(manifest, ip string) string {
	manifest = strings.Replace(manifest, nodePort, "    serviceType: LoadBalancer\n    loadBalancerIP: "+ip+"\n", 1)
	return strings.Replace(manifest, p.provider.kubelet.Nodes()[0].IP.String()+"\n    port: "+fmt.Sprint(wgNodePort), ip+"\n    port: 51840", 1)
}

// apply applies the manifests of the document after a change.
func (pe *peering) apply(t *testing.T, d *document.Document, change func(string) string) {
	t.Helper()
	namespaces, objects := declarative(t, d, pe, wgNodePort)
	for _, o := range append(namespaces, objects...) {
		o.manifest = change(o.manifest)
		if err := o.apply(); err != nil {
			t.Fatal(err)
		}
	}
}

// hasEndpoint waits until the gateway server tells that it is there.
func (e *end) hasEndpoint(t *testing.T, ip string, port int32) {
	t.Helper()
	controlplanetest.Eventually(t, "the status has the endpoint", func(ctx context.Context) error {
		g := new(networkingv1beta1.GatewayServer)
		if err := e.Get(ctx, e.namespace, "server", g); err != nil {
			return err
		}
		if en := g.Status.Endpoint; en == nil || !slices.Equal(en.Addresses, []string{ip}) || en.Port != port {
			return fmt.Errorf("endpoint %+v, want %s:%d; conditions %+v", en, ip, port, g.Status.Conditions)
		}
		return nil
	})
}
