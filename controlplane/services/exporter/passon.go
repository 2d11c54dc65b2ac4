package exporter

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/objectname"
)

// maxLeft is of how many endpoints is told that they are not passed on.
const maxLeft = 3

// PassOn is what this cluster has from other clusters of a Service, and may pass on. To the others these endpoints are
// addresses of this cluster's external CIDR: an IP each.
type PassOn struct {
	// Import is the ServiceImport of the name; nil: no other cluster exports it.
	Import *mcsv1beta1.ServiceImport
	// Sources are the clusters of which it may be passed on, by ID; also those without an endpoint for the moment.
	Sources []Source
	// Withheld are the clusters of which it may not.
	Withheld []string
	// IPs are those of this Service that there are, and Others how many there are for other Services, by cluster.
	IPs    []ipamv1alpha1.IP
	Others map[string]int
}

// Source is what a peer says of the Service. It is the peer's word itself: what the importer made of it is in a namespace of
// users, where everybody who may create EndpointSlices could add endpoints in the peer's name (CVE-2021-25740).
type Source struct {
	Cluster string
	Slices  []networkingv1beta1.ServiceSlice
	// Address judges an address of the peer, and translates it to the one by which this cluster reaches it.
	Address func(there string, family discoveryv1.AddressType) (here netip.Addr, err error)
	// Away says that no endpoint is ready, whatever the peer says.
	Away bool
}

// passed is a slice of another cluster as this one passes it on.
type passed struct {
	networkingv1beta1.ServiceSlice
	// ips are those that its endpoints take. Those that have no address yet are not among the endpoints, but will be.
	ips []*ipamv1alpha1.IP
}

// noService says why there is nothing to export.
func (f *Facts) noService() string {
	if len(f.PassOn.Withheld) == 0 {
		return fmt.Sprintf("There is no Service %s in namespace %s, not counting those that are imported from other clusters: create it to export it", f.Export.Name, f.Export.Namespace)
	}
	return fmt.Sprintf("The Service is imported from %s, and not passed on: the annotation %s of this cluster's Configuration for it does not name the Service",
		names(f.PassOn.Withheld), networkingv1beta1.AnnotationPassOnServices)
}

// described is the Service as it is imported, without endpoints.
func (o *PassOn) described(e *mcsv1beta1.ServiceExport) (d networkingv1beta1.ServiceDescription) {
	if o.Import == nil {
		return d
	}
	s := &o.Import.Spec
	d = networkingv1beta1.ServiceDescription{
		Namespace: e.Namespace, Name: e.Name, Type: networkingv1beta1.ServiceType(s.Type), ExportedAt: e.CreationTimestamp,
		SessionAffinity: cmp.Or(s.SessionAffinity, corev1.ServiceAffinityNone),
	}
	if c := s.SessionAffinityConfig; d.SessionAffinity == corev1.ServiceAffinityClientIP && c != nil && c.ClientIP != nil {
		d.SessionAffinityTimeoutSeconds = c.ClientIP.TimeoutSeconds
	}
	if p := s.InternalTrafficPolicy; p != nil && *p != corev1.ServiceInternalTrafficPolicyCluster {
		d.InternalTrafficPolicy = *p
	}
	if t := s.TrafficDistribution; t != nil {
		d.TrafficDistribution = *t
	}
	for _, p := range s.Ports {
		d.Ports = append(d.Ports, networkingv1beta1.ServicePort{Name: p.Name, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), AppProtocol: p.AppProtocol, Port: p.Port})
	}
	return d
}

// clusters are those of which something is passed on.
func (o *PassOn) clusters() (ids []string) {
	for i := range o.Sources {
		ids = append(ids, o.Sources[i].Cluster)
	}
	return ids
}

// only tells whether nothing of another cluster than this one is passed on.
func (o *PassOn) only(cluster string) bool { return slices.Equal(o.clusters(), []string{cluster}) }

// takes tells whether the importer takes what a peer says, and some of it is of the peer itself. One without endpoints for the
// moment has none of others either.
func takes(said *networkingv1beta1.ImportedService, peer string) bool {
	d := &said.Spec
	return said.DeletionTimestamp.IsZero() && said.Labels[networkingv1beta1.LabelRemoteClusterID] == peer &&
		meta.IsStatusConditionTrue(said.Status.Conditions, string(networkingv1beta1.ConditionAccepted)) && d.Check() == nil &&
		(len(d.Slices) == 0 || slices.ContainsFunc(d.Slices, func(s networkingv1beta1.ServiceSlice) bool { return s.Cluster == "" }))
}

// build returns the endpoints under the addresses by which others reach them. Left says of the first endpoints without such
// an address why, and full whether some have none because there are too many.
func (o *PassOn) build() (all []passed, left []string, full bool) {
	have := map[string]*ipamv1alpha1.IP{}
	for i := range o.IPs {
		have[string(o.IPs[i].Spec.IP)] = &o.IPs[i]
	}
	leave := func(format string, args ...any) {
		if len(left) < maxLeft {
			left = append(left, fmt.Sprintf(format, args...))
		}
	}
	for _, from := range o.Sources {
		made := map[string]*ipamv1alpha1.IP{} // of two endpoints with the same address, but other ports
		for _, in := range from.Slices {
			if in.Cluster != "" {
				continue // passed on to this cluster: that is far enough
			}
			out := passed{ServiceSlice: networkingv1beta1.ServiceSlice{Cluster: from.Cluster, AddressType: in.AddressType, Ports: in.Ports}}
			for _, e := range in.Endpoints {
				there := e.Addresses[0] // all lead to the same
				addr, err := from.Address(there, in.AddressType)
				if err != nil {
					leave("an endpoint of cluster %s is not passed on: %v", from.Cluster, err)
					continue
				}
				here := addr.String()
				if made[here] == nil && o.Others[from.Cluster]+len(made) >= networkingv1beta1.MaxPassedOn {
					full = true
					leave("%s of cluster %s is not passed on: %d endpoints of a cluster are", here, from.Cluster, networkingv1beta1.MaxPassedOn)
					continue
				}
				if made[here] == nil {
					made[here] = o.ip(from.Cluster, here)
				}
				out.ips = append(out.ips, made[here])
				ip := have[here]
				if ip == nil || ip.Status.IP == "" {
					leave("%s of cluster %s has no address for other clusters yet%s", here, from.Cluster, whyNot(ip))
					continue
				}
				e.Addresses = []string{string(ip.Status.IP)}
				e.Ready, e.Serving = e.Ready && !from.Away, e.Serving && !from.Away
				out.Endpoints = append(out.Endpoints, e)
			}
			all = append(all, out)
		}
	}
	return all, left, full
}

// ip is the IP for an endpoint. It goes with the ServiceImport.
func (o *PassOn) ip(cluster, here string) *ipamv1alpha1.IP {
	i := o.Import
	return &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.Namespace, Name: fmt.Sprintf("%s-%s", i.Name, objectname.Digest(here, 5)),
			Labels: map[string]string{
				networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, mcsv1beta1.LabelServiceName: i.Name, networkingv1beta1.LabelPassedOnFrom: cluster,
			},
			OwnerReferences: []metav1.OwnerReference{*o.owner()},
		},
		Spec: ipamv1alpha1.IPSpec{IP: ipamv1alpha1.Address(here)},
	}
}

// owner is that of the IPs.
func (o *PassOn) owner() *metav1.OwnerReference {
	return &metav1.OwnerReference{
		APIVersion: mcsv1beta1.SchemeGroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName, Name: o.Import.Name, UID: o.Import.UID, Controller: new(true),
	}
}

// whyNot says why an IP has no address, if that is known.
func whyNot(ip *ipamv1alpha1.IP) string {
	if ip != nil {
		if c := meta.FindStatusCondition(ip.Status.Conditions, string(ipamv1alpha1.ConditionAllocated)); c != nil {
			return ": " + c.Message
		}
	}
	return ""
}
