package importer

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// merge is the Service that several exports are together, oldest first, and in what each cluster differs from the oldest.
func merge(all []constituent) (m networkingv1beta1.ServiceDescription, conflicts map[string][]string) {
	m = networkingv1beta1.ServiceDescription{
		Type: all[0].Type, SessionAffinity: cmp.Or(all[0].SessionAffinity, corev1.ServiceAffinityNone), SessionAffinityTimeoutSeconds: all[0].SessionAffinityTimeoutSeconds,
		InternalTrafficPolicy: policy(all[0]), TrafficDistribution: all[0].TrafficDistribution,
		Labels: all[0].Labels, Annotations: all[0].Annotations,
	}
	conflicts = map[string][]string{}
	var of []discoveryv1.AddressType // the families of the oldest one that has endpoints
	for _, c := range all {
		differs := func(is bool, reason mcsv1beta1.ServiceExportConditionReason) {
			if is {
				conflicts[c.cluster] = append(conflicts[c.cluster], string(reason))
			}
		}
		for _, port := range c.Ports {
			addPort(&m.Ports, port)
		}
		differs(!samePorts(c.Ports, all[0].Ports), mcsv1beta1.ServiceExportReasonPortConflict)
		differs(c.Type != m.Type, mcsv1beta1.ServiceExportReasonTypeConflict)
		differs(cmp.Or(c.SessionAffinity, corev1.ServiceAffinityNone) != m.SessionAffinity, mcsv1beta1.ServiceExportReasonSessionAffinityConflict)
		if c.SessionAffinity == m.SessionAffinity && m.SessionAffinity == corev1.ServiceAffinityClientIP {
			a, b := c.SessionAffinityTimeoutSeconds, m.SessionAffinityTimeoutSeconds
			differs((a == nil) != (b == nil) || a != nil && *a != *b, mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict)
		}
		differs(policy(c) != m.InternalTrafficPolicy, mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict)
		differs(c.TrafficDistribution != m.TrafficDistribution, mcsv1beta1.ServiceExportReasonTrafficDistributionConflict)
		differs(!maps.Equal(c.Labels, m.Labels), mcsv1beta1.ServiceExportReasonLabelsConflict)
		differs(!maps.Equal(c.Annotations, m.Annotations), mcsv1beta1.ServiceExportReasonAnnotationsConflict)
		if has := c.families(); len(has) > 0 {
			if of == nil {
				of = has
			}
			differs(!slices.Equal(has, of), mcsv1beta1.ServiceExportReasonIPFamilyConflict)
		}
	}
	return m, conflicts
}

func policy(c constituent) corev1.ServiceInternalTrafficPolicy {
	return cmp.Or(c.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
}

// families are those in which a cluster has endpoints of its own. If they differ, a client that uses one of them reaches only
// some of the endpoints.
func (c *constituent) families() (all []discoveryv1.AddressType) {
	for _, s := range c.Slices {
		if s.Cluster == "" && len(s.Endpoints) > 0 {
			all = append(all, s.AddressType)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// addPort adds a port, if none of the ports has its name or number, nor would one have no name.
func addPort(ports *[]networkingv1beta1.ServicePort, add networkingv1beta1.ServicePort) {
	for _, p := range *ports {
		if p.Name == add.Name || p.Port == add.Port && p.Protocol == add.Protocol || p.Name == "" || add.Name == "" {
			return // of several ports each has a name
		}
	}
	if len(*ports) < networkingv1beta1.MaxServicePorts {
		*ports = append(*ports, add)
	}
}

// samePorts tells whether the ports are the same ones, in any order.
func samePorts(a, b []networkingv1beta1.ServicePort) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p networkingv1beta1.ServicePort) bool { return !hasPort(b, p) })
}

func hasPort(ports []networkingv1beta1.ServicePort, p networkingv1beta1.ServicePort) bool {
	return slices.ContainsFunc(ports, func(q networkingv1beta1.ServicePort) bool {
		return q.Name == p.Name && q.Port == p.Port && q.Protocol == p.Protocol
	})
}
