package offloading_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestReservedNamespaces: NamespaceOffloadings that somebody makes by hand in namespaces that are never offloaded reach no
// provider, and what an earlier version asked for is taken back.
func TestReservedNamespaces(t *testing.T) {
	c := consumer(t)
	liqo := controlplanetest.LiqoNamespace
	waiting := pod("of-paris", func(*corev1.PodSpec) {})
	c.Namespace(t, "of-paris", map[string]string{"liqo.io/tenant-namespace": "true"})
	c.Namespace(t, "becomes-tenant", nil)
	c.Namespace(t, "demo", nil)
	kept := []string{liqo, "kube-system", "liqo-tenant-milan", "of-paris"}
	for _, o := range []client.Object{tenant("milan"), virtualNode("milan", "milan", "eu"), waiting, offloadingOf("demo", nil), offloadingOf("becomes-tenant", nil)} {
		c.Create(t, o)
	}
	before := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan", Labels: map[string]string{
			"liqo.io/managed": "true", "liqo.io/remote-cluster-id": "milan", "liqo.io/replication": "true", "liqo.io/remoteID": "milan",
		}},
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{}},
	}
	for _, namespace := range kept {
		c.Create(t, offloadingOf(namespace, nil))
		before.Spec.DesiredMapping[namespace] = namespace + "-rome"
	}
	c.Create(t, before)
	controlplanetest.Edit(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "of-paris"}}, func(n *corev1.Namespace) {
		n.Labels["liqo.io/scheduling-enabled"] = "true"
	})
	run(t, c)
	mapped(t, c, "milan", map[string]string{"demo": "demo-rome", "becomes-tenant": "becomes-tenant-rome"})
	marked(t, c, "becomes-tenant", true)
	controlplanetest.Edit(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "becomes-tenant"}}, func(n *corev1.Namespace) {
		n.Labels["liqo.io/tenant-namespace"] = "true"
	})
	mapped(t, c, "milan", map[string]string{"demo": "demo-rome"})
	for _, namespace := range append(kept, "becomes-tenant") {
		marked(t, c, namespace, false)
		controlplanetest.Eventually(t, "the status says why "+namespace+" is kept", func(ctx context.Context) error {
			o := new(offloadingv1beta1.NamespaceOffloading)
			if err := c.Get(ctx, namespace, "offloading", o); err != nil {
				return err
			}
			conditions := o.Status.RemoteNamespacesConditions["milan"]
			if o.Status.OffloadingPhase != offloadingv1beta1.OffloadingNoClusterSelected || len(conditions) != 1 ||
				conditions[0].Reason != "NamespaceReserved" || !strings.Contains(conditions[0].Message, "never offloaded") {
				return fmt.Errorf("%+v", o.Status)
			}
			return nil
		})
	}
	marked(t, c, "demo", true)
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(waiting), waiting); err != nil || len(withoutDefaults(waiting.Spec.Tolerations)) > 0 {
		t.Errorf("%v, the pod tolerates %v", err, waiting.Spec.Tolerations)
	}
}
