package release_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// liqosPrograms are what Liqo runs beside gateways: controllers, IPAM, node agent, and a role that our chart has, too.
const liqosPrograms = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: liqo-controller-manager, namespace: liqo}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: liqo-ipam, namespace: liqo}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: liqo-fabric, namespace: liqo}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: liqo-controller-manager, namespace: liqo, labels: {app.kubernetes.io/part-of: liqo, app.kubernetes.io/managed-by: Helm}}
spec:
  replicas: 1
  selector: {matchLabels: {app: manager}}
  template:
    metadata: {labels: {app: manager}}
    spec: {serviceAccountName: liqo-controller-manager, nodeSelector: {kubernetes.io/hostname: node-1}, containers: [{name: manager, image: "ghcr.io/liqotech/liqo-controller-manager:v1.2.0"}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: liqo-ipam, namespace: liqo, labels: {app.kubernetes.io/part-of: liqo, app.kubernetes.io/managed-by: Helm}}
spec:
  replicas: 1
  selector: {matchLabels: {app: ipam}}
  template:
    metadata: {labels: {app: ipam}}
    spec: {serviceAccountName: liqo-ipam, nodeSelector: {kubernetes.io/hostname: node-1}, containers: [{name: ipam, image: "ghcr.io/liqotech/ipam:v1.2.0", args: ["--pools=10.0.0.0/8,192.168.0.0/16"]}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: liqo-proxy, namespace: liqo, labels: {app.kubernetes.io/part-of: liqo, app.kubernetes.io/managed-by: Helm}}
spec:
  replicas: 0
  selector: {matchLabels: {app: proxy}}
  template:
    metadata: {labels: {app: proxy}}
    spec: {containers: [{name: proxy, image: "ghcr.io/liqotech/proxy:v1.2.0"}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: liqo-fabric, namespace: liqo, labels: {app.kubernetes.io/part-of: liqo, app.kubernetes.io/managed-by: Helm}}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {serviceAccountName: liqo-fabric, nodeSelector: {kubernetes.io/os: linux}, containers: [{name: fabric, image: "ghcr.io/liqotech/fabric:v1.2.0", args: ["--geneve-port=6091"]}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: liqo-gateway, labels: {app.kubernetes.io/managed-by: Helm}, annotations: {meta.helm.sh/release-name: liqo, meta.helm.sh/release-namespace: liqo}}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
`

// liqosNetwork are the objects of Liqo's network, with what its controllers have answered and the finalizers that they and
// its agents have added: of a peering with milan, which is remapped, and one with oslo.
const liqosNetwork = `
{kind: Network, metadata: {name: pod-cidr, labels: {ipam.liqo.io/network-type: pod-cidr, ipam.liqo.io/network-not-remapped: "true"}, annotations: {liqo.io/preinstalled: "true"}}, spec: {cidr: 10.243.0.0/16}, status: {cidr: 10.243.0.0/16}}
---
{kind: Network, metadata: {name: service-cidr, labels: {ipam.liqo.io/network-type: service-cidr, ipam.liqo.io/network-not-remapped: "true"}, annotations: {liqo.io/preinstalled: "true"}}, spec: {cidr: 10.96.0.0/16}, status: {cidr: 10.96.0.0/16}}
---
{kind: Network, metadata: {name: external-cidr, labels: {ipam.liqo.io/network-type: external-cidr}, annotations: {liqo.io/preinstalled: "true"}}, spec: {cidr: 10.70.0.0/16, preAllocated: 1}, status: {cidr: 10.71.0.0/16}}
---
{kind: Network, metadata: {name: internal-cidr, labels: {ipam.liqo.io/network-type: internal-cidr}, annotations: {liqo.io/preinstalled: "true"}}, spec: {cidr: 10.80.0.0/16}, status: {cidr: 10.80.0.0/16}}
---
{kind: IP, metadata: {name: printer, finalizers: [ip.ipam.liqo.io/finalizer, ipmapping-nat-controller.liqo.io/finalizer], labels: {ipam.liqo.io/network-namespace: liqo, ipam.liqo.io/network-name: external-cidr}}, spec: {ip: 192.0.2.7}, status: {ip: 10.71.0.7, cidr: 10.71.0.0/16}}
---
{kind: IP, metadata: {name: web, finalizers: [ip.ipam.liqo.io/finalizer], labels: {offloading.liqo.io/pod-name: web, offloading.liqo.io/pod-namespace: shop}}, spec: {ip: 10.60.1.5}, status: {ip: 10.71.0.9, cidr: 10.71.0.0/16}}
---
{kind: Configuration, metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}},
 spec: {local: {cidr: {pod: [10.243.0.0/16], external: [10.71.0.0/16]}}, remote: {cidr: {pod: [10.243.0.0/16], external: [10.70.0.0/16]}}},
 status: {remote: {cidr: {pod: [10.60.0.0/16], external: [10.70.0.0/16]}}, conditions: [{type: NetworkCIDRsConfigured, status: "True", reason: NetworkCIDRsConfigured, message: m, lastTransitionTime: "2026-01-01T00:00:00Z", observedGeneration: 1}]}}
---
{kind: Network, metadata: {name: milan-pod, namespace: liqo-tenant-milan, finalizers: [network.ipam.liqo.io/finalizer], labels: {liqo.io/remote-cluster-id: milan, configuration.liqo.io/cidr-type: pod}}, owner: Configuration, spec: {cidr: 10.243.0.0/16}, status: {cidr: 10.60.0.0/16}}
---
{kind: Network, metadata: {name: reserved-203-0-113-0-24, annotations: {liqo.io/preinstalled: "true"}, labels: {ipam.liqo.io/network-type: reserved}}, spec: {cidr: 203.0.113.0/24}, status: {cidr: 203.0.113.0/24}}
---
{kind: Network, metadata: {name: milan-external, namespace: liqo-tenant-milan, finalizers: [network.ipam.liqo.io/finalizer], labels: {liqo.io/remote-cluster-id: milan, configuration.liqo.io/cidr-type: external}}, owner: Configuration, spec: {cidr: 10.70.0.0/16}, status: {cidr: 10.70.0.0/16}}
---
{kind: InternalNode, metadata: {name: node-1, namespace: "", finalizers: [internalnodes-route.liqo.io/finalizer]}, spec: {interface: {gateway: {name: liqo.aaaaaaaaaa}, node: {ip: 10.80.0.3}}}}
---
{kind: RouteConfiguration, metadata: {name: node-1-gw-node, labels: {networking.liqo.io/route-category: gateway, networking.liqo.io/route-subcategory: fabric}}, owner: InternalNode,
 spec: {table: {name: node-1, rules: [{dst: 10.80.0.3/32, routes: [{dst: 10.80.0.3/32}]}]}}}
---
{kind: InternalNode, metadata: {name: node-2, namespace: "", finalizers: [internalnodes-route.liqo.io/finalizer]}, spec: {interface: {gateway: {name: liqo.bbbbbbbbbb}, node: {ip: 10.80.0.4}}}}
---
{kind: RouteConfiguration, metadata: {name: node-2-gw-node, labels: {networking.liqo.io/route-category: gateway, networking.liqo.io/route-subcategory: fabric}}, owner: InternalNode,
 spec: {table: {name: node-2, rules: [{dst: 10.80.0.4/32, routes: [{dst: 10.80.0.4/32}]}]}}}
---
{kind: InternalFabric, metadata: {name: milan, namespace: liqo-tenant-milan, finalizers: [networking.liqo.io/internal-fabric-geneve-tunnel-finalizer], labels: {liqo.io/remote-cluster-id: milan}}, owner: GatewayServer,
 spec: {mtu: 1340, gatewayIP: 10.243.1.2, interface: {gateway: {ip: 10.80.0.9}, node: {name: liqo.x7k2m9q4zw}}, remoteCIDRs: [10.60.0.0/16, 10.70.0.0/16]}}
---
{kind: GeneveTunnel, metadata: {name: milan-node-1, namespace: liqo-tenant-milan, labels: {networking.liqo.io/internal-fabric-name: milan, networking.liqo.io/internal-node-name: node-1}}, owner: InternalFabric,
 spec: {id: 0, internalFabricRef: {name: milan, namespace: liqo-tenant-milan}, internalNodeRef: {name: node-1}}}
---
{kind: GeneveTunnel, metadata: {name: milan-node-2, namespace: liqo-tenant-milan, labels: {networking.liqo.io/internal-fabric-name: milan, networking.liqo.io/internal-node-name: node-2}}, owner: InternalFabric,
 spec: {id: 1, internalFabricRef: {name: milan, namespace: liqo-tenant-milan}, internalNodeRef: {name: node-2}}}
---
{kind: RouteConfiguration, metadata: {name: milan-node-gw, namespace: liqo-tenant-milan, finalizers: [routeconfiguration-controller.liqo.io/finalizer], labels: {networking.liqo.io/route-category: fabric}}, owner: InternalFabric,
 spec: {table: {name: milan-node-gw, rules: [{dst: 10.60.0.0/16, routes: [{dst: 10.60.0.0/16, gw: 10.80.0.9}]}]}}}
---
{kind: FirewallConfiguration, metadata: {name: milan-masquerade-bypass, namespace: liqo-tenant-milan, finalizers: [firewallconfigurations-controller.liqo.io/finalizer], labels: {networking.liqo.io/firewall-category: fabric, networking.liqo.io/firewall-subcategory: all-nodes}}, owner: Configuration,
 spec: {table: {name: milan-masquerade-bypass, family: IPV4, chains: [{name: pre-postrouting, type: nat, hook: postrouting, policy: accept, priority: 99,
   rules: {natRules: [{name: a, natType: snat, to: 10.243.0.0/16, match: [{op: eq, ip: {value: 10.60.0.0/16, position: dst}}]}]}}]}}}
`

// mapping is what Liqo's controllers make of an IP in its namespace. It has no owner.
func mapping(ip, local, granted string) string {
	return fmt.Sprintf(`{apiVersion: networking.liqo.io/v1beta1, kind: FirewallConfiguration, metadata: {name: %[1]s-remap-ipmapping-gw, namespace: liqo,
  labels: {liqo.io/managed: "true", networking.liqo.io/firewall-category: gateway, networking.liqo.io/firewall-subcategory: ip-mapping}},
 spec: {table: {name: %[1]s-remap-ipmapping-gw-liqo, family: IPV4, chains: [{name: prerouting, type: nat, hook: prerouting, policy: accept, priority: -100,
   rules: {natRules: [{name: %[1]s, natType: dnat, to: %[2]s, match: [{op: eq, ip: {value: %[3]s, position: dst}}]}]}}]}}}`, ip, local, granted)
}

// leave creates the objects of Liqo's network, as it leaves them.
func (s *takeoverSite) leave() {
	s.t.Helper()
	s.Apply(mapping("web", "10.60.1.5", "10.71.0.9"))
	owners := map[string]client.Object{}
	for text := range strings.SplitSeq(liqosNetwork, "\n---\n") {
		u := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			s.t.Fatal(err)
		}
		group := "networking.liqo.io/v1beta1"
		if u.GetKind() == "Network" || u.GetKind() == "IP" {
			group = "ipam.liqo.io/v1alpha1"
		}
		u.SetAPIVersion(group)
		if _, there, _ := unstructured.NestedString(u.Object, "metadata", "namespace"); !there {
			u.SetNamespace("liqo")
		}
		if owner, _, _ := unstructured.NestedString(u.Object, "owner"); owner != "" {
			delete(u.Object, "owner")
			if owner == "GatewayServer" {
				g := new(networkingv1beta1.GatewayServer)
				s.Read(s.t, "liqo-tenant-milan", "milan", g)
				g.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind(owner))
				owners[owner] = g
				var pods corev1.PodList
				if err := s.Client.List(s.t.Context(), &pods, client.InNamespace("liqo-tenant-milan")); err != nil || len(pods.Items) != 1 {
					s.t.Fatalf("%d gateways of milan, %v", len(pods.Items), err)
				}
				if err := unstructured.SetNestedField(u.Object, pods.Items[0].Status.PodIP, "spec", "gatewayIP"); err != nil {
					s.t.Fatal(err)
				}
			}
			mark(u, owners[owner])
		}
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[networkingv1beta1.LabelManaged] = "true"
		u.SetLabels(labels)
		status := u.Object["status"]
		s.Create(s.t, u)
		owners[u.GetKind()] = u.DeepCopy()
		if status != nil {
			u.Object["status"] = status
			if err := s.Client.Status().Update(s.t.Context(), u); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// liqosCRDs makes the CRDs of the network Liqo's: as far as it matters here, Configurations have lists and nothing else.
func (s *takeoverSite) liqosCRDs() {
	s.t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	d.Name = "configurations.networking.liqo.io"
	controlplanetest.Edit(s.t, s.Cluster, d, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Labels = map[string]string{"of": "liqo"}
		properties := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
		for _, path := range [][]string{{"spec", "local", "cidr"}, {"spec", "remote", "cidr"}, {"status", "remote", "cidr"}} {
			at := properties
			for _, p := range path {
				at = at[p].Properties
			}
			for name := range at {
				at[name] = apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string", Format: "cidr"}}}
			}
		}
	})
	for _, kind := range []string{"exportedservices", "importedservices"} {
		if _, err := s.Kubectl("delete", "crd", kind+".networking.liqo.io"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// asAccount is a client with the rights of an account of Liqo, which may do everything that no policy refuses.
func (s *takeoverSite) asAccount(name string) client.Client {
	s.t.Helper()
	binding := &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "liqo", Name: name}}}
	binding.Name = name
	s.Create(s.t, binding)
	c, err := client.New(s.ServiceAccount("liqo", name), client.Options{Scheme: kinds.Scheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// applyAsAgents says of each table for nodes that the pods of Liqo's node agent have applied it, as long as there are some.
func (s *takeoverSite) applyAsAgents(ctx context.Context) error {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace("liqo"), client.MatchingLabels{"app": "agent"}); err != nil {
		return err
	}
	var conditions []networkingv1beta1.HostCondition
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodRunning {
			conditions = append(conditions, networkingv1beta1.HostCondition{Host: p.Name, Type: "Applied", Status: "True"})
		}
	}
	if conditions == nil {
		return nil
	}
	var f networkingv1beta1.FirewallConfiguration
	if err := s.Get(ctx, "liqo-tenant-milan", "milan-masquerade-bypass", &f); err != nil {
		return err
	}
	var r networkingv1beta1.RouteConfiguration
	if err := s.Get(ctx, "liqo-tenant-milan", "milan-node-gw", &r); err != nil {
		return err
	}
	before, rBefore := f.DeepCopy(), r.DeepCopy()
	f.Status.Conditions, r.Status.Conditions = conditions, conditions
	if err := s.Client.Status().Patch(ctx, &f, client.MergeFrom(before)); err != nil {
		return err
	}
	return s.Client.Status().Patch(ctx, &r, client.MergeFrom(rBefore))
}

// sayAsAgents says of each node with one of Sluice's agents what that finds of Liqo's.
func (s *takeoverSite) sayAsAgents(ctx context.Context) error {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace("liqo-fabric"), client.MatchingLabels{"app.kubernetes.io/name": "liqo-fabric"}); err != nil {
		return err
	}
	s.mu.Lock()
	left := maps.Clone(s.left)
	s.mu.Unlock()
	for _, p := range pods.Items {
		var n networkingv1beta1.InternalNode
		if p.Status.Phase != corev1.PodRunning {
			continue
		}
		if err := s.Get(ctx, "", p.Spec.NodeName, &n); err != nil {
			return err
		}
		before := n.DeepCopy()
		c := metav1.Condition{Type: "LiqoReplaced", Status: "True", Reason: "LiqoReplaced"}
		if why := left[n.Name]; why != "" {
			c.Status, c.Reason, c.Message = "False", "LiqoLeft", why
		}
		if meta.SetStatusCondition(&n.Status.Conditions, c) {
			if err := s.Client.Status().Patch(ctx, &n, client.MergeFrom(before)); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaves has Sluice's agent of a node say that something of Liqo's is left there, and why.
func (s *takeoverSite) leaves(node, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[node] = why
}

// startTakeOver is a cluster with Liqo and its whole network.
func startTakeOver(t *testing.T) *takeoverSite {
	t.Helper()
	controller := buildController(t)
	s := &takeoverSite{left: map[string]string{}, adoptionSite: startAdoption(t, map[string]controlplanetest.Image{
		"ghcr.io/liqotech/liqo-controller-manager:v1.2.0": {},
		"ghcr.io/liqotech/ipam:v1.2.0":                    {},
		"ghcr.io/liqotech/fabric:v1.2.0":                  {},
		"sluice.local/wrong:unknown":                      {Program: "/bin/false"},
		"sluice.local/controller:unknown":                 {Program: controller, Args: []string{"--kubeconfig=$(KUBECONFIG)"}},
		"sluice.local/fabric:unknown":                     {Program: copyOfSelf(t), Args: []string{playAgent, "$(LOOPBACK)"}},
		"sluice.local/controller:" + otherBuild:           {Program: controller, Args: []string{"--kubeconfig=$(KUBECONFIG)"}},
		"sluice.local/fabric:" + otherBuild:               {Program: copyOfSelf(t), Args: []string{playAgent, "$(LOOPBACK)"}},
	})}
	s.Apply(liqosPrograms)
	s.liqosCRDs()
	s.agents("have started", 2)
	manager := s.asAccount("liqo-controller-manager")
	s.mu.Lock()
	s.manager = manager
	s.mu.Unlock()
	controlplanetest.Repeat(t, 500*time.Millisecond, func(ctx context.Context) {
		_, _ = s.applyAsAgents(ctx), s.sayAsAgents(ctx)
	})
	return s
}

// agents waits until Liqo's node agent has so many pods.
func (s *takeoverSite) agents(what string, n int) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, "Liqo's node agents "+what, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := s.Client.List(ctx, &pods, client.InNamespace("liqo"), client.MatchingLabels{"app": "agent"}); err != nil || len(pods.Items) != n {
			return fmt.Errorf("%d pods, %v", len(pods.Items), err)
		}
		return nil
	})
}
