package access

import (
	"context"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// TestInterrupted: a takeover that has not come to its end is told, however little there is of it.
func TestInterrupted(t *testing.T) {
	policies, ended := []string{"ValidatingAdmissionPolicy p", "ValidatingAdmissionPolicyBinding p"}, []string{"DaemonSet liqo/liqo-fabric without nodes"}
	kept, programs := []string{"ConfigMap liqo/kept"}, []string{"Deployment liqo/liqo-controller", "DaemonSet liqo-fabric/liqo-fabric"}
	for _, tt := range []struct {
		name  string
		state takeoverState
		wants []string // none: there is nothing to tell
	}{
		{"nothing", takeoverState{missing: programs}, nil},
		{"Sluice on its own", takeoverState{}, nil},
		{"a network that was taken over", takeoverState{policies: policies, ended: ended, others: kept}, nil},
		{"images that are tried", takeoverState{others: []string{"Pod liqo/trial"}, missing: programs}, []string{"there is Pod liqo/trial; there is no Deployment liqo/liqo-controller, no DaemonSet"}},
		{"a policy without its binding", takeoverState{policies: policies[:1], missing: programs}, []string{"there is ValidatingAdmissionPolicy p;"}},
		{"policies alone", takeoverState{policies: policies, missing: programs}, []string{"PolicyBinding p;", "Liqo's controllers may write nothing of the network"}},
		{"before our controller", takeoverState{policies: policies, ended: ended, others: kept, missing: programs}, []string{"without nodes, ConfigMap liqo/kept"}},
		{"without our controller", takeoverState{policies: policies, ended: ended, others: kept, missing: programs[:1]}, []string{"may write nothing"}},
		{"without policies", takeoverState{ended: ended, others: kept, missing: programs[:1]}, []string{"there is DaemonSet liqo/liqo-fabric without nodes"}},
		{"Liqo's agents beside ours", takeoverState{policies: policies, others: kept}, []string{"interrupted"}},
		{"the end of the way back", takeoverState{others: kept, missing: programs}, []string{"there is ConfigMap liqo/kept"}},
	} {
		got := tt.state.interrupted()
		if len(tt.wants) == 0 && got != "" {
			t.Errorf("%s: %s", tt.name, got)
		}
		for _, want := range tt.wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", tt.name, got, want)
			}
		}
	}
}

// TestInterruptedUnread: what the user may not read does not count, and is told only where something else tells of a takeover.
func TestInterruptedUnread(t *testing.T) {
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{LabelAdoption: networkingv1beta1.LabelTrue}}
	}
	ended := &appsv1.DaemonSet{ObjectMeta: meta("liqo", "liqo-fabric")}
	ended.Spec.Template.Spec.NodeSelector = map[string]string{HandedOverKey: networkingv1beta1.LabelTrue}
	kept := &corev1.ConfigMap{ObjectMeta: meta("liqo", KeptCRDs)}
	controller, agents := &appsv1.Deployment{ObjectMeta: meta("liqo", ControllerName)}, &appsv1.DaemonSet{ObjectMeta: meta("liqo-fabric", FabricName)}
	policies := []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
	for _, tt := range []struct {
		name    string
		objects []client.Object
		hidden  []string // kinds
		want    string
		gap     bool
	}{
		{"Liqo alone", nil, policies, "", false},
		{"Liqo alone, of which nothing may be read", nil, append(policies, "ConfigMap", "Pod", "Deployment", "DaemonSet"), "", false},
		{"a network that was taken over", []client.Object{ended, kept, controller, agents}, policies, "", true},
		{"the same without a right to read node agents", []client.Object{ended, kept, controller, agents}, append(policies, "DaemonSet"), "", true},
		{"without our controller", []client.Object{ended, agents}, policies, "there is DaemonSet liqo/liqo-fabric without nodes; there is no Deployment liqo/liqo-controller: ", false},
		{"Liqo's agents beside ours", []client.Object{kept, controller, agents}, policies, "there is ConfigMap liqo/sluice-liqo-crds: ", false},
		{"policies without the agents that end", []client.Object{kept, controller, agents}, policies[:1], "there is ConfigMap liqo/sluice-liqo-crds: ", false},
	} {
		refused := func(kind string) error {
			if slices.Contains(tt.hidden, kind) {
				return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", nil)
			}
			return nil
		}
		c := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(tt.objects...).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
				if len(tt.objects) == 0 && (key.Name == ControllerName || key.Name == FabricName) {
					t.Errorf("%s: it is asked for %s, which tells nothing", tt.name, key)
				}
				if err := refused(into.GetObjectKind().GroupVersionKind().Kind); err != nil {
					return err
				}
				return c.Get(ctx, key, into, o...)
			},
			List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, o ...client.ListOption) error {
				if err := refused("DaemonSet"); err != nil {
					return err
				}
				return c.List(ctx, into, o...)
			},
		}).Build()
		got, err := (&Cluster{Options: Options{LiqoNamespace: "liqo"}, Client: c}).Interrupted(t.Context())
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" || apierrors.IsForbidden(err) != tt.gap || err != nil && !tt.gap {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
}
