package gatewayrender

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// world is a control plane with the controllers in it.
type world struct {
	*controlplanetest.Cluster
	client      *controlplanetest.Counting
	reconcilers map[*kind]*reconciler
}

// server applies a GatewayServer.
func (w *world) server(t *testing.T, namespace, name string, change func(*networkingv1beta1.GatewayServer)) *networkingv1beta1.GatewayServer {
	t.Helper()
	s := &networkingv1beta1.GatewayServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: "consumer"}},
		Spec: networkingv1beta1.GatewayServerSpec{
			MTU: 1340, Endpoint: networkingv1beta1.ServerEndpoint{Port: 51840, ServiceType: corev1.ServiceTypeNodePort},
			ServerTemplateRef: corev1.ObjectReference{
				APIVersion: networkingv1beta1.GroupVersion.String(), Kind: "WgGatewayServerTemplate", Namespace: "liqo", Name: "wireguard-server",
			},
		},
	}
	if change != nil {
		change(s)
	}
	w.Create(t, s)
	return s
}

// condition waits for the condition TemplateRendered of a GatewayServer, of its
// newest generation.
func (w *world) condition(t *testing.T, namespace, name string, reason networkingv1beta1.ConditionReason, parts ...string) *networkingv1beta1.GatewayServer {
	t.Helper()
	var s networkingv1beta1.GatewayServer
	controlplanetest.Eventually(t, fmt.Sprintf("%s/%s is %s", namespace, name, reason), func(ctx context.Context) error {
		if err := w.Get(ctx, namespace, name, &s); err != nil {
			return err
		}
		c := meta.FindStatusCondition(s.Status.Conditions, string(networkingv1beta1.ConditionTemplateRendered))
		if c == nil || c.Reason != string(reason) || c.ObservedGeneration != s.Generation {
			return fmt.Errorf("generation %d: %+v", s.Generation, c)
		}
		for _, p := range parts {
			if !strings.Contains(c.Message, p) {
				return fmt.Errorf("%q does not say %q", c.Message, p)
			}
		}
		return nil
	})
	return &s
}

// eventually waits until check holds for an object as it is then.
func eventually[T client.Object](t *testing.T, w *world, namespace, name string, o T, check func(T) error) T {
	t.Helper()
	controlplanetest.Eventually(t, fmt.Sprintf("%T %s/%s", o, namespace, name), func(ctx context.Context) error {
		o = o.DeepCopyObject().(T)
		if err := w.Get(ctx, namespace, name, o); err != nil {
			return err
		}
		return check(o)
	})
	return o
}

// settled fails if a gateway that is as it should be is written to.
func (w *world) settled(t *testing.T, k *kind, namespace, name string) {
	t.Helper()
	controlplanetest.Eventually(t, "nothing is written", func(ctx context.Context) error {
		before := w.client.Writes.Load()
		if _, err := w.reconcilers[k].Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}); err != nil {
			return err
		}
		if n := w.client.Writes.Load() - before; n != 0 {
			return fmt.Errorf("%d writes", n) // once perhaps, as long as a cache is behind
		}
		return nil
	})
}

// shippedCopy is a copy of a default template in a namespace.
func (w *world) shippedCopy(t *testing.T, k *kind, namespace string, change func(map[string]any)) {
	t.Helper()
	u := shippedTemplates(t)[k.template].DeepCopy()
	u.SetNamespace(namespace)
	u.SetName("mine")
	if change != nil {
		change(u.Object["spec"].(map[string]any)["template"].(map[string]any))
	}
	w.Create(t, u)
}

// edit changes spec.template of the copy.
func (w *world) edit(t *testing.T, k *kind, namespace string, change func(map[string]any)) {
	t.Helper()
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind(k.template))
	u.SetNamespace(namespace)
	u.SetName("mine")
	controlplanetest.Edit(t, w.Cluster, u, func(u *unstructured.Unstructured) {
		change(u.Object["spec"].(map[string]any)["template"].(map[string]any))
	})
}

func mine(namespace string) func(*networkingv1beta1.GatewayServer) {
	return func(s *networkingv1beta1.GatewayServer) {
		s.Spec.ServerTemplateRef.Namespace, s.Spec.ServerTemplateRef.Name = namespace, "mine"
	}
}
