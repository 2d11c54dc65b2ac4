package tenant

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// facts are what a decision on a Tenant is made of.
type facts struct {
	tenant *authv1beta1.Tenant
	// own is the ID of this cluster.
	own string
	// namespace is that of the Tenant.
	namespace *corev1.Namespace
	// others are all other Tenants, and elsewhere the namespaces of those for the same cluster, by their names.
	others    []authv1beta1.Tenant
	elsewhere map[string]*corev1.Namespace
	// nonce is the one that the consumer was given; empty: there is none. usedNonce is the one before, which has served.
	nonce, usedNonce []byte
	// accepted is the handshake that was accepted before; empty: none.
	accepted string
	// bindings are the RoleBindings of the namespace.
	bindings []rbacv1.RoleBinding
}

// decision says what a consumer gets.
type decision struct {
	reason, message string
	// authorized: the consumer is who it says, drained or not. Its namespace goes into the status.
	authorized bool
	// issue: it gets a certificate and a RoleBinding.
	issue bool
	// handshake is the proof that was accepted; not empty if issue is set.
	handshake string
	// useNonce: the nonce has served and must not serve again.
	useNonce bool
	// again is when to look again although nothing has changed that we hear of; zero: never.
	again time.Duration
	// quotaAgain is when to look at the quota of the consumer again; zero: never.
	quotaAgain time.Duration
}

func refuse(reason, format string, args ...any) decision {
	return decision{reason: reason, message: fmt.Sprintf(format, args...)}
}

// judge decides on a Tenant.
func judge(f facts) decision {
	t := f.tenant
	if d, ok := f.misplaced(); ok {
		return d
	}
	if t.Spec.AuthzPolicy == authv1beta1.TolerateNoHandshake {
		return f.withoutHandshake()
	}
	return f.withHandshake()
}

// misplaced tells whether the Tenant stands where it must not.
func (f facts) misplaced() (decision, bool) {
	t, id := f.tenant, string(f.tenant.Spec.ClusterID)
	switch {
	case len(validation.IsDNS1123Label(id)) > 0:
		return refuse(authv1beta1.ReasonClusterIDInvalid, "clusterID %q is not the ID of a cluster", text.Quoted(id)), true
	case id == f.own:
		return refuse(authv1beta1.ReasonClusterIDInvalid, "clusterID %s is that of this cluster: it must be the consumer's", id), true
	case t.Labels[networkingv1beta1.LabelRemoteClusterID] != id:
		return refuse(authv1beta1.ReasonClusterIDInvalid, "the label %s is %q; it must be %s, as clusterID is", networkingv1beta1.LabelRemoteClusterID, t.Labels[networkingv1beta1.LabelRemoteClusterID], id), true
	case f.namespace == nil || f.namespace.Labels[networkingv1beta1.LabelTenantNamespace] != networkingv1beta1.LabelTrue:
		return refuse(authv1beta1.ReasonNamespaceInvalid, "namespace %s is no tenant namespace: kubectl label namespace %[1]s %s=true %s=%s",
			t.Namespace, networkingv1beta1.LabelTenantNamespace, networkingv1beta1.LabelRemoteClusterID, id), true
	case f.namespace.Labels[networkingv1beta1.LabelRemoteClusterID] != id:
		return refuse(authv1beta1.ReasonNamespaceInvalid, "namespace %s belongs to cluster %q, not to %s: create the Tenant in a tenant namespace of that cluster",
			t.Namespace, f.namespace.Labels[networkingv1beta1.LabelRemoteClusterID], id), true
	}
	for i := range f.others {
		o := &f.others[i]
		if o.UID == t.UID || !f.rivals(o) || !older(o, t) {
			continue
		}
		return refuse(authv1beta1.ReasonDuplicateTenant, "Tenant %s/%s, which is older, is for cluster %s: delete one of them", o.Namespace, o.Name, o.Spec.ClusterID), true
	}
	return decision{}, false
}

// rivals tells whether there is room for only one of the Tenant and another one: both are in one namespace, or in tenant
// namespaces of one cluster. One for this cluster that stands in the namespace of another cluster is refused itself. It is in
// nobody's way: who may write in one tenant namespace does not decide about other clusters.
func (f facts) rivals(o *authv1beta1.Tenant) bool {
	if o.Namespace == f.tenant.Namespace {
		return true
	}
	id, n := string(f.tenant.Spec.ClusterID), f.elsewhere[o.Namespace]
	return claims(o, id) && n != nil && n.Labels[networkingv1beta1.LabelTenantNamespace] == networkingv1beta1.LabelTrue && n.Labels[networkingv1beta1.LabelRemoteClusterID] == id
}

// claims tells whether a Tenant says in both places that it is for a cluster.
func claims(t *authv1beta1.Tenant, id string) bool {
	return string(t.Spec.ClusterID) == id && t.Labels[networkingv1beta1.LabelRemoteClusterID] == id
}

func older(a, b *authv1beta1.Tenant) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID)) < 0
}

// withoutHandshake: the user vouches for the consumer.
func (f facts) withoutHandshake() decision {
	t := f.tenant
	if users, watched := f.users(); len(users) > 0 {
		d := f.ready("cluster %s acts as %s", t.Spec.ClusterID, strings.Join(users, ", "))
		d.authorized = true
		if !watched {
			d.again = recheckUnlabelled
		}
		return d
	}
	return decision{
		reason: authv1beta1.ReasonRoleBindingMissing, authorized: true,
		message: fmt.Sprintf("no user is bound to ClusterRole %s in this namespace, so cluster %s can ask for nothing: "+
			"liqoctl create tenant -n %[3]s --remote-cluster-id %[2]s --user NAME, the name in its certificate (CN)",
			authv1beta1.RemoteControlPlaneRole, t.Spec.ClusterID, t.Namespace),
	}
}

// users are those that the user of this cluster has bound to the consumer's role. watched: we hear when one of these
// RoleBindings changes.
func (f facts) users() (names []string, watched bool) {
	watched = true
	for _, b := range f.bindings {
		if b.RoleRef.Kind != "ClusterRole" || b.RoleRef.Name != authv1beta1.RemoteControlPlaneRole {
			continue
		}
		watched = watched && b.Labels[networkingv1beta1.LabelRemoteClusterID] != ""
		for _, s := range b.Subjects {
			name := s.Name
			if s.Kind == rbacv1.ServiceAccountKind {
				name = "system:serviceaccount:" + s.Namespace + ":" + s.Name
			}
			names = append(names, strings.ToLower(s.Kind)+" "+name)
		}
	}
	return names, watched
}

// withHandshake: the consumer proves that it has the key for which it wants a certificate.
func (f facts) withHandshake() decision {
	t := f.tenant
	public, err := credentials.ParsePublicKey(t.Spec.PublicKey)
	if err != nil {
		return refuse(authv1beta1.ReasonSignatureInvalid, "publicKey: %v", err)
	}
	if err := credentials.JudgeRequest(t.Spec.CSR, credentials.ControlPlaneSubject(string(t.Spec.ClusterID)), public); err != nil {
		return refuse(credentials.Reason(err), "csr: %v", err)
	}
	d := f.ready("cluster %s may ask for resources", t.Spec.ClusterID)
	d.authorized, d.issue, d.handshake = true, true, handshakeOf(t)
	if d.handshake == f.accepted {
		d.useNonce = len(f.nonce) > 0 && credentials.Verify(public, f.nonce, t.Spec.Signature) // we were interrupted
		return d
	}
	switch {
	case len(f.nonce) == 0:
		return refuse(authv1beta1.ReasonNonceMissing, "there is no nonce for cluster %s: create Secret %s with the label %s=%s (liqoctl create nonce --remote-cluster-id %[1]s), "+
			"then make the Tenant anew with what the consumer signs", t.Spec.ClusterID, authv1beta1.NonceSecret, authv1beta1.LabelNonce, networkingv1beta1.LabelTrue)
	case len(f.usedNonce) > 0 && credentials.Verify(public, f.usedNonce, t.Spec.Signature):
		return refuse(authv1beta1.ReasonNonceReplayed, "the signature is that of a nonce which has served, and serves once: "+
			"have the consumer sign the new one in Secret %s, and make the Tenant anew (liqoctl generate tenant)", authv1beta1.NonceSecret)
	case !credentials.Verify(public, f.nonce, t.Spec.Signature):
		return refuse(authv1beta1.ReasonSignatureInvalid, "the signature is not that of the nonce in Secret %s, which serves once, by the key of publicKey: "+
			"have the consumer sign it, and make the Tenant anew (liqoctl generate tenant)", authv1beta1.NonceSecret)
	}
	d.useNonce = true
	return d
}

// ready is the decision on a consumer that is who it says. One that is drained keeps the right to ask: by the answer it
// learns that it gets nothing.
func (f facts) ready(format string, args ...any) decision {
	t := f.tenant
	d := decision{reason: authv1beta1.ReasonTenantReady, message: fmt.Sprintf(format, args...)}
	switch t.Spec.TenantCondition {
	case authv1beta1.TenantCordoned:
		d.reason = authv1beta1.ReasonTenantCordoned
		d.message += fmt.Sprintf(", and no more resources are granted to it: tenantCondition is %s (liqoctl uncordon tenant %s)", t.Spec.TenantCondition, t.Name)
	case authv1beta1.TenantDrained:
		d.reason = authv1beta1.ReasonTenantDrained
		d.message = fmt.Sprintf("cluster %s has lost what it had here, and is refused what it asks for: set tenantCondition to %s to change that (liqoctl activate tenant %s)",
			t.Spec.ClusterID, authv1beta1.TenantActive, t.Name)
	}
	return d
}

// ready tells whether the condition is True.
func (d decision) ready() bool {
	return d.reason == authv1beta1.ReasonTenantReady || d.reason == authv1beta1.ReasonTenantCordoned
}

// handshakeOf names one proof: who, with which key, for which request, by which signature.
func handshakeOf(t *authv1beta1.Tenant) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(t.UID), t.Spec.PublicKey, t.Spec.CSR, t.Spec.Signature} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
