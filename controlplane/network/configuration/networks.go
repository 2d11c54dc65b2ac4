package configuration

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/objectname"
)

// wanted are the Networks of the Configuration. One that it has for a prefix is kept under its name: versions of Liqo name
// them in other ways, and another one could get another prefix.
func (f Facts) wanted() []*ipamv1alpha1.Network {
	wanted := wantedNetworks(f.Configuration)
	for _, w := range wanted {
		if has := f.has(w); has != nil {
			w.Name, w.Spec.CIDR = has.Name, has.Spec.CIDR
		}
	}
	return wanted
}

// has is the oldest Network of the Configuration that is for what another one is wanted for.
func (f Facts) has(wanted *ipamv1alpha1.Network) (oldest *ipamv1alpha1.Network) {
	for _, n := range f.Networks {
		if n.DeletionTimestamp.IsZero() && metav1.IsControlledBy(n, f.Configuration) && canonical(string(n.Spec.CIDR)) == string(wanted.Spec.CIDR) &&
			n.Labels[networkingv1beta1.LabelCIDRType] == wanted.Labels[networkingv1beta1.LabelCIDRType] &&
			(oldest == nil || n.CreationTimestamp.Before(&oldest.CreationTimestamp)) {
			oldest = n
		}
	}
	return oldest
}

// wantedNetworks returns a Network for each prefix of spec.remote, which has been
// checked: first those of pods, then the external ones, in the order written.
func wantedNetworks(c *networkingv1beta1.Configuration) []*ipamv1alpha1.Network {
	remote := c.Spec.Remote.CIDR
	all := make([]*ipamv1alpha1.Network, 0, len(remote.Pod.List)+len(remote.External.List))
	for _, cidr := range remote.Pod.List {
		all = append(all, wantedNetwork(c, networkingv1beta1.CIDRTypePod, cidr))
	}
	for _, cidr := range remote.External.List {
		all = append(all, wantedNetwork(c, networkingv1beta1.CIDRTypeExternal, cidr))
	}
	return all
}

func wantedNetwork(c *networkingv1beta1.Configuration, kind string, cidr networkingv1beta1.CIDR) *ipamv1alpha1.Network {
	text := canonical(string(cidr))
	return &ipamv1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{
			Name:      networkName(c.Name, kind, text),
			Namespace: c.Namespace,
			Labels: map[string]string{
				networkingv1beta1.LabelManaged:         networkingv1beta1.LabelTrue,
				networkingv1beta1.LabelRemoteClusterID: c.Labels[networkingv1beta1.LabelRemoteClusterID],
				networkingv1beta1.LabelCIDRType:        kind,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: networkingv1beta1.GroupVersion.String(), Kind: configurationKind, Name: c.Name, UID: c.UID, Controller: new(true),
			}},
		},
		Spec: ipamv1alpha1.NetworkSpec{CIDR: ipamv1alpha1.CIDR(text)},
	}
}

// canonical writes a prefix in its usual form, which for IPv6 is one of many.
func canonical(cidr string) string {
	if p, err := netip.ParsePrefix(cidr); err == nil {
		return p.String()
	}
	return cidr
}

// maxName is how long the name of an object may be.
const maxName = 253

// networkName is the name of the Network for a prefix. The end of one that is too
// long is a digest of the whole.
func networkName(configuration, kind, cidr string) string {
	name := configuration + "-" + kind + "-" + strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr)
	if len(name) <= maxName {
		return name
	}
	return objectname.WithSuffix(name, objectname.Digest(name, 8), maxName)
}
