package importer

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/objectname"
)

const (
	// maxProblems is of how many endpoints is told.
	maxProblems = 3
	// sliceManager is the value of the label endpointslice.kubernetes.io/managed-by.
	sliceManager = "endpointslice.services.liqo.io"
)

// Facts are what the import of one Service depends on.
type Facts struct {
	// Namespace and Name are those of the Service, Cluster is the ID of this cluster.
	Namespace, Name, Cluster string
	// NamespaceMissing says that there is no such namespace here, NamespaceEnds that it is being deleted; Reserved why nothing
	// is imported into it, empty: it may be.
	NamespaceMissing, NamespaceEnds bool
	Reserved                        string
	// Alias asks for a Service of that name as well.
	Alias bool
	// AliasTaken says that one is asked for, and somebody else's Service has the name.
	AliasTaken bool
	// TakenOver says that a user has applied a Service of their own over the alias.
	TakenOver bool
	// AliasVersion is the resourceVersion of the alias of which that is said; empty: there is none.
	AliasVersion string
	// Imports are what the peers say.
	Imports []Import
	// Local is what this cluster itself exports under that name; nil: nothing.
	Local *networkingv1beta1.ServiceDescription
	// Nodes are the nodes of the endpoints of this cluster, by address. Peers have none here.
	Nodes map[string]string
	// PreferLocal says that endpoints of peers count only while none of this cluster is ready.
	PreferLocal bool
	// IPs are the addresses of the Service that stands for all.
	IPs []string
}

// Import is what one peer says of the Service.
type Import struct {
	Object *networkingv1beta1.ImportedService
	// Peer is the ID of the cluster; empty: there is no peering for what the object says.
	Peer string
	// Address judges an address of the peer, and translates it to the one by which this cluster reaches it.
	Address func(there string, family discoveryv1.AddressType) (here netip.Addr, err error)
	// PassedOn is the same for an address under which the peer passes on an endpoint of another cluster, and Connected are the
	// clusters that this one is connected to itself.
	PassedOn  func(there string, family discoveryv1.AddressType) (here netip.Addr, err error)
	Connected map[string]bool
	// Unwanted says that the operators of this cluster want nothing of that name from the peer.
	Unwanted bool
	// Creates says that they want a missing namespace created for it, Full that the peer has as many of these as it can have.
	Creates, Full bool
	// Unknown is why no address of the peer is known; empty: they are.
	Unknown string
	// Away is why no endpoint is ready; empty: each is as the peer says.
	Away string
}

// Plan is what an import leads to.
type Plan struct {
	// Namespace is created before the others; nil: it is there.
	Namespace *corev1.Namespace
	// Import is nil if there is nothing to import.
	Import   *mcsv1beta1.ServiceImport
	Clusters []mcsv1beta1.ClusterStatus
	// Services are the one that stands for all, and with an alias the one with the name of the Service behind it.
	Services []*corev1.Service
	// Slices are in the order in which they are written: those with a ready endpoint come first, so that the Service is never
	// without one while the endpoints of one cluster take over from those of another.
	Slices []*discoveryv1.EndpointSlice
	// Accepted has a condition for each of Facts.Imports.
	Accepted []metav1.Condition
	// Alias is the condition of the ServiceImport where it can have no alias; nil: it has one, or none is wanted.
	Alias *metav1.Condition
	// Conflict is the condition of the ServiceExport of this cluster; nil: it has none.
	Conflict *metav1.Condition
}

// constituent is what one cluster contributes.
type constituent struct {
	cluster string
	*networkingv1beta1.ServiceDescription
	of *Import // nil: this cluster
}

// Build decides what a Service of that namespace and name is made of.
//
//	a description that is none                  refused   Invalid
//	an object of no peering                     refused   NoPeering
//	a namespace of Kubernetes, of this project  refused   NamespaceReserved
//	what operators do not want from the peer    refused   NotWanted
//	a namespace that is not here                refused   NamespaceNotFound
//	  one that operators want created           joins, and the namespace is created
//	  the peer has as many as it can have       refused   TooManyNamespaces
//	an endpoint that leads elsewhere            left out  Accepted, whose message says so
//	what a hub passes on of a direct peer       left out  the same
//	another type, port or affinity than older   joins as the older one says; Conflict on this cluster's export
//	endpoints of other families than older      joins with all of them; Conflict on this cluster's export
//	the peer is away                            joins, nothing of it ready
//	an endpoint here is ready, and preferred    joins, nothing of it ready
func Build(f Facts) (p Plan) {
	var all []constituent
	if f.Local != nil && f.Reserved == "" {
		all = append(all, constituent{f.Cluster, f.Local, nil})
	}
	p.Accepted = make([]metav1.Condition, len(f.Imports))
	notes := make([][]string, len(f.Imports))
	for i := range f.Imports {
		in := &f.Imports[i]
		if reason, message := f.judge(in); reason != "" {
			p.Accepted[i] = accepted(false, reason, message)
			continue
		}
		all = append(all, constituent{in.Peer, &in.Object.Spec, in})
	}
	slices.SortStableFunc(all, func(a, b constituent) int {
		return cmp.Or(a.ExportedAt.Compare(b.ExportedAt.Time), cmp.Compare(a.cluster, b.cluster))
	})
	// A cluster has one export of a name. A second object of it is a copy that somebody made.
	seen := map[string]bool{}
	all = slices.DeleteFunc(all, func(c constituent) bool {
		again := seen[c.cluster]
		seen[c.cluster] = true
		if again && c.of != nil {
			p.Accepted[f.index(c.of)] = accepted(false, networkingv1beta1.ReasonNoPeering, fmt.Sprintf("Another object is about the same Service of cluster %s", c.cluster))
		}
		return again
	})
	if len(all) == 0 {
		return p
	}
	if f.NamespaceMissing {
		// From now on it is the users': nobody but them knows what else is in it by the time that the Service is gone.
		p.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace, Labels: map[string]string{networkingv1beta1.LabelImportedFrom: all[0].cluster}}}
	}
	merged, conflicts := merge(all)
	headless := merged.Type == networkingv1beta1.ServiceHeadless
	p.Import = f.serviceImport(merged)
	spare := f.PreferLocal && !headless && hasReady(f.Local)
	names := []string{DerivedName(f.Name)}
	if f.Alias {
		names = append(names, f.Name)
	}
	if f.AliasTaken && f.Local == nil { // what this cluster exports itself is meant by its own name
		p.Alias = &metav1.Condition{
			Type: string(networkingv1beta1.ConditionAlias), Status: metav1.ConditionFalse, Reason: string(networkingv1beta1.ReasonNameTaken),
			Message: fmt.Sprintf("The namespace has a Service %s of its own, so the imported one has no alias of this name: delete or rename that Service, or set the label %s=false on the namespace", f.Name, networkingv1beta1.LabelServiceAlias),
		}
	}
	for _, c := range all {
		made, problems := c.slices(&f, merged.Ports, spare)
		p.Clusters = append(p.Clusters, mcsv1beta1.ClusterStatus{Cluster: c.cluster})
		for _, s := range made {
			p.Clusters = append(p.Clusters, mcsv1beta1.ClusterStatus{Cluster: s.Labels[mcsv1beta1.LabelSourceCluster]})
		}
		for _, name := range names {
			number := map[discoveryv1.AddressType]int{}
			for _, s := range made {
				s = s.DeepCopy()
				// The order of a peer may change, the family of a slice never does: it is part of the name.
				s.Namespace, s.Name = f.Namespace, fmt.Sprintf("%s-%s-%s-%d", name, objectname.Digest(c.cluster, 4), strings.ToLower(string(s.AddressType)), number[s.AddressType])
				number[s.AddressType]++
				maps.Copy(s.Labels, map[string]string{
					networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, discoveryv1.LabelManagedBy: sliceManager,
					mcsv1beta1.LabelServiceName: f.Name, discoveryv1.LabelServiceName: name,
				})
				if headless {
					s.Labels[corev1.IsHeadlessService] = "" // by which a cluster's DNS knows it
				}
				p.Slices = append(p.Slices, s)
			}
		}
		if c.of == nil {
			continue
		}
		i := f.index(c.of)
		if what := conflicts[c.cluster]; len(what) > 0 {
			notes[i] = append(notes[i], fmt.Sprintf("the export of cluster %s is older and differs (%s): where they contradict, its settings are used", all[0].cluster, strings.Join(what, ", ")))
		}
		if merged.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal {
			notes[i] = append(notes[i], "no pod of this cluster reaches its endpoints: the internalTrafficPolicy of the Service is Local")
		}
		if c.of.Away != "" {
			notes[i] = append(notes[i], "no endpoint is ready: "+c.of.Away)
		}
		if spare {
			notes[i] = append(notes[i], fmt.Sprintf("no endpoint is used while one of this cluster is ready, as the annotation %s of the ServiceExport says", networkingv1beta1.AnnotationPreferLocal))
		}
		notes[i] = append(notes[i], problems...)
		p.Accepted[i] = accepted(true, networkingv1beta1.ReasonAccepted, strings.Join(append([]string{"Part of the ServiceImport of this name"}, notes[i]...), "; "))
	}
	for _, name := range names {
		p.Services = append(p.Services, f.service(name, merged, p.Slices))
	}
	ready, not := partition(p.Slices)
	p.Slices = slices.Concat(ready, not)
	p.Import.Spec.IPs = served(p.Import.Spec.IPs, p.Slices)
	p.Import.Spec.IPFamilies = importFamilies(p.Import.Spec, p.Slices)
	slices.SortFunc(p.Clusters, func(a, b mcsv1beta1.ClusterStatus) int { return cmp.Compare(a.Cluster, b.Cluster) })
	p.Clusters = slices.Compact(p.Clusters)
	if f.Local != nil {
		p.Conflict = new(conflict(all[0].cluster, conflicts))
	}
	return p
}

// partition tells slices with a ready endpoint from those without.
func partition(all []*discoveryv1.EndpointSlice) (ready, not []*discoveryv1.EndpointSlice) {
	for _, s := range all {
		if slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return *e.Conditions.Ready }) {
			ready = append(ready, s)
		} else {
			not = append(not, s)
		}
	}
	return ready, not
}

// index is that of one of the Imports.
func (f *Facts) index(in *Import) int {
	return slices.IndexFunc(f.Imports, func(i Import) bool { return i.Object == in.Object })
}

// judge says why what a peer says is not imported; empty: it is.
func (f *Facts) judge(in *Import) (networkingv1beta1.ConditionReason, string) {
	d := &in.Object.Spec
	if err := d.Check(); err != nil {
		return networkingv1beta1.ReasonInvalidService, err.Error()
	}
	switch {
	case d.ObjectName() != in.Object.Name:
		return networkingv1beta1.ReasonInvalidService, fmt.Sprintf("The object is about Service %s of namespace %s: its name would be %s", d.Name, d.Namespace, d.ObjectName())
	case in.Peer == "":
		return networkingv1beta1.ReasonNoPeering, "There is no Configuration of the cluster that the label liqo.io/remote-cluster-id names in this namespace"
	case in.Peer == f.Cluster:
		return networkingv1beta1.ReasonNoPeering, "The peer has the ID of this cluster"
	case f.Reserved != "":
		return networkingv1beta1.ReasonNamespaceReserved, f.Reserved + ": nothing is imported into it"
	case in.Unwanted:
		return networkingv1beta1.ReasonNotWanted, fmt.Sprintf("The annotation %s of the Configuration of cluster %s does not name it", networkingv1beta1.AnnotationImportServices, in.Peer)
	case f.NamespaceEnds:
		return networkingv1beta1.ReasonNamespaceNotFound, fmt.Sprintf("The namespace %s is being deleted", d.Namespace)
	case f.NamespaceMissing && !in.Creates:
		return networkingv1beta1.ReasonNamespaceNotFound, fmt.Sprintf(
			"There is no namespace %s in this cluster: create it to import the Service, or have it created by the annotation %s of the Configuration of cluster %s",
			d.Namespace, networkingv1beta1.AnnotationCreateNamespaces, in.Peer)
	case f.NamespaceMissing && in.Full:
		return networkingv1beta1.ReasonTooManyNamespaces, fmt.Sprintf(
			"There is no namespace %s in this cluster, and %d were created for cluster %s, the maximum: create it yourself, or delete those that are not needed (kubectl get namespaces -l %s=%s)",
			d.Namespace, networkingv1beta1.MaxCreatedNamespaces, in.Peer, networkingv1beta1.LabelImportedFrom, in.Peer)
	}
	return "", ""
}

// hasReady tells whether an endpoint is ready; of nothing none is.
func hasReady(d *networkingv1beta1.ServiceDescription) bool {
	return d != nil && slices.ContainsFunc(d.Slices, func(s networkingv1beta1.ServiceSlice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e networkingv1beta1.ServiceEndpoint) bool { return e.Ready })
	})
}

// slices are the endpoints of one cluster as this one reaches them. Those that are refused are left out; problems says of
// the first few of them why. Those of a peer are not ready if they are spare.
//
// A port of a cluster that is not one of the Service's, which has its name or its number already, leads to none of them:
// who asks for the port of that name means another one.
func (c *constituent) slices(f *Facts, served []networkingv1beta1.ServicePort, spare bool) (made []*discoveryv1.EndpointSlice, problems []string) {
	if c.of != nil && c.of.Unknown != "" {
		return nil, []string{c.of.Unknown}
	}
	left := 0
	for i := range c.Slices {
		in := &c.Slices[i]
		out := &discoveryv1.EndpointSlice{AddressType: in.AddressType, Endpoints: []discoveryv1.Endpoint{}}
		out.Labels = map[string]string{mcsv1beta1.LabelSourceCluster: cmp.Or(in.Cluster, c.cluster)}
		if in.Cluster != "" {
			if in.Cluster == f.Cluster || c.of == nil || c.of.Connected[in.Cluster] {
				// It is known here without the detour, or not meant to be; and nobody else says what a peer of this cluster has.
				if left++; left <= maxProblems {
					problems = append(problems, fmt.Sprintf("spec.slices[%d] is left out: cluster %s is not reached through another one", i, in.Cluster))
				}
				continue
			}
			out.Labels[networkingv1beta1.LabelPassedOnFrom] = in.Cluster
		}
		for _, p := range in.Ports {
			if slices.ContainsFunc(c.Ports, func(own networkingv1beta1.ServicePort) bool { return own.Name == p.Name && !hasPort(served, own) }) {
				continue
			}
			out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: new(p.Name), Protocol: new(p.Protocol), Port: new(p.Port), AppProtocol: p.AppProtocol})
		}
		for j := range in.Endpoints {
			e, err := c.endpoint(&in.Endpoints[j], in)
			if err == nil {
				if node := f.Nodes[e.Addresses[0]]; node != "" && c.of == nil {
					e.NodeName = &node // by which a Service with the policy Local knows its endpoints
				}
				if spare && c.of != nil {
					e.Conditions.Ready = new(false)
				}
				out.Endpoints = append(out.Endpoints, e)
				continue
			}
			if left++; left <= maxProblems {
				problems = append(problems, fmt.Sprintf("spec.slices[%d].endpoints[%d] is left out: %v", i, j, err))
			}
		}
		if len(out.Endpoints) > 0 { // a peer may tell of many more slices than of endpoints
			made = append(made, out)
		}
	}
	if left > maxProblems {
		problems = append(problems, fmt.Sprintf("and %d more", left-maxProblems))
	}
	return made, problems
}

// endpoint judges the addresses of one endpoint. Those of this cluster were judged by who wrote them into its EndpointSlices.
func (c *constituent) endpoint(in *networkingv1beta1.ServiceEndpoint, of *networkingv1beta1.ServiceSlice) (out discoveryv1.Endpoint, err error) {
	out.Hostname = in.Hostname
	out.Conditions = discoveryv1.EndpointConditions{Ready: new(in.Ready), Serving: new(in.Serving), Terminating: new(in.Terminating)}
	if c.of == nil {
		out.Addresses = slices.Clone(in.Addresses)
		return out, nil
	}
	translate := c.of.Address
	if of.Cluster != "" {
		translate = c.of.PassedOn
	}
	for _, there := range in.Addresses {
		here, err := translate(there, of.AddressType)
		if err != nil {
			return out, err
		}
		out.Addresses = append(out.Addresses, here.String())
	}
	if c.of.Away != "" {
		out.Conditions.Ready, out.Conditions.Serving = new(false), new(false)
	}
	return out, nil
}

// conflict is the condition of this cluster's export.
func conflict(oldest string, conflicts map[string][]string) metav1.Condition {
	c := metav1.Condition{
		Type: string(mcsv1beta1.ServiceExportConditionConflict), Status: metav1.ConditionFalse, Reason: string(mcsv1beta1.ServiceExportReasonNoConflicts),
		Message: "All clusters that export this Service agree on it",
	}
	if len(conflicts) == 0 {
		return c
	}
	kinds := map[string]bool{}
	clusters := slices.Sorted(maps.Keys(conflicts))
	for i, cluster := range clusters {
		var fields []string
		for _, what := range conflicts[cluster] {
			kinds[what] = true
			field := strings.Replace(strings.TrimSuffix(what, "Conflict"), "IP", "Ip", 1) // reasons are named after fields
			fields = append(fields, strings.ToLower(field[:1])+field[1:])
		}
		clusters[i] += " (" + strings.Join(fields, ", ") + ")"
	}
	c.Status, c.Reason = metav1.ConditionTrue, strings.Join(slices.Sorted(maps.Keys(kinds)), ",")
	c.Message = text.Cut(fmt.Sprintf("Where they contradict, the settings of cluster %s are used, as its export is the oldest. These clusters differ: %s", oldest, strings.Join(clusters, ", ")), text.MaxEvent)
	return c
}

func accepted(is bool, reason networkingv1beta1.ConditionReason, message string) metav1.Condition {
	c := metav1.Condition{Type: string(networkingv1beta1.ConditionAccepted), Status: metav1.ConditionFalse, Reason: string(reason), Message: text.Cut(message, text.MaxEvent)}
	if is {
		c.Status = metav1.ConditionTrue
	}
	return c
}
