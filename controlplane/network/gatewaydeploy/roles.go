package gatewaydeploy

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// accountName is that of the service account of the pods.
func (g *gateway) accountName() string {
	pod := &g.deployment.Spec.Template.Spec
	name := cmp.Or(pod.ServiceAccountName, pod.DeprecatedServiceAccount)
	if name == "" || name == defaultAccount {
		return g.GetName()
	}
	return name
}

// accountDenied tells whether the pods must not run as the account that they name.
// Whoever may write a gateway may have no right to run pods: the account is lent by its
// owner, who labels it.
func (f *Facts) accountDenied() bool {
	return f.ForeignAccount && f.Account.Labels[networkingv1beta1.LabelGatewayResource] != networkingv1beta1.LabelTrue
}

// roles adds the service account, and what it may do.
func (f *Facts) roles(p *Plan) {
	g := f.Gateway
	if f.accountDenied() {
		p.Refused = append(p.Refused, refusal{f.Account, fmt.Sprintf(
			"it is not this gateway's, and is not allowed for gateways: label it %s=%s, or name another one in spec.deployment.spec.template.spec.serviceAccountName",
			networkingv1beta1.LabelGatewayResource, networkingv1beta1.LabelTrue)})
		return
	}
	if !f.ForeignAccount {
		p.Objects = append(p.Objects, &corev1.ServiceAccount{ObjectMeta: f.meta(g.accountName(), g.self())})
	}
	name := childName(g.GetName())
	p.Objects = append(p.Objects, &rbacv1.Role{ObjectMeta: f.meta(name, g.self()), Rules: f.rules()})

	inside := &rbacv1.RoleBinding{ObjectMeta: f.meta(name, g.self()), RoleRef: roleRef("Role", name), Subjects: f.subjects()}
	outside := &rbacv1.RoleBinding{ObjectMeta: f.outsideMeta(), RoleRef: roleRef("Role", f.role()), Subjects: f.subjects()}
	outside.Namespace = f.Options.LiqoNamespace
	cluster := &rbacv1.ClusterRoleBinding{ObjectMeta: f.outsideMeta(), RoleRef: roleRef("ClusterRole", f.role()), Subjects: f.subjects()}
	p.Objects = append(p.Objects, inside, outside, cluster)

	// A binding cannot be given another role.
	for i := range f.Bindings {
		b := &f.Bindings[i]
		if !bindingOf(inside, b) && !bindingOf(outside, b) {
			p.Delete = append(p.Delete, b)
		}
	}
	for i := range f.ClusterBindings {
		if b := &f.ClusterBindings[i]; (b.Name != cluster.Name || b.RoleRef != cluster.RoleRef) && !f.ofLiqo(b) {
			p.Delete = append(p.Delete, b)
		}
	}
}

// ofLiqo tells whether a binding is the one that Liqo's controllers made of the gateway, and will look for again.
func (f *Facts) ofLiqo(b *rbacv1.ClusterRoleBinding) bool {
	return f.role() != gatewayRole && b.RoleRef == roleRef("ClusterRole", gatewayRole)
}

func bindingOf(want, have *rbacv1.RoleBinding) bool {
	return client.ObjectKeyFromObject(want) == client.ObjectKeyFromObject(have) && want.RoleRef == have.RoleRef
}

// rules are what the gateway may do in its namespace: read what describes its
// peering, and write what is its own.
func (f *Facts) rules() []rbacv1.PolicyRule {
	g := f.Gateway
	group := []string{networkingv1beta1.GroupVersion.Group}
	read := []string{"get", "list", "watch"}
	rules := []rbacv1.PolicyRule{
		{APIGroups: group, Verbs: read, Resources: []string{
			"configurations", "connections", "firewallconfigurations", "gatewayclients", "gatewayservers",
			"genevetunnels", "internalfabrics", "publickeies",
		}},
		{APIGroups: group, Verbs: []string{"get", "patch", "update"}, Resources: []string{"connections/status"},
			ResourceNames: []string{childName(g.GetName())}},
		{APIGroups: group, Verbs: []string{"get", "patch"}, Resources: []string{"firewallconfigurations/status"}},
		{APIGroups: []string{"", "events.k8s.io"}, Verbs: []string{"create", "patch"}, Resources: []string{"events"}},
	}
	if f.Options.Services {
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: group, Verbs: read, Resources: []string{"exportedservices"}},
			rbacv1.PolicyRule{APIGroups: group, Verbs: []string{"get", "list", "watch", "create", "patch", "update", "delete"}, Resources: []string{"importedservices"}})
	}
	if f.elects() {
		// It need not create the Lease, so that it can be held to this one.
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{"coordination.k8s.io"}, Verbs: []string{"get", "list", "watch", "update", "patch"},
			Resources: []string{"leases"}, ResourceNames: []string{f.leaseName()},
		})
	}
	return rules
}

// outsideMeta is that of an object that no owner reference can reach.
func (f *Facts) outsideMeta() metav1.ObjectMeta {
	labels := f.labels()
	for k, v := range f.gatewayLabels() {
		labels[k] = v
	}
	return metav1.ObjectMeta{Name: bindingName(f.role(), f.Gateway.GetNamespace(), f.Gateway.GetName()), Labels: labels}
}

// role is the name of what every gateway may do outside its namespace.
func (f *Facts) role() string { return cmp.Or(f.Options.Role, gatewayRole) }

func (f *Facts) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: f.Gateway.accountName(), Namespace: f.Gateway.GetNamespace()}}
}

func roleRef(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}
