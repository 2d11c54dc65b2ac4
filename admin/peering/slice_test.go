package peering

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-net/sluice/admin/access"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// TestRefusalSaysAll: where the provider has given its reason, there is nothing to look for.
func TestRefusalSaysAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slice := &authv1beta1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "milan"},
			Status: authv1beta1.ResourceSliceStatus{Conditions: []authv1beta1.ResourceSliceCondition{
				{Type: authv1beta1.SliceResources, Status: authv1beta1.SliceDenied, Reason: authv1beta1.ReasonQuotaExceeded, Message: "8 of cpu are asked for"},
			}},
		}
		e := alone(&access.Cluster{Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(slice).Build()}, "milan", &Options{})[0]
		e.namespace = "tenant"
		var p plan
		p.add(nil, e.sliceDecided(slice, authv1beta1.SliceResources))
		const want = "waiting for the answer on resources: cluster milan refused (QuotaExceeded): 8 of cpu are asked for"
		if got := text(p.run(t.Context(), nil)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
