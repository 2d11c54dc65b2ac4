package survey

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/access"
)

func TestOfLiqo(t *testing.T) {
	container := func(name string, args ...string) corev1.Container { return corev1.Container{Name: name, Args: args} }
	for name, tt := range map[string]struct {
		containers []corev1.Container
		want       bool
	}{
		"our gateway":                    {[]corev1.Container{container("gateway", "--mode=server")}, false},
		"our gateway with one of others": {[]corev1.Container{container("gateway"), container("wireguard")}, false},
		"Liqo's gateway":                 {[]corev1.Container{container("gateway", "--mode=server"), container("wireguard"), container("geneve")}, true},
		"our agent":                      {[]corev1.Container{container("fabric", "--node-name=n", "--geneve-port=6091")}, false},
		"Liqo's agent":                   {[]corev1.Container{container("fabric", "--podname=p", "--nodename=n", "--geneve-port=6091")}, true},
		"our virtual kubelet":            {[]corev1.Container{container("virtual-kubelet", "--cluster-id=rome")}, false},
		"Liqo's virtual kubelet":         {[]corev1.Container{container("virtual-kubelet", "--foreign-cluster-id=rome")}, true},
		"a flag of something else":       {[]corev1.Container{container("fabric"), container("x", "--nodename=n")}, false},
	} {
		if got := OfLiqo(&corev1.PodSpec{Containers: tt.containers}); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

// TestGatewaysOfLiqoAreNotAsked: one line says so of all of them. Asking one would need a cluster, which is not there.
func TestGatewaysOfLiqoAreNotAsked(t *testing.T) {
	gateway := func() *Gateway {
		return &Gateway{Kind: "GatewayServer", Namespace: "a", Name: "b", Pods: []Pod{{Active: true, Ready: true, OfLiqo: true}}}
	}
	s := &Cluster{Peers: []Peer{{ID: "milan", Gateway: gateway()}, {ID: "paris", Gateway: gateway()}}}
	c := &access.Cluster{Options: access.Options{Name: access.Local}}
	AskGateways(t.Context(), c, s)
	for i := range s.Peers {
		if g := s.Peers[i].Gateway; g.Report != nil || !errors.Is(g.ReportErr, ErrOfLiqo) {
			t.Errorf("%+v, %v", g.Report, g.ReportErr)
		}
	}
	if got := s.Missing(""); len(got) != 1 || got[0] != "(local) "+errGatewaysOfLiqo.Error() {
		t.Errorf("%q", got)
	}
}
