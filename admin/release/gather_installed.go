package release

import (
	"context"
	"net/netip"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
)

// cleanupName is the DaemonSet that removes from the nodes what agents have left there.
const cleanupName = access.FabricName + "-cleanup"

// Annotations by which Helm marks whose an object is.
const (
	annotationRelease     = "meta.helm.sh/release-namespace"
	annotationReleaseName = "meta.helm.sh/release-name"
)

// ofThisRelease tells whether an object is of the installation in a namespace, or of no release at all.
func ofThisRelease(o client.Object, namespace string) bool {
	name, in := o.GetAnnotations()[annotationReleaseName], o.GetAnnotations()[annotationRelease]
	return (name == "" || name == Name) && (in == "" || in == namespace)
}

// installed reads what there is of an installation.
func (g *gatherer) installed(ctx context.Context) error {
	for _, step := range []func(context.Context) error{g.clusterID, g.networks, g.elsewhere, g.crds, g.liqo} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (g *gatherer) clusterID(ctx context.Context) error {
	var m corev1.ConfigMap
	err := g.Client.Get(ctx, client.ObjectKey{Namespace: g.LiqoNamespace, Name: bootstrap.ClusterIDConfigMap}, &m)
	g.facts.Installed.ClusterID = m.Data[bootstrap.ClusterIDKey]
	return client.IgnoreNotFound(err)
}

func (g *gatherer) networks(ctx context.Context) error {
	var list ipamv1alpha1.NetworkList
	if err := g.Client.List(ctx, &list, client.InNamespace(g.LiqoNamespace)); err != nil {
		return ignoreAbsent(err)
	}
	i := &g.facts.Installed
	for _, n := range list.Items {
		p, err := n.Spec.CIDR.Prefix()
		if err != nil {
			continue
		}
		p = p.Masked()
		switch n.Labels[ipamv1alpha1.LabelNetworkType] {
		case ipamv1alpha1.NetworkTypePodCIDR:
			i.PodCIDRs = append(i.PodCIDRs, p)
		case ipamv1alpha1.NetworkTypeServiceCIDR:
			i.ServiceCIDRs = append(i.ServiceCIDRs, p)
		case ipamv1alpha1.NetworkTypeExternalCIDR:
			if !i.ExternalCIDR.IsValid() || n.Name == ipamv1alpha1.NetworkTypeExternalCIDR { // that of IPv6 beside it is no value of the chart
				i.ExternalCIDR = p
			}
		case ipamv1alpha1.NetworkTypeInternalCIDR:
			i.InternalCIDR = p
		}
	}
	slices.SortFunc(i.PodCIDRs, netip.Prefix.Compare)
	slices.SortFunc(i.ServiceCIDRs, netip.Prefix.Compare)
	return nil
}

// elsewhere looks at an object without a namespace, of which a cluster can have
// one only.
func (g *gatherer) elsewhere(ctx context.Context) error {
	var binding rbacv1.ClusterRoleBinding
	switch err := g.Client.Get(ctx, client.ObjectKey{Name: access.ControllerName}, &binding); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	namespace := binding.Annotations[annotationRelease]
	for _, s := range binding.Subjects {
		if namespace == "" && s.Kind == rbacv1.ServiceAccountKind {
			namespace = s.Namespace
		}
	}
	if namespace != g.LiqoNamespace {
		g.facts.Installed.Elsewhere = namespace
	}
	return nil
}

// ourGroups are those of the CRDs that are installed.
var ourGroups = []string{
	networkingv1beta1.GroupVersion.Group, ipamv1alpha1.GroupVersion.Group, authv1beta1.GroupVersion.Group, offloadingv1beta1.GroupVersion.Group,
	corev1beta1.GroupVersion.Group,
}

func (g *gatherer) crds(ctx context.Context) error {
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := g.Client.List(ctx, &list); err != nil {
		return err
	}
	for _, d := range list.Items {
		if slices.Contains(ourGroups, d.Spec.Group) {
			g.facts.Installed.CRDs = append(g.facts.Installed.CRDs, d)
		}
	}
	return nil
}

// liqo looks for programs of Liqo itself.
func (g *gatherer) liqo(ctx context.Context) error {
	deployments, err := liqoPrograms(ctx, g.Cluster)
	for _, d := range deployments {
		g.facts.Installed.Liqo = append(g.facts.Installed.Liqo, "Deployment "+client.ObjectKeyFromObject(&d).String())
	}
	return err
}

// liqoPrograms are the Deployments of Liqo itself.
func liqoPrograms(ctx context.Context, c *access.Cluster) ([]appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	err := c.Client.List(ctx, &list, client.MatchingLabels{"app.kubernetes.io/part-of": "liqo"})
	ours := []string{access.ControllerName, access.FabricName, cleanupName, dnsService}
	return slices.DeleteFunc(list.Items, func(d appsv1.Deployment) bool {
		// Gateways are of either.
		return slices.Contains(ours, d.Name) || d.Labels[networkingv1beta1.LabelGatewayName] != "" || d.Labels[networkingv1beta1.LabelManaged] != ""
	}), err
}
