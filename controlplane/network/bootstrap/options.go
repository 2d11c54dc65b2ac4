package bootstrap

import (
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Options say what the administrator told about the cluster.
type Options struct {
	// LiqoNamespace is where the objects live.
	LiqoNamespace string
	// ClusterID is the name of the cluster among its peers. When empty the
	// ConfigMap must exist.
	ClusterID string
	// PodCIDRs are the prefixes of pod addresses. When empty the Networks must
	// exist.
	PodCIDRs []netip.Prefix
	// ServiceCIDRs are the prefixes of Service addresses. When empty the Networks
	// must exist, or the API server must tell.
	ServiceCIDRs []netip.Prefix
	// ExternalCIDR is the prefix under which remote clusters reach what is no
	// pod.
	ExternalCIDR Range
	// InternalCIDR is the prefix of the network between nodes and gateways.
	InternalCIDR Range
	// ReservedCIDRs are never handed out.
	ReservedCIDRs []netip.Prefix
}

// Range is a prefix that may be exchanged for another one.
type Range struct {
	Prefix netip.Prefix
	// Fixed says that it may not: it is this one or none.
	Fixed bool
}

// Validate finds what no cluster could work with. Its messages name flags.
func (o Options) Validate() error {
	var errs []error
	if o.ClusterID != "" && len(validation.IsDNS1123Label(o.ClusterID)) > 0 { // the ID is part of names
		errs = append(errs, fmt.Errorf("--cluster-id: %q must be lower-case letters, digits and dashes, at most 63, with a letter or digit at both ends", o.ClusterID))
	}
	type use struct {
		flag   string
		prefix netip.Prefix
	}
	var uses []use
	add := func(flag string, ps ...netip.Prefix) {
		for _, p := range ps {
			uses = append(uses, use{flag, p})
		}
	}
	add("--pod-cidr", o.PodCIDRs...)
	add("--service-cidr", o.ServiceCIDRs...)
	if o.ExternalCIDR.Fixed {
		add("--external-cidr", o.ExternalCIDR.Prefix)
	}
	if o.InternalCIDR.Fixed {
		add("--internal-cidr", o.InternalCIDR.Prefix)
	}
	for i, a := range uses {
		for _, b := range uses[:i] {
			if a.prefix.Overlaps(b.prefix) {
				errs = append(errs, fmt.Errorf("%s %s overlaps %s %s: an address must belong to one of them", a.flag, a.prefix, b.flag, b.prefix))
			}
		}
	}
	return errors.Join(errs...)
}
