package offloading_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// shadowSlice asks for a slice of the Service web with these addresses.
func shadowSlice(name string, addresses ...string) *offloadingv1beta1.ShadowEndpointSlice {
	s := &offloadingv1beta1.ShadowEndpointSlice{ObjectMeta: object("shop-rome", name, discoveryv1.LabelServiceName, "web")}
	s.Spec.Template.AddressType = discoveryv1.AddressTypeIPv4
	s.Spec.Template.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}
	for _, a := range addresses {
		s.Spec.Template.Endpoints = append(s.Spec.Template.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: new("rome")})
	}
	return s
}

// sliceIs waits until a slice leads to exactly these addresses, of which all are ready or none.
func (s *site) sliceIs(name string, ready bool, addresses ...string) *discoveryv1.EndpointSlice {
	s.t.Helper()
	e := new(discoveryv1.EndpointSlice)
	controlplanetest.Eventually(s.t, fmt.Sprintf("EndpointSlice %s leads to %v, ready: %v", name, addresses, ready), func(ctx context.Context) error {
		if err := s.Get(ctx, "shop-rome", name, e); err != nil {
			return err
		}
		var got []string
		for _, p := range e.Endpoints {
			got = append(got, p.Addresses...)
			if is := p.Conditions.Ready == nil || *p.Conditions.Ready; is != ready {
				return fmt.Errorf("%v is ready: %v", p.Addresses, is)
			}
		}
		if !slices.Equal(got, addresses) {
			return fmt.Errorf("it leads to %v", got)
		}
		return nil
	})
	return e
}

// network has a peering's network, or its Connection, be as the ForeignCluster says.
func (s *site) network(id string, status corev1beta1.ConditionStatus) {
	s.t.Helper()
	controlplanetest.EditStatus(s.t, s.Cluster, &corev1beta1.ForeignCluster{ObjectMeta: object("", id)}, func(c *corev1beta1.ForeignCluster) {
		c.Status.Role = corev1beta1.ConsumerRole
		c.Status.Modules.Networking = corev1beta1.Module{Enabled: true, Conditions: []corev1beta1.Condition{{
			Type: corev1beta1.ConditionNetworkConnection, Status: status,
		}}}
	})
}

// TestShadowEndpointSlices has Services lead to a consumer's pods, and tries to have them lead elsewhere.
func TestShadowEndpointSlices(t *testing.T) {
	milan := newSite(t, "milan")
	tenant := milan.authorize("rome")
	rome := milan.as("milan-0123456789ab", "rome")
	create := func(o client.Object) {
		t.Helper()
		if err := rome.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	milan.Create(t, namespaceMap(tenant, "milan", "rome", "shop", "shop-rome"))
	milan.mapping(tenant, "milan", "shop", "shop-rome", "Accepted")
	worker := &corev1.Node{ObjectMeta: object("", "worker")}
	milan.Create(t, worker)
	controlplanetest.EditStatus(t, milan.Cluster, worker, func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.71.9.9"}}
	})
	create(shadowSlice("web-1", "10.243.1.2", "10.243.9.9"))
	milan.Event(t, "shop-rome", "web-1", "NetworkMissing", "there is no Configuration")
	milan.sliceIs("web-1", true)

	cidrs := func(c networkingv1beta1.CIDR) networkingv1beta1.CIDRs {
		return networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{c}, Scalar: true}
	}
	configuration := &networkingv1beta1.Configuration{ObjectMeta: object(tenant, "rome", remoteID, "rome")}
	configuration.Spec.Remote.CIDR = networkingv1beta1.ClusterCIDR{Pod: cidrs("10.243.0.0/16"), External: cidrs("10.70.0.0/16")}
	milan.Create(t, configuration)
	controlplanetest.EditStatus(t, milan.Cluster, configuration, func(c *networkingv1beta1.Configuration) {
		c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: cidrs("10.71.0.0/16"), External: cidrs("10.72.0.0/16")}}
	})
	milan.sliceIs("web-1", false, "10.71.1.2")
	milan.Event(t, "shop-rome", "web-1", "EndpointsRefused", "an address of Node worker")
	milan.Create(t, &corev1beta1.ForeignCluster{ObjectMeta: object("", "rome"), Spec: corev1beta1.ForeignClusterSpec{ClusterID: "rome"}})
	milan.network("rome", corev1beta1.StatusEstablished)
	made := milan.sliceIs("web-1", true, "10.71.1.2")
	for k, v := range map[string]string{
		"liqo.io/managed-by": "shadowendpointslice", discoveryv1.LabelManagedBy: "endpointslice.reflection.liqo.io", discoveryv1.LabelServiceName: "web",
	} {
		if made.Labels[k] != v {
			t.Errorf("label %s is %q", k, made.Labels[k])
		}
	}
	t.Run("the network comes and goes", func(t *testing.T) {
		milan.network("rome", corev1beta1.StatusError)
		milan.sliceIs("web-1", false, "10.71.1.2")
		milan.network("rome", corev1beta1.StatusEstablished)
		milan.sliceIs("web-1", true, "10.71.1.2")
	})
	t.Run("what the consumer says", func(t *testing.T) {
		o := shadowSlice("web-1")
		if err := patch(t, rome, o, `{"spec":{"template":{"endpoints":[{"addresses":["10.70.0.9"]},{"addresses":["10.243.0.1"]}]}}}`); err != nil {
			t.Fatal(err)
		}
		milan.sliceIs("web-1", true, "10.72.0.9", "10.71.0.1")
	})
	t.Run("what others say is taken back", func(t *testing.T) {
		if err := patch(t, milan.Client, made, `{"endpoints":[{"addresses":["192.0.2.1"]}]}`); err != nil {
			t.Fatal(err)
		}
		milan.sliceIs("web-1", true, "10.72.0.9", "10.71.0.1")
	})
	t.Run("a slice of somebody else is left alone", func(t *testing.T) {
		theirs := &discoveryv1.EndpointSlice{ObjectMeta: object("shop-rome", "taken"), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{}}
		milan.Create(t, theirs)
		create(shadowSlice("taken", "10.243.1.2"))
		milan.Event(t, "shop-rome", "taken", "EndpointSliceInTheWay", "is not of this controller's making")
		again := new(discoveryv1.EndpointSlice)
		if err := milan.Get(t.Context(), "shop-rome", "taken", again); err != nil || again.ResourceVersion != theirs.ResourceVersion {
			t.Errorf("it was touched: %v", err)
		}
	})
	t.Run("one that cannot be read hides no others", func(t *testing.T) {
		large := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{
			"addressType": "IPv4", "ports": []any{map[string]any{"port": int64(1) << 40}},
		}}}}
		large.SetGroupVersionKind(offloadingv1beta1.GroupVersion.WithKind("ShadowEndpointSlice"))
		large.SetNamespace("shop-rome")
		large.SetName("large")
		large.SetLabels(map[string]string{discoveryv1.LabelServiceName: "web"})
		err := rome.Create(t.Context(), large)
		t.Logf("an API server says of a port that is no int32: %v", err)
		if err == nil {
			milan.Event(t, "shop-rome", "large", "EndpointSliceRefused", "")
		}
		milan.stop()
		create(shadowSlice("web-2", "10.243.2.2"))
		milan.run()
		milan.sliceIs("web-2", true, "10.71.2.2")
	})
	t.Run("one that becomes what is refused goes", func(t *testing.T) {
		if err := patch(t, rome, shadowSlice("web-2"), `{"spec":{"template":{"addressType":"FQDN"}}}`); err != nil {
			t.Fatal(err)
		}
		milan.Event(t, "shop-rome", "web-2", "EndpointSliceRefused", "FQDN")
		milan.Gone(t, &discoveryv1.EndpointSlice{ObjectMeta: object("shop-rome", "web-2")})
	})
	t.Run("a user's namespace is none of ours", func(t *testing.T) {
		milan.Create(t, &corev1.Namespace{ObjectMeta: object("", "own")})
		o := shadowSlice("web-1", "10.243.1.2")
		o.Namespace = "own"
		milan.Create(t, o)
		create(shadowSlice("web-3", "10.243.3.3")) // which is looked at later
		milan.sliceIs("web-3", true, "10.71.3.3")
		var list discoveryv1.EndpointSliceList
		if err := milan.Client.List(t.Context(), &list, client.InNamespace("own")); err != nil || len(list.Items) > 0 {
			t.Errorf("%d slices, %v", len(list.Items), err)
		}
	})
	t.Run("a pod that reaches its API server", func(t *testing.T) {
		milan.Create(t, sliceOf(t, tenant, "rome", "milan", corev1.ResourceList{"cpu": resource.MustParse("2")}))
		spec := func(ip string) map[string]any {
			s := withCPU("10m")
			s["hostAliases"] = []any{map[string]any{"ip": ip, "hostnames": []any{"kubernetes.default", "kubernetes.default.svc"}}}
			return s
		}
		create(shadow("elsewhere", spec("192.0.2.1")))
		milan.Event(t, "shop-rome", "elsewhere", "NetworkMissing", "192.0.2.1 is in no CIDR")
		create(shadow("home", spec("10.70.0.9")))
		if p := milan.podIs("home", nil); p.Spec.HostAliases[0].IP != "10.72.0.9" {
			t.Errorf("%+v", p.Spec.HostAliases)
		}
	})
	t.Run("the end", func(t *testing.T) {
		if err := rome.Delete(t.Context(), shadowSlice("web-1")); err != nil {
			t.Fatal(err)
		}
		milan.Gone(t, made)
		milan.Delete(t, configuration)
		milan.sliceIs("web-3", true) // its addresses may be another's soon
	})
}
