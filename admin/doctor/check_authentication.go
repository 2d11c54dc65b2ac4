package doctor

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// authentication judges the identities of one end: the Tenant of the other cluster here, and the Secret by which this
// one asks there. What only the other API server knows, its events tell.
func authentication(e *end) (out []Finding) {
	for _, err := range []error{e.tenants.err, e.secrets.err} {
		if err != nil {
			return []Finding{skip("%s", plain(err))}
		}
	}
	seen := 0
	for i := range e.tenants.items {
		if t := &e.tenants.items[i]; string(t.Spec.ClusterID) == e.id {
			seen++
			out = append(out, tenantFindings(t)...)
		}
	}
	for i := range e.secrets.items {
		seen++
		out = append(out, e.identityFindings(&e.secrets.items[i])...)
	}
	switch {
	case len(out) > 0:
		return out
	case seen == 0:
		return []Finding{pass("no identities")}
	}
	return []Finding{pass("identities are ready")}
}

func tenantFindings(t *authv1beta1.Tenant) []Finding {
	on := func(f Finding) []Finding { return []Finding{f.on("Tenant " + t.Namespace + "/" + t.Name)} }
	id := t.Spec.ClusterID
	switch t.Spec.TenantCondition {
	case authv1beta1.TenantCordoned:
		return on(fail("cluster %s is cordoned: it keeps what it has, and gets no more", id).
			because("spec.tenantCondition is %s", t.Spec.TenantCondition).fix("if that is not wanted any more: liqoctl uncordon tenant %s", t.Name))
	case authv1beta1.TenantDrained:
		return on(fail("cluster %s is drained: it has nothing, and may not ask", id).
			because("spec.tenantCondition is %s", t.Spec.TenantCondition).fix("if that is not wanted any more: liqoctl activate tenant %s", t.Name))
	}
	c := meta.FindStatusCondition(t.Status.Conditions, authv1beta1.ConditionReady)
	switch {
	case c == nil || c.ObservedGeneration < t.Generation:
		return on(fail("no controller has looked at it").because("the controller does not run, or authentication is not enabled").
			fix("liqoctl install --set authentication.enabled=true"))
	case c.Status == metav1.ConditionTrue:
		return nil
	case c.Reason == authv1beta1.ReasonRoleBindingMissing:
		return on(fail("%s", c.Message).because("with authzPolicy %s the rights are given by hand, and no user has them", t.Spec.AuthzPolicy).
			fix("%s", bind(t.Namespace, "USER")))
	}
	return on(fail("%s", c.Message).because("the controller says %s", c.Reason).fix("mend what it names; liqoctl authenticate makes all of it anew"))
}

// bind is the command by which a provider gives a user the rights of a consumer.
func bind(namespace, user string) string {
	return fmt.Sprintf("kubectl -n %s create rolebinding %s --clusterrole=%[2]s --user=%s", namespace, authv1beta1.RemoteControlPlaneRole, user)
}

func (e *end) identityFindings(s *corev1.Secret) []Finding {
	on := func(f Finding) []Finding { return []Finding{f.on("Secret " + s.Namespace + "/" + s.Name)} }
	there := s.Annotations[authv1beta1.AnnotationRemoteTenantNamespace]
	if there == "" {
		return on(fail("it lacks the annotation %s", authv1beta1.AnnotationRemoteTenantNamespace).
			because("the controller does not know in which namespace of cluster %s it may ask", e.id).
			fix("kubectl -n %s annotate secret %s %s=NAMESPACE", s.Namespace, s.Name, authv1beta1.AnnotationRemoteTenantNamespace))
	}
	const anew = "put another kubeconfig into it, with its credentials inside; 'liqoctl authenticate' makes one"
	config, err := credentials.ReadKubeconfig(s.Data[authv1beta1.KubeconfigKey])
	if err != nil {
		return on(fail("its kubeconfig cannot be used: %v", err).because("the controller runs no program and reads no file of a kubeconfig").fix(anew))
	}
	user := "USER"
	if len(config.CertData) > 0 {
		c, err := credentials.ParseCertificate(config.CertData)
		if err != nil {
			return on(fail("the client certificate of its kubeconfig cannot be used: %v", err).because("something was cut, or encoded twice").fix(anew))
		}
		if user = c.Subject.CommonName; !e.now.Before(c.NotAfter) {
			return on(fail("its client certificate was valid until %s", c.NotAfter.UTC().Format("2006-01-02 15:04 MST")).
				because("one that a handshake made is renewed in good time while both controllers reach the API server of %s; one made by hand is not", e.id).fix(anew))
		}
	}
	for i := range e.cluster.events.items { // the newest first
		ev := &e.cluster.events.items[i]
		if o := ev.InvolvedObject; o.Kind != "Secret" || o.Namespace != s.Namespace || o.Name != s.Name {
			continue
		}
		switch ev.Reason {
		case authv1beta1.ReasonReplicating:
			return nil
		case authv1beta1.ReasonRoleBindingMissing:
			return on(fail("cluster %s denies access to its namespace %s", e.id, there).
				because("no RoleBinding there, or one for another user, binds the user of the kubeconfig to ClusterRole %s; or the namespace is another one", authv1beta1.RemoteControlPlaneRole).
				fix("in cluster %s: %s", e.id, bind(there, user)))
		case authv1beta1.ReasonCredentialsRefused:
			return on(fail("cluster %s does not accept the credentials of its kubeconfig", e.id).
				because("they were revoked, or are those of another cluster").fix(anew))
		case authv1beta1.ReasonAPIServerUnreachable:
			return on(fail("the controller does not reach the API server of cluster %s, %s: %s", e.id, config.Host, ev.Message).
				because("it is down, or its address is not reachable from the pods of this cluster").
				fix("in cluster %s, set apiServer.address to one that is, and run 'liqoctl authenticate' again; or name a proxy with --proxy-url", e.id))
		case authv1beta1.ReasonNameTaken, authv1beta1.ReasonDuplicateIdentity:
			return on(fail("%s", ev.Message).because("the controller says %s", ev.Reason).fix("rename or delete one of them"))
		}
	}
	return nil
}
