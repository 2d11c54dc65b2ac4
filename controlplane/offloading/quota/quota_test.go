package quota

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

func slice(change func(*authv1beta1.ResourceSlice)) *authv1beta1.ResourceSlice {
	s := &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo-tenant-rome", Name: "milan", UID: "1",
			Labels: map[string]string{"liqo.io/replicated": "true", "liqo.io/originID": "rome"}, Annotations: map[string]string{},
		},
		Spec: authv1beta1.ResourceSliceSpec{ConsumerClusterID: new(authv1beta1.ClusterID("rome"))},
		Status: authv1beta1.ResourceSliceStatus{
			Resources:  corev1.ResourceList{"cpu": resource.MustParse("4")},
			Conditions: []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.SliceResources, Status: authv1beta1.SliceAccepted}},
		},
	}
	change(s)
	return s
}

func TestWanted(t *testing.T) {
	const (
		none = iota
		open
		closed
	)
	for _, tt := range []struct {
		name   string
		change func(*authv1beta1.ResourceSlice)
		want   int
	}{
		{"granted", func(*authv1beta1.ResourceSlice) {}, open},
		{"cordoned", func(s *authv1beta1.ResourceSlice) { s.Annotations["liqo.io/cordon"] = "" }, closed},
		{"not cordoned, in words", func(s *authv1beta1.ResourceSlice) { s.Annotations["liqo.io/cordon"] = "false" }, open},
		{"with its Tenant", func(s *authv1beta1.ResourceSlice) { s.Annotations["liqo.io/cordon-tenant"] = "true" }, closed},
		{"denied", func(s *authv1beta1.ResourceSlice) { s.Status.Conditions[0].Status = authv1beta1.SliceDenied }, none},
		{"without an answer", func(s *authv1beta1.ResourceSlice) { s.Status.Conditions = nil }, none},
		{"with credentials only", func(s *authv1beta1.ResourceSlice) {
			s.Status.Conditions[0].Type = authv1beta1.SliceAuthentication
		}, none},
		{"of this cluster", func(s *authv1beta1.ResourceSlice) { s.Labels = nil }, none},
		{"of a cluster that it is not labelled for", func(s *authv1beta1.ResourceSlice) { s.Labels["liqo.io/originID"] = "naples" }, none},
		{"of what is not a cluster", func(s *authv1beta1.ResourceSlice) { s.Labels["liqo.io/originID"] = "a_b" }, none},
		{"of nobody", func(s *authv1beta1.ResourceSlice) { s.Spec.ConsumerClusterID = nil }, none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := wanted(slice(tt.change), offloadingv1beta1.SoftLimitsEnforcement)
			if (q == nil) != (tt.want == none) {
				t.Fatalf("%+v", q)
			}
			if q != nil && (*q.Spec.Cordoned != (tt.want == closed) || q.Spec.LimitsEnforcement != "Soft" || !q.Spec.Resources.Cpu().Equal(resource.MustParse("4"))) {
				t.Errorf("%+v", q.Spec)
			}
		})
	}
}

// TestNames: the user is that of the certificate, and its label and object have names that fit.
func TestNames(t *testing.T) {

	for _, name := range []string{"milan", "a.b", strings.Repeat("a", 250)} {
		q := wanted(slice(func(s *authv1beta1.ResourceSlice) { s.Name = name }), "")
		if len(q.Name) > 253 || len(q.Labels["liqo.io/creator-user"]) > 63 || !strings.HasPrefix(q.Spec.User, name+"-") {
			t.Errorf("Quota %s for %s, label %s", q.Name, q.Spec.User, q.Labels["liqo.io/creator-user"])
		}
	}
}
