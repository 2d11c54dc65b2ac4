package bundle

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-net/sluice/admin/access"
)

// TestNoReportOfLiqo: pods of Liqo are not asked, which would need a cluster that is not there, and the bundle says so once,
// of those that would be asked if they were ours.
func TestNoReportOfLiqo(t *testing.T) {
	g := &gatherer{Cluster: &access.Cluster{}, archive: newArchive(1 << 20), slots: make(chan struct{}, 1)}
	for name, c := range map[string]map[string]any{
		"fabric-0": {"name": "fabric", "args": []any{"--nodename=m"}, "ports": []any{map[string]any{"name": "metrics", "containerPort": int64(8082)}}},
		"fabric-1": {"name": "fabric", "args": []any{"--nodename=n"}},
		"kubelet":  {"name": "virtual-kubelet", "args": []any{"--foreign-cluster-id=milan"}}, // which shows no metrics
	} {
		g.notePod(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "liqo", "name": name}, "spec": map[string]any{"containers": []any{c}},
		}})
	}
	if asked := g.readReports(t.Context(), g.choosePods()); asked != 0 || len(g.archive.gaps) != 1 ||
		g.archive.gaps[0].What != "the reports and metrics of pods of Liqo (2)" || !strings.Contains(g.archive.gaps[0].Why, "none of Sluice's commands") {
		t.Errorf("%d, %+v", asked, g.archive.gaps)
	}
}
