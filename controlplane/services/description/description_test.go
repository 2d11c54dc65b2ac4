package description_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/services/description"
)

func TestAllows(t *testing.T) {
	for list, want := range map[string]bool{
		"": false, "shop": true, "shop/*": true, "shop/web": true, "*": true, "*/*": true, "*/web": true, "db , shop/w*": true,
		"shop/db": false, "sho": false, "shop/": false, "/web": false, "tier=public": true, "db, example.org/team=a": true, "tier=": false, "tier=*": false, "empty=": true, "no=": false, "=": false,
		"[": false, "[,shop": true, "shop/web/x": false, ",": false,
	} {
		c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": list}}}
		if got := description.Allows(c, "a", "shop", "web", map[string]string{"tier": "public", "example.org/team": "a", "empty": ""}); got != want {
			t.Errorf("%q: %t", list, got)
		}
	}
	if !description.Allows(new(networkingv1beta1.Configuration), "a", "shop", "web", nil) {
		t.Error("without the annotation")
	}
}

func TestCreatesNamespace(t *testing.T) {
	for _, test := range []struct {
		list, namespace string
		want            bool
	}{
		{"", "shop", false}, {"db, shop", "shop", true}, {"sho*", "shop", true}, {"*", "shop", true}, {"db", "shop", false}, {"[", "shop", false},
		{"*", "kube-next", false}, {"kube-next", "kube-next", false}, {"*", "liqo-tenant-turin", false}, {"*", "liquid", true},
		{"*", "openshift-dns", false}, {"*", "net", false}, {"*", "net-fabric", false},
	} {
		c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"liqo.io/create-namespaces": test.list}}}
		if got := description.CreatesNamespace(c, test.namespace, "net"); got != test.want {
			t.Errorf("%q, %s: %t", test.list, test.namespace, got)
		}
	}
	if description.CreatesNamespace(new(networkingv1beta1.Configuration), "shop", "net") {
		t.Error("without the annotation")
	}
}

func TestReserved(t *testing.T) {
	tenant := map[string]string{networkingv1beta1.LabelTenantNamespace: "true"}
	for _, tt := range []struct {
		namespace, name string
		labels          map[string]string
		reserved        bool
	}{
		{"shop", "web", nil, false},
		{"default", "web", nil, false},
		{"default", "kubernetes", nil, true},
		{"kube-system", "kube-dns", nil, true},
		{"net", "web", nil, true},
		{"net-fabric", "web", nil, true},
		{"liqo-fabric", "web", nil, false}, // of no installation here
		{"liqo-tenant-milan", "web", tenant, true},
	} {
		if why := description.Reserved(tt.namespace, tt.name, "net", tt.labels); (why != "") != tt.reserved {
			t.Errorf("%s/%s: %q", tt.namespace, tt.name, why)
		}
	}
}
