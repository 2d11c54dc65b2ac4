package survey

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

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

// TestCompareKnownKeys: where the keys of both ends are known, nobody has to guess by
// handshakes that were refused before they were corrected.
func TestCompareKnownKeys(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	key := bytes.Repeat([]byte{1}, publicKeyLen)
	report := &GatewayReport{Time: now}
	report.Sync.Peer.Value = networkingv1beta1.Connected
	report.DataPlane.Tunnel.LastInitiation = now.Add(-5 * time.Second)
	p := &Peer{ID: "milan", Gateway: &Gateway{Report: report}, PublicKeys: make([]networkingv1beta1.PublicKey, 1)}
	p.PublicKeys[0].Spec.PublicKey = key
	refused := p.HandshakeFault(report).alert(p.Gateway)
	for _, tt := range []struct {
		name   string
		theirs string // the key of the other gateway
		want   int    // alerts
	}{
		{"the key is right", base64.StdEncoding.EncodeToString(key), 0},
		{"the key is wrong", base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{2}, publicKeyLen)), 1},
		{"the other gateway does not tell", "", 1},
	} {
		other := &Peer{ID: "rome", Gateway: &Gateway{Keys: &Keys{Public: tt.theirs}}}
		s := Status{Health: Healthy, Alerts: []StatusAlert{{severityWarning, refused.Object, refused.Reason, refused.Message, false}}}
		s.Compare(p, other)
		if len(s.Alerts) != tt.want || (s.Health == Healthy) != (tt.name != "the key is wrong") {
			t.Errorf("%s: %s, %+v", tt.name, s.Health, s.Alerts)
		}
	}
}
