package exporter

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/services/description"
)

// Reasons of the conditions of a ServiceExport beside those of its API.
const (
	reasonReserved = "NamespaceReserved"
	reasonPorts    = "TooManyPorts"
)

// maxProblems is of how many labels, and of how many annotations, is told why they are left out.
const maxProblems = 3

// Facts are what the export of one Service depends on.
type Facts struct {
	// Export is the user's word; nil: there is none.
	Export *mcsv1beta1.ServiceExport
	// Service and Slices are nil if there are none that users made.
	Service *corev1.Service
	Slices  []discoveryv1.EndpointSlice
	// PassOn is what this cluster, as a hub, may pass on of other clusters.
	PassOn PassOn
	// Reserved says why no Service of the namespace is exported; empty: they may be.
	Reserved string
	// Peers are the peerings, one for each cluster.
	Peers []Peer
	// PodCIDRs are those of this cluster, and Taken addresses in them that belong to no pod; the values say whose they are.
	PodCIDRs []netip.Prefix
	Taken    map[netip.Addr]string
}

// Peer is a cluster that may be told of Services.
type Peer struct {
	// ID is that of the cluster, Namespace the tenant namespace of the peering.
	ID, Namespace string
	// Services and Endpoints are how many it is told of beside this one.
	Services, Endpoints int
	// Denied says that the operators of this cluster do not let it be told of this one.
	Denied bool
	// PassOn says that they let the Service, as the peer exports it, be offered to others.
	PassOn bool
}

// Plan is what an export leads to.
type Plan struct {
	// Exported are all ExportedServices of the Service.
	Exported []*networkingv1beta1.ExportedService
	// IPs are the addresses that others need for what is passed on.
	IPs []*ipamv1alpha1.IP
	// Full says that a peer, or endpoints, are left out until there is room for them, of which no event tells.
	Full bool
	// Conditions are those of the ServiceExport.
	Conditions []metav1.Condition
}

// makes tells whether it has an IP that is not there yet.
func (p *Plan) makes(there []ipamv1alpha1.IP) bool {
	return slices.ContainsFunc(p.IPs, func(ip *ipamv1alpha1.IP) bool {
		return !slices.ContainsFunc(there, func(t ipamv1alpha1.IP) bool { return t.Spec.IP == ip.Spec.IP })
	})
}

// Build decides who is told what.
//
//	no ServiceExport                             nobody
//	a namespace of Kubernetes or of this project nobody              Valid=False NamespaceReserved
//	no Service, or an imported one               nobody              Valid=False NoService
//	  one that operators let be passed on        all but its own     Valid=True  Ready=True  Exported
//	a Service of type ExternalName               nobody              Valid=False InvalidServiceType
//	no peering, or none that may see it          nobody              Valid=True  Ready=False Pending
//	peers that operators let see others only     the others          Valid=True  Ready=False Pending, if there are none
//	a peer that is told of as much as it can be  the others          Valid=True  Ready=False Failed
//	else                                         those that may      Valid=True  Ready=True  Exported
func Build(f Facts) (p Plan) {
	if f.Export == nil {
		return p
	}
	read := condition(mcsv1beta1.ServiceExportConditionType(networkingv1beta1.ConditionOptionsRead), true, "Read", networkingv1beta1.ExportOptions(f.Export.Annotations))
	invalid := func(reason mcsv1beta1.ServiceExportConditionReason, message string) Plan {
		return Plan{Conditions: []metav1.Condition{
			condition(mcsv1beta1.ServiceExportConditionValid, false, reason, message),
			condition(mcsv1beta1.ServiceExportConditionReady, false, mcsv1beta1.ServiceExportReasonPending, "Nothing is exported: see the condition Valid"),
			read,
		}}
	}
	switch s := f.Service; {
	case f.Reserved != "":
		return invalid(reasonReserved, f.Reserved+": it is not exported")
	case s == nil && len(f.PassOn.Sources) == 0:
		return invalid(mcsv1beta1.ServiceExportReasonNoService, f.noService())
	case s == nil:
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return invalid(mcsv1beta1.ServiceExportReasonInvalidServiceType, "A Service of type ExternalName has no endpoints to export")
	case len(s.Spec.Ports) > networkingv1beta1.MaxServicePorts:
		return invalid(reasonPorts, fmt.Sprintf("The Service has %d ports: %d can be exported", len(s.Spec.Ports), networkingv1beta1.MaxServicePorts))
	case len(s.Spec.Ports) == 0 && s.Spec.ClusterIP != corev1.ClusterIPNone:
		return invalid(mcsv1beta1.ServiceExportReasonInvalidServiceType, "The Service has no ports")
	}
	d, problems := f.PassOn.described(f.Export), []string(nil)
	if f.Service != nil {
		d, problems = description.Of(f.Service, f.Slices, f.Export.CreationTimestamp, f.podOfThisCluster)
	}
	var bad []string
	d.Labels, bad = exported("label", f.Export.Spec.ExportedLabels, networkingv1beta1.CheckExportedLabel)
	problems = append(problems, bad...)
	d.Annotations, bad = exported("annotation", f.Export.Spec.ExportedAnnotations, networkingv1beta1.CheckExportedAnnotation)
	problems = append(problems, bad...)
	others, left, full := f.PassOn.build()
	p.Full, problems = full, append(problems, left...)
	peers, unknown := visible(f.Export, f.Peers)
	var told, crowded, denied, unfit []string
	taken := map[string]*ipamv1alpha1.IP{} // those that a peer is told of, by name
	for _, peer := range peers {
		spec := *d.DeepCopy()
		// What has no address yet counts, or a peer would be told of it and not in turn.
		endpoints, fits := spec.Endpoints(), true
		var ips []*ipamv1alpha1.IP
		for _, s := range others {
			switch {
			case s.Cluster == peer.ID: // not back to where it is from
			case endpoints+len(s.ips) > networkingv1beta1.MaxServiceEndpoints || len(spec.Slices) == networkingv1beta1.MaxServiceSlices:
				fits = false
			default:
				endpoints, ips = endpoints+len(s.ips), append(ips, s.ips...)
				if len(s.Endpoints) > 0 {
					spec.Slices = append(spec.Slices, s.ServiceSlice)
				}
			}
		}
		switch {
		case f.Service == nil && f.PassOn.only(peer.ID):
			continue
		case peer.Denied:
			denied = append(denied, peer.ID)
			continue
		case peer.Services >= networkingv1beta1.MaxServices:
			crowded = append(crowded, fmt.Sprintf("cluster %s is already offered %d Services, the maximum", peer.ID, peer.Services))
			continue
		case peer.Endpoints+endpoints > networkingv1beta1.MaxServiceEndpointsTotal:
			crowded = append(crowded, fmt.Sprintf("cluster %s would be offered %d endpoints of all Services together: the maximum is %d",
				peer.ID, peer.Endpoints+endpoints, networkingv1beta1.MaxServiceEndpointsTotal))
			continue
		}
		told = append(told, peer.ID)
		if !fits {
			unfit = append(unfit, peer.ID)
		}
		for _, ip := range ips {
			taken[ip.Name] = ip
		}
		p.Exported = append(p.Exported, &networkingv1beta1.ExportedService{
			ObjectMeta: metav1.ObjectMeta{Namespace: peer.Namespace, Name: d.ObjectName(), Labels: map[string]string{
				networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: peer.ID,
			}},
			Spec: spec,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(taken)) {
		p.IPs = append(p.IPs, taken[name])
	}
	var parts []string
	ready, reason := true, mcsv1beta1.ServiceExportReasonExported
	switch {
	case len(f.Peers) == 0:
		ready, reason = false, mcsv1beta1.ServiceExportReasonPending
		parts = append(parts, "This cluster is connected to no other one yet")
	case len(peers) == 0:
		ready, reason = false, mcsv1beta1.ServiceExportReasonPending
		parts = append(parts, fmt.Sprintf("The annotation %s names no cluster that this one is connected to", networkingv1beta1.AnnotationExportTo))
	case len(told)+len(crowded)+len(denied) == 0:
		ready, reason = false, mcsv1beta1.ServiceExportReasonPending
		parts = append(parts, "This cluster is connected to no other one than the one that exports it")
	case len(told)+len(crowded) == 0:
		ready, reason = false, mcsv1beta1.ServiceExportReasonPending
	case len(crowded) > 0:
		ready, reason = false, mcsv1beta1.ServiceExportReasonFailed
		parts = append(parts, crowded[:min(len(crowded), 3)]...)
		p.Full = true
	}
	if len(told) > 0 {
		parts = append(parts, "Exported to "+names(told))
	}
	if clusters := f.PassOn.clusters(); len(clusters) > 0 && len(told) > 0 {
		parts = append(parts, "Endpoints of "+names(clusters)+" are passed on to the others")
	}
	if len(unfit) > 0 {
		parts = append(parts, fmt.Sprintf("To %s not all of them: a Service has %d endpoints in %d slices at most", names(unfit), networkingv1beta1.MaxServiceEndpoints, networkingv1beta1.MaxServiceSlices))
	}
	if len(denied) > 0 {
		parts = append(parts, fmt.Sprintf("Not to %s: the annotation %s of this cluster's Configuration for it does not name the Service", names(denied), networkingv1beta1.AnnotationExportServices))
	}
	if len(unknown) > 0 && len(f.Peers) > 0 {
		parts = append(parts, fmt.Sprintf("not connected to %s, which the annotation names", names(unknown)))
	}
	parts = append(parts, problems...)
	p.Conditions = []metav1.Condition{
		condition(mcsv1beta1.ServiceExportConditionValid, true, mcsv1beta1.ServiceExportReasonValid, "The Service can be exported"),
		condition(mcsv1beta1.ServiceExportConditionReady, ready, reason, strings.Join(parts, "; ")),
		read,
	}
	return p
}

// exported are the labels or annotations that other clusters are told of. Of the first few that they are not, problems says why.
func exported(what string, all map[string]string, check func(key, value string) error) (told map[string]string, problems []string) {
	left := 0
	for _, key := range slices.Sorted(maps.Keys(all)) {
		err := check(key, all[key])
		if err == nil && len(told) == networkingv1beta1.MaxServiceLabels {
			err = fmt.Errorf("%s is one of more than %d", key, networkingv1beta1.MaxServiceLabels)
		}
		if err != nil {
			if left++; left <= maxProblems {
				problems = append(problems, fmt.Sprintf("an exported %s is left out: %v", what, err))
			}
			continue
		}
		if told == nil {
			told = map[string]string{}
		}
		told[key] = all[key]
	}
	return told, problems
}

// fail adds why peers could not be told, so that the Service is not exported to all that should have it.
func (p *Plan) fail(untold []string) {
	p.add(untold)
	if c := meta.FindStatusCondition(p.Conditions, string(mcsv1beta1.ServiceExportConditionReady)); c != nil && len(untold) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, string(mcsv1beta1.ServiceExportReasonFailed)
	}
}

// add adds what only applying the plan showed to the message of the condition Ready.
func (p *Plan) add(problems []string) {
	c := meta.FindStatusCondition(p.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
	if c != nil && len(problems) > 0 {
		c.Message = text.Cut(strings.Join(append([]string{c.Message}, problems...), "; "), text.MaxEvent)
	}
}

// podOfThisCluster is an error for an address at which no pod of this cluster is. Pods of this cluster that run in another
// one have addresses of that one, which only this cluster knows.
func (f *Facts) podOfThisCluster(a netip.Addr) error {
	if who, taken := f.Taken[a]; taken {
		return fmt.Errorf("%s is an address of %s, not of a pod", a, who)
	}
	if !slices.ContainsFunc(f.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return fmt.Errorf("%s is in no pod CIDR of this cluster", a)
	}
	return nil
}

// visible are the peers that may see an export, and the names in its annotation that are no peer's. Without the annotation
// all may.
func visible(e *mcsv1beta1.ServiceExport, peers []Peer) (may []Peer, unknown []string) {
	list, limited := e.Annotations[networkingv1beta1.AnnotationExportTo]
	if !limited {
		return peers, nil
	}
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			wanted[name] = true
		}
	}
	for _, p := range peers {
		if wanted[p.ID] {
			may = append(may, p)
			delete(wanted, p.ID)
		}
	}
	return may, slices.Sorted(maps.Keys(wanted))
}

// names joins the first few names.
func names(all []string) string {
	const most = 10
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", names(all[:most]), len(all)-most)
	}
	short := make([]string, len(all))
	for i, n := range all {
		short[i] = text.Quoted(n)
	}
	return strings.Join(short, ", ")
}

func condition(t mcsv1beta1.ServiceExportConditionType, is bool, reason mcsv1beta1.ServiceExportConditionReason, message string) metav1.Condition {
	c := metav1.Condition{Type: string(t), Status: metav1.ConditionFalse, Reason: string(reason), Message: text.Cut(message, text.MaxEvent)}
	if is {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// peersOf are the peerings of this cluster for a Service, one for each other cluster: of several Configurations the oldest counts, as for
// the network.
func peersOf(configurations []networkingv1beta1.Configuration, of types.NamespacedName, labels map[string]string) []Peer {
	oldest := slices.SortedFunc(slices.Values(configurations), func(a, b networkingv1beta1.Configuration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	peers := map[string]Peer{}
	for i := range oldest {
		c := &oldest[i]
		id := c.Labels[networkingv1beta1.LabelRemoteClusterID]
		if _, known := peers[id]; id != "" && !known && c.DeletionTimestamp.IsZero() {
			peers[id] = Peer{
				ID: id, Namespace: c.Namespace, PassOn: description.PassesOn(c, of.Namespace, of.Name),
				Denied: !description.Allows(c, networkingv1beta1.AnnotationExportServices, of.Namespace, of.Name, labels),
			}
		}
	}
	return slices.SortedFunc(maps.Values(peers), func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
}
