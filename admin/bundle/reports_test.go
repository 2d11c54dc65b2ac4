package bundle

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-net/sluice/admin/access"
)

// TestNoReportOfLiqo: pods of Liqo are not asked, which would need a cluster that is not there, and the bundle says so.
func TestNoReportOfLiqo(t *testing.T) {
	g := &gatherer{Cluster: &access.Cluster{}, archive: newArchive(1 << 20), slots: make(chan struct{}, 1)}
	g.notePod(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "liqo", "name": "liqo-fabric-0"},
		"spec": map[string]any{"containers": []any{map[string]any{
			"name": "fabric", "args": []any{"--nodename=n"}, "ports": []any{map[string]any{"name": "metrics", "containerPort": int64(8082)}},
		}}},
	}})
	if asked := g.readReports(t.Context(), g.choosePods()); asked != 0 || len(g.archive.gaps) != 1 ||
		g.archive.gaps[0].What != "the report of pod liqo/liqo-fabric-0" || !strings.Contains(g.archive.gaps[0].Why, "it is Liqo's") {
		t.Errorf("%d, %+v", asked, g.archive.gaps)
	}
}
