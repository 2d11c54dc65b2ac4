package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// boutique is the namespace of the document about a shop.
const boutique = "boutique"

// testShop does what the document about a shop in two clusters says, while customers go on asking: nobody is turned away.
func testShop(t *testing.T, s *sharing) {
	const document = "shop.md"
	admin := s.newShell(s.a, t.TempDir())
	s.kubeconfigs(t, admin.dir)
	manifest := section(t, document, "## 1. Run the shop", "yaml")[0]
	manifest = regexp.MustCompile(`image: \S+`).ReplaceAllString(manifest, "image: "+webImage+"\n        imagePullPolicy: Never")
	manifest = regexp.MustCompile(`(?m)^ +args: .*\n`).ReplaceAllString(manifest, "")
	if err := os.WriteFile(filepath.Join(admin.dir, "shop.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // of a test that has failed
		for _, c := range []*kubelab.Cluster{s.a, s.b} {
			if _, err := c.Kubectl("delete", "namespace", boutique, "--ignore-not-found", "--timeout="+patience.String()); err != nil {
				t.Error(err)
			}
		}
	})
	commands := func(title string) []string { return section(t, document, title, "sh") }
	// sells waits until a customer of a is served by a pod of a cluster, asking as the document does.
	sells := func(t *testing.T, ask string, by *kubelab.Cluster) {
		t.Helper()
		ask = strings.NewReplacer("curl -s", "web -get", "/hostname", "/").Replace(ask)
		lab.Eventually(t, patience, by.Name+" serves the customer", func() error {
			out, err := admin.run(t.Context(), ask)
			if err != nil {
				return err
			}
			pods, err := by.Pods(t.Context(), boutique, map[string]string{"app": "web"})
			if err == nil && !slices.ContainsFunc(pods, func(p *kubelab.Pod) bool { return strings.Contains(out, p.Name) }) {
				err = fmt.Errorf("it is served by %s", out)
			}
			return err
		})
	}
	admin.ok(t, commands("## 1. Run the shop")[0])
	export := commands("## 2. Export it")
	admin.ok(t, export[0])
	sells(t, export[1], s.a)
	lab.Eventually(t, patience, "the other cluster's pods are in reserve", func() error {
		out, err := admin.run(t.Context(), "liqoctl get services -n boutique --kubeconfig "+s.a.Name+".yaml")
		if err == nil && !strings.Contains(out, " 2/4 ") {
			err = fmt.Errorf("liqoctl get services:\n%s", out)
		}
		return err
	})
	customers, err := runningPods(t.Context(), s.a, boutique, map[string]string{"app": "customer"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	at, err := address(t.Context(), s.a, boutique, "web")
	if err != nil {
		t.Fatal(err)
	}
	l := newLoad(t, customers, at)
	l.heardFrom(t, 1)
	over := commands("## 3. Fail over")
	down, ask, _ := strings.Cut(strings.TrimSpace(over[0]), "\n")
	admin.ok(t, down)
	sells(t, ask, s.b)
	lab.Eventually(t, patience, "the shop of "+s.a.Name+" is closed", func() error {
		_, err := runningPods(t.Context(), s.a, boutique, map[string]string{"app": "web"}, 0)
		return err
	})
	admin.ok(t, over[1])
	sells(t, ask, s.a)
	answers, failures := l.end()
	t.Logf("served by %v", answers)
	if len(failures) > 0 {
		t.Errorf("%d customers were turned away, the first: %v", len(failures), failures[0])
	}
	admin.ok(t, commands("## 4. Clean up")[0])
}
