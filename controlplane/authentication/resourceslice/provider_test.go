package resourceslice

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// TestTenantNotJudged: a new slice waits until its Tenant is judged, but not for ever, and what was granted is not kept
// meanwhile.
func TestTenantNotJudged(t *testing.T) {
	granted := authv1beta1.ResourceSliceStatus{Resources: list("cpu", "4"), AuthParams: &authv1beta1.AuthParams{APIServer: "https://milan.example"}}
	set(&granted, authv1beta1.SliceAuthentication, verdict{status: authv1beta1.SliceAccepted})
	set(&granted, authv1beta1.SliceResources, verdict{status: authv1beta1.SliceAccepted})
	long := -2 * judgedWithin
	for _, c := range []struct {
		name          string
		status        authv1beta1.ResourceSliceStatus
		began, tenant time.Duration // from now
		waits         bool
	}{
		{name: "both are new", waits: true},
		{name: "the program is new", tenant: long, waits: true},
		{name: "the Tenant is new", began: long, waits: true},
		{name: "nothing is new", began: long, tenant: long},
		{name: "what a former Tenant had", status: granted},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, tenant, _ := asked(t)
			s.Labels = map[string]string{authv1beta1.LabelReplicated: "true", authv1beta1.LabelReplicationOrigin: "rome"}
			s.Spec.CSR, s.Status = nil, c.status
			tenant.Spec.AuthzPolicy = authv1beta1.TolerateNoHandshake
			tenant.CreationTimestamp = metav1.NewTime(time.Now().Add(c.tenant))
			fakes := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithStatusSubresource(s, tenant).WithObjects(s, tenant,
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}},
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-clusterid-configmap"}, Data: map[string]string{"CLUSTER_ID": "milan"}},
			).Build()
			recorder := events.NewFakeRecorder(10)
			r := &provider{
				Client: fakes, Reader: fakes, Recorder: recorder, Options: Options{DefaultClass: true},
				Cluster: identify.Cluster{Client: fakes, Reader: fakes, LiqoNamespace: "liqo"},
				Began:   func() time.Time { return time.Now().Add(c.began) },
			}
			reconcile := func(want string) ctrl.Result {
				t.Helper()
				result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
				if err == nil {
					err = fakes.Get(t.Context(), client.ObjectKeyFromObject(s), s)
				}
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				if v := resourcesOf(s); v != nil {
					got = v.reason
				}
				if had := len(s.Status.Resources) > 0 || s.Status.AuthParams != nil; got != want || had != (want == authv1beta1.ReasonSliceResourcesAccepted) {
					t.Errorf("the status is %+v, want %q", s.Status, want)
				}
				return result
			}
			if c.waits {
				if result := reconcile(""); result.RequeueAfter <= 0 || result.RequeueAfter > judgedWithin || len(recorder.Events) > 0 {
					t.Errorf("%+v, %d events", result, len(recorder.Events))
				}
			} else {
				reconcile(authv1beta1.ReasonTenantMissing)
			}
			tenant.Status.TenantNamespace = tenant.Namespace
			meta.SetStatusCondition(&tenant.Status.Conditions, metav1.Condition{Type: authv1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready"})
			if err := fakes.Status().Update(t.Context(), tenant); err != nil {
				t.Fatal(err)
			}
			reconcile(authv1beta1.ReasonSliceResourcesAccepted)
		})
	}
}

// TestAnotherClass: of a slice whose class another controller decides on, only the verdict on its consumer is taken back.
func TestAnotherClass(t *testing.T) {
	s, tenant, _ := asked(t)
	s.Spec.CSR, s.Spec.Class = nil, "gold"
	tenant.Spec.AuthzPolicy, tenant.Status.TenantNamespace = authv1beta1.TolerateNoHandshake, tenant.Namespace
	early := denied(authv1beta1.ReasonConsumerInvalid, "consumerClusterID is missing")
	for _, c := range []struct {
		name           string
		authentication verdict
		resources      verdict
		keeps          bool
	}{
		{"both were denied before the consumer was named", early, early, false},
		{"its controller denies it", verdict{status: authv1beta1.SliceAccepted}, denied("Gold", "no gold is left"), true},
		{"its controller had denied it, and the consumer was not known", early, denied("Gold", "no gold is left"), true},
		{"its controller grants it", verdict{status: authv1beta1.SliceAccepted}, verdict{status: authv1beta1.SliceAccepted}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			status := new(authv1beta1.ResourceSliceStatus)
			set(status, authv1beta1.SliceAuthentication, c.authentication)
			set(status, authv1beta1.SliceResources, c.resources)
			if _, err := new(provider).decide(t.Context(), s, tenant, string(*s.Spec.ProviderClusterID), ledger{}, status); err != nil {
				t.Fatal(err)
			}
			s.Status = *status
			if v := resourcesOf(s); (v != nil) != c.keeps || v != nil && v.reason != c.resources.reason || status.Conditions[0].Status != authv1beta1.SliceAccepted {
				t.Errorf("%+v", status.Conditions)
			}
		})
	}
}
