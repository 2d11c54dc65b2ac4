package kubernetes

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

//go:embed metricsserver.yaml
var metricsServer string

// testOffloadedMetricsServers has the metrics-server of Kubernetes in both clusters: that of b measures the pod, and that of a
// asks the virtual node, whose certificate it verifies.
func testOffloadedMetricsServers(t *testing.T, o *offloaded) {
	const image = "localhost/metrics-server:test"
	archive := o.BuildModule(image, "test", "metricsserver")
	text := strings.ReplaceAll(metricsServer, "IMAGE", image)
	for _, c := range []*kubelab.Cluster{o.b, o.a} {
		c.Load(archive)
		if _, err := c.KubectlInput(text, "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := c.KubectlInput(text, "delete", "-f", "-", "--wait=true"); err != nil {
				t.Error(err)
			}
		})
	}
	// top waits until a line of `kubectl top` in a begins with name, and returns its columns.
	top := func(name string, args ...string) (columns []string) {
		lab.Eventually(t, 2*patience, fmt.Sprintf("kubectl top %v shows %s", args, name), func() error {
			out, err := o.a.Kubectl(append(append([]string{"top"}, args...), "--no-headers")...)
			if err != nil {
				return err
			}
			for line := range strings.Lines(out) {
				if columns = strings.Fields(line); len(columns) > 2 && columns[0] == name {
					return nil
				}
			}
			return fmt.Errorf("it shows\n%s", out)
		})
		return columns
	}
	for _, p := range o.here {
		if got := top(p.Name, "pod", "-n", offloadedHere); got[2] == "0Mi" {
			t.Errorf("a pod that runs uses no memory: %q", got)
		}
	}
	if got := top(virtualNode, "node"); len(got) != 5 || got[3] == "0Mi" || !strings.HasSuffix(got[4], "%") {
		t.Errorf("the virtual node: %q", got)
	}
}
