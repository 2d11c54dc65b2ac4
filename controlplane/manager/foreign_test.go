package manager_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// asked is what users and other clusters write. Of it the controllers make objects of each kind
// that they may make. What waits for that of others follows, in turn.
const asked = `
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayServer
metadata: {name: server, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec:
  service: {spec: {type: ClusterIP, selector: {networking.liqo.io/gateway-name: server}, ports: [{name: wireguard, protocol: UDP, port: 51840}]}}
  metrics:
    enabled: true
    service: {spec: {selector: {a: b}, ports: [{name: metrics, port: 8082}]}}
    serviceMonitor: {spec: {selector: {matchLabels: {a: b}}, endpoints: [{port: metrics}]}}
  deployment:
    spec:
      replicas: 2
      selector: {matchLabels: {networking.liqo.io/component: gateway, networking.liqo.io/gateway-name: server}}
      template:
        metadata: {labels: {networking.liqo.io/component: gateway, networking.liqo.io/gateway-name: server, networking.liqo.io/gateway-namespace: liqo-tenant-milan}}
        spec:
          serviceAccountName: server
          containers: [{name: gateway, image: none, args: [--leader-election]}]
          volumes: [{name: wireguard-config, secret: {secretName: gw-server}}]
---
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {name: database, namespace: default}
spec: {ip: 192.168.7.7, serviceTemplate: {spec: {ports: [{port: 5432}]}}}
---
apiVersion: authentication.liqo.io/v1beta1
kind: Tenant
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec: {clusterID: milan, authzPolicy: TolerateNoHandshake}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: of-milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: liqo-remote-controlplane}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: milan}]
---
apiVersion: offloading.liqo.io/v1beta1
kind: VirtualNode
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec: {clusterID: milan, createNode: true, kubeconfigSecretRef: {name: none}}
`

// mapping is what the other cluster writes when its Tenant is ready.
const mapping = `
apiVersion: offloading.liqo.io/v1beta1
kind: NamespaceMap
metadata: {name: of-milan, namespace: liqo-tenant-milan, labels: {liqo.io/replicated: "true", liqo.io/originID: milan}}
spec: {desiredMapping: {shop: shop-milan}}
`

// askedThere is what the other cluster writes in its namespace.
const askedThere = `
apiVersion: offloading.liqo.io/v1beta1
kind: ShadowEndpointSlice
metadata: {name: web, namespace: shop-milan}
spec: {template: {addressType: IPv4, endpoints: [], ports: []}}
`

// notMade are kinds that the controllers may write, and do not make under a name that somebody
// else could have, and why. The rest must be made in TestNothingIsTakenOver.
var notMade = map[string]string{
	"certificatesigningrequests": "what is approved is compared with what would have been asked for: TestHostile in controlplane/authentication",
	"configmaps":                 "made once, by a right to create and nothing else: it can take over none",
	"events":                     "of names that the API server makes",
	"pods":                       "made by a right to create, and labelled only where a gateway's owner leads to them: TestShadowPods in controlplane/offloading",
	"nodes":                      "made by the virtual kubelet: TestVirtualNodeLimits in controlplane/offloading",
	"serviceimports":             "of a kind of Kubernetes' that the importer shares with nobody: TestHostilePeer in controlplane/services",
}

// quiet are objects of users about which nobody is told, and why.
var quiet = map[string]string{
	"ClusterRoleBinding /liqo-gateway-liqo-tenant-milan-server": "not asked for while the ServiceAccount is not ours; testForeign in controlplane/network/gatewaydeploy has the others alone",
	"RoleBinding liqo/liqo-gateway-liqo-tenant-milan-server":    "the same",
	"ResourceQuota liqo-tenant-milan/liqo-consumer":             "the user may change what it bounds, or have made it in advance: it serves as it is",
}

// ofController are the resources of other projects that the controllers may make, by the roles
// that are generated from their code, and what they are.
func ofController(t *testing.T, c *controlplanetest.Cluster) map[string]schema.GroupVersionKind {
	t.Helper()
	all := make(map[string]schema.GroupVersionKind)
	for _, file := range []string{"role.yaml", "authentication/authentication.yaml", "offloading/offloading.yaml", "services/services.yaml"} {
		for _, role := range rolesOf(t, file) {
			for _, r := range role.Rules {
				if !slices.ContainsFunc(r.Verbs, func(v string) bool { return v == "create" || v == "patch" }) || strings.HasSuffix(r.APIGroups[0], ".liqo.io") {
					continue
				}
				for _, resource := range r.Resources {
					if strings.Contains(resource, "/") || notMade[resource] != "" {
						continue
					}
					kind, err := c.Client.RESTMapper().KindFor(schema.GroupVersionResource{Group: r.APIGroups[0], Resource: resource})
					if err != nil {
						t.Errorf("%s of %s: %v", resource, r.APIGroups[0], err)
					}
					all[resource] = kind
				}
			}
		}
	}
	return all
}

// made are the objects of these kinds that the controllers have written, or of which they are
// said to be the makers.
func made(ctx context.Context, c *controlplanetest.Cluster, kinds map[string]schema.GroupVersionKind) (map[string]*unstructured.Unstructured, error) {
	found := make(map[string]*unstructured.Unstructured)
	for _, kind := range kinds {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.Client.List(ctx, &list); err != nil {
			return nil, err
		}
		for i := range list.Items {
			o := &list.Items[i]
			if o.GetNamespace() == "kube-system" || !slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == apply.FieldOwner }) {
				continue
			}
			found[nameOf(o)] = o
		}
	}
	return found, nil
}

func nameOf(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + client.ObjectKeyFromObject(o).String()
}

// ofUser is an object of a user with the kind and name of another one. It has a spec that is
// valid, and nothing by which it could count as the controllers'.
func ofUser(o *unstructured.Unstructured) *unstructured.Unstructured {
	u := o.DeepCopy()
	delete(u.Object, "status")
	u.Object["metadata"] = map[string]any{
		"name": o.GetName(), "labels": map[string]any{"app": "shop"}, "annotations": map[string]any{"example.org/whose": "mine"},
	}
	if o.GetNamespace() != "" {
		u.SetNamespace(o.GetNamespace())
	}
	switch o.GetKind() {
	case "Service": // or its addresses are taken
		for _, field := range []string{"clusterIP", "clusterIPs"} {
			unstructured.RemoveNestedField(u.Object, "spec", field)
		}
	case "Secret": // not the keys that a gateway had
		u.Object["data"] = map[string]any{"a": "Yg=="}
	case "EndpointSlice":
		u.SetLabels(map[string]string{"app": "shop", "kubernetes.io/service-name": "shop"})
	}
	return u
}

// kept is what must stay of an object of a user: all that is not of the cluster's own making.
func kept(o *unstructured.Unstructured) map[string]any {
	k := o.DeepCopy()
	delete(k.Object, "status")
	labels := k.GetLabels()
	maps.DeleteFunc(labels, func(l, _ string) bool { return l == "kubernetes.io/metadata.name" })
	return map[string]any{
		"uid": string(k.GetUID()), "labels": labels, "owners": k.GetOwnerReferences(), "finalizers": k.GetFinalizers(),
		"whose": k.GetAnnotations()["example.org/whose"], "spec": k.Object["spec"], "data": k.Object["data"], "rules": k.Object["rules"],
		"roleRef": k.Object["roleRef"], "subjects": k.Object["subjects"], "endpoints": k.Object["endpoints"], "deleted": k.GetDeletionTimestamp(),
	}
}

// TestNothingIsTakenOver has users take the names of all that the controllers make. They are
// told, by conditions or events, and what they have made stays as it is, also when what the
// controllers work for goes. Which kinds there are is in the roles, and which names is what the
// controllers make where nothing is in the way: a new kind fails the test until something here
// leads to it.
func TestNothingIsTakenOver(t *testing.T) {
	c, run := whole(t)
	controlplanetest.Eventually(t, "ServiceMonitors", func(ctx context.Context) error {
		if err := c.Client.Create(ctx, monitorKind()); err != nil && client.IgnoreAlreadyExists(err) != nil {
			return err
		}
		return c.Client.List(ctx, &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "monitoring.coreos.com/v1", Kind: "ServiceMonitor"}})
	})
	kinds := ofController(t, c)
	ns := tenantNamespace("milan")
	c.Create(t, ns)
	there := client.ObjectKey{Name: "shop-milan"}
	begin := func() (stop func()) {
		t.Helper()
		c.Apply(asked)
		stop = run()
		controlplanetest.Eventually(t, "the Tenant is ready", func(ctx context.Context) error {
			var tenant authv1beta1.Tenant
			err := c.Get(ctx, ns.Name, "milan", &tenant)
			if err == nil && !meta.IsStatusConditionTrue(tenant.Status.Conditions, authv1beta1.ConditionReady) {
				err = fmt.Errorf("%+v", tenant.Status)
			}
			return err
		})
		c.Apply(mapping)
		return stop
	}

	stop := begin()
	var all map[string]*unstructured.Unstructured
	controlplanetest.Eventually(t, "the namespace of the other cluster", func(ctx context.Context) error {
		o := new(unstructured.Unstructured)
		o.SetGroupVersionKind(kinds["namespaces"])
		return c.Client.Get(ctx, there, o)
	})
	c.Apply(askedThere)
	controlplanetest.Eventually(t, "objects of each kind", func(ctx context.Context) error {
		var err error
		if all, err = made(ctx, c, kinds); err != nil {
			return err
		}
		missing := maps.Clone(kinds)
		for _, o := range all {
			maps.DeleteFunc(missing, func(_ string, k schema.GroupVersionKind) bool {
				return k.Kind == o.GetKind() && k.Group == o.GroupVersionKind().Group
			})
		}
		if len(missing) > 0 {
			return fmt.Errorf("none of %q; there are %q", slices.Sorted(maps.Keys(missing)), slices.Sorted(maps.Keys(all)))
		}
		return nil
	})
	stop()
	t.Logf("made: %q", slices.Sorted(maps.Keys(all)))

	// All of it goes, and users make the same. What is in the namespace of the other cluster is
	// in a namespace of the controllers, which is one of a user now: nothing leads to it.
	c.Delete(t, ns)
	c.Gone(t, ns)
	for _, o := range all {
		o.SetFinalizers(nil)
		_ = c.Client.Delete(t.Context(), o) // it may have gone with the namespace
		c.Gone(t, o.DeepCopy())
	}
	ip := new(unstructured.Unstructured)
	ip.SetGroupVersionKind(schema.GroupVersionKind{Group: "ipam.liqo.io", Version: "v1alpha1", Kind: "IP"})
	ip.SetNamespace("default")
	ip.SetName("database")
	c.Delete(t, ip)
	c.Gone(t, ip)
	c.Create(t, tenantNamespace("milan"))
	before := make(map[string]map[string]any)
	theirs := make(map[string]*unstructured.Unstructured)
	for _, first := range []bool{true, false} {
		for name, o := range all {
			if (o.GetKind() == "Namespace") != first {
				continue
			}
			u := ofUser(o)
			c.Create(t, u)
			theirs[name], before[name] = u, kept(u)
		}
	}
	stop = begin()
	c.Apply(askedThere)
	said := regexp.MustCompile(`exists|is there|in the way|left as it is|not of this|belongs to|not the controller's|not made`)
	controlplanetest.Eventually(t, "all that is in the way is named", func(ctx context.Context) error {
		texts, err := told(ctx, c)
		if err != nil {
			return err
		}
		var silent []string
		for name, o := range theirs {
			if o.GetNamespace() == there.Name || quiet[name] != "" {
				continue
			}
			if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, o.GetName()) && said.MatchString(text) }) {
				silent = append(silent, name)
			}
		}
		if len(silent) > 0 {
			slices.Sort(silent)
			return fmt.Errorf("nobody is told of %q in\n%s", silent, strings.Join(texts, "\n"))
		}
		return nil
	})
	unchanged(t, c, theirs, before)
	// What the controllers work for goes.
	for _, kind := range []schema.GroupVersionKind{
		{Group: "networking.liqo.io", Version: "v1beta1", Kind: "WgGatewayServer"}, {Group: "offloading.liqo.io", Version: "v1beta1", Kind: "VirtualNode"},
		{Group: "offloading.liqo.io", Version: "v1beta1", Kind: "NamespaceMap"}, {Group: "authentication.liqo.io", Version: "v1beta1", Kind: "Tenant"},
		{Group: "ipam.liqo.io", Version: "v1alpha1", Kind: "IP"}, {Group: "offloading.liqo.io", Version: "v1beta1", Kind: "ShadowEndpointSlice"},
	} {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.Client.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if err := c.Client.Delete(t.Context(), &list.Items[i]); client.IgnoreNotFound(err) != nil { // a controller may be faster
				t.Fatal(err)
			}
			c.Gone(t, &list.Items[i])
		}
	}
	// A controller that starts clears up what has lost its owner.
	stop()
	stop = run()
	marker := tenantNamespace("naples")
	c.Create(t, marker)
	c.Apply(strings.ReplaceAll(strings.SplitN(asked, "---\n", 2)[0], "milan", "naples"))
	controlplanetest.Eventually(t, "the controllers are at work", func(ctx context.Context) error {
		o := new(unstructured.Unstructured)
		o.SetGroupVersionKind(kinds["deployments"])
		return c.Client.Get(ctx, client.ObjectKey{Namespace: marker.Name, Name: "gw-server"}, o)
	})
	stop()
	unchanged(t, c, theirs, before)
}

// unchanged fails if an object of a user is not what it was.
func unchanged(t *testing.T, c *controlplanetest.Cluster, theirs map[string]*unstructured.Unstructured, before map[string]map[string]any) {
	t.Helper()
	for name, o := range theirs {
		now := new(unstructured.Unstructured)
		now.SetGroupVersionKind(o.GroupVersionKind())
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), now); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(before[name], kept(now)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
		for _, f := range now.GetManagedFields() {
			if f.Manager == apply.FieldOwner {
				t.Errorf("%s has fields of ours", name)
			}
		}
	}
}

// told are the conditions of all objects of this project, and the events: of what, and the text.
func told(ctx context.Context, c *controlplanetest.Cluster) (all []string, err error) {
	var events eventsv1.EventList
	if err := c.Client.List(ctx, &events); err != nil {
		return nil, err
	}
	for _, e := range events.Items {
		if e.ReportingController == controlplanetest.Controller {
			all = append(all, e.Regarding.Kind+" "+e.Regarding.Name+": "+e.Note)
		}
	}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "networking.liqo.io", Version: "v1beta1", Kind: "WgGatewayServerList"}, {Group: "ipam.liqo.io", Version: "v1alpha1", Kind: "IPList"},
		{Group: "authentication.liqo.io", Version: "v1beta1", Kind: "TenantList"}, {Group: "offloading.liqo.io", Version: "v1beta1", Kind: "VirtualNodeList"},
	} {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(kind)
		if err := c.Client.List(ctx, &list); err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			for _, condition := range conditions {
				if m, ok := condition.(map[string]any); ok {
					all = append(all, fmt.Sprintf("%s: %v", nameOf(&o), m["message"]))
				}
			}
		}
	}
	return all, nil
}
