package controlplanetest

import (
	"errors"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// choose takes the next node that fits.
func (k *Kubelet) choose(p *corev1.Pod) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for range k.nodes {
		n := k.nodes[k.turn%len(k.nodes)]
		k.turn++
		want := wantedNode(p)
		if want == n.Name || want == "" && n.Name != ControlPlaneNode && !k.away[n.Name] {
			return n.Name, nil
		}
	}
	return "", errors.New("no node is left")
}

// wantedNode is the node that a pod asks for: in its node selector, or as the
// pods of a DaemonSet do.
func wantedNode(p *corev1.Pod) string {
	if name := p.Spec.NodeSelector[corev1.LabelHostname]; name != "" {
		return name
	}
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// address takes a free address of a node's pods.
func (k *Kubelet) address(node string) netip.Addr {
	k.mu.Lock()
	defer k.mu.Unlock()
	used := make(map[netip.Addr]bool)
	for _, w := range k.workers {
		used[w.address()] = true
	}
	for i, n := range k.nodes {
		if n.Name != node {
			continue
		}
		for {
			b := n.PodCIDR.Addr().As4()
			b[3] = byte(2 + k.nextPod[i]%250)
			k.nextPod[i]++
			if a := netip.AddrFrom4(b); !used[a] {
				return a
			}
		}
	}
	return netip.Addr{}
}
