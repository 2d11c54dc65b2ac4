package release

import (
	"cmp"
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// somePods is how many pods are looked at to see whether prefixes are true.
const somePods = 500

// gatherer reads Facts.
type gatherer struct {
	*access.Cluster
	facts Facts
}

// Gather reads what the cluster says of itself. It changes nothing.
func Gather(ctx context.Context, c *access.Cluster) (Facts, error) {
	g := gatherer{Cluster: c}
	var err error
	if g.facts.UID, err = c.UID(ctx); err != nil {
		return Facts{}, err
	}
	v, err := c.Clientset.Discovery().ServerVersion()
	if err != nil {
		return Facts{}, c.Explain("ask for the version of Kubernetes", err)
	}
	g.facts.KubernetesVersion = v.GitVersion
	for _, step := range []struct {
		doing string
		do    func(context.Context) error
	}{
		{"read the nodes", g.nodes},
		{"read some pods", g.pods},
		{"read the Service default/kubernetes", g.service},
		{"read the ServiceCIDRs", g.serviceCIDRs},
		{"read the configuration of the cluster", g.configMaps},
		{"read the control plane's pods", g.controlPlane},
		{"read the IPPools of Calico", g.calico},
		{"read the network of OpenShift", g.openShift},
		{"look for an installation", g.installed},
	} {
		if err := step.do(ctx); err != nil {
			return Facts{}, c.Explain(step.doing, err)
		}
	}
	return g.facts, nil
}

// absent tells whether an error means that there is no such thing, or that it is
// nothing for this user, so that others must tell.
func absent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err)
}

func ignoreAbsent(err error) error {
	if absent(err) {
		return nil
	}
	return err
}

func (g *gatherer) nodes(ctx context.Context) error {
	var list corev1.NodeList
	if err := g.Client.List(ctx, &list); err != nil {
		return ignoreAbsent(err)
	}
	for _, n := range list.Items {
		node := Node{Name: n.Name, ProviderID: n.Spec.ProviderID, PodCIDRs: prefixes(strings.Join(n.Spec.PodCIDRs, ","))}
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
				node.Addresses = append(node.Addresses, ip)
			}
		}
		args := cmp.Or(n.Annotations["k3s.io/node-args"], n.Annotations["rke2.io/node-args"])
		if json.Unmarshal([]byte(args), &node.Args) != nil {
			node.Args = nil
		}
		g.facts.Nodes = append(g.facts.Nodes, node)
	}
	return nil
}

func (g *gatherer) pods(ctx context.Context) error {
	// Pods that are offloaded have addresses by which the other cluster is known.
	var virtual corev1.NodeList
	if err := g.Client.List(ctx, &virtual, client.MatchingLabels{networkingv1beta1.LabelNodeType: networkingv1beta1.NodeTypeVirtual}); ignoreAbsent(err) != nil {
		return err
	}
	var list corev1.PodList
	if err := g.Client.List(ctx, &list, client.Limit(somePods)); err != nil {
		return ignoreAbsent(err)
	}
	for _, p := range list.Items {
		if p.Spec.HostNetwork || slices.ContainsFunc(virtual.Items, func(n corev1.Node) bool { return n.Name == p.Spec.NodeName }) {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				g.facts.Pods = append(g.facts.Pods, PodAddress{client.ObjectKeyFromObject(&p), a})
			}
		}
	}
	return nil
}

func (g *gatherer) service(ctx context.Context) error {
	var s corev1.Service
	if err := g.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, &s); err != nil {
		return ignoreAbsent(err)
	}
	g.facts.KubernetesService, _ = netip.ParseAddr(s.Spec.ClusterIP)
	return nil
}

func (g *gatherer) serviceCIDRs(ctx context.Context) error {
	var list networkingv1.ServiceCIDRList
	switch err := g.Client.List(ctx, &list); {
	case absent(err):
		return g.askRange(ctx)
	case err != nil:
		return err
	}
	for _, s := range list.Items {
		if s.DeletionTimestamp.IsZero() {
			g.facts.ServiceCIDRs = append(g.facts.ServiceCIDRs, prefixes(strings.Join(s.Spec.CIDRs, ","))...)
		}
	}
	return nil
}

// askRange asks for an address that no cluster can give, without making
// anything: the refusal tells what it could be.
func (g *gatherer) askRange(ctx context.Context) error {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "range-of-addresses-"},
		Spec:       corev1.ServiceSpec{ClusterIP: "192.0.2.1", Ports: []corev1.ServicePort{{Port: 1}}},
	}
	err := g.Client.Create(ctx, s, client.DryRunAll)
	if apierrors.IsInvalid(err) {
		g.facts.ServiceRange = err.Error()
		return nil
	}
	return ignoreAbsent(err)
}

func (g *gatherer) configMaps(ctx context.Context) error {
	for _, from := range []struct {
		namespace, name string
		take            func(map[string]string)
	}{
		{metav1.NamespaceSystem, "kubeadm-config", func(d map[string]string) { g.facts.Kubeadm = d["ClusterConfiguration"] }},
		{metav1.NamespaceSystem, "kube-proxy", func(d map[string]string) { g.facts.KubeProxy = d["config.conf"] }},
		{metav1.NamespaceSystem, "cilium-config", func(d map[string]string) { g.facts.Cilium = d }},
		{metav1.NamespaceSystem, "kube-flannel-cfg", func(d map[string]string) { g.facts.Flannel = d["net-conf.json"] }},
		{"kube-flannel", "kube-flannel-cfg", func(d map[string]string) { g.facts.Flannel = d["net-conf.json"] }},
	} {
		var m corev1.ConfigMap
		switch err := g.Client.Get(ctx, client.ObjectKey{Namespace: from.namespace, Name: from.name}, &m); {
		case err == nil:
			from.take(m.Data)
		case !absent(err):
			return err
		}
	}
	return nil
}

// controlPlane reads the arguments of static pods. Where the control plane is
// somebody else's there are none.
func (g *gatherer) controlPlane(ctx context.Context) error {
	var list corev1.PodList
	if err := g.Client.List(ctx, &list, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"tier": "control-plane"}); err != nil {
		return ignoreAbsent(err)
	}
	for _, p := range list.Items {
		for _, c := range p.Spec.Containers {
			g.facts.ControlPlane = append(g.facts.ControlPlane, slices.Concat(c.Command, c.Args)...)
		}
	}
	return nil
}

func (g *gatherer) calico(ctx context.Context) error {
	list, err := g.list(ctx, schema.GroupVersionKind{Group: "crd.projectcalico.org", Version: "v1", Kind: "IPPool"})
	for _, o := range list {
		cidr, _, _ := unstructured.NestedString(o.Object, "spec", "cidr")
		disabled, _, _ := unstructured.NestedBool(o.Object, "spec", "disabled")
		uses, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "allowedUses")
		if !disabled && (uses == nil || slices.Contains(uses, "Workload")) {
			g.facts.CalicoPools = append(g.facts.CalicoPools, prefixes(cidr)...)
		}
	}
	return err
}

func (g *gatherer) openShift(ctx context.Context) error {
	list, err := g.list(ctx, schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "Network"})
	for _, o := range list {
		networks, _, _ := unstructured.NestedSlice(o.Object, "status", "clusterNetwork")
		for _, n := range networks {
			m, _ := n.(map[string]any)
			cidr, _ := m["cidr"].(string)
			g.facts.OpenShift.Pods = append(g.facts.OpenShift.Pods, prefixes(cidr)...)
		}
		services, _, _ := unstructured.NestedStringSlice(o.Object, "status", "serviceNetwork")
		g.facts.OpenShift.Services = append(g.facts.OpenShift.Services, prefixes(strings.Join(services, ","))...)
	}
	return err
}

// list reads objects of a kind that is not ours and that the cluster may not
// have.
func (g *gatherer) list(ctx context.Context, kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	var list unstructured.UnstructuredList
	kind.Kind += "List"
	list.SetGroupVersionKind(kind)
	if err := g.Client.List(ctx, &list); err != nil {
		return nil, ignoreAbsent(err)
	}
	return list.Items, nil
}
