package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// testUninstall uninstalls: first the CRDs stay and nothing else, then they go, too.
// It is the last part.
func testUninstall(t *testing.T, w *world) {
	w.apart(t)
	w.uninstall(t)
	for _, c := range w.Clusters {
		nothingInstalled(t, c)
		if got := crds(t, c); len(got) == 0 {
			t.Errorf("%s: the CRDs are gone without --purge", c.Name)
		}
	}
	w.uninstall(t, "--purge")
	for _, c := range w.Clusters {
		nothingInstalled(t, c)
		if got := crds(t, c); len(got) > 0 {
			t.Errorf("%s: left with --purge: %v", c.Name, got)
		}
	}
}

// nothingInstalled looks for what could be left of an installation: in the API
// server by name, and on the nodes.
func nothingInstalled(t *testing.T, c *kubelab.Cluster) {
	t.Helper()
	lab.Eventually(t, patience, "nothing is left in "+c.Name, func() error {
		names, err := allNames(c)
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(names, func(n string) bool {
			return !strings.Contains(n, "liqo") && !strings.Contains(n, "sluice") || strings.HasPrefix(n, "apiservice")
		})
		if len(names) > 0 {
			return fmt.Errorf("left: %v", names)
		}
		return nil
	})
	for _, n := range c.Nodes {
		checkNode(t, n)
	}
}

// allNames are the names of all objects of the kinds that an installation could leave, and of more kinds in namespaces.
func allNames(c *kubelab.Cluster, more ...string) ([]string, error) {
	out, err := c.Kubectl("get", "namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,"+
		"priorityclasses,apiservices", "-o", "name")
	if err != nil {
		return nil, err
	}
	kinds := append([]string{"all,configmaps,secrets,roles,rolebindings,leases,networkpolicies,poddisruptionbudgets"}, more...)
	all, err := c.Kubectl("get", strings.Join(kinds, ","), "-A", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
	return strings.Fields(out + all), err
}

// checkNode looks for what the agent could have left on a node: links, rules,
// routes and tables of nftables.
func checkNode(t *testing.T, n *kubelab.Node) {
	t.Helper()
	links, err := liqoLinks(n)
	if err != nil || len(links) > 0 {
		t.Errorf("left on %s: links %v (%v)", n.Name, links, err)
	}
	for _, args := range [][]string{{"ip", "rule"}, {"ip", "-6", "rule"}, {"nft", "list", "tables"}, {"ip", "route", "show", "table", "all"}} {
		out, err := n.Host.Try(args...)
		if err != nil || strings.Contains(out, "liqo") || strings.Contains(out, "sluice") || strings.Contains(out, "600:") {
			t.Errorf("left on %s: %s: %v\n%s", n.Name, strings.Join(args, " "), err, out)
		}
	}
}

// crds are the names of our CRDs.
func crds(t *testing.T, c *kubelab.Cluster) []string {
	t.Helper()
	out, err := c.Kubectl("get", "crds", "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Fields(out), func(n string) bool { return !strings.Contains(n, "liqo.io") })
}
