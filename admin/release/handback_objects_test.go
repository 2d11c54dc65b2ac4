package release

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// TestMadeByOurs: a hand-back takes what was made for gateways, and leaves rights of other clusters and of virtual kubelets.
func TestMadeByOurs(t *testing.T) {
	ours := map[string]string{apply.AnnotationHash: "h"}
	for _, tt := range []struct {
		name                string
		labels, annotations map[string]string
		owner               string
		want                bool
	}{
		{"labelled as of a gateway", map[string]string{networkingv1beta1.LabelGatewayName: "milan"}, ours, "", true},
		{"owned by a gateway", nil, ours, "networking.liqo.io/v1beta1", true},
		{"of a gateway, and Liqo's", map[string]string{networkingv1beta1.LabelGatewayName: "milan"}, nil, "", false},
		{"of a Tenant", nil, ours, "authentication.liqo.io/v1beta1", false},
		{"of nothing", nil, ours, "", false},
	} {
		b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: tt.labels, Annotations: tt.annotations}}
		if tt.owner != "" {
			b.OwnerReferences = []metav1.OwnerReference{{APIVersion: tt.owner}}
		}
		if got := madeByOurs(b); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}

// TestOutdated: what Liqo has made of IPs goes when one of them is gone, or has another address. The rest stays.
func TestOutdated(t *testing.T) {
	ips := []ipamv1alpha1.IP{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}, Spec: ipamv1alpha1.IPSpec{IP: "10.60.1.5"}, Status: ipamv1alpha1.IPStatus{IP: "10.70.0.9"}}}
	rule := func(name, to, match string) networkingv1beta1.NATRule {
		return networkingv1beta1.NATRule{Name: name, To: to, Match: []networkingv1beta1.Match{{IP: &networkingv1beta1.MatchIP{Value: match}}}}
	}
	in, out := rule("db-0", "10.60.1.5", "10.70.0.9"), rule("db-0", "", "10.60.1.5") // masqueraded
	for _, tt := range []struct {
		name, namespace, subcategory, release string
		rules                                 []networkingv1beta1.NATRule
		want                                  bool
	}{
		{"db-0-remap-ipmapping-gw", "shop", "ip-mapping", "", []networkingv1beta1.NATRule{in}, false},
		{"db-0-remap-ipmapping-fabric", "shop", "ip-mapping", "", []networkingv1beta1.NATRule{in, out}, false},
		{"db-1-remap-ipmapping-gw", "shop", "ip-mapping", "", []networkingv1beta1.NATRule{rule("db-1", "10.60.1.6", "10.70.0.10")}, true},
		{"db-0-remap-ipmapping-gw", "other", "ip-mapping", "", []networkingv1beta1.NATRule{in}, true},
		{"db-0-remap-ipmapping-gw", "shop", "ip-mapping", "", []networkingv1beta1.NATRule{rule("db-0", "10.60.1.5", "10.70.0.8")}, true},
		{"db-0-remap-ipmapping-gw", "shop", "ip-mapping", "", []networkingv1beta1.NATRule{rule("db-0", "10.60.1.4", "10.70.0.9")}, true},
		{"remap-ipmapping-gw", "shop", "ip-mapping", "", []networkingv1beta1.NATRule{in, rule("db-1", "10.60.1.6", "10.70.0.10")}, true}, // of all IPs, as in Liqo 1.0
		{"db-1-remap-ipmapping-gw", "shop", "all-gateways", "", []networkingv1beta1.NATRule{rule("db-1", "10.60.1.6", "10.70.0.10")}, false},
		{"db-1-remap-ipmapping-gw", "shop", "ip-mapping", "users", []networkingv1beta1.NATRule{rule("db-1", "10.60.1.6", "10.70.0.10")}, false},
		{"mine", "shop", "ip-mapping", "", []networkingv1beta1.NATRule{rule("db-1", "10.60.1.6", "10.70.0.10")}, false},
	} {
		f := networkingv1beta1.FirewallConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: tt.namespace, Name: tt.name,
			Labels: map[string]string{networkingv1beta1.LabelFirewallSubcategory: tt.subcategory}, Annotations: map[string]string{annotationReleaseName: tt.release}}}
		f.Spec.Table.Chains = []networkingv1beta1.FirewallChain{{Rules: networkingv1beta1.FirewallRules{NATRules: tt.rules}}}
		if got := outdated([]networkingv1beta1.FirewallConfiguration{f}, ips); len(got) > 0 != tt.want {
			t.Errorf("%s/%s, %s, of release %q, with the rules %+v: got %v, want %t", tt.namespace, tt.name, tt.subcategory, tt.release, tt.rules, got, tt.want)
		}
	}
}
