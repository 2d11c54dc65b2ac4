package main

import (
	"bytes"
	"testing"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/objects/manifests"
)

// TestReportJSON fixes the names in "fabric status -o json": scripts read them,
// and so does admin/survey, whose tests read the golden files.
func TestReportJSON(t *testing.T) {
	inCluster := clusterReport()
	inCluster.Untranslated = manifests.Problems{{Object: "Network liqo/pod-cidr", Reason: "has no CIDR yet"}}
	for name, r := range map[string]report{"report-standalone.json": standaloneReport(), "report-cluster.json": inCluster} {
		var out bytes.Buffer
		if err := daemon.WriteJSON(&out, r); err != nil {
			t.Fatal(err)
		}
		daemontest.Golden(t, name, out.String())
	}
}
