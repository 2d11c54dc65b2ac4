package peering

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// TestChangesAsk: who changes what is there is asked, in words that say what happens. Nobody is asked about what is not there,
// or needs no change, and nothing changes after a no.
func TestChangesAsk(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: name}
	}
	slice := func(name string, annotations map[string]string) *authv1beta1.ResourceSlice {
		s := &authv1beta1.ResourceSlice{ObjectMeta: meta(name)}
		s.Labels = map[string]string{authv1beta1.LabelReplicated: "true", authv1beta1.LabelReplicationOrigin: "rome"}
		s.Annotations = annotations
		return s
	}
	tenant := func(name string, c authv1beta1.TenantCondition) *authv1beta1.Tenant {
		return &authv1beta1.Tenant{ObjectMeta: meta(name), Spec: authv1beta1.TenantSpec{ClusterID: "rome", TenantCondition: c}}
	}
	provider := &access.Cluster{
		Options: access.Options{LiqoNamespace: "liqo", Origin: "context milan", Flags: []string{"--context=milan"}}, Config: &rest.Config{Host: "https://milan"},
		Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(
			tenant("rome", authv1beta1.TenantActive), tenant("cordoned", authv1beta1.TenantCordoned), slice("milan", nil), slice("cordoned", map[string]string{authv1beta1.AnnotationCordon: "true"}),
		).Build(),
	}
	no := errors.New("no")
	for _, tt := range []struct {
		change Change
		of     func(context.Context, *access.Cluster, string, Change, Options, progress.Func) error
		name   string
		asked  string // "": nobody
	}{
		{Cordon, ChangeTenant, "rome", `Tenant rome in cluster https://milan (context milan):
  cluster rome gets no more resources and no more pods here; it keeps what it has, and its pods go on running
  to undo this: liqoctl uncordon tenant rome -n liqo-tenant-rome --context=milan`},
		{Drain, ChangeTenant, "rome", `Tenant rome in cluster https://milan (context milan):
  cluster rome loses its resources; the namespaces that it has here are deleted, with its pods and everything else in them
  to let it ask for resources again: liqoctl activate tenant rome -n liqo-tenant-rome --context=milan`},
		{Cordon, ChangeSlice, "milan", `ResourceSlice milan of cluster rome in cluster https://milan (context milan):
  the consumer gets no more resources and no more pods for it; it keeps what it has, and its pods go on running
  to undo this: liqoctl uncordon resourceslice milan -n liqo-tenant-rome --context=milan`},
		{Cordon, ChangeTenant, "cordoned", ""},
		{Cordon, ChangeTenant, "missing", ""},
		{Cordon, ChangeSlice, "cordoned", ""},
		{Cordon, ChangeSlice, "missing", ""},
	} {
		var asked []string
		err := tt.of(t.Context(), provider, tt.name, tt.change, Options{Confirm: func(_ context.Context, what []string) error { asked = what; return no }}, nil)
		if diff := cmp.Diff(tt.asked, strings.Join(asked, "\n")); diff != "" || errors.Is(err, no) != (tt.asked != "") {
			t.Errorf("%s %s: %v (-want +got):\n%s", tt.change, tt.name, err, diff)
		}
	}
	live, s := tenant("rome", ""), slice("milan", nil)
	if err := errors.Join(provider.Client.Get(t.Context(), client.ObjectKeyFromObject(live), live), provider.Client.Get(t.Context(), client.ObjectKeyFromObject(s), s)); err != nil {
		t.Fatal(err)
	}
	if live.Spec.TenantCondition != authv1beta1.TenantActive || s.Cordoned() {
		t.Errorf("changed after a no: %s, %v", live.Spec.TenantCondition, s.Annotations)
	}
	if err := ChangeSlice(t.Context(), provider, "milan", Cordon, Options{Confirm: func(context.Context, []string) error { return nil }}, nil); err != nil {
		t.Error(err)
	}
	if err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil || !s.Cordoned() {
		t.Errorf("after a yes: %v, %v", err, s.Annotations)
	}
}

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
