package release

import (
	"net/netip"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Facts are what a cluster says of itself. Where it does not say something, or
// the user may not ask, it is the zero value.
type Facts struct {
	// UID identifies the cluster: that of the namespace kube-system.
	UID types.UID
	// KubernetesVersion is that of the API server: "v1.36.3".
	KubernetesVersion string
	Nodes             []Node
	// Pods are some pods that have an address of their own.
	Pods []PodAddress
	// KubernetesService is the address of the Service default/kubernetes.
	KubernetesService netip.Addr

	// ServiceCIDRs are those of the objects of this kind.
	ServiceCIDRs []netip.Prefix
	// ServiceRange is what the API server answers to a Service with an address
	// that no cluster can give it.
	ServiceRange string
	// Kubeadm is the ClusterConfiguration in ConfigMap kube-system/kubeadm-config.
	Kubeadm string
	// KubeProxy is the configuration in ConfigMap kube-system/kube-proxy.
	KubeProxy string
	// Flannel is net-conf.json of flannel's ConfigMap.
	Flannel string
	// Cilium is ConfigMap kube-system/cilium-config.
	Cilium map[string]string
	// CalicoPools are the prefixes of Calico's IPPools in use.
	CalicoPools []netip.Prefix
	// OpenShift is the status of OpenShift's network.
	OpenShift OpenShiftNetwork
	// ControlPlane are the arguments of the static pods kube-controller-manager and
	// kube-apiserver.
	ControlPlane []string

	Installed Installed
}

// Node is a node.
type Node struct {
	Name       string
	ProviderID string
	PodCIDRs   []netip.Prefix
	Addresses  []netip.Addr
	// Args are those of its k3s or RKE2, as the server's nodes tell them.
	Args []string
}

// PodAddress is a pod with its address.
type PodAddress struct {
	Pod     types.NamespacedName
	Address netip.Addr
}

// OpenShiftNetwork is what OpenShift tells.
type OpenShiftNetwork struct {
	Pods, Services []netip.Prefix
}

// Installed is what of an installation there is already, of this project or of
// another one.
type Installed struct {
	// ClusterID is what the ConfigMap of the Liqo namespace says.
	ClusterID string
	// PodCIDRs, ServiceCIDRs, ExternalCIDR and InternalCIDR are what the Networks of
	// the Liqo namespace ask for.
	PodCIDRs, ServiceCIDRs []netip.Prefix
	ExternalCIDR           netip.Prefix
	InternalCIDR           netip.Prefix
	// Elsewhere is the namespace of a release of this project, if it is another
	// one.
	Elsewhere string
	// Liqo holds the objects by which Liqo itself is known to run here:
	// "Deployment liqo/liqo-controller-manager".
	Liqo []string
	// CRDs are those of this project's kinds that exist.
	CRDs []apiextensionsv1.CustomResourceDefinition
}
