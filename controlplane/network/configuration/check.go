package configuration

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// check tells what is wrong with a Configuration, "" if nothing is.
func check(c *networkingv1beta1.Configuration) string {
	id := c.Labels[networkingv1beta1.LabelRemoteClusterID]
	if wrong := validation.IsDNS1123Label(id); len(wrong) > 0 {
		return fmt.Sprintf("the label %s is %q: set it to the ID of the remote cluster, the CLUSTER_ID in its ConfigMap liqo-clusterid-configmap",
			networkingv1beta1.LabelRemoteClusterID, id)
	}
	remote := field.NewPath("spec", "remote", "cidr")
	if len(c.Spec.Remote.CIDR.Pod.List) == 0 {
		return fmt.Sprintf("%s is missing: give the pod CIDR of the remote cluster, or the list of them", remote.Child("pod"))
	}
	if problem := checkCluster(c.Spec.Remote, remote); problem != "" {
		return problem
	}
	if isEmpty(c.Spec.Local) {
		return ""
	}
	local := field.NewPath("spec", "local", "cidr")
	if len(c.Spec.Local.CIDR.Pod.List) == 0 {
		return fmt.Sprintf("%s is missing: give the pod CIDR of this cluster, or remove spec.local to have it filled in", local.Child("pod"))
	}
	return checkCluster(*c.Spec.Local, local)
}

// used is a prefix and where it is written.
type used struct {
	prefix netip.Prefix
	path   *field.Path
}

// checkCluster checks the prefixes of one cluster, which must not overlap.
func checkCluster(c networkingv1beta1.ClusterConfig, path *field.Path) string {
	var all []used
	for _, part := range []struct {
		cidrs networkingv1beta1.CIDRs
		path  *field.Path
	}{{c.CIDR.Pod, path.Child("pod")}, {c.CIDR.External, path.Child("external")}} {
		for i, cidr := range part.cidrs.List {
			at := part.path
			if !part.cidrs.Scalar {
				at = at.Index(i)
			}
			p, problem := checkPrefix(cidr)
			if problem != "" {
				return fmt.Sprintf("%s: %s", at, problem)
			}
			for _, u := range all {
				if u.prefix.Overlaps(p) {
					return fmt.Sprintf("%s: %s overlaps %s of %s: an address of a cluster must have one meaning only", at, p, u.prefix, u.path)
				}
			}
			all = append(all, used{p, at})
		}
	}
	return ""
}

// checkPrefix reads a prefix that packets can be sent to.
func checkPrefix(cidr networkingv1beta1.CIDR) (netip.Prefix, string) {
	p, err := cidr.Prefix()
	if err != nil {
		return p, err.Error()
	}
	switch a := p.Addr(); {
	case p.Masked() != p:
		return p, fmt.Sprintf("CIDR %q has host bits; write %s if you mean that", cidr, p.Masked())
	case p.Bits() == 0, a.IsUnspecified(), a.IsLoopback(), a.IsMulticast(), a.IsLinkLocalUnicast():
		return p, fmt.Sprintf("CIDR %q: cannot be routed between clusters", cidr)
	}
	return p, ""
}
