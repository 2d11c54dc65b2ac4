package apply_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

const (
	ourUID, theirUID types.UID = "1111", "2222"
	managed                    = "liqo.io/managed"
)

func controlledBy(uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: "Thing", Name: "thing", UID: uid, Controller: new(true)}}
}

func TestOurs(t *testing.T) {
	yes := map[string]string{managed: "true"}
	for _, test := range []struct {
		name  string
		live  client.Object
		owner types.UID // "": none
		want  bool
	}{
		{"controlled by the owner", &corev1.Service{ObjectMeta: metav1.ObjectMeta{OwnerReferences: controlledBy(ourUID)}}, ourUID, true},
		{"controlled by another one, labelled", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: yes, OwnerReferences: controlledBy(theirUID)}}, ourUID, false},
		{"controlled, for no owner", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: yes, OwnerReferences: controlledBy(theirUID)}}, "", false},
		{"left behind by its owner", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: yes}}, ourUID, true},
		{"labelled, for no owner", &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Labels: yes}}, "", true},
		{"labelled otherwise", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{managed: "false"}}}, ourUID, false},
		{"a user's", new(corev1.Service), ourUID, false},
		{"a user's, for no owner", new(rbacv1.ClusterRoleBinding), "", false},
		{"of a kind of this project", new(networkingv1beta1.InternalNode), "", true},
		{"of a kind of this project, controlled", &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{OwnerReferences: controlledBy(theirUID)}}, ourUID, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var owner *metav1.OwnerReference
			if test.owner != "" {
				owner = &controlledBy(test.owner)[0]
			}
			if got := apply.Ours(kinds.Scheme(), test.live, owner); got != test.want {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestForeign lets the controllers want objects under names that a user took: of
// every kind that gateways consist of, none is written or deleted.
func TestForeign(t *testing.T) {
	c := controlplanetest.Start(t)
	ctx := context.Background()
	meta := metav1.ObjectMeta{Name: "gw-a", Namespace: "default"}
	cluster := metav1.ObjectMeta{Name: "liqo-gateway-default-a"}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
	d := deployment("1")
	d.ObjectMeta = meta
	for _, theirs := range []client.Object{
		d,
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.Role{ObjectMeta: meta},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: role},
		&rbacv1.ClusterRoleBinding{ObjectMeta: cluster, RoleRef: role},
		&networkingv1.NetworkPolicy{ObjectMeta: meta},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta},
	} {
		want, ok := theirs.DeepCopyObject().(client.Object)
		if !ok {
			t.Fatalf("%T", theirs)
		}
		want.SetLabels(map[string]string{managed: "true"})
		if want.GetNamespace() != "" {
			want.SetOwnerReferences(controlledBy(ourUID))
		}
		c.Create(t, theirs)
		// A cache that holds only what is ours sees nothing.
		blind := blindTo{c.Client}
		wrote, err := apply.Object(ctx, blind, c.Client, want)
		if foreign := new(apply.ForeignError); wrote || !errors.As(err, &foreign) {
			t.Errorf("%T: wrote %v, %v", theirs, wrote, err)
		}
		if message, refused := apply.Refusal(err); !refused || message == "" {
			t.Errorf("%T: no refusal: %v", theirs, err)
		}
		owner := metav1.GetControllerOf(want)
		if err := apply.DeleteOurs(ctx, c.Client, theirs, owner); err != nil {
			t.Errorf("%T: delete: %v", theirs, err)
		}
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(theirs), theirs); err != nil {
			t.Errorf("%T: %v", theirs, err)
		}
		for _, by := range theirs.GetManagedFields() {
			if by.Manager == apply.FieldOwner {
				t.Errorf("%T has fields of ours", theirs)
			}
		}
		if len(theirs.GetLabels())+len(theirs.GetOwnerReferences()) > 0 {
			t.Errorf("%T: labels %v, owners %v", theirs, theirs.GetLabels(), theirs.GetOwnerReferences())
		}
	}
	t.Run("another gateway's binding", func(t *testing.T) {
		binding := func(gateway string) client.Object {
			return &rbacv1.ClusterRoleBinding{RoleRef: role, ObjectMeta: metav1.ObjectMeta{Name: "shared", Labels: map[string]string{
				managed: "true", networkingv1beta1.LabelGatewayName: gateway, networkingv1beta1.LabelGatewayNamespace: "default",
			}}}
		}
		if _, err := apply.Object(ctx, c.Client, nil, binding("a")); err != nil {
			t.Fatal(err)
		}
		wrote, err := apply.Object(ctx, c.Client, nil, binding("b"))
		if foreign := new(apply.ForeignError); wrote || !errors.As(err, &foreign) {
			t.Errorf("wrote %v, %v", wrote, err)
		}
	})
	t.Run("what an earlier owner of the same name left goes by itself", func(t *testing.T) {
		of := func(uid types.UID, data string) *corev1.ConfigMap {
			return &corev1.ConfigMap{Data: map[string]string{"a": data}, ObjectMeta: metav1.ObjectMeta{
				Name: "left", Namespace: "default", Labels: map[string]string{managed: "true"}, OwnerReferences: controlledBy(uid),
			}}
		}
		// Its collector may be as fast as this test.
		if wrote, err := apply.Object(ctx, ofEarlier{c.Client, of(theirUID, "old")}, nil, of(ourUID, "new")); wrote || err != nil {
			t.Errorf("wrote %v, %v", wrote, err)
		}
	})
	t.Run("another object of the name that was judged", func(t *testing.T) {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", Labels: map[string]string{managed: "true"}}}
		c.Create(t, m)
		judged := m.DeepCopy()
		judged.UID = "of-an-earlier-one"
		if err := apply.Delete(ctx, c.Client, judged); err == nil {
			t.Error("deleted")
		}
	})
}

// ofEarlier is a client whose reads find one ConfigMap.
type ofEarlier struct {
	client.Client
	found *corev1.ConfigMap
}

// Get implements client.Client.
func (c ofEarlier) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	c.found.DeepCopyInto(o.(*corev1.ConfigMap))
	return nil
}

// blindTo is a client whose reads find nothing.
type blindTo struct{ client.Client }

// Get implements client.Client.
func (blindTo) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// patched is a client that counts what is patched, and checks how.
type patched struct {
	client.Client
	t     *testing.T
	count int
}

// Scheme implements client.Client.
func (*patched) Scheme() *runtime.Scheme { return kinds.Scheme() }

// Patch implements client.Client.
func (p *patched) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	p.count++
	if data, err := patch.Data(o); err != nil || !strings.Contains(string(data), `"resourceVersion":"7"`) {
		p.t.Errorf("the patch would overwrite what others have changed since: %s, %v", data, err)
	}
	return nil
}

func TestTieTo(t *testing.T) {
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "owner", UID: ourUID}}
	tied := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: ourUID}}
	mark := func(o client.Object) func() { return func() { o.SetAnnotations(map[string]string{"marked": "yes"}) } }
	for _, tt := range []struct {
		name   string
		has    []metav1.OwnerReference
		marked bool
		writes int
	}{
		{"it has no owner", nil, false, 1},
		{"another would keep it", slices.Concat(tied, controlledBy(theirUID)), true, 1},
		{"the mark is missing", tied, false, 1},
		{"all is as it should be", tied, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "s", ResourceVersion: "7", OwnerReferences: tt.has}}
			if tt.marked {
				mark(o)()
			}
			c := &patched{t: t}
			if err := apply.TieTo(t.Context(), c, owner, o, mark(o)); err != nil || c.count != tt.writes {
				t.Errorf("%d writes, %v; want %d", c.count, err, tt.writes)
			}
			if !equality.Semantic.DeepEqual(o.OwnerReferences, tied) || o.Annotations["marked"] != "yes" {
				t.Errorf("%+v", o.ObjectMeta)
			}
		})
	}
}
