package peering

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func serverIn(namespace, name string, age time.Duration) *gateway {
	return serverGateway(&networkingv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
	}})
}

func configurationIn(namespace string) networkingv1beta1.Configuration {
	return networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}}
}

func tenant(name string, age time.Duration) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
		Labels: map[string]string{networkingv1beta1.LabelTenantNamespace: "true", networkingv1beta1.LabelRemoteClusterID: "milan"},
	}}
}

func ending(n corev1.Namespace) corev1.Namespace {
	n.DeletionTimestamp = new(metav1.Now())
	return n
}

func TestTenantNamespace(t *testing.T) {
	const own = "liqo-tenant-milan"
	for _, tt := range []struct {
		name    string
		given   string
		found   found
		want    string
		wantErr string
	}{
		{name: "nothing at all", want: own},
		{name: "the user named one", given: "mine", found: found{namespaces: []corev1.Namespace{tenant(own, 0)}}, want: "mine"},
		{name: "a labelled one", found: found{namespaces: []corev1.Namespace{tenant("suppliers", 0)}}, want: "suppliers"},
		{name: "several labelled, one with the usual name", found: found{namespaces: []corev1.Namespace{tenant("a", time.Hour), tenant(own, 0)}}, want: own},
		{name: "several labelled: the oldest", found: found{namespaces: []corev1.Namespace{tenant("a", 0), tenant("b", time.Hour)}}, want: "b"},
		{name: "a labelled one that is being deleted", found: found{namespaces: []corev1.Namespace{ending(tenant("suppliers", 0))}}, want: own},
		{name: "a gateway elsewhere counts more than a label", found: found{namespaces: []corev1.Namespace{tenant(own, 0)}, servers: []*gateway{serverIn("default", "s", 0)}}, want: "default"},
		{name: "a gateway counts more than a Configuration", found: found{
			servers: []*gateway{serverIn("default", "s", 0)}, configurations: []networkingv1beta1.Configuration{configurationIn("old")},
		}, want: "default"},
		{name: "a Configuration", found: found{configurations: []networkingv1beta1.Configuration{configurationIn("default")}}, want: "default"},
		{name: "gateways in two, one of them labelled", found: found{
			namespaces: []corev1.Namespace{tenant("b", 0)}, servers: []*gateway{serverIn("a", "s", 0), serverIn("b", "s", 0)},
		}, want: "b"},
		{name: "gateways in two", found: found{servers: []*gateway{serverIn("a", "s", 0), serverIn("b", "s", 0)}},
			wantErr: "there are objects for cluster milan in several namespaces, a, b: choose one with --namespace, and delete those in the others"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tenantNamespace("milan", tt.given, "--namespace", &tt.found)
			if got != tt.want || errText(err) != tt.wantErr {
				t.Errorf("got %q, %v; want %q, %q", got, err, tt.want, tt.wantErr)
			}
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNamespaceProblem(t *testing.T) {
	ends := ending(tenant("a", 0))
	ends.Status.Conditions = []corev1.NamespaceCondition{{Type: "NamespaceContentRemaining", Status: corev1.ConditionTrue, Message: "Some resources are remaining: pods. has 1"}}
	others := tenant("b", 0)
	fine := tenant("c", 0)
	for _, tt := range []struct {
		name string
		n    *corev1.Namespace
		peer string
		want string
	}{
		{"to be made", nil, "milan", ""},
		{"there", &fine, "milan", ""},
		{"without labels", &corev1.Namespace{}, "milan", ""},
		{"ending", &ends, "milan", "namespace a is being deleted: run the command again when it is gone; NamespaceContentRemaining: Some resources are remaining: pods. has 1"},
		{"another peer's", &others, "rome", "namespace b belongs to the peering with cluster milan (label liqo.io/remote-cluster-id), not with rome: choose another with --namespace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := namespaceProblem(tt.n, tt.peer, "--namespace"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
