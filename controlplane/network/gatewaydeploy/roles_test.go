package gatewaydeploy

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestAccountIsNeverTheDefaultOne(t *testing.T) {
	for given, want := range map[string]string{"": "a", "default": "a", "mine": "mine"} {
		f := serverFacts()
		f.Gateway.deployment.Spec.Template.Spec.ServiceAccountName = given
		p := Build(f)
		if found[corev1.ServiceAccount](p.Objects, want) == nil {
			t.Errorf("given %q: no account %q", given, want)
		}
		for _, name := range []string{"gw-a", "liqo-gateway-t-a"} {
			b := found[rbacv1.RoleBinding](p.Objects, name)
			if s := b.Subjects; len(s) != 1 || s[0].Kind != "ServiceAccount" || s[0].Name != want || s[0].Namespace != "t" {
				t.Errorf("given %q: %s binds %v", given, name, s)
			}
		}
		d := Build(f).Objects
		if got := d[len(d)-1].(interface{ GetName() string }).GetName(); got != "gw-a" {
			t.Errorf("the Deployment is not last but %s", got)
		}
	}
}

func TestForeignAccountIsUsedAndNotTouched(t *testing.T) {
	f := serverFacts()
	f.Gateway.deployment.Spec.Template.Spec.ServiceAccountName = "shared"
	f.ForeignAccount = true
	f.Account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}
	p := Build(f)
	if len(p.Refused) != 1 || found[rbacv1.ClusterRoleBinding](p.Objects, "liqo-gateway-t-a") != nil || found[appsv1.Deployment](p.Objects, "gw-a") != nil {
		t.Errorf("uses an account that nobody lent: refused %v", p.Refused)
	}
	f.Account.Labels = map[string]string{networkingv1beta1.LabelGatewayResource: "true"}
	p = Build(f)
	if found[corev1.ServiceAccount](p.Objects, "shared") != nil {
		t.Error("changes an account of somebody else")
	}
	if b := found[rbacv1.ClusterRoleBinding](p.Objects, "liqo-gateway-t-a"); b.Subjects[0].Name != "shared" {
		t.Errorf("binds %v", b.Subjects)
	}
}

func TestRulesNameWhatTheyCan(t *testing.T) {
	f := serverFacts()
	rule := func(resource string) *rbacv1.PolicyRule {
		rules := f.rules()
		i := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, resource) })
		if i < 0 {
			return nil
		}
		return &rules[i]
	}
	if r := rule("connections/status"); !slices.Equal(r.ResourceNames, []string{"gw-a"}) {
		t.Errorf("connections/status of %v", r.ResourceNames)
	}
	if rule("leases") != nil {
		t.Error("a single replica gets a Lease")
	}
	f.Gateway.deployment.Spec.Replicas = new(int32(2))
	if r := rule("leases"); r == nil || !slices.Equal(r.ResourceNames, []string{"a.t.server.connections.liqo.io"}) || slices.Contains(r.Verbs, "create") {
		t.Errorf("several replicas get %v", r)
	}
	for _, kind := range []string{"exportedservices", "importedservices"} {
		if r := rule(kind); r != nil {
			t.Errorf("without services: %v", r)
		}
	}
	f.Options.Services = true
	if r := rule("exportedservices"); r == nil || slices.Contains(r.Verbs, "create") {
		t.Errorf("exportedservices: %v", r)
	}
	if r := rule("importedservices"); r == nil || !slices.Contains(r.Verbs, "create") {
		t.Errorf("importedservices: %v", r)
	}
	for _, never := range []string{"secrets", "pods", "configmaps", "services", "nodes", "*"} {
		if r := rule(never); r != nil {
			t.Errorf("%s: %v", never, r)
		}
	}
}

// In a cluster of Liqo its role of gateways is not ours, and its binding is left for it.
func TestAnotherGatewayRole(t *testing.T) {
	f := serverFacts()
	liqos := *found[rbacv1.ClusterRoleBinding](Build(f).Objects, "liqo-gateway-t-a")
	f.Options.Role, f.ClusterBindings = "sluice-gateway", []rbacv1.ClusterRoleBinding{liqos}
	p := Build(f)
	inLiqo, cluster := found[rbacv1.RoleBinding](p.Objects, "sluice-gateway-t-a"), found[rbacv1.ClusterRoleBinding](p.Objects, "sluice-gateway-t-a")
	if inLiqo == nil || inLiqo.RoleRef.Name != "sluice-gateway" || cluster == nil || cluster.RoleRef.Name != "sluice-gateway" {
		t.Errorf("bindings %v, %v", inLiqo, cluster)
	}
	if len(p.Delete) > 0 {
		t.Errorf("deletes %v", p.Delete)
	}
}

func TestBindingsOfAnotherRoleOrNameGo(t *testing.T) {
	f := serverFacts()
	p := Build(f)
	inside, outside := found[rbacv1.RoleBinding](p.Objects, "gw-a"), found[rbacv1.RoleBinding](p.Objects, "liqo-gateway-t-a")
	cluster := found[rbacv1.ClusterRoleBinding](p.Objects, "liqo-gateway-t-a")

	f.Bindings = []rbacv1.RoleBinding{*inside, *outside}
	f.ClusterBindings = []rbacv1.ClusterRoleBinding{*cluster}
	if p := Build(f); len(p.Delete) > 0 {
		t.Fatalf("deletes what is right: %v", p.Delete)
	}

	other := *outside
	other.Name = "an-old-name"
	f.Bindings[0].RoleRef.Name = "admin"
	f.Bindings = append(f.Bindings, other)
	f.ClusterBindings[0].RoleRef.Name = "cluster-admin"
	var got []string
	for _, o := range Build(f).Delete {
		got = append(got, kindOf(o)+" "+client.ObjectKeyFromObject(o).String())
	}
	want := []string{"RoleBinding t/gw-a", "RoleBinding liqo/an-old-name", "ClusterRoleBinding /liqo-gateway-t-a"}
	if !slices.Equal(got, want) {
		t.Errorf("deletes %v, want %v", got, want)
	}
}
