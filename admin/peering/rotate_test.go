package peering

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

func TestHandshakeMissing(t *testing.T) {
	before := time.Unix(1000, 0)
	after := before.Add(time.Second)
	const key, former = "new", "old"
	for _, tt := range []struct {
		name    string
		theirs  *survey.TunnelStats
		ours    survey.TunnelStats
		missing string // part of it; "": nothing
	}{
		{"the public key is not there yet", &survey.TunnelStats{Peer: former, LastHandshake: before}, survey.TunnelStats{LastHandshake: before}, "not seen the new public key"},
		{"the former key is in use", &survey.TunnelStats{Peer: key, FormerPeer: former}, survey.TunnelStats{LastHandshake: before}, "no handshake with the new key"},
		{"only the peer is through", &survey.TunnelStats{Peer: key, LastHandshake: after}, survey.TunnelStats{LastHandshake: before}, "no handshake since"},
		{"both are, the former key rests", &survey.TunnelStats{Peer: key, FormerPeer: former, LastHandshake: after}, survey.TunnelStats{LastHandshake: after}, ""},
		{"a gateway that had none before", &survey.TunnelStats{Peer: key, LastHandshake: after}, survey.TunnelStats{LastHandshake: after}, ""},
		{"the peer's gateway is Liqo's", nil, survey.TunnelStats{LastHandshake: after}, ""},
		{"the same, too early", nil, survey.TunnelStats{LastHandshake: before}, "no handshake since"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := handshakeMissing(tt.theirs, tt.ours, key, before)
			if tt.missing == "" && got != "" || !strings.Contains(got, tt.missing) {
				t.Errorf("missing %q, want %q", got, tt.missing)
			}
		})
	}
}

// TestReportOfLiqo: Liqo's gateway is not asked, and what to do instead is told at once.
func TestReportOfLiqo(t *testing.T) {
	p := rotationEnds(nil, nil)
	p[0].namespace, p[0].role = "liqo-tenant-milan", networkingv1beta1.ConnectionClient
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p[0].namespace, Name: "gw-milan-0", Labels: map[string]string{
			networkingv1beta1.LabelComponent: networkingv1beta1.ComponentGateway, networkingv1beta1.LabelGatewayName: p[0].gateway(),
			networkingv1beta1.LabelActive: networkingv1beta1.LabelTrue,
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "gateway"}, {Name: "wireguard"}, {Name: "geneve"}}},
	}
	p[0].Client = fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(pod).Build()
	report, missing, err := p[0].report(t.Context())
	if report != nil || missing != "" || !errors.Is(err, survey.ErrOfLiqo) || !strings.Contains(err.Error(), "'liqoctl network adopt milan'") || patience(err) != 0 {
		t.Errorf("%v, %q, %v", report, missing, err)
	}
}

// rotationEnds are two ends with gateways of some ages.
func rotationEnds(local, remote []*gateway) pair {
	p := newPair(&access.Cluster{Options: access.Options{Name: access.Local}}, &access.Cluster{Options: access.Options{Name: access.Remote}}, &Options{})
	p[0].id, p[1].id = "rome", "milan"
	for i, gs := range [][]*gateway{local, remote} {
		for _, g := range gs {
			if g.server != nil {
				p[i].found.servers = append(p[i].found.servers, g)
			} else {
				p[i].found.clients = append(p[i].found.clients, g)
			}
		}
	}
	return p
}

func aged(g *gateway, namespace string, age int) *gateway {
	g.SetNamespace(namespace)
	g.SetName("gw")
	g.SetCreationTimestamp(metav1.NewTime(time.Unix(int64(1000-age), 0)))
	return g
}

func TestChooseGateways(t *testing.T) {
	server := func(ns string, age int) *gateway {
		return aged(serverGateway(new(networkingv1beta1.GatewayServer)), ns, age)
	}
	clientOf := func(ns string, age int) *gateway {
		return aged(clientGateway(new(networkingv1beta1.GatewayClient)), ns, age)
	}
	for _, tt := range []struct {
		name          string
		local, remote []*gateway
		want          string // namespaces and roles
		err           string // part of it
	}{
		{"client and server", []*gateway{clientOf("a", 1)}, []*gateway{server("b", 1)}, "a Client b Server", ""},
		{"the other way round", []*gateway{server("a", 1)}, []*gateway{clientOf("b", 1)}, "a Server b Client", ""},
		{"the oldest counts", []*gateway{server("young", 1), clientOf("old", 9)}, []*gateway{server("b", 1)}, "old Client b Server", ""},
		{"two servers", []*gateway{server("a", 1)}, []*gateway{server("b", 1)}, "", "do not match"},
		{"none here", nil, []*gateway{server("b", 1)}, "", "(local) there is no gateway for cluster milan"},
		{"none there", []*gateway{clientOf("a", 1)}, nil, "", "(remote) there is no gateway for cluster rome"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := rotationEnds(tt.local, tt.remote)
			err := p.chooseGateways()
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "nothing was changed") {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if got := p[0].namespace + " " + string(p[0].role) + " " + p[1].namespace + " " + string(p[1].role); err != nil || got != tt.want {
				t.Errorf("%s (%v), want %s", got, err, tt.want)
			}
		})
	}
}

func TestOnlyGeneratedKeysAreReplaced(t *testing.T) {
	g := aged(serverGateway(new(networkingv1beta1.GatewayServer)), "ns", 1)
	owned := metav1.OwnerReference{Kind: "GatewayServer", Name: "gw", Controller: new(true)}
	secret := func(name, managed string, owners ...metav1.OwnerReference) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners, Labels: map[string]string{networkingv1beta1.LabelManaged: managed}}}
	}
	for _, tt := range []struct {
		name string
		s    *corev1.Secret
		want bool
	}{
		{"made by the controller", secret("gw-gw", "true", owned), true},
		{"of spec.secretRef", secret("mine", ""), false},
		{"the user's under the controller's name", secret("gw-gw", ""), false},
		{"restored without its owner", secret("gw-gw", "true"), false},
	} {
		if got := new(end).generated(g, tt.s); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestRotateOptions(t *testing.T) {
	for only, ok := range map[string]bool{"": true, "local": true, "remote": true, "both": false} {
		if err := (RotateOptions{Only: only}).Validate(); (err == nil) != ok {
			t.Errorf("%q: %v", only, err)
		}
	}
}
