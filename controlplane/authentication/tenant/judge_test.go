package tenant

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// consumer is a cluster that proves who it is.
type consumer struct {
	key    credentials.Key
	public []byte
}

func newConsumer(t *testing.T) consumer {
	t.Helper()
	k, err := credentials.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	public, err := k.MarshalPublic()
	if err != nil {
		t.Fatal(err)
	}
	return consumer{k, public}
}

func (c consumer) request(t *testing.T, s credentials.Subject) []byte {
	t.Helper()
	r, err := c.key.Request(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (c consumer) sign(t *testing.T, nonce []byte) []byte {
	t.Helper()
	s, err := c.key.Sign(nonce)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	peerLabels   = map[string]string{"liqo.io/remote-cluster-id": "rome"}
	tenantLabels = map[string]string{"liqo.io/remote-cluster-id": "rome", "liqo.io/tenant-namespace": "true"}
	created      = metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
)

// handshaken is a Tenant of cluster rome whose handshake is right.
func handshaken(t *testing.T) (facts, consumer) {
	t.Helper()
	c, nonce := newConsumer(t), credentials.NewNonce()
	return facts{
		own:       "milan",
		namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant-of-rome", Labels: tenantLabels}},
		nonce:     nonce,
		tenant: &authv1beta1.Tenant{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-of-rome", Name: "rome", Labels: peerLabels, UID: "1", CreationTimestamp: created},
			Spec: authv1beta1.TenantSpec{
				ClusterID: "rome", AuthzPolicy: authv1beta1.KeysExchange, TenantCondition: authv1beta1.TenantActive,
				PublicKey: c.public, CSR: c.request(t, credentials.ControlPlaneSubject("rome")), Signature: c.sign(t, nonce),
			},
		},
	}, c
}

func other(namespace, id string, uid types.UID, at metav1.Time) authv1beta1.Tenant {
	return authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "other", UID: uid, CreationTimestamp: at, Labels: map[string]string{"liqo.io/remote-cluster-id": id},
		},
		Spec: authv1beta1.TenantSpec{ClusterID: authv1beta1.ClusterID(id)},
	}
}

// tenantNamespaceOf is namespace elsewhere as that of a cluster.
func tenantNamespaceOf(id string) map[string]*corev1.Namespace {
	return map[string]*corev1.Namespace{"elsewhere": {ObjectMeta: metav1.ObjectMeta{
		Name: "elsewhere", Labels: map[string]string{"liqo.io/remote-cluster-id": id, "liqo.io/tenant-namespace": "true"},
	}}}
}

func TestJudge(t *testing.T) {
	earlier, later := metav1.NewTime(created.Add(-time.Hour)), metav1.NewTime(created.Add(time.Hour))
	for _, c := range []struct {
		name   string
		change func(*facts, consumer)
		reason string
		says   string
	}{
		{"a handshake", func(*facts, consumer) {}, authv1beta1.ReasonTenantReady, "rome"},
		{"a handshake with a key of another cluster", func(f *facts, _ consumer) { f.tenant.Spec.PublicKey = newConsumer(t).public }, authv1beta1.ReasonKeyMismatch, "key"},
		{"a replayed nonce", func(f *facts, _ consumer) { f.nonce, f.usedNonce = credentials.NewNonce(), f.nonce }, authv1beta1.ReasonNonceReplayed, "has served"},
		{"a nonce of somebody else", func(f *facts, _ consumer) { f.nonce = credentials.NewNonce() }, authv1beta1.ReasonSignatureInvalid, "liqo-nonce"},
		{"the signature of somebody else", func(f *facts, _ consumer) { f.tenant.Spec.Signature = newConsumer(t).sign(t, f.nonce) }, authv1beta1.ReasonSignatureInvalid, "generate tenant"},
		{"no signature", func(f *facts, _ consumer) { f.tenant.Spec.Signature = nil }, authv1beta1.ReasonSignatureInvalid, ""},
		{"no nonce", func(f *facts, _ consumer) { f.nonce = nil }, authv1beta1.ReasonNonceMissing, "create nonce"},
		{"a request of another tenant's name", func(f *facts, c consumer) {
			f.tenant.Spec.CSR = c.request(t, credentials.ControlPlaneSubject("naples"))
		}, authv1beta1.ReasonUserForbidden, "naples"},
		{"a request for system:masters", func(f *facts, c consumer) {
			f.tenant.Spec.CSR = c.request(t, credentials.Subject{CommonName: "rome", Organization: "system:masters"})
		}, authv1beta1.ReasonGroupForbidden, "system:masters"},
		{"a request for a user of another name", func(f *facts, c consumer) {
			f.tenant.Spec.CSR = c.request(t, credentials.Subject{CommonName: "system:admin", Organization: "liqo.io"})
		}, authv1beta1.ReasonUserForbidden, "system:admin"},
		{"no request", func(f *facts, _ consumer) { f.tenant.Spec.CSR = nil }, authv1beta1.ReasonRequestInvalid, "PEM"},
		{"no public key", func(f *facts, _ consumer) { f.tenant.Spec.PublicKey = nil }, authv1beta1.ReasonSignatureInvalid, "publicKey"},
		{"accepted before, and the nonce is gone", func(f *facts, _ consumer) { f.accepted, f.nonce = handshakeOf(f.tenant), nil }, authv1beta1.ReasonTenantReady, ""},
		{"another one was accepted before", func(f *facts, _ consumer) { f.accepted, f.nonce = "0123", nil }, authv1beta1.ReasonNonceMissing, ""},
		{"accepted for another Tenant", func(f *facts, _ consumer) {
			f.accepted, f.nonce = handshakeOf(f.tenant), nil
			f.tenant.UID = "2"
		}, authv1beta1.ReasonNonceMissing, ""},
		{"cordoned", func(f *facts, _ consumer) { f.tenant.Spec.TenantCondition = authv1beta1.TenantCordoned }, authv1beta1.ReasonTenantCordoned, "no more"},
		{"drained", func(f *facts, _ consumer) { f.tenant.Spec.TenantCondition = authv1beta1.TenantDrained }, authv1beta1.ReasonTenantDrained, "Active"},
		{"drained, with the signature of somebody else", func(f *facts, _ consumer) {
			f.tenant.Spec.TenantCondition, f.tenant.Spec.Signature = authv1beta1.TenantDrained, newConsumer(t).sign(t, f.nonce)
		}, authv1beta1.ReasonSignatureInvalid, ""},
		{"no handshake, no user", func(f *facts, _ consumer) { f.tenant.Spec.AuthzPolicy = authv1beta1.TolerateNoHandshake }, authv1beta1.ReasonRoleBindingMissing, "-n tenant-of-rome "},
		{"no handshake, but a user", func(f *facts, _ consumer) {
			f.tenant.Spec.AuthzPolicy = authv1beta1.TolerateNoHandshake
			f.bindings = []rbacv1.RoleBinding{{
				RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "liqo-remote-controlplane"},
				Subjects: []rbacv1.Subject{{Kind: "User", Name: "somebody of rome"}},
			}}
		}, authv1beta1.ReasonTenantReady, "somebody of rome"},
		{"no handshake, a user of another role", func(f *facts, _ consumer) {
			f.tenant.Spec.AuthzPolicy = authv1beta1.TolerateNoHandshake
			f.bindings = []rbacv1.RoleBinding{{RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "x"}}}}
		}, authv1beta1.ReasonRoleBindingMissing, ""},
		{"a namespace of another tenant", func(f *facts, _ consumer) {
			f.namespace.Labels = map[string]string{"liqo.io/remote-cluster-id": "naples", "liqo.io/tenant-namespace": "true"}
		}, authv1beta1.ReasonNamespaceInvalid, "naples"},
		{"a namespace that is no tenant's", func(f *facts, _ consumer) { f.namespace.Labels = peerLabels }, authv1beta1.ReasonNamespaceInvalid, "kubectl label namespace"},
		{"a namespace that is gone", func(f *facts, _ consumer) { f.namespace = nil }, authv1beta1.ReasonNamespaceInvalid, ""},
		{"a label of another cluster", func(f *facts, _ consumer) { f.tenant.Labels = map[string]string{"liqo.io/remote-cluster-id": "naples"} }, authv1beta1.ReasonClusterIDInvalid, "label"},
		{"this cluster itself", func(f *facts, _ consumer) { f.own = "rome" }, authv1beta1.ReasonClusterIDInvalid, "this cluster"},
		{"no cluster", func(f *facts, _ consumer) { f.tenant.Spec.ClusterID = "" }, authv1beta1.ReasonClusterIDInvalid, ""},
		{"an older Tenant for the cluster", func(f *facts, _ consumer) {
			f.others, f.elsewhere = []authv1beta1.Tenant{other("elsewhere", "rome", "0", earlier)}, tenantNamespaceOf("rome")
		}, authv1beta1.ReasonDuplicateTenant, "elsewhere/other"},
		{"an older Tenant for the cluster in the namespace of another one", func(f *facts, _ consumer) {
			f.others, f.elsewhere = []authv1beta1.Tenant{other("elsewhere", "rome", "0", earlier)}, tenantNamespaceOf("naples")
		}, authv1beta1.ReasonTenantReady, ""},
		{"the same, with the label of that one", func(f *facts, _ consumer) {
			f.others, f.elsewhere = []authv1beta1.Tenant{other("elsewhere", "rome", "0", earlier)}, tenantNamespaceOf("naples")
			f.others[0].Labels["liqo.io/remote-cluster-id"] = "naples"
		}, authv1beta1.ReasonTenantReady, ""},
		{"an older Tenant for the cluster in a namespace that is gone", func(f *facts, _ consumer) {
			f.others = []authv1beta1.Tenant{other("elsewhere", "rome", "0", earlier)}
		}, authv1beta1.ReasonTenantReady, ""},
		{"an older Tenant in the namespace", func(f *facts, _ consumer) {
			f.others = []authv1beta1.Tenant{other("tenant-of-rome", "naples", "0", earlier)}
		}, authv1beta1.ReasonDuplicateTenant, "naples"},
		{"a newer Tenant", func(f *facts, _ consumer) {
			f.others, f.elsewhere = []authv1beta1.Tenant{other("elsewhere", "rome", "2", later)}, tenantNamespaceOf("rome")
		}, authv1beta1.ReasonTenantReady, ""},
		{"Tenants of others, and itself", func(f *facts, _ consumer) {
			f.others = []authv1beta1.Tenant{other("elsewhere", "naples", "0", earlier), *f.tenant}
		}, authv1beta1.ReasonTenantReady, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, who := handshaken(t)
			c.change(&f, who)
			d := judge(f)
			if d.reason != c.reason || !strings.Contains(d.message, c.says) {
				t.Errorf("%s: %s; want %s: %s", d.reason, d.message, c.reason, c.says)
			}
			settled := d.ready() || d.reason == authv1beta1.ReasonTenantDrained
			if d.issue && (!settled || !d.authorized || d.handshake != handshakeOf(f.tenant)) {
				t.Errorf("a certificate is issued: %+v", d)
			}
			if !settled && d.authorized && d.reason != authv1beta1.ReasonRoleBindingMissing {
				t.Errorf("authorized: %+v", d)
			}
			if f.tenant.Spec.AuthzPolicy == authv1beta1.TolerateNoHandshake && d.issue {
				t.Error("a certificate is issued without a handshake")
			}
		})
	}
}

// TestUnlabelledRoleBindings: they are not watched, so they are looked at again.
func TestUnlabelledRoleBindings(t *testing.T) {
	binding := func(labels map[string]string) rbacv1.RoleBinding {
		return rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "liqo-remote-controlplane"},
			Subjects:   []rbacv1.Subject{{Kind: "User", Name: "somebody of rome"}},
		}
	}
	other := binding(nil)
	other.RoleRef.Name = "view"
	for _, c := range []struct {
		name     string
		bindings []rbacv1.RoleBinding
		want     time.Duration
	}{
		{"with the label", []rbacv1.RoleBinding{binding(peerLabels), other}, 0},
		{"without it", []rbacv1.RoleBinding{binding(nil)}, recheckUnlabelled},
		{"one of each", []rbacv1.RoleBinding{binding(nil), binding(peerLabels)}, recheckUnlabelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _ := handshaken(t)
			f.tenant.Spec.AuthzPolicy, f.bindings = authv1beta1.TolerateNoHandshake, c.bindings
			if d := judge(f); !d.ready() || d.again != c.want {
				t.Errorf("%s, again after %v; want %v", d.reason, d.again, c.want)
			}
		})
	}
}

// TestNonceServesOnce: what was accepted uses up the nonce; an interruption between the two is made good.
func TestNonceServesOnce(t *testing.T) {
	f, _ := handshaken(t)
	if d := judge(f); !d.useNonce {
		t.Error("the nonce stays after the handshake")
	}
	f.accepted = handshakeOf(f.tenant)
	if d := judge(f); !d.useNonce {
		t.Error("the nonce stays after an interruption")
	}
	f.nonce = credentials.NewNonce()
	if d := judge(f); d.useNonce {
		t.Error("the next nonce is used up too")
	}
}
