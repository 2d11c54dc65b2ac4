package kubernetes

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

// made is an object that the controllers have made.
type made struct {
	kind, name, namespace string
	was                   string // its UID
}

// testHands deletes by hand everything that the controllers have made for one side
// of a connection: all of it at once, and by -kubernetes.long one by one before. It
// comes back, and the traffic with it. The token of the gateway's service account is
// worth nothing then, so another pod takes its place.
func testHands(t *testing.T, w *world) {
	w.connect(t)
	sides, e := w.pairOfServers(t, 2), w.peering().server
	gateway := leads(t, e.Cluster)
	all := w.handmade(t, e)
	if *long {
		for _, o := range all {
			t.Run(o.kind+" "+o.namespace, func(t *testing.T) { w.comesBack(t, e, sides, []made{o}) })
		}
		all = w.handmade(t, e)
	}
	w.comesBack(t, e, sides, all)
	lab.Eventually(t, patience, "another pod leads", func() error {
		p, err := leader(t.Context(), e.Cluster)
		if err == nil && p.Name == gateway.Name {
			err = fmt.Errorf("it is %s still", p.Name)
		}
		return err
	})
	w.connected(t)
}

// handmade finds the objects.
func (w *world) handmade(t *testing.T, e *end) (all []made) {
	t.Helper()
	own := "networking.liqo.io/gateway-namespace=" + e.namespace
	for _, o := range []struct{ kind, name, namespace, selector string }{
		{"wggatewayserver", e.gateway, e.namespace, ""},
		{"deployment", "gw-" + e.gateway, e.namespace, ""},
		{"service", "gw-" + e.gateway, e.namespace, ""},
		{"serviceaccount", e.gateway, e.namespace, ""},
		{"role", "gw-" + e.gateway, e.namespace, ""},
		{"rolebinding", "gw-" + e.gateway, e.namespace, ""},
		{"connection", "gw-" + e.gateway, e.namespace, ""},
		{"internalfabric", "", e.namespace, ""},
		{"genevetunnel", "", e.namespace, ""},
		{"networks.ipam.liqo.io", "", e.namespace, ""},
		{"rolebinding", "", liqoNamespace, own},
		{"clusterrolebinding", "", "", own},
		{"internalnode", e.Nodes[0].Name, "", ""},
		{"routeconfiguration", e.Nodes[0].Name + "-gw-node", liqoNamespace, ""},
		{"networks.ipam.liqo.io", "pod-cidr", liqoNamespace, ""},
		{"networks.ipam.liqo.io", "internal-cidr", liqoNamespace, ""},
		{"configmap", "liqo-clusterid-configmap", liqoNamespace, ""},
	} {
		if o.name == "" {
			args := append([]string{"get", "-o", "name"}, in(o.kind, o.namespace)...)
			if o.selector != "" {
				args = append(args, "-l", o.selector)
			}
			first, _, _ := strings.Cut(w.kubectl(t, e.Cluster, args...), "\n")
			if _, o.name, _ = strings.Cut(first, "/"); o.name == "" {
				t.Fatalf("%s has no %s in %q", e.Name, o.kind, o.namespace)
			}
		}
		m := made{kind: o.kind, name: o.name, namespace: o.namespace}
		var err error
		if m.was, err = m.uid(e); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// in names a kind and its namespace, if it has one.
func in(kind, namespace string) []string {
	if namespace == "" {
		return []string{kind}
	}
	return []string{kind, "-n", namespace}
}

func (m made) uid(e *end) (string, error) {
	return e.Kubectl(append([]string{"get", "-o", "jsonpath={.metadata.uid}"}, append(in(m.kind, m.namespace), m.name)...)...)
}

// comesBack deletes objects, and waits for others of their names and for traffic.
func (w *world) comesBack(t *testing.T, e *end, sides [2]*side, all []made) {
	t.Helper()
	start := time.Now()
	for _, m := range all {
		w.kubectl(t, e.Cluster, append([]string{"delete", "--wait=false", "--ignore-not-found"}, append(in(m.kind, m.namespace), m.name)...)...)
	}
	for _, m := range all {
		lab.Eventually(t, patience, m.kind+" "+m.name+" comes back", func() error {
			now, err := m.uid(e)
			if err == nil && now == m.was {
				err = errors.New("it is still there")
			}
			return err
		})
	}
	w.talk(t, sides)
	t.Logf("%d objects are back after %v", len(all), time.Since(start).Round(10*time.Millisecond))
}
