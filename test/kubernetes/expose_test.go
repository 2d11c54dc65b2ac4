package kubernetes

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/lab"
)

// testExpose has pods of a reach a Service of b by a Service of the same name, and goes on asking while all pods behind it
// are replaced: nothing in a has to change, and no request fails.
func testExpose(t *testing.T, w *world) {
	const name = "web"
	w.connect(t)
	s := &sharing{world: w}
	s.atHome(t, strings.Split(shopText, "---")[0], strings.ReplaceAll(shopText, "IMAGE", webImage))
	clients := w.clients(t, w.a, 2)
	w.kubectl(t, w.b, "rollout", "status", "-n", shop, "deployment/"+name, "--timeout="+patience.String())
	w.liqoctl(t, w.between(w.b, w.a, "expose", "service", name, "-n", shop)...)

	var service corev1.Service
	if err := w.a.Client().Get(t.Context(), client.ObjectKey{Namespace: shop, Name: name}, &service); err != nil {
		t.Fatal(err)
	}
	addr, err := netip.ParseAddr(service.Spec.ClusterIP)
	if err != nil {
		t.Fatalf("the Service has no ClusterIP: %+v", service.Spec)
	}
	at := netip.AddrPortFrom(addr, servicePort)
	for _, from := range clients {
		lab.Eventually(t, patience, "the Service of the other cluster answers on "+from.Node.Name, func() error {
			_, err := getAt(t.Context(), from, at)
			return err
		})
	}
	l := newLoad(t, clients, at)
	l.heardFrom(t, 2)
	w.replaceAll(t, w.b, 2)
	l.heardFrom(t, 4)
	answers, failures := l.end()
	t.Logf("while all pods were replaced: answers %v", answers)
	if len(failures) > 0 {
		t.Errorf("%d requests failed, the first: %v", len(failures), failures[0])
	}
}
