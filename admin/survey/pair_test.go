package survey

import (
	"strings"
	"testing"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestCompareBothEnds(t *testing.T) {
	side := func(c networkingv1beta1.Configuration) *Peer { return &Peer{ID: "milan", Configuration: &c} }
	pods := func(cidr networkingv1beta1.CIDR) (c networkingv1beta1.ClusterConfig) {
		c.CIDR.Pod.List = []networkingv1beta1.CIDR{cidr}
		return c
	}
	here := networkingv1beta1.Configuration{Spec: networkingv1beta1.ConfigurationSpec{Remote: pods("10.1.0.0/16")}}
	here.Namespace, here.Name = "liqo-tenant-milan", "milan"
	there := func(cidr networkingv1beta1.CIDR) *Peer {
		local := pods(cidr)
		return side(networkingv1beta1.Configuration{Spec: networkingv1beta1.ConfigurationSpec{Local: &local}})
	}
	for _, tt := range []struct {
		name  string
		other *Peer
		want  string
	}{
		{"one end is known", nil, ""},
		{"they agree", there("10.1.0.0/16"), ""},
		{"the peer has not said", side(networkingv1beta1.Configuration{}), ""},
		{"they do not", there("10.2.0.0/16"), "Configuration liqo-tenant-milan/milan: it says that the pods of milan are 10.1.0.0/16, and there they are 10.2.0.0/16"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Status{Health: Healthy}
			s.Compare(side(here), tt.other)
			var got string
			for _, a := range s.Alerts {
				got += a.Object + ": " + a.Message
			}
			if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) || (s.Health == Healthy) != (tt.want == "") {
				t.Errorf("%s, %q, want %q", s.Health, got, tt.want)
			}
		})
	}
}
