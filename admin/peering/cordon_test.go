package peering

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
)

func TestChangeOfTenant(t *testing.T) {
	const active, cordoned, drained = authv1beta1.TenantActive, authv1beta1.TenantCordoned, authv1beta1.TenantDrained
	for _, tt := range []struct {
		change Change
		now    authv1beta1.TenantCondition
		next   authv1beta1.TenantCondition
		stays  string
	}{
		{Cordon, active, cordoned, ""},
		{Cordon, "", cordoned, ""},
		{Cordon, cordoned, cordoned, "is already cordoned"},
		{Cordon, drained, drained, "is drained, which is stricter: run 'liqoctl activate tenant' first"},
		{Uncordon, active, active, "is not cordoned"},
		{Uncordon, cordoned, active, ""},
		{Uncordon, drained, drained, "is drained: use 'liqoctl activate tenant'"},
		{Drain, active, drained, ""},
		{Drain, cordoned, drained, ""},
		{Drain, drained, drained, "is already drained"},
		{Activate, active, active, "is already active"},
		{Activate, cordoned, cordoned, "is cordoned, not drained: use 'liqoctl uncordon tenant'"},
		{Activate, drained, active, ""},
	} {
		next, stays := tt.change.of(tt.now)
		if diff := cmp.Diff([]string{string(tt.next), tt.stays}, []string{string(next), stays}); diff != "" {
			t.Errorf("%s of %q (-want +got):\n%s", tt.change, tt.now, diff)
		}
	}
}
