package release

import (
	"io/fs"
	"testing"

	"sigs.k8s.io/mcs-api/config/crd"

	"github.com/sluice-net/sluice/deploy"
)

// TestMultiCluster guards that deploy/mcs is what the module publishes whose types the controllers use.
func TestMultiCluster(t *testing.T) {
	for name, want := range map[string][]byte{
		"multicluster.x-k8s.io_serviceexports.yaml": crd.ServiceExportCRD, "multicluster.x-k8s.io_serviceimports.yaml": crd.ServiceImportCRD,
	} {
		got, err := fs.ReadFile(deploy.MultiCluster(), name)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is not that of sigs.k8s.io/mcs-api (%v): copy it from the folder config/crd of the module", name, err)
		}
	}
	for _, test := range []struct {
		values Values
		want   int
	}{{nil, 0}, {value(false, "services.enabled"), 0}, {value(true, "services.enabled"), 2}} {
		if got, err := multiCluster(test.values); err != nil || len(got) != test.want {
			t.Errorf("%v: %d CRDs, %v", test.values, len(got), err)
		}
	}
}
