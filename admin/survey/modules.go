package survey

import (
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
)

// Role is what the peer is for this cluster; empty: the controller does not tell.
func (p *Peer) Role() corev1beta1.Role {
	if p.Foreign == nil {
		return ""
	}
	return p.Foreign.Status.Role
}

// Authentication tells how the authentication between this cluster and a peer is, with what is not as it should be: the
// module, and whether the API server of a provider answers.
func (p *Peer) Authentication() (Health, []string) {
	if p.Foreign == nil {
		return Disabled, nil
	}
	m := p.Foreign.Status.Modules.Authentication
	m.Conditions = append(m.Conditions[:len(m.Conditions):len(m.Conditions)], p.Foreign.Status.Conditions...)
	return moduleHealth(m)
}

// Offloading tells how the virtual nodes of a peer are.
func (p *Peer) Offloading() (Health, []string) {
	if p.Foreign == nil {
		return Disabled, nil
	}
	return moduleHealth(p.Foreign.Status.Modules.Offloading)
}

// moduleHealth judges a module by its conditions.
func moduleHealth(m corev1beta1.Module) (h Health, alerts []string) {
	if !m.Enabled {
		return Disabled, nil
	}
	for _, c := range m.Conditions {
		if !c.Status.Well() {
			alerts = append(alerts, c.Message)
		}
	}
	if len(alerts) > 0 {
		return Unhealthy, alerts
	}
	return Healthy, nil
}
