package authentication_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/test/credentialtest"
)

// TestOrders writes the objects of two users who make an identity by hand in every order that there is. One pair of
// clusters goes through all of them, each with other namespaces.
func TestOrders(t *testing.T) {
	t.Parallel()
	rome, milan := newSite(t, "rome", "milan", "rome-0"), newSite(t, "milan", "rome", "milan-0")
	milan.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-rome"}})
	kubeconfig := credentialtest.TokenKubeconfig(milan.ServiceAccount("default", "of-rome"))
	namespace := func(name, peer string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: peering(peer, "liqo.io/tenant-namespace", "true")}}
	}
	rome.Delete(t, namespace("rome-0", "milan"))
	milan.Delete(t, namespace("milan-0", "rome"))
	for i, order := range permutations("Secret", "ResourceSlice", "RoleBinding", "Tenant") {
		t.Run(strings.Join(order, " "), func(t *testing.T) {
			rome.t, milan.t = t, t
			rome.tenant, milan.tenant = fmt.Sprintf("rome-%d", i+1), fmt.Sprintf("milan-%d", i+1)
			objects := map[string]client.Object{
				"Secret": &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: rome.tenant, Name: "identity", Labels: peering("milan", "liqo.io/identity-type", "ControlPlane"),
						Annotations: map[string]string{"liqo.io/remote-tenant-namespace": milan.tenant},
					},
					Data: map[string][]byte{"kubeconfig": kubeconfig},
				},
				"ResourceSlice": slice(rome, "milan", "cpu", "1"),
				"RoleBinding": &rbacv1.RoleBinding{
					ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "of-rome", Labels: peering("rome")},
					RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-controlplane"},
					Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "of-rome"}},
				},
				"Tenant": &authv1beta1.Tenant{
					ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "rome", Labels: peering("rome")},
					Spec:       authv1beta1.TenantSpec{ClusterID: "rome", AuthzPolicy: authv1beta1.TolerateNoHandshake},
				},
			}
			site := map[string]*site{"Secret": rome, "ResourceSlice": rome, "RoleBinding": milan, "Tenant": milan}
			rome.Create(t, namespace(rome.tenant, "milan"))
			milan.Create(t, namespace(milan.tenant, "rome"))
			for _, kind := range order {
				site[kind].Create(t, objects[kind])
			}
			rome.sliceBecomes("milan", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
			for _, kind := range order {
				site[kind].Delete(t, objects[kind])
			}
			rome.Delete(t, namespace(rome.tenant, "milan"))
			milan.Delete(t, namespace(milan.tenant, "rome"))
		})
	}
}

// permutations returns all orders of some words.
func permutations(words ...string) (all [][]string) {
	if len(words) < 2 {
		return [][]string{words}
	}
	for i, first := range words {
		var others []string
		others = append(append(others, words[:i]...), words[i+1:]...)
		for _, rest := range permutations(others...) {
			all = append(all, append([]string{first}, rest...))
		}
	}
	return all
}
