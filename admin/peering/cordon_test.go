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
		{Cordon, cordoned, cordoned, "is cordoned already"},
		{Cordon, drained, drained, "is drained, which is more: 'liqoctl activate tenant' comes first"},
		{Uncordon, active, active, "is not cordoned"},
		{Uncordon, cordoned, active, ""},
		{Uncordon, drained, drained, "is drained: 'liqoctl activate tenant' is what undoes that"},
		{Drain, active, drained, ""},
		{Drain, cordoned, drained, ""},
		{Drain, drained, drained, "is drained already"},
		{Activate, active, active, "is active already"},
		{Activate, cordoned, cordoned, "is cordoned and not drained: 'liqoctl uncordon tenant' is what undoes that"},
		{Activate, drained, active, ""},
	} {
		next, stays := tt.change.of(tt.now)
		if diff := cmp.Diff([]string{string(tt.next), tt.stays}, []string{string(next), stays}); diff != "" {
			t.Errorf("%s of %q (-want +got):\n%s", tt.change, tt.now, diff)
		}
	}
}
