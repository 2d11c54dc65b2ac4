package peering

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-net/sluice/admin/access"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
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
		if got := errText(p.run(t.Context(), nil)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestRequireTenantNamespace: a namespace of any name serves that has something of the peering.
func TestRequireTenantNamespace(t *testing.T) {
	labels := map[string]string{"liqo.io/remote-cluster-id": "milan", "liqo.io/identity-type": "ControlPlane"}
	in := func(namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: "any", Labels: labels}
	}
	for _, tt := range []struct {
		name    string
		labels  map[string]string // of the namespace
		objects []client.Object
		wrong   string
	}{
		{"the label", map[string]string{"liqo.io/tenant-namespace": "true"}, nil, ""},
		{"an identity's Secret", nil, []client.Object{&corev1.Secret{ObjectMeta: in("given")}}, ""},
		{"an Identity", nil, []client.Object{&authv1beta1.Identity{ObjectMeta: in("given"), Spec: authv1beta1.IdentitySpec{ClusterID: "milan"}}}, ""},
		{"a Tenant", nil, []client.Object{&authv1beta1.Tenant{ObjectMeta: in("given"), Spec: authv1beta1.TenantSpec{ClusterID: "milan"}}}, ""},
		{"a Configuration", nil, []client.Object{&networkingv1beta1.Configuration{ObjectMeta: in("given")}}, ""},
		{"nothing", nil, nil, "create the ResourceSlice where the identity"},
		{"an Identity for another cluster", nil, []client.Object{&authv1beta1.Identity{ObjectMeta: in("given"), Spec: authv1beta1.IdentitySpec{ClusterID: "paris"}}}, "nothing was changed"},
		{"an identity elsewhere", nil, []client.Object{&corev1.Secret{ObjectMeta: in("milan-there")}}, "-n milan-there"},
		{"a tenant namespace elsewhere", nil, []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "milan-here", Labels: map[string]string{
			"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": "milan",
		}}}}, "-n milan-here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			given := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "given", Labels: tt.labels}}
			c := &access.Cluster{Options: access.Options{Namespace: "given", NamespaceGiven: true}, Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(append(tt.objects, given)...).Build()}
			e := alone(c, "milan", &Options{})[0]
			e.namespace = "given"
			if err := e.readPeering(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := e.requireTenantNamespace(t.Context()); (err == nil) != (tt.wrong == "") || !strings.Contains(errText(err), tt.wrong) {
				t.Errorf("%v; want %q", err, tt.wrong)
			}
		})
	}
}
