package manager_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	knetworkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestLimits has somebody who got hold of the controller's token write to what is not
// the controller's.
func TestLimits(t *testing.T) {
	c := controlplanetest.Start(t)
	ctx := context.Background()
	thief, err := client.New(c.ServiceAccount(controlplanetest.LiqoNamespace, controlplanetest.Controller), client.Options{Scheme: kinds.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	meta := func(namespace, name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
	}
	ours := map[string]string{"liqo.io/managed": "true"}
	identity := &authv1beta1.Identity{
		ObjectMeta: meta("default", "milan", nil), Spec: authv1beta1.IdentitySpec{ClusterID: "milan", Type: authv1beta1.ControlPlaneIdentity},
	}
	c.Create(t, identity)
	issued := meta("default", "kubeconfig-milan", ours)
	issued.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(identity, authv1beta1.GroupVersion.WithKind("Identity"))}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "shop", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}}
	deployment := func(m metav1.ObjectMeta) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: spec},
		}}
	}
	for _, o := range []client.Object{
		deployment(meta("default", "shop", nil)), deployment(meta("kube-system", "dns", ours)),
		&corev1.ServiceAccount{ObjectMeta: meta("default", "default", nil)},
		&corev1.Secret{ObjectMeta: meta("default", "password", nil), Data: map[string][]byte{"a": []byte("b")}},
		&corev1.Secret{ObjectMeta: meta("default", "made", ours), Data: map[string][]byte{"a": []byte("b")}},
		&corev1.Secret{ObjectMeta: meta("default", "left", ours), Data: map[string][]byte{"kubeconfig": []byte("old")}},
		&corev1.Secret{ObjectMeta: meta("default", "liqo-copies", ours), Data: map[string][]byte{"milan.theirs": []byte("old"), "naples.theirs": []byte("old")}},
		&corev1.Secret{ObjectMeta: meta("liqo", "liqo-copies", nil), Data: map[string][]byte{"milan.theirs": []byte("a user's")}},
		&corev1.Secret{ObjectMeta: issued, Data: map[string][]byte{"kubeconfig": []byte("old")}},
		&corev1.Secret{ObjectMeta: meta("default", "liqo-signed-nonce", map[string]string{"liqo.io/signed-nonce": "true"}), Data: map[string][]byte{"nonce": []byte("b"), "other": []byte("c")}},
		&corev1.Service{ObjectMeta: meta("default", "shop", nil), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
		&corev1.Service{ObjectMeta: meta("default", "alias", map[string]string{"liqo.io/managed": "true", "multicluster.kubernetes.io/service-name": "alias"}), Spec: corev1.ServiceSpec{Selector: map[string]string{"a": "b"}, Ports: []corev1.ServicePort{{Port: 1}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta("", "theirs", nil), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
		&corev1beta1.ForeignCluster{ObjectMeta: meta("", "naples", nil), Spec: corev1beta1.ForeignClusterSpec{ClusterID: "naples"}},
		&corev1.Pod{ObjectMeta: meta("default", "shop", nil), Spec: spec},
		&corev1.Pod{ObjectMeta: meta("default", "gateway", map[string]string{"networking.liqo.io/component": "gateway"}), Spec: spec},
	} {
		if err := c.Client.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	patch := func(o client.Object, text string) func(context.Context) error {
		return func(ctx context.Context) error {
			return thief.Patch(ctx, o, client.RawPatch(types.StrategicMergePatchType, []byte(text)))
		}
	}
	create := func(o client.Object) func(context.Context) error {
		return func(ctx context.Context) error { return thief.Create(ctx, o) }
	}
	remove := func(o client.Object) func(context.Context) error {
		return func(ctx context.Context) error { return thief.Delete(ctx, o) }
	}
	resize := func(pod string) func(context.Context) error {
		return func(ctx context.Context) error {
			return thief.SubResource("resize").Patch(ctx, &corev1.Pod{ObjectMeta: meta("default", pod, nil)},
				client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}`)))
		}
	}
	const label, image = `{"metadata":{"labels":{"liqo.io/managed":"true"}}}`, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"evil"}]}}}}`
	adopted := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"authentication.liqo.io/v1beta1","kind":"Identity","name":"milan","uid":%q,"controller":true}]},"data":{"kubeconfig":"eA=="}}`, identity.UID)
	signed := &corev1.Secret{ObjectMeta: meta("default", "liqo-signed-nonce", nil)}
	tied := func(to *corev1.Secret, kind, more string) func(context.Context) error {
		return patch(to, fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"authentication.liqo.io/v1beta1","kind":%q,"name":"milan","uid":%q%s}]}}`, kind, identity.UID, more))
	}
	type row struct {
		name   string
		do     func(context.Context) error
		denied string // "" if it is allowed
	}
	rows := []row{
		{"another image for a user's pods", patch(deployment(meta("default", "shop", nil)), image), "liqo.io/managed"},
		{"a label on a user's Deployment", patch(deployment(meta("default", "shop", nil)), label), "liqo.io/managed"},
		{"pods of the cluster", patch(deployment(meta("kube-system", "dns", nil)), image), "the cluster itself"},
		{"new pods of the cluster", create(deployment(meta("kube-system", "evil", ours))), "the cluster itself"},
		{"pods that nobody sees", create(deployment(meta("default", "evil", nil))), "liqo.io/managed"},
		{"another image for a pod", patch(&corev1.Pod{ObjectMeta: meta("default", "shop", nil)}, `{"spec":{"containers":[{"name":"c","image":"evil"}]}}`), "labels pods of gateways"},
		{"another image for a gateway", patch(&corev1.Pod{ObjectMeta: meta("default", "gateway", nil)}, `{"spec":{"containers":[{"name":"c","image":"evil"}]}}`), "labels pods of gateways"},
		{"a label on a user's pod", patch(&corev1.Pod{ObjectMeta: meta("default", "shop", nil)}, `{"metadata":{"labels":{"networking.liqo.io/component":"gateway"}}}`), "labels pods of gateways"},
		{"the mark of a gateway", patch(&corev1.Pod{ObjectMeta: meta("default", "gateway", nil)}, `{"metadata":{"labels":{"networking.liqo.io/active":"true"}}}`), ""},
		{"the size of a user's pod", resize("shop"), "labels pods of gateways"},
		{"the size of a gateway", resize("gateway"), "labels pods of gateways"},
		{"a user's Secret", remove(&corev1.Secret{ObjectMeta: meta("default", "password", nil)}), "liqo.io/managed"},
		{"what a Secret says", patch(&corev1.Secret{ObjectMeta: meta("default", "password", nil)}, `{"data":{"a":"eA=="}}`), "changes no keys"},
		{"what a Secret of ours says", patch(&corev1.Secret{ObjectMeta: meta("default", "made", nil)}, `{"data":{"a":"eA=="}}`), "changes no keys"},
		{"a value more in a Secret of a user", patch(&corev1.Secret{ObjectMeta: meta("default", "password", nil)}, `{"data":{"nonce":"eA=="}}`), "changes no keys"},
		{"a value less", patch(&corev1.Secret{ObjectMeta: meta("default", "password", nil)}, `{"data":{"a":null}}`), "changes no keys"},
		{"a signed nonce", patch(&corev1.Secret{ObjectMeta: meta("default", "liqo-signed-nonce", nil)}, `{"data":{"signedNonce":"eA=="}}`), ""},
		{"what else a Secret with a nonce says", patch(&corev1.Secret{ObjectMeta: meta("default", "liqo-signed-nonce", nil)}, `{"data":{"other":"eA=="}}`), "changes no keys"},
		{"a signed nonce tied to another kind", tied(signed, "Tenant", ""), "no Secret of somebody else"},
		{"a signed nonce tied as if it had been made", tied(signed, "Identity", `,"controller":true`), "no Secret of somebody else"},
		{"another Secret tied to an Identity", tied(&corev1.Secret{ObjectMeta: meta("default", "password", nil)}, "Identity", ""), "no Secret of somebody else"},
		{"a signed nonce tied to an Identity", tied(signed, "Identity", ""), ""},
		{"a signed nonce without that Identity", patch(&corev1.Secret{ObjectMeta: meta("default", "liqo-signed-nonce", nil)}, fmt.Sprintf(`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":%q}]}}`, identity.UID)), "no Secret of somebody else"},
		{"a newer certificate", patch(&corev1.Secret{ObjectMeta: meta("default", issued.Name, nil)}, `{"data":{"kubeconfig":"eA=="}}`), ""},
		{"a newer certificate for one that was left behind", patch(&corev1.Secret{ObjectMeta: meta("default", "left", nil)}, adopted), ""},
		{"newer credentials to take copies back", patch(&corev1.Secret{ObjectMeta: meta("default", "liqo-copies", nil)}, `{"data":{"milan.theirs":"eA==","naples.theirs":null}}`), ""},
		{"a Secret of a user with the name of those", patch(&corev1.Secret{ObjectMeta: meta("liqo", "liqo-copies", nil)}, `{"data":{"milan.theirs":"eA=="}}`), "changes no keys"},
		{"a key in the place of a certificate", patch(&corev1.Secret{ObjectMeta: meta("default", issued.Name, nil)}, `{"data":{"privateKey":"eA=="}}`), "changes no keys"},
		{"a Secret of a user, to be deleted next", patch(&corev1.Secret{ObjectMeta: meta("default", "password", nil)}, label), "no Secret of somebody else"},
		{"a Secret of a user, to be written next", patch(&corev1.Secret{ObjectMeta: meta("default", "password", nil)}, `{"metadata":{"ownerReferences":[{"apiVersion":"authentication.liqo.io/v1beta1","kind":"Identity","name":"a","uid":"1","controller":true}]}}`), "no Secret of somebody else"},
		{"a Secret of a user, marked as a nonce", patch(&corev1.Secret{ObjectMeta: meta("default", "password", nil)}, `{"metadata":{"labels":{"liqo.io/nonce":"true"}}}`), "no Secret of somebody else"},
		{"a label on a user's Secret", patch(&corev1.Secret{ObjectMeta: meta("default", "password", nil)}, `{"metadata":{"labels":{"networking.liqo.io/gateway-resource":"true"}}}`), ""},
		{"the token of an account of the cluster", create(&corev1.Secret{Type: corev1.SecretTypeServiceAccountToken,
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "evil", Labels: ours, Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}}), "the cluster itself"},
		{"the token of another account", create(&corev1.Secret{Type: corev1.SecretTypeServiceAccountToken,
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "evil", Labels: ours, Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}}), "makes keys, and no tokens"},
		{"what a Service of ours leads to, and that it is a user's", patch(&corev1.Service{ObjectMeta: meta("default", "alias", nil)}, `{"metadata":{"labels":{"liqo.io/managed":null}},"spec":{"selector":{"a":"evil"}}}`), "liqo.io/managed"},
		{"a Service of ours, left to a user", patch(&corev1.Service{ObjectMeta: meta("default", "alias", nil)}, `{"metadata":{"labels":{"liqo.io/managed":null}}}`), ""},
		{"a label on a user's Service", patch(&corev1.Service{ObjectMeta: meta("default", "shop", nil)}, label), "liqo.io/managed"},
		{"a user's Service", remove(&corev1.Service{ObjectMeta: meta("default", "shop", nil)}), "liqo.io/managed"},
		{"a user's binding", remove(&rbacv1.ClusterRoleBinding{ObjectMeta: meta("", "theirs", nil)}), "liqo.io/managed"},
		{"a label on a user's ForeignCluster", func(ctx context.Context) error {
			return thief.Patch(ctx, &corev1beta1.ForeignCluster{ObjectMeta: meta("", "naples", nil)}, client.RawPatch(types.MergePatchType, []byte(label)))
		}, "liqo.io/managed"},
		{"a finalizer of a user's ForeignCluster", func(ctx context.Context) error {
			return thief.Patch(ctx, &corev1beta1.ForeignCluster{ObjectMeta: meta("", "naples", nil)}, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		}, ""},
		{"a user's ForeignCluster", remove(&corev1beta1.ForeignCluster{ObjectMeta: meta("", "naples", nil)}), "liqo.io/managed"},
		{"a user's Secret is read, as the documents say", func(ctx context.Context) error {
			return thief.Get(ctx, client.ObjectKey{Namespace: "default", Name: "password"}, new(corev1.Secret))
		}, ""},
		{"a Secret of ours", remove(&corev1.Secret{ObjectMeta: meta("default", "made", nil)}), ""},
	}

	// The same for each kind. Resizes and ResourceQuotas are in the roles of what is off here.
	more := &rbacv1.ClusterRole{ObjectMeta: meta("", "limits", nil), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods/resize", "resourcequotas"}, Verbs: []string{"create", "patch"}}}}
	bound := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta("", "limits", nil), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: more.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: controlplanetest.LiqoNamespace, Name: controlplanetest.Controller}},
	}
	if err := errors.Join(c.Client.Create(ctx, more), c.Client.Create(ctx, bound)); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "ServiceMonitors", func(ctx context.Context) error {
		if err := c.Client.Create(ctx, monitorKind()); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
		return c.Client.List(ctx, &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "monitoring.coreos.com/v1", Kind: "ServiceMonitor"}})
	})
	const theirs, system, cluster = "liqo.io/managed", "the cluster itself", ""
	all := map[string]struct {
		make    func(metav1.ObjectMeta) client.Object
		adopted string // why an object of somebody else gets no label
		deletes bool   // the role lets the controller
	}{
		"deployments": {func(m metav1.ObjectMeta) client.Object { return deployment(m) }, theirs, false},
		"endpointslices": {func(m metav1.ObjectMeta) client.Object {
			return &discoveryv1.EndpointSlice{ObjectMeta: m, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{}}
		}, theirs, true},
		"leases": {func(m metav1.ObjectMeta) client.Object { return &coordinationv1.Lease{ObjectMeta: m} }, theirs, false},
		"networkpolicies": {func(m metav1.ObjectMeta) client.Object {
			return &knetworkingv1.NetworkPolicy{ObjectMeta: m}
		}, theirs, true},
		"poddisruptionbudgets": {func(m metav1.ObjectMeta) client.Object { return &policyv1.PodDisruptionBudget{ObjectMeta: m} }, theirs, true},
		"resourcequotas":       {func(m metav1.ObjectMeta) client.Object { return &corev1.ResourceQuota{ObjectMeta: m} }, theirs, false},
		"rolebindings": {func(m metav1.ObjectMeta) client.Object {
			return &rbacv1.RoleBinding{ObjectMeta: m, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-gateway"}}
		}, theirs, true},
		"clusterrolebindings": {func(m metav1.ObjectMeta) client.Object {
			m.Namespace = cluster
			return &rbacv1.ClusterRoleBinding{ObjectMeta: m, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-gateway"}}
		}, theirs, true},
		"roles":           {func(m metav1.ObjectMeta) client.Object { return &rbacv1.Role{ObjectMeta: m} }, theirs, false},
		"secrets":         {func(m metav1.ObjectMeta) client.Object { return &corev1.Secret{ObjectMeta: m} }, "no Secret of somebody else", true},
		"serviceaccounts": {func(m metav1.ObjectMeta) client.Object { return &corev1.ServiceAccount{ObjectMeta: m} }, theirs, false},
		"servicemonitors": {func(m metav1.ObjectMeta) client.Object {
			o := new(unstructured.Unstructured)
			o.SetAPIVersion("monitoring.coreos.com/v1")
			o.SetKind("ServiceMonitor")
			o.SetNamespace(m.Namespace)
			o.SetName(m.Name)
			o.SetLabels(m.Labels)
			return o
		}, theirs, true},
		"services": {func(m metav1.ObjectMeta) client.Object {
			return &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		}, theirs, true},
	}
	merge := func(o client.Object, text string) func(context.Context) error {
		return func(ctx context.Context) error {
			return thief.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(text)))
		}
	}
	const note, unlabelled = `{"metadata":{"annotations":{"a":"b"}}}`, `{"metadata":{"labels":{"liqo.io/managed":null}}}`
	tested := []string{"foreignclusters", "pods", "pods/resize"} // above
	for _, name := range slices.Sorted(maps.Keys(all)) {
		tested = append(tested, name)
		kind := all[name]
		at := func(namespace, name string) client.Object { return kind.make(meta(namespace, name, nil)) }
		for _, o := range []client.Object{at("default", "limits-theirs"), kind.make(meta("kube-system", "limits-system", ours))} {
			c.Create(t, o)
		}
		rows = append(rows,
			row{name + ": one of ours is made", create(kind.make(meta("default", "limits-ours", ours))), ""},
			row{name + ": and changed", merge(at("default", "limits-ours"), note), ""},
			row{name + ": and has no label", merge(at("default", "limits-ours"), unlabelled), theirs},
			row{name + ": one without a label is made", create(at("default", "limits-evil")), theirs},
			row{name + ": that of a user gets our label", merge(at("default", "limits-theirs"), label), kind.adopted},
		)
		if kind.deletes {
			rows = append(rows,
				row{name + ": one of ours is deleted", remove(at("default", "limits-ours")), ""},
				row{name + ": that of a user is deleted", remove(at("default", "limits-theirs")), theirs},
			)
		}
		if at("kube-system", "").GetNamespace() == cluster {
			continue
		}
		rows = append(rows,
			row{name + ": one is made in kube-system", create(kind.make(meta("kube-system", "limits-evil", ours))), system},
			row{name + ": one in kube-system is changed", merge(at("kube-system", "limits-system"), note), system},
		)
		if kind.deletes {
			rows = append(rows, row{name + ": one in kube-system is deleted", remove(at("kube-system", "limits-system")), system})
		}
	}
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	if err := c.Client.Get(ctx, client.ObjectKey{Name: "controller.networking.liqo.io"}, &policy); err != nil {
		t.Fatal(err)
	}
	var judged []string
	for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
		judged = append(judged, rule.Resources...)
	}
	slices.Sort(judged)
	slices.Sort(tested)
	if diff := cmp.Diff(judged, tested); diff != "" {
		t.Errorf("kinds of the policy, and of this test (-policy +test):\n%s", diff)
	}

	for _, test := range rows {
		t.Run(test.name, func(t *testing.T) {
			// API servers begin to apply a policy a moment after it was made.
			controlplanetest.Eventually(t, "an answer of the policy", func(ctx context.Context) error {
				err := test.do(ctx)
				switch {
				case test.denied == "":
					return err
				case err == nil:
					return errors.New("it is done")
				case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
					if !strings.Contains(err.Error(), test.denied) {
						return err
					}
					return nil
				}
				return err
			})
		})
	}
}

// monitorKind is as much of the CRD of ServiceMonitors as the policy looks at.
func monitorKind() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "servicemonitors.monitoring.coreos.com"},
		"spec": map[string]any{
			"group": "monitoring.coreos.com", "scope": "Namespaced", "names": map[string]any{"kind": "ServiceMonitor", "plural": "servicemonitors"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		},
	}}
}
