package exporter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/objectname"
	"github.com/sluice-net/sluice/controlplane/services/description"
)

// maxLeft is of how many endpoints is told that they are not passed on.
const maxLeft = 3

// PassOn is what this cluster has from other clusters of a Service, and may pass on. To the others these endpoints are
// addresses of this cluster's external CIDR: an IP each.
type PassOn struct {
	// Import is the ServiceImport of the name; nil: no other cluster exports it.
	Import *mcsv1beta1.ServiceImport
	// Slices are the endpoints of the clusters that may be passed on, as this cluster reaches them.
	Slices []discoveryv1.EndpointSlice
	// Withheld are the clusters that may not.
	Withheld []string
	// IPs are those of this Service that there are, and Others how many there are for other Services, by cluster.
	IPs    []ipamv1alpha1.IP
	Others map[string]int
}

// noService says why there is nothing to export.
func (f *Facts) noService() string {
	if len(f.PassOn.Withheld) == 0 {
		return fmt.Sprintf("There is no Service %s in namespace %s, not counting those that are imported from other clusters: create it to export it", f.Export.Name, f.Export.Namespace)
	}
	return fmt.Sprintf("The Service is imported from %s, and not passed on: the annotation %s of the Configuration there does not name it",
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
	for _, p := range s.Ports {
		d.Ports = append(d.Ports, networkingv1beta1.ServicePort{Name: p.Name, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), AppProtocol: p.AppProtocol, Port: p.Port})
	}
	return d
}

// clusters are those of which something is passed on.
func (o *PassOn) clusters() []string {
	all := map[string]bool{}
	for i := range o.Slices {
		all[sourceOf(&o.Slices[i])] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// only tells whether nothing of another cluster than this one is passed on.
func (o *PassOn) only(cluster string) bool { return slices.Equal(o.clusters(), []string{cluster}) }

func sourceOf(s *discoveryv1.EndpointSlice) string { return s.Labels[mcsv1beta1.LabelSourceCluster] }

// build returns the endpoints under the addresses by which others reach them, and the IPs that it takes. Left says of the
// first endpoints without such an address why.
func (o *PassOn) build() (passed []networkingv1beta1.ServiceSlice, ips []*ipamv1alpha1.IP, left []string) {
	have := map[string]*ipamv1alpha1.IP{}
	for i := range o.IPs {
		have[string(o.IPs[i].Spec.IP)] = &o.IPs[i]
	}
	leave := func(format string, args ...any) {
		if len(left) < maxLeft {
			left = append(left, fmt.Sprintf(format, args...))
		}
	}
	for _, cluster := range o.clusters() {
		var reached []discoveryv1.EndpointSlice
		taken := o.Others[cluster]
		for i := range o.Slices {
			in := &o.Slices[i]
			if sourceOf(in) != cluster {
				continue
			}
			out := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: in.Name}, AddressType: in.AddressType, Ports: in.Ports}
			for _, e := range in.Endpoints {
				here := e.Addresses[0] // all lead to the same
				if taken == networkingv1beta1.MaxPassedOn {
					leave("%s of cluster %s is not passed on: %d endpoints of a cluster are", here, cluster, networkingv1beta1.MaxPassedOn)
					continue
				}
				taken++
				ips = append(ips, o.ip(cluster, here))
				ip := have[here]
				if ip == nil || ip.Status.IP == "" {
					leave("%s of cluster %s has no address for other clusters yet%s", here, cluster, whyNot(ip))
					continue
				}
				e.Addresses = []string{string(ip.Status.IP)}
				out.Endpoints = append(out.Endpoints, e)
			}
			reached = append(reached, out)
		}
		d, _ := description.Of(new(corev1.Service), reached, metav1.Time{}, nil)
		for _, s := range d.Slices {
			s.Cluster = cluster
			passed = append(passed, s)
		}
	}
	return passed, ips, left
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
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: mcsv1beta1.SchemeGroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName, Name: i.Name, UID: i.UID, Controller: new(true),
			}},
		},
		Spec: ipamv1alpha1.IPSpec{IP: ipamv1alpha1.Address(here)},
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
