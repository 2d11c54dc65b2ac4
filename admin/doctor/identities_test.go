package doctor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// tenant gives milan a Tenant for rome.
func (w *world) tenant(ready metav1.ConditionStatus, reason, message string) *authv1beta1.Tenant {
	w.server.tenants.items = []authv1beta1.Tenant{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome"}, Spec: authv1beta1.TenantSpec{ClusterID: "rome"},
		Status: authv1beta1.TenantStatus{Conditions: []metav1.Condition{{Type: authv1beta1.ConditionReady, Status: ready, Reason: reason, Message: message}}},
	}}
	return &w.server.tenants.items[0]
}

// identity gives rome an identity in milan, as the controller sees it, and an event of it.
func (w *world) identity(status corev1beta1.ConditionStatus, says, reason, message string) {
	f := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
	f.Status.TenantNamespace = corev1beta1.TenantNamespace{Local: "liqo-tenant-milan", Remote: "liqo-tenant-rome"}
	f.Status.APIServerURL = "https://milan.example.org:6443"
	f.Status.Modules.Authentication = corev1beta1.Module{Enabled: true, Conditions: []corev1beta1.Condition{{
		Type: corev1beta1.ConditionAuthIdentityControlPlane, Status: status, Message: says, Reason: corev1beta1.ReasonIdentityReady,
	}}}
	if !status.Well() {
		f.Status.Modules.Authentication.Conditions[0].Reason = corev1beta1.ReasonIdentityNotReady
	}
	w.client.peer.Foreign = f
	w.rome.events.items = append(w.rome.events.items, event("liqo-tenant-milan", "Secret", "identity", reason, message))
}

// denied gives rome a slice that milan denies its resources.
func (w *world) denied(reason, message string) {
	w.slice()
	s := &w.rome.offloads.slices.items[0]
	s.Annotations = nil
	s.Status.Conditions = []authv1beta1.ResourceSliceCondition{
		{Type: authv1beta1.SliceAuthentication, Status: authv1beta1.SliceAccepted, Reason: authv1beta1.ReasonSliceAuthenticationAccepted},
		{Type: authv1beta1.SliceResources, Status: authv1beta1.SliceDenied, Reason: reason, Message: message},
	}
}

// shookHands gives rome the Identity of a handshake with milan.
func (w *world) shookHands() {
	w.client.identities.items = []authv1beta1.Identity{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "controlplane-milan"},
		Spec:       authv1beta1.IdentitySpec{ClusterID: "milan", Type: authv1beta1.ControlPlaneIdentity},
	}}
}

// denies gives milan slices of rome, each of which it denies something for a reason.
func (w *world) denies(reasons ...string) {
	for _, reason := range reasons {
		w.milan.offloads.slices.items = append(w.milan.offloads.slices.items, authv1beta1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "north", Labels: map[string]string{
				authv1beta1.LabelReplicated: networkingv1beta1.LabelTrue, authv1beta1.LabelReplicationOrigin: "rome",
			}},
			Status: authv1beta1.ResourceSliceStatus{Conditions: []authv1beta1.ResourceSliceCondition{
				{Type: authv1beta1.SliceResources, Status: authv1beta1.SliceDenied, Reason: reason, Message: "why"},
			}},
		})
	}
}
