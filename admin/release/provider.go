package release

import (
	"net/netip"
	"slices"
	"strings"
)

// Provider is what a cluster was made with.
type Provider string

// The Providers that something is known of.
const (
	Kubeadm   Provider = "kubeadm"
	Kind      Provider = "kind"
	K3s       Provider = "k3s"
	AKS       Provider = "aks"
	EKS       Provider = "eks"
	GKE       Provider = "gke"
	OpenShift Provider = "openshift"
)

// Providers are all of them, in the order in which they are listed.
var Providers = []Provider{Kubeadm, Kind, K3s, AKS, EKS, GKE, OpenShift}

// knowledge is what is known of a Provider without asking the cluster.
type knowledge struct {
	pods, services string // its defaults
	ask            string // how its user finds out the CIDR of the pods
	values         map[string]any
	because        string // the reason of values
}

var known = map[Provider]knowledge{
	Kind: {
		pods: "10.244.0.0/16",
		values: map[string]any{"peering": map[string]any{"networking": map[string]any{"gateway": map[string]any{
			"server": map[string]any{"service": map[string]any{"type": "NodePort"}},
		}}}},
		because: "gateway servers are reached by NodePort, because kind has no load balancers",
	},
	K3s: {pods: "10.42.0.0/16", services: "10.43.0.0/16"},
	AKS: {ask: "az aks show -g GROUP -n NAME --query networkProfile.podCidr (or, where pods are in the nodes' network, the prefix of that subnet)"},
	EKS: {ask: "aws ec2 describe-vpcs --vpc-ids VPC --query 'Vpcs[].CidrBlockAssociationSet[].CidrBlock' (pods use the network of the VPC)"},
	GKE: {ask: "gcloud container clusters describe NAME --format='value(clusterIpv4Cidr)'"},
	OpenShift: {
		values:  map[string]any{"openshiftConfig": map[string]any{"enabled": true}},
		because: "openshiftConfig.enabled is set",
	},
}

// provider says what the cluster was made with, if it tells.
func (f Facts) provider() Provider {
	if len(f.OpenShift.Pods) > 0 {
		return OpenShift
	}
	for suffix, p := range map[string]Provider{"+k3s": K3s, "+rke2": K3s, "-eks-": EKS, "-gke.": GKE} {
		if strings.Contains(f.KubernetesVersion, suffix) {
			return p
		}
	}
	for _, n := range f.Nodes {
		for prefix, p := range map[string]Provider{"kind://": Kind, "k3s://": K3s, "azure://": AKS, "aws://": EKS, "gce://": GKE} {
			// A cluster of kubeadm in somebody's cloud is not that cloud's product.
			if strings.HasPrefix(n.ProviderID, prefix) && (f.Kubeadm == "" || p == Kind) {
				return p
			}
		}
	}
	if f.Kubeadm != "" {
		return Kubeadm
	}
	return ""
}

// usual is the default of a Provider, if all of some prefixes lie in it.
func usual(cidr string, parts []netip.Prefix) []netip.Prefix {
	if cidr == "" || len(parts) == 0 {
		return nil
	}
	p := netip.MustParsePrefix(cidr)
	if slices.ContainsFunc(parts, func(q netip.Prefix) bool { return !contains(p, q) }) {
		return nil
	}
	return []netip.Prefix{p}
}
