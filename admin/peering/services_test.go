package peering

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// TestUnexport: the user reads whether there was an export.
func TestUnexport(t *testing.T) {
	export := NewServiceExport(Metadata{Namespace: "app", Name: "web"}, nil, false)
	in := &access.Cluster{Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(export).Build()}
	var told []string
	for range 2 {
		err := Unexport(t.Context(), in, types.NamespacedName{Namespace: "app", Name: "web"}, Options{}, func(e progress.Event) {
			if e.Kind == progress.Done {
				told = append(told, e.Text)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"Service web in namespace app is no longer exported", "Service web in namespace app was not exported"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("what the user reads (-want +got)\n%s", diff)
	}
	var left mcsv1beta1.ServiceExportList
	if err := in.Client.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
		t.Errorf("left: %v, %v", left.Items, err)
	}
}
