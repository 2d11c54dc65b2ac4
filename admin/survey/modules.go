package survey

import (
	"fmt"
	"slices"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// Role is what a peer is for this cluster; empty: the controller does not tell.
func (c *Cluster) Role(p *Peer) corev1beta1.Role {
	switch {
	case p.Foreign != nil:
		return p.Foreign.Status.Role
	case c.Unread("ForeignCluster"):
		return corev1beta1.UnknownRole
	}
	return ""
}

// Authentication tells how the authentication between this cluster and a peer is, with what is not as it should be: the
// module, and whether the API server of a provider answers.
func (c *Cluster) Authentication(p *Peer) (Health, []string) {
	if p.Foreign == nil {
		return c.untold(), nil
	}
	m := p.Foreign.Status.Modules.Authentication
	m.Conditions = append(m.Conditions[:len(m.Conditions):len(m.Conditions)], p.Foreign.Status.Conditions...)
	return moduleHealth(m)
}

// Offloading tells how the virtual nodes of a peer are.
func (c *Cluster) Offloading(p *Peer) (Health, []string) {
	if p.Foreign == nil {
		return c.untold(), nil
	}
	return moduleHealth(p.Foreign.Status.Modules.Offloading)
}

// untold is how a module is of which no ForeignCluster tells.
func (c *Cluster) untold() Health {
	if c.Unread("ForeignCluster") {
		return Unknown
	}
	return Disabled
}

// VirtualNode tells how one virtual node is, by its conditions.
func VirtualNode(v *offloadingv1beta1.VirtualNode) (Health, []string) {
	wanted := []offloadingv1beta1.VirtualNodeConditionType{offloadingv1beta1.VirtualNodeVirtualKubelet}
	if v.Spec.CreateNode == nil || *v.Spec.CreateNode {
		wanted = append(wanted, offloadingv1beta1.VirtualNodeNode)
	}
	for _, of := range wanted {
		i := slices.IndexFunc(v.Status.Conditions, func(c offloadingv1beta1.VirtualNodeCondition) bool { return c.Type == of })
		switch {
		case i < 0:
			return Unhealthy, []string{fmt.Sprintf("it has no condition %s yet", of)}
		case v.Status.Conditions[i].Status != offloadingv1beta1.VirtualNodeRunning:
			return Unhealthy, []string{v.Status.Conditions[i].Message}
		}
	}
	return Healthy, nil
}

// moduleHealth judges a module by its conditions. That a consumer is cordoned is as somebody wants it, and yet easily
// forgotten.
func moduleHealth(m corev1beta1.Module) (h Health, alerts []string) {
	if !m.Enabled {
		return Disabled, nil
	}
	h = Healthy
	for _, c := range m.Conditions {
		switch {
		case !c.Status.Well():
			h, alerts = Unhealthy, append(alerts, c.Message)
		case c.Reason == corev1beta1.ReasonTenantCordoned:
			alerts = append(alerts, c.Message)
		}
	}
	return h, alerts
}
