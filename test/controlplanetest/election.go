package controlplanetest

import (
	"context"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Elect has a pod of every gateway take its Lease, as gateways do, until the test
// ends: for pods that only seem to run.
func (c *Cluster) Elect(tb testing.TB) {
	tb.Helper()
	c.Follow(tb, func(ctx context.Context) {
		var leases coordinationv1.LeaseList
		if c.Client.List(ctx, &leases, client.MatchingLabels{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue}) != nil {
			return
		}
		for i := range leases.Items {
			c.elect(ctx, &leases.Items[i])
		}
	}, new(coordinationv1.Lease), new(corev1.Pod))
}

// elect gives a Lease that nobody holds to the first pod of its gateway.
func (c *Cluster) elect(ctx context.Context, l *coordinationv1.Lease) {
	if l.Spec.HolderIdentity != nil {
		return
	}
	gateway, _, _ := strings.Cut(l.Name, ".")
	var pods corev1.PodList
	if c.Client.List(ctx, &pods, client.InNamespace(l.Namespace), client.MatchingLabels{networkingv1beta1.LabelGatewayName: gateway}) != nil || len(pods.Items) == 0 {
		return
	}
	before := l.DeepCopy()
	l.Spec.HolderIdentity = &pods.Items[0].Name
	_ = c.Client.Patch(ctx, l, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) // it may be gone
}
