package clusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/document"
)

// testHands deletes by hand what the controllers have made. It comes back, and
// the traffic with it.
func testHands(t *testing.T, p *pair) {
	d := document.Read(t, document.Declarative)
	pe := newPeering(t, p, "hands")
	pe.connect(t, d)
	e := &pe.provider
	at, err := pe.consumer.here(t.Context(), p.provider.pods[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []struct{ kind, name, namespace string }{
		{"wggatewayserver", "server", e.namespace},
		{"deployment", "gw-server", e.namespace},
		{"service", "gw-server", e.namespace},
		{"serviceaccount", "server", e.namespace},
		{"role", "gw-server", e.namespace},
		{"rolebinding", "gw-server", e.namespace},
		{"connection", "gw-server", e.namespace},
		{"internalfabric", "", e.namespace},
		{"genevetunnel", "", e.namespace},
		{"networks.ipam.liqo.io", "", e.namespace},
		{"rolebinding", "", controlplanetest.LiqoNamespace},
		{"clusterrolebinding", "", ""},
		{"internalnode", "node-1", ""},
		{"routeconfiguration", "node-1-gw-node", controlplanetest.LiqoNamespace},
		{"networks.ipam.liqo.io", "pod-cidr", controlplanetest.LiqoNamespace},
		{"networks.ipam.liqo.io", "internal-cidr", controlplanetest.LiqoNamespace},
		{"configmap", "liqo-clusterid-configmap", controlplanetest.LiqoNamespace},
	} {
		t.Run(o.kind+" "+o.namespace, func(t *testing.T) {
			m := p.consumer.pods[0].ping(t, at)
			controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
			m.longest()
			start := time.Now()
			e.in(o.namespace).comesBackAs(t, o.kind, o.name, e.namespace)
			controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
			controlplanetest.Eventually(t, "they are Connected", e.connected)
			t.Logf("%s back and traffic proven after %v; longest silence of pings %v", o.kind, time.Since(start).Round(10*time.Millisecond), m.longest().Round(10*time.Millisecond))
		})
	}
}

// testAccount replaces the service account of a gateway, whose token then is
// worth nothing. The gateway goes on forwarding, and another takes its place that
// can write the Connection.
func testAccount(t *testing.T, p *pair) {
	d := document.Read(t, document.Declarative)
	pe := newPeering(t, p, "account")
	pe.connect(t, d)
	e := &pe.provider
	before := pe.gatewayPods(t)
	at, err := pe.consumer.here(t.Context(), p.provider.pods[1])
	if err != nil {
		t.Fatal(err)
	}
	m := p.consumer.pods[0].ping(t, at)
	start := time.Now()
	e.comesBack(t, "serviceaccount", "server")
	controlplanetest.Eventually(t, "another gateway pod", func(ctx context.Context) error {
		pods, err := e.gatewayPods(ctx)
		if err != nil {
			return err
		}
		if len(pods) != 1 {
			return fmt.Errorf("%d pods", len(pods))
		}
		if _, was := before[e.id+"/"+pods[0].Name]; was {
			return errors.New("the same pod")
		}
		return nil
	})
	controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
	t.Logf("another gateway pod after %v; longest silence of pings %v", time.Since(start).Round(10*time.Millisecond), m.longest().Round(10*time.Millisecond))
	e.comesBack(t, "connection", "gw-server")
	controlplanetest.Eventually(t, "Connected, says the new pod", e.connected)
}

// in is the end with another namespace.
func (e *end) in(namespace string) *end {
	c := *e
	c.namespace = namespace
	return &c
}

func (e *end) comesBack(t *testing.T, kind, name string) {
	t.Helper()
	e.comesBackAs(t, kind, name, e.namespace)
}

// comesBackAs deletes an object and waits for another of its name. Without a
// name it is the first that carries the gateway's namespace in its labels, or
// the first of its namespace.
func (e *end) comesBackAs(t *testing.T, kind, name, gatewayNamespace string) {
	t.Helper()
	where := []string{kind}
	if e.namespace != "" {
		where = append(where, "-n", e.namespace)
	}
	if name == "" {
		list := append([]string{"get"}, where...)
		if e.namespace != gatewayNamespace {
			list = append(list, "-l", "networking.liqo.io/gateway-namespace="+gatewayNamespace)
		}
		names, err := e.names(list...)
		if err != nil || len(names) == 0 {
			t.Fatalf("no %s in %q (%v)", kind, e.namespace, err)
		}
		_, name, _ = strings.Cut(names[0], "/")
	}
	get := append(append([]string{"get"}, where...), name, "-o", "jsonpath={.metadata.uid}")
	before, err := e.Kubectl(get...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Kubectl(append(append([]string{"delete"}, where...), name, "--wait=false")...); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, fmt.Sprintf("%s %s comes back", kind, name), func(context.Context) error {
		after, err := e.Kubectl(get...)
		if err != nil {
			return err
		}
		if after == before {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
}

// testDisconnect ends a peering in the ways that there are, and has it again.
func testDisconnect(t *testing.T, p *pair) {
	d := document.Read(t, document.Declarative)
	t.Run("gateways deleted and applied again", func(t *testing.T) {
		pe := newPeering(t, p, "again")
		namespaces, objects := declarative(t, d, pe, wgNodePort)
		all := slices.Concat(namespaces, objects)
		for round := range 3 {
			start := time.Now()
			for _, o := range all {
				if err := o.apply(); err != nil {
					t.Fatal(err)
				}
			}
			pe.established(t, start)
			if round == 2 {
				return
			}
			for _, e := range pe.ends() {
				if _, err := e.Kubectl("delete", "gatewayservers,gatewayclients", "--all", "-n", e.namespace); err != nil {
					t.Fatal(err)
				}
			}
			for _, e := range pe.ends() {
				controlplanetest.Eventually(t, "the gateway of "+e.id+" is gone", func(context.Context) error {
					names, err := e.names("get", "wggatewayservers,wggatewayclients,connections,internalfabrics,genevetunnels,deployments,pods,services,leases,roles,rolebindings", "-n", e.namespace)
					if err == nil && len(names) > 0 {
						err = fmt.Errorf("left: %v", names)
					}
					return err
				})
			}
		}
	})
	t.Run("namespaces deleted first", func(t *testing.T) {
		pe := newPeering(t, p, "namespace")
		pe.connect(t, d)
		start := time.Now()
		for _, e := range pe.ends() {
			if _, err := e.Kubectl("delete", "namespace", e.namespace, "--wait=false"); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range pe.ends() {
			controlplanetest.Eventually(t, "nothing is left in "+e.id, e.left)
		}
		t.Logf("everything gone after %v", time.Since(start).Round(10*time.Millisecond))
	})
}
