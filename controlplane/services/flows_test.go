package services_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/controlplane/objectname"
	"github.com/sluice-net/sluice/controlplane/services"
	"github.com/sluice-net/sluice/controlplane/services/importer"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

const (
	podCIDR  = "10.243.0.0/16" // of both clusters
	remapped = "10.71.0.0/16"  // by which each knows that of the other
)

// site is a cluster of a peering.
type site struct {
	*controlplanetest.Cluster
	t        *testing.T
	id, peer string
}

// newSite starts the controllers, under the roles and policies that are shipped.
func newSite(t *testing.T, id, peer string, o services.Options) *site {
	t.Helper()
	s := &site{Cluster: controlplanetest.Start(t), t: t, id: id, peer: peer}
	if err := s.Install(deploy.MultiCluster()); err != nil {
		t.Fatal(err)
	}
	s.ApplyManifest(t, "services", "services.yaml")
	s.Create(t, &corev1.ConfigMap{ObjectMeta: object(controlplanetest.LiqoNamespace, "liqo-clusterid-configmap"), Data: map[string]string{"CLUSTER_ID": id}})
	s.Create(t, &ipamv1alpha1.Network{
		ObjectMeta: object(controlplanetest.LiqoNamespace, "pod-cidr", ipamv1alpha1.LabelNetworkType, ipamv1alpha1.NetworkTypePodCIDR),
		Spec:       ipamv1alpha1.NetworkSpec{CIDR: podCIDR},
	})
	s.connect(peer)
	s.Create(t, &corev1beta1.ForeignCluster{ObjectMeta: object("", peer), Spec: corev1beta1.ForeignClusterSpec{ClusterID: corev1beta1.ClusterID(peer)}})
	s.network(corev1beta1.StatusEstablished)
	s.RunManager(t, func(mgr ctrl.Manager) error {
		o.LiqoNamespace = controlplanetest.LiqoNamespace
		return services.SetupWithManager(mgr, o)
	})
	return s
}

const remoteID = "liqo.io/remote-cluster-id"

// connect makes the namespace and the Configuration of a peering.
func (s *site) connect(peer string) {
	s.t.Helper()
	tenant := "liqo-tenant-" + peer
	s.Create(s.t, &corev1.Namespace{ObjectMeta: object("", tenant, "liqo.io/tenant-namespace", "true", remoteID, peer)})
	list := func(c networkingv1beta1.CIDR) networkingv1beta1.CIDRs {
		return networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{c}}
	}
	c := &networkingv1beta1.Configuration{ObjectMeta: object(tenant, "c", remoteID, peer)}
	c.Spec.Remote.CIDR = networkingv1beta1.ClusterCIDR{Pod: list(podCIDR), External: list("10.80.0.0/16")}
	s.Create(s.t, c)
	controlplanetest.EditStatus(s.t, s.Cluster, c, func(c *networkingv1beta1.Configuration) {
		c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: list(remapped), External: list("10.80.0.0/16")}}
	})
}

func (s *site) tenant() string { return "liqo-tenant-" + s.peer }

// network says what is known of the network of the peering, for an hour.
func (s *site) network(status corev1beta1.ConditionStatus) {
	s.t.Helper()
	controlplanetest.EditStatus(s.t, s.Cluster, &corev1beta1.ForeignCluster{ObjectMeta: object("", s.peer)}, func(f *corev1beta1.ForeignCluster) {
		f.Status.Role = corev1beta1.UnknownRole
		f.Status.Modules.Networking.Conditions = []corev1beta1.Condition{{
			Type: corev1beta1.ConditionNetworkConnection, Status: status, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
		}}
	})
}

// allow sets an annotation of the Configuration.
func (s *site) allow(annotation, list string) {
	s.t.Helper()
	controlplanetest.Edit(s.t, s.Cluster, &networkingv1beta1.Configuration{ObjectMeta: object(s.tenant(), "c")}, func(c *networkingv1beta1.Configuration) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, annotation, list)
	})
}

func object(namespace, name string, labels ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name}
	for i := 0; i < len(labels); i += 2 {
		metav1.SetMetaDataLabel(&m, labels[i], labels[i+1])
	}
	return m
}

// serve makes the Service shop/web with an endpoint, as a Deployment of a user would.
func (s *site) serve(address string) {
	s.t.Helper()
	s.Create(s.t, &corev1.Service{ObjectMeta: object("shop", "web"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}})
	s.Create(s.t, &discoveryv1.EndpointSlice{
		ObjectMeta: object("shop", "web-1", discoveryv1.LabelServiceName, "web"), AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
	})
}

func (s *site) export() { s.Create(s.t, &mcsv1beta1.ServiceExport{ObjectMeta: object("shop", "web")}) }

// told waits until the gateway would tell the peer of these addresses of shop/web.
func (s *site) told(want ...string) *networkingv1beta1.ExportedService {
	s.t.Helper()
	e := new(networkingv1beta1.ExportedService)
	controlplanetest.Eventually(s.t, s.id+" exports shop/web", func(ctx context.Context) error {
		if err := s.Get(ctx, s.tenant(), "shop.web", e); err != nil {
			return err
		}
		var got []string
		for _, sl := range e.Spec.Slices {
			for _, a := range sl.Endpoints {
				got = append(got, a.Addresses...)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
	return e
}

// hears is what the gateway does with what the peer's told.
func (s *site) hears(e *networkingv1beta1.ExportedService) *networkingv1beta1.ImportedService {
	s.t.Helper()
	o := &networkingv1beta1.ImportedService{
		ObjectMeta: object(s.tenant(), e.Name, "liqo.io/managed", "true", remoteID, s.peer), Spec: *e.Spec.DeepCopy(),
	}
	err := s.Client.Create(s.t.Context(), o)
	if apierrors.IsAlreadyExists(err) {
		controlplanetest.Edit(s.t, s.Cluster, o, func(o *networkingv1beta1.ImportedService) { o.Spec = *e.Spec.DeepCopy() })
	} else if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// leads waits until a Service leads to these endpoints, "!" behind those that are not ready.
func (s *site) leads(service string, want ...string) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, fmt.Sprintf("%s of %s leads to %q", service, s.id, want), func(ctx context.Context) error {
		if err := s.Get(ctx, "shop", service, new(corev1.Service)); err != nil {
			return err
		}
		var all discoveryv1.EndpointSliceList
		if err := s.Client.List(ctx, &all, client.InNamespace("shop"), client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
			return err
		}
		var got []string
		for _, sl := range all.Items {
			for _, e := range sl.Endpoints {
				mark := ""
				if !*e.Conditions.Ready {
					mark = "!"
				}
				got = append(got, sl.Labels[mcsv1beta1.LabelSourceCluster]+" "+strings.Join(e.Addresses, "+")+mark)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("it leads to %q", got)
		}
		return nil
	})
}

// condition waits until one is told so.
func (s *site) condition(o client.Object, kind string, of func() []metav1.Condition, reason string) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, fmt.Sprintf("%s of %T is %s", kind, o, reason), func(ctx context.Context) error {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(of(), kind); c == nil || c.Reason != reason {
			return fmt.Errorf("its conditions are %+v", of())
		}
		return nil
	})
}

// TestServices has rome export shop/web to milan.
func TestServices(t *testing.T) {
	t.Parallel()
	rome, milan := newSite(t, "rome", "milan", services.Options{}), newSite(t, "milan", "rome", services.Options{})
	derived := importer.DerivedName("web")
	rome.Create(t, &corev1.Namespace{ObjectMeta: object("", "shop")})
	export := &mcsv1beta1.ServiceExport{ObjectMeta: object("shop", "web")}
	exportConditions := func() []metav1.Condition { return export.Status.Conditions }
	rome.export()
	rome.condition(export, "Valid", exportConditions, "NoService")
	rome.serve("10.243.1.2")
	rome.condition(export, "Ready", exportConditions, "Exported")

	heard := milan.hears(rome.told("10.243.1.2"))
	heardConditions := func() []metav1.Condition { return heard.Status.Conditions }
	milan.condition(heard, "Accepted", heardConditions, "NamespaceNotFound")
	milan.Create(t, &corev1.Namespace{ObjectMeta: object("", "shop")})
	milan.condition(heard, "Accepted", heardConditions, "Accepted")
	milan.leads(derived, "rome 10.71.1.2")
	rome.leads(derived, "rome 10.243.1.2") // a Service is the same everywhere, also where it is exported
	imported := &mcsv1beta1.ServiceImport{ObjectMeta: object("shop", "web")}
	controlplanetest.Eventually(t, "the ServiceImport has the address of the Service", func(ctx context.Context) error {
		s := new(corev1.Service)
		if err := errors.Join(milan.Get(ctx, "shop", derived, s), milan.Get(ctx, "shop", "web", imported)); err != nil {
			return err
		}
		if s.Spec.ClusterIP == "" || !slices.Equal(imported.Spec.IPs, s.Spec.ClusterIPs) || !meta.IsStatusConditionTrue(imported.Status.Conditions, "Ready") ||
			len(imported.Status.Clusters) != 1 || imported.Status.Clusters[0].Cluster != "rome" {
			return fmt.Errorf("%+v, and the Service has %v", imported, s.Spec.ClusterIPs)
		}
		return nil
	})
	if err := milan.Get(t.Context(), "shop", "web", new(corev1.Service)); !apierrors.IsNotFound(err) {
		t.Errorf("a Service of its own name: %v", err)
	}

	t.Run("an alias", func(t *testing.T) {
		controlplanetest.Edit(t, milan.Cluster, &corev1.Namespace{ObjectMeta: object("", "shop")}, func(n *corev1.Namespace) {
			metav1.SetMetaDataLabel(&n.ObjectMeta, "liqo.io/service-alias", "true")
		})
		milan.leads("web", "rome 10.71.1.2")
		milan.takesOver(t, heard)
		milan.leads("web", "rome 10.71.1.2")
		controlplanetest.Edit(t, milan.Cluster, &corev1.Namespace{ObjectMeta: object("", "shop")}, func(n *corev1.Namespace) { delete(n.Labels, "liqo.io/service-alias") })
		milan.Gone(t, &corev1.Service{ObjectMeta: object("shop", "web")})
	})
	t.Run("a pod more", func(t *testing.T) {
		controlplanetest.Edit(t, rome.Cluster, &discoveryv1.EndpointSlice{ObjectMeta: object("shop", "web-1")}, func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.243.1.3"}}, discoveryv1.Endpoint{Addresses: []string{"192.0.2.1"}})
		})
		milan.hears(rome.told("10.243.1.2", "10.243.1.3"))
		milan.leads(derived, "rome 10.71.1.2", "rome 10.71.1.3")
	})
	t.Run("labels and annotations", func(t *testing.T) {
		for _, labels := range []map[string]string{{"tier": "front", "liqo.io/managed": "false"}, {"team": "shop"}, nil} {
			controlplanetest.Edit(t, rome.Cluster, &mcsv1beta1.ServiceExport{ObjectMeta: object("shop", "web")}, func(e *mcsv1beta1.ServiceExport) {
				e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = labels, labels
			})
			want := maps.Clone(labels)
			delete(want, "liqo.io/managed")
			controlplanetest.Eventually(t, fmt.Sprintf("the ServiceImport has %v", want), func(ctx context.Context) error {
				milan.hears(rome.told("10.243.1.2", "10.243.1.3"))
				if err := milan.Get(ctx, "shop", "web", imported); err != nil {
					return err
				}
				of, notes := maps.Clone(imported.Labels), maps.Clone(imported.Annotations)
				delete(notes, "multicluster.kubernetes.io/derived-service")
				delete(notes, "networking.liqo.io/applied-hash")
				if of["liqo.io/managed"] != "true" {
					return fmt.Errorf("its labels are %v", of)
				}
				delete(of, "liqo.io/managed")
				if !maps.Equal(of, want) || !maps.Equal(notes, want) {
					return fmt.Errorf("it has labels %v and annotations %v", of, notes)
				}
				return nil
			})
		}
	})
	t.Run("the network is lost", func(t *testing.T) {
		milan.network(corev1beta1.StatusError)
		milan.leads(derived, "rome 10.71.1.2!", "rome 10.71.1.3!")
		milan.network(corev1beta1.StatusEstablished)
		milan.leads(derived, "rome 10.71.1.2", "rome 10.71.1.3")
	})
	t.Run("somebody deletes what was made", func(t *testing.T) {
		milan.Delete(t, &corev1.Service{ObjectMeta: object("shop", derived)})
		milan.leads(derived, "rome 10.71.1.2", "rome 10.71.1.3")
	})
	t.Run("both clusters export it", func(t *testing.T) {
		milan.serve("10.243.7.7")
		milan.export()
		milan.leads(derived, "milan 10.243.7.7", "rome 10.71.1.2", "rome 10.71.1.3")
		e := &mcsv1beta1.ServiceExport{ObjectMeta: object("shop", "web")}
		milan.condition(e, "Conflict", func() []metav1.Condition { return e.Status.Conditions }, "NoConflicts")
		controlplanetest.Edit(t, milan.Cluster, &mcsv1beta1.ServiceExport{ObjectMeta: object("shop", "web")}, func(e *mcsv1beta1.ServiceExport) {
			metav1.SetMetaDataAnnotation(&e.ObjectMeta, networkingv1beta1.AnnotationPreferLocal, "true")
		})
		milan.leads(derived, "milan 10.243.7.7", "rome 10.71.1.2!", "rome 10.71.1.3!")
		controlplanetest.Edit(t, milan.Cluster, &discoveryv1.EndpointSlice{ObjectMeta: object("shop", "web-1")}, func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Conditions.Ready = new(false)
		})
		milan.leads(derived, "milan 10.243.7.7!", "rome 10.71.1.2", "rome 10.71.1.3")
		controlplanetest.Edit(t, milan.Cluster, &corev1.Service{ObjectMeta: object("shop", "web")}, func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })
		milan.condition(e, "Conflict", func() []metav1.Condition { return e.Status.Conditions }, "PortConflict")
		milan.Delete(t, e)
		milan.leads(derived, "rome 10.71.1.2", "rome 10.71.1.3")
	})
	t.Run("what operators allow", func(t *testing.T) {
		milan.allow(networkingv1beta1.AnnotationImportServices, "shop/db")
		milan.condition(heard, "Accepted", heardConditions, "NotWanted")
		milan.Gone(t, &corev1.Service{ObjectMeta: object("shop", derived)})
		milan.allow(networkingv1beta1.AnnotationImportServices, "sho*/w*")
		milan.leads(derived, "rome 10.71.1.2", "rome 10.71.1.3")
		rome.allow(networkingv1beta1.AnnotationExportServices, "")
		rome.Gone(t, &networkingv1beta1.ExportedService{ObjectMeta: object(rome.tenant(), "shop.web")})
		rome.condition(export, "Ready", exportConditions, "Pending")
		rome.allow(networkingv1beta1.AnnotationExportServices, "db, shop")
		rome.told("10.243.1.2", "10.243.1.3")
	})
	t.Run("one of two peers cannot be told", func(t *testing.T) {
		rome.connect("bari") // before milan, which is told nevertheless
		theirs := &networkingv1beta1.ExportedService{ObjectMeta: object("liqo-tenant-bari", "shop.web"), Spec: *rome.told("10.243.1.2", "10.243.1.3").Spec.DeepCopy()}
		mine := &corev1.ConfigMap{ObjectMeta: object("liqo-tenant-bari", "mine")}
		rome.Create(t, mine)
		theirs.Spec.Type = networkingv1beta1.ServiceHeadless
		theirs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "mine", UID: mine.UID, Controller: new(true)}}
		controlplanetest.Eventually(t, "somebody else has made an object of that name", func(ctx context.Context) error {
			_ = rome.Client.Delete(ctx, theirs.DeepCopy())
			return rome.Client.Create(ctx, theirs.DeepCopy())
		})
		controlplanetest.Edit(t, rome.Cluster, &discoveryv1.EndpointSlice{ObjectMeta: object("shop", "web-1")}, func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[1].Addresses = []string{"10.243.1.4"}
		})
		milan.hears(rome.told("10.243.1.2", "10.243.1.4"))
		milan.leads(derived, "rome 10.71.1.2", "rome 10.71.1.4")
		rome.condition(export, "Ready", exportConditions, "Failed")
		if c := meta.FindStatusCondition(export.Status.Conditions, "Ready"); !strings.Contains(c.Message, "Cluster bari is not told: ") {
			t.Error(c.Message)
		}
		rome.Delete(t, theirs)
		rome.condition(export, "Ready", exportConditions, "Exported")
	})
	t.Run("headless from now on", func(t *testing.T) {
		told := rome.told("10.243.1.2", "10.243.1.4")
		told.Spec.Type = networkingv1beta1.ServiceHeadless
		milan.hears(told)
		controlplanetest.Eventually(t, "the Service has no address", func(ctx context.Context) error {
			s := new(corev1.Service)
			if err := milan.Get(ctx, "shop", derived, s); err != nil || s.Spec.ClusterIP != corev1.ClusterIPNone {
				return fmt.Errorf("%v %v", s.Spec.ClusterIP, err)
			}
			return nil
		})
		milan.leads(derived, "rome 10.71.1.2", "rome 10.71.1.4")
	})
	t.Run("no more", func(t *testing.T) {
		rome.Delete(t, export)
		rome.Gone(t, &networkingv1beta1.ExportedService{ObjectMeta: object(rome.tenant(), "shop.web")})
		// What was made goes without a garbage collector, which would wait for the end of the ServiceImport.
		kept := &mcsv1beta1.ServiceImport{ObjectMeta: object("shop", "web")}
		controlplanetest.Edit(t, milan.Cluster, kept, func(s *mcsv1beta1.ServiceImport) { s.Finalizers = []string{"example.org/later"} })
		milan.Delete(t, heard)
		milan.Gone(t, &corev1.Service{ObjectMeta: object("shop", derived)})
		milan.leadsNowhere(derived)
		controlplanetest.Edit(t, milan.Cluster, kept, func(s *mcsv1beta1.ServiceImport) { s.Finalizers = nil })
		for _, o := range []client.Object{&mcsv1beta1.ServiceImport{ObjectMeta: object("shop", "web")}, &corev1.Service{ObjectMeta: object("shop", derived)}} {
			milan.Gone(t, o)
			rome.Gone(t, o)
		}
	})
}

// takesOver has a user apply a Service of their own over the alias. It is theirs from then on, also when nothing is imported any
// more. When they delete it, there is an alias again.
func (s *site) takesOver(t *testing.T, heard *networkingv1beta1.ImportedService) {
	t.Helper()
	web := &corev1.Service{ObjectMeta: object("shop", "web")}
	if err := s.Client.Patch(t.Context(), web, client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"selector":{"app":"web"},"ports":[{"port":80,"targetPort":8080}]}}`)), client.FieldOwner("kubectl")); err != nil {
		t.Fatal(err)
	}
	theirs := func(ctx context.Context) error {
		if err := s.Get(ctx, "shop", "web", web); err != nil {
			return err
		}
		if len(web.OwnerReferences)+len(web.Labels) > 0 || web.Spec.Selector["app"] != "web" || web.Spec.Ports[0].TargetPort.IntValue() != 8080 || web.Spec.ClusterIP == "" {
			return fmt.Errorf("%+v", web)
		}
		for _, m := range web.ManagedFields {
			if m.Manager == apply.FieldOwner {
				return fmt.Errorf("%s still owns fields", m.Manager)
			}
		}
		return nil
	}
	controlplanetest.Eventually(t, "the alias is the user's", theirs)
	controlplanetest.Eventually(t, "no EndpointSlice of the alias is left", func(ctx context.Context) error {
		var all discoveryv1.EndpointSliceList
		err := s.Client.List(ctx, &all, client.InNamespace("shop"), client.MatchingLabels{discoveryv1.LabelServiceName: "web", networkingv1beta1.LabelManaged: "true"})
		if err == nil && len(all.Items) > 0 {
			err = fmt.Errorf("there are %d", len(all.Items))
		}
		return err
	})
	imported := &mcsv1beta1.ServiceImport{ObjectMeta: object("shop", "web")}
	s.condition(imported, "Alias", func() []metav1.Condition { return imported.Status.Conditions }, "NameTaken")
	s.Delete(t, heard)
	s.Gone(t, imported)
	s.Gone(t, &corev1.Service{ObjectMeta: object("shop", importer.DerivedName("web"))})
	if err := theirs(t.Context()); err != nil {
		t.Error(err)
	}
	again := &networkingv1beta1.ImportedService{ObjectMeta: object(s.tenant(), heard.Name, "liqo.io/managed", "true", remoteID, s.peer), Spec: heard.Spec}
	s.Create(t, again)
	*heard = *again
	s.condition(imported, "Alias", func() []metav1.Condition { return imported.Status.Conditions }, "NameTaken")
	s.Delete(t, web)
}

func (s *site) leadsNowhere(service string) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, "no EndpointSlice is left", func(ctx context.Context) error {
		var all discoveryv1.EndpointSliceList
		err := s.Client.List(ctx, &all, client.InNamespace("shop"), client.MatchingLabels{discoveryv1.LabelServiceName: service})
		if err == nil && len(all.Items) > 0 {
			err = fmt.Errorf("there are %d", len(all.Items))
		}
		return err
	})
}

// TestHub has a cluster pass on a Service of one peer to another one.
func TestHub(t *testing.T) {
	t.Parallel()
	hub := newSite(t, "hub", "rome", services.Options{})
	hub.Create(t, &corev1.Namespace{ObjectMeta: object("", "shop")})
	hub.connect("milan")
	says := &networkingv1beta1.ExportedService{ObjectMeta: object("", "shop.web"), Spec: networkingv1beta1.ServiceDescription{
		Namespace: "shop", Name: "web", Type: networkingv1beta1.ServiceClusterSetIP,
		Ports: []networkingv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		Slices: []networkingv1beta1.ServiceSlice{{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []networkingv1beta1.ServiceEndpoint{
			{Addresses: []string{"10.243.1.2"}, Ready: true},
		}}},
	}}
	hub.hears(says)
	hub.leads(importer.DerivedName("web"), "rome 10.71.1.2")
	export := &mcsv1beta1.ServiceExport{ObjectMeta: object("shop", "web")}
	hub.Create(t, export)
	conditions := func() []metav1.Condition { return export.Status.Conditions }
	hub.condition(export, "Valid", conditions, "NoService")
	controlplanetest.Eventually(t, "the export says what is missing", func(ctx context.Context) error {
		if err := hub.Get(ctx, "shop", "web", export); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(export.Status.Conditions, "Valid"); !strings.Contains(c.Message, networkingv1beta1.AnnotationPassOnServices) {
			return errors.New(c.Message)
		}
		return nil
	})
	// Who may create EndpointSlices in the namespace makes one in the name of the peer, which leads to a node.
	mine := &corev1.ConfigMap{ObjectMeta: object("shop", "mine")}
	hub.Create(t, mine)
	theirs := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "mine", UID: mine.UID, Controller: new(true)}}
	forged := &discoveryv1.EndpointSlice{
		ObjectMeta: object("shop", "forged", "liqo.io/managed", "true", "kubernetes.io/service-name", importer.DerivedName("web"),
			"multicluster.kubernetes.io/service-name", "web", "multicluster.kubernetes.io/source-cluster", "rome"),
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
	forged.OwnerReferences = theirs
	hub.Create(t, forged)
	hub.allow(networkingv1beta1.AnnotationPassOnServices, "shop/web")
	ip := new(ipamv1alpha1.IP)
	controlplanetest.Eventually(t, "there is an IP for the endpoint", func(ctx context.Context) error {
		var all ipamv1alpha1.IPList
		if err := hub.Client.List(ctx, &all, client.InNamespace("shop")); err != nil {
			return err
		}
		if len(all.Items) != 1 || all.Items[0].Spec.IP != "10.71.1.2" {
			return fmt.Errorf("%+v", all.Items)
		}
		*ip = all.Items[0]
		return nil
	})
	// What the IPAM does.
	controlplanetest.EditStatus(t, hub.Cluster, ip, func(ip *ipamv1alpha1.IP) { ip.Status.IP, ip.Status.CIDR = "10.70.0.5", "10.70.0.0/16" })
	passed := func(want ...networkingv1beta1.ServiceEndpoint) {
		t.Helper()
		controlplanetest.Eventually(t, fmt.Sprintf("milan is told of %+v", want), func(ctx context.Context) error {
			e := new(networkingv1beta1.ExportedService)
			if err := hub.Get(ctx, "liqo-tenant-milan", "shop.web", e); err != nil {
				return err
			}
			if len(e.Spec.Slices) != 1 || e.Spec.Slices[0].Cluster != "rome" || !reflect.DeepEqual(e.Spec.Slices[0].Endpoints, want) {
				return fmt.Errorf("%+v", e.Spec)
			}
			return nil
		})
	}
	passed(networkingv1beta1.ServiceEndpoint{Addresses: []string{"10.70.0.5"}, Ready: true})
	hub.condition(export, "Ready", conditions, "Exported")
	if err := hub.Get(t.Context(), hub.tenant(), "shop.web", new(networkingv1beta1.ExportedService)); !apierrors.IsNotFound(err) {
		t.Errorf("rome is told of its own Service: %v", err)
	}
	hub.network(corev1beta1.StatusError) // and who imports it from the hub learns that
	passed(networkingv1beta1.ServiceEndpoint{Addresses: []string{"10.70.0.5"}})
	// Another endpoint, whose IP somebody else has, is told of, and the first one is as before.
	taken := &ipamv1alpha1.IP{ObjectMeta: object("shop", "web-"+objectname.Digest("10.71.1.9", 5)), Spec: ipamv1alpha1.IPSpec{IP: "10.0.0.1"}}
	taken.OwnerReferences = theirs
	hub.Create(t, taken)
	hub.stranger(taken)
	says.Spec.Slices[0].Endpoints = append(says.Spec.Slices[0].Endpoints, networkingv1beta1.ServiceEndpoint{Addresses: []string{"10.243.1.9"}})
	hub.hears(says)
	controlplanetest.Eventually(t, "the export says whose IP is in the way", func(ctx context.Context) error {
		err := hub.Get(ctx, "shop", "web", export)
		if c := meta.FindStatusCondition(export.Status.Conditions, "Ready"); err == nil && !strings.Contains(c.Message, "10.71.1.9 is not passed on: it exists and belongs to ConfigMap mine") {
			err = errors.New(c.Message)
		}
		return err
	})
	passed(networkingv1beta1.ServiceEndpoint{Addresses: []string{"10.70.0.5"}})
	var all ipamv1alpha1.IPList
	if err := hub.Client.List(t.Context(), &all, client.InNamespace("shop")); err != nil || len(all.Items) != 2 {
		t.Errorf("%d IPs, one of them somebody else's: %v", len(all.Items), err)
	}
	// Without endpoints for a moment, the Service stays what it is.
	before, after := new(networkingv1beta1.ExportedService), new(networkingv1beta1.ExportedService)
	if err := hub.Get(t.Context(), "liqo-tenant-milan", "shop.web", before); err != nil {
		t.Fatal(err)
	}
	says.Spec.Slices = nil
	hub.hears(says)
	hub.Gone(t, ip)
	if err := hub.Get(t.Context(), "liqo-tenant-milan", "shop.web", after); err != nil || after.UID != before.UID || len(after.Spec.Slices) > 0 {
		t.Errorf("%+v %v", after, err) // it was told before the IP went
	}
	hub.Delete(t, export)
	hub.Gone(t, &networkingv1beta1.ExportedService{ObjectMeta: object("liqo-tenant-milan", "shop.web")})
}

// stranger has somebody who got hold of the controller's token make an IP of no endpoint, and delete one of a user.
func (s *site) stranger(theirs *ipamv1alpha1.IP) {
	s.t.Helper()
	thief, err := client.New(s.ServiceAccount(controlplanetest.LiqoNamespace, controlplanetest.Controller), client.Options{Scheme: s.Client.Scheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	evil := &ipamv1alpha1.IP{ObjectMeta: object(theirs.Namespace, "evil", "liqo.io/managed", "true"), Spec: ipamv1alpha1.IPSpec{IP: "10.0.0.1"}}
	for what, do := range map[string]func(context.Context) error{
		"makes":   func(ctx context.Context) error { return thief.Create(ctx, evil.DeepCopy(), client.DryRunAll) },
		"deletes": func(ctx context.Context) error { return thief.Delete(ctx, theirs, client.DryRunAll) },
	} {
		controlplanetest.Eventually(s.t, "the controller "+what+" no such IP", func(ctx context.Context) error {
			if err := do(ctx); err == nil || !strings.Contains(err.Error(), "liqo.io/passed-on-from") {
				return fmt.Errorf("it may: %v", err)
			}
			return nil
		})
	}
}

// TestNamespacesCreated has a peer name namespaces that are not there: of those that the operator allows some are created,
// and stay. Whoever has the controller's token creates no others.
func TestNamespacesCreated(t *testing.T) {
	t.Parallel()
	s := newSite(t, "milan", "rome", services.Options{})
	thief, err := client.New(s.ServiceAccount(controlplanetest.LiqoNamespace, controlplanetest.Controller), client.Options{Scheme: s.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	forbidden := func(why string, labels ...string) {
		t.Helper()
		// A policy takes an API server a moment.
		controlplanetest.Eventually(t, fmt.Sprintf("a namespace with %q is forbidden", labels), func(ctx context.Context) error {
			err := thief.Create(ctx, &corev1.Namespace{ObjectMeta: object("", "evil", labels...)}, client.DryRunAll)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), why) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	}
	forbidden("and no other")
	forbidden("and no other", "liqo.io/imported-from", "rome", "pod-security.kubernetes.io/enforce", "privileged")
	s.ApplyManifest(t, "offloading", "offloading.yaml") // whose policy lets it create those as well
	forbidden("made for a NamespaceMap", "liqo.io/managed", "true")
	s.allow(networkingv1beta1.AnnotationCreateNamespaces, "shop, many-*")
	for i := range networkingv1beta1.MaxCreatedNamespaces - 1 { // one is left
		s.Create(t, &corev1.Namespace{ObjectMeta: object("", fmt.Sprintf("many-%d", i), "liqo.io/imported-from", "rome")})
	}
	offer := func(namespace string) *networkingv1beta1.ImportedService {
		return s.hears(&networkingv1beta1.ExportedService{ObjectMeta: object("", namespace+".web"), Spec: networkingv1beta1.ServiceDescription{
			Namespace: namespace, Name: "web", Type: networkingv1beta1.ServiceClusterSetIP,
			Ports: []networkingv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			Slices: []networkingv1beta1.ServiceSlice{{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []networkingv1beta1.ServiceEndpoint{
				{Addresses: []string{"10.243.1.2"}, Ready: true},
			}}},
		}})
	}
	wants := func(o *networkingv1beta1.ImportedService, reason string) {
		t.Helper()
		s.condition(o, "Accepted", func() []metav1.Condition { return o.Status.Conditions }, reason)
	}
	web := offer("shop")
	wants(web, "Accepted")
	s.leads(importer.DerivedName("web"), "rome 10.71.1.2")
	wants(offer("other"), "NamespaceNotFound")
	wants(offer("many-99"), "TooManyNamespaces")
	s.Delete(t, web)
	s.Gone(t, &mcsv1beta1.ServiceImport{ObjectMeta: object("shop", "web")})
	made := new(corev1.Namespace)
	if err := s.Get(t.Context(), "", "shop", made); err != nil || !made.DeletionTimestamp.IsZero() || made.Labels["liqo.io/imported-from"] != "rome" {
		t.Errorf("the namespace afterwards: %+v %v", made.ObjectMeta, err)
	}
	for _, absent := range []string{"other", "many-99"} {
		if err := s.Get(t.Context(), "", absent, new(corev1.Namespace)); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", absent, err)
		}
	}
}

// TestHostilePeer has a peer name what is none of its business.
func TestHostilePeer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "milan", "rome", services.Options{Alias: true})
	s.Create(t, &corev1.Namespace{ObjectMeta: object("", "shop")})
	theirs := &mcsv1beta1.ServiceImport{ObjectMeta: object("shop", "db"), Spec: mcsv1beta1.ServiceImportSpec{
		Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.9.9.9"}, Ports: []mcsv1beta1.ServicePort{},
	}}
	s.Create(t, theirs)
	s.Create(t, &corev1.Service{ObjectMeta: object("shop", "mine"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}})
	for _, test := range []struct{ namespace, name, address, reason string }{
		{"default", "kubernetes", "10.243.1.2", "NamespaceReserved"},
		{"kube-system", "kube-dns", "10.243.1.2", "NamespaceReserved"},
		{controlplanetest.LiqoNamespace, "web", "10.243.1.2", "NamespaceReserved"},
		{s.tenant(), "web", "10.243.1.2", "NamespaceReserved"},
		{"nowhere", "web", "10.243.1.2", "NamespaceNotFound"},
		{"shop", "db", "10.243.1.2", "NameTaken"},
		{"shop", "meta", "169.254.169.254", "Accepted"}, // without the endpoint
		{"shop", "mine", "10.243.1.2", "Accepted"},      // not under that name
	} {
		o := s.hears(&networkingv1beta1.ExportedService{ObjectMeta: object("", test.namespace+"."+test.name), Spec: networkingv1beta1.ServiceDescription{
			Namespace: test.namespace, Name: test.name, Type: networkingv1beta1.ServiceClusterSetIP,
			Ports: []networkingv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			Slices: []networkingv1beta1.ServiceSlice{{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []networkingv1beta1.ServiceEndpoint{
				{Addresses: []string{test.address}, Ready: true},
			}}},
		}})
		s.condition(o, "Accepted", func() []metav1.Condition { return o.Status.Conditions }, test.reason)
	}
	s.leads(importer.DerivedName("meta"))
	s.leads(importer.DerivedName("mine"), "rome 10.71.1.2")
	s.leads("mine")
	if err := s.Get(t.Context(), "shop", "db", theirs); err != nil || !slices.Equal(theirs.Spec.IPs, []string{"10.9.9.9"}) || theirs.Labels["liqo.io/managed"] != "" {
		t.Errorf("the ServiceImport of somebody else: %+v %v", theirs, err)
	}
	var all corev1.ServiceList
	if err := s.Client.List(t.Context(), &all, client.MatchingLabels{"liqo.io/managed": "true"}); err != nil {
		t.Fatal(err)
	}
	for _, made := range all.Items {
		if made.Namespace != "shop" {
			t.Errorf("made %s/%s", made.Namespace, made.Name)
		}
	}
}

// TestUsersMayExport is who edits a namespace, and nobody who only looks.
func TestUsersMayExport(t *testing.T) {
	t.Parallel()
	s := newSite(t, "milan", "rome", services.Options{})
	s.Create(t, &corev1.Namespace{ObjectMeta: object("", "shop")})
	// Of the roles of Kubernetes these are part by their labels, where its controller for that runs.
	for _, role := range []string{"edit", "view"} {
		var r rbacv1.ClusterRole
		if err := s.Get(t.Context(), "", "liqo-services-"+role, &r); err != nil || r.Labels["rbac.authorization.k8s.io/aggregate-to-"+role] != "true" {
			t.Errorf("%v %v", r.Labels, err)
		}
		if out, err := s.Kubectl("create", "rolebinding", role, "--clusterrole="+r.Name, "--user="+role, "-n", "shop"); err != nil {
			t.Fatal(out, err)
		}
	}
	as := func(user string) client.Client {
		cfg := rest.CopyConfig(s.Config)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		c, err := client.New(cfg, client.Options{Scheme: kinds.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	editor, viewer := as("edit"), as("view")
	controlplanetest.Eventually(t, "an editor may export", func(ctx context.Context) error { // a binding counts a moment later
		return client.IgnoreAlreadyExists(editor.Create(ctx, &mcsv1beta1.ServiceExport{ObjectMeta: object("shop", "web")}))
	})
	controlplanetest.Eventually(t, "a viewer may look", func(ctx context.Context) error {
		return viewer.List(ctx, new(mcsv1beta1.ServiceExportList), client.InNamespace("shop"))
	})
	if err := viewer.Create(t.Context(), &mcsv1beta1.ServiceExport{ObjectMeta: object("shop", "db")}); !apierrors.IsForbidden(err) {
		t.Errorf("a viewer exports: %v", err)
	}
	if err := editor.Create(t.Context(), &mcsv1beta1.ServiceImport{ObjectMeta: object("shop", "db")}); !apierrors.IsForbidden(err) {
		t.Errorf("an editor imports: %v", err)
	}
}
