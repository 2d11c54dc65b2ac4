package release

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/kinds"
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

// TestReservedByUs: a hand-back takes Networks of the prefixes that the release reserves, as our controllers name them, and none
// from before the takeover. Others have the same marks.
func TestReservedByUs(t *testing.T) {
	begin := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	prefixes := []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("fd00:9::/48")}
	const name, prefix = "reserved-198-51-100-0-24", "198.51.100.0/24"
	for _, tt := range []struct {
		what, name string
		cidr       ipamv1alpha1.CIDR
		age        time.Duration // before the takeover
		release    string
		prefixes   []netip.Prefix
		want       bool
	}{
		{"ours", name, prefix, -time.Minute, "", prefixes, true},
		{"ours of IPv6", "reserved-fd00-9---48", "fd00:9::/48", -time.Minute, "", prefixes, true},
		{"Liqo's of before", name, prefix, time.Minute, "", prefixes, false},
		{"one that Liqo made between two takeovers", "reserved-192-0-2-0-24", "192.0.2.0/24", -time.Minute, "", prefixes, false},
		{"an administrator's of the same prefix", "lab", prefix, -time.Minute, "", prefixes, false},
		{"one of the same name", name, "192.0.2.0/24", -time.Minute, "", prefixes, false},
		{"one of a release", name, prefix, -time.Minute, "liqo", prefixes, false},
		{"any without Sluice's release", name, prefix, -time.Minute, "", nil, false},
	} {
		n := ipamv1alpha1.Network{Spec: ipamv1alpha1.NetworkSpec{CIDR: tt.cidr}}
		n.Name, n.CreationTimestamp = tt.name, metav1.NewTime(begin.Add(-tt.age))
		n.Labels = map[string]string{ipamv1alpha1.LabelNetworkType: ipamv1alpha1.NetworkTypeReserved, networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue}
		n.Annotations = map[string]string{networkingv1beta1.AnnotationPreinstalled: networkingv1beta1.LabelTrue, annotationReleaseName: tt.release}
		if got := reservedByUs([]ipamv1alpha1.Network{n}, begin, tt.prefixes); len(got) > 0 != tt.want {
			t.Errorf("%s: got %v, want %t", tt.what, got, tt.want)
		}
	}
}

// TestUnmark: what keeps our annotations keeps no hand-back from its end, and one line tells of it.
func TestUnmark(t *testing.T) {
	for _, tt := range []struct {
		name    string
		refused []string // changes of such objects
		away    bool     // the API server does not list Services
		over    bool     // the context has ended
		left    int
		warning string
	}{
		{name: "nothing is refused"},
		{name: "some changes are refused", refused: []string{"secret-0", "secret-1", "secret-2", "secret-4"}, left: 4,
			warning: "annotations of Sluice's controllers (networking.liqo.io/applied-hash, networking.liqo.io/service-account-uid) stay on " +
				"Secret liqo/secret-0, Secret liqo/secret-1, Secret liqo/secret-2 and 1 more, which does no harm: no webhook for secret-0"},
		{name: "the API server is away for a moment", away: true, warning: "stay on objects of kind Service, which does no harm"},
		{name: "the context has ended", refused: []string{"secret-0"}, over: true, left: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var secrets []client.Object
			for i := range 5 {
				secrets = append(secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: fmt.Sprintf("secret-%d", i),
					Labels:      map[string]string{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelGatewayName: "milan"},
					Annotations: map[string]string{apply.AnnotationHash: "h"}}})
			}
			c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(secrets...).Build(), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
					if tt.over {
						cancel()
					}
					if slices.Contains(tt.refused, o.GetName()) {
						return fmt.Errorf("no webhook for %s", o.GetName())
					}
					return c.Patch(ctx, o, p, options...)
				},
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if tt.away && list.GetObjectKind().GroupVersionKind().Kind == "ServiceList" {
						return fmt.Errorf("no answer to %T", list)
					}
					return c.List(ctx, list, options...)
				},
			})
			var told []string
			h := &HandBack{Removal: &Removal{cluster: &access.Cluster{Client: c}, tell: func(e progress.Event) { told = append(told, e.Text) }}}
			if err := h.unmark(ctx); (err != nil) != tt.over {
				t.Errorf("it ends with %v", err)
			}
			if got := strings.Join(told, "\n"); !strings.Contains(got, tt.warning) || tt.warning == "" && got != "" || len(told) > 1 {
				t.Errorf("told %q, want %q", got, tt.warning)
			}
			var all corev1.SecretList
			if err := c.List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			left := 0
			for _, s := range all.Items {
				left += len(s.Annotations)
			}
			if left != tt.left {
				t.Errorf("%d annotations are left, want %d", left, tt.left)
			}
		})
	}
}
