package gatewaydeploy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestPatience(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "gw-a"}}
	taken := []refusal{{service, "provided port is already allocated"}}
	server := new(networkingv1beta1.WgGatewayServer)
	g := serverKind.view(server)
	if got := g.patience(taken); got != recheckRefusedFirst {
		t.Errorf("the first time: %v, want %v", got, recheckRefusedFirst)
	}
	server.Status.Conditions = []metav1.Condition{
		g.condition(networkingv1beta1.ConditionDeployed, false, networkingv1beta1.ReasonObjectRefused, join(taken)+"; a note"),
	}
	if got := g.patience(taken); got != recheckRefused {
		t.Errorf("again: %v, want %v", got, recheckRefused)
	}
	if got := g.patience([]refusal{{service, "quota exceeded"}}); got != recheckRefusedFirst {
		t.Errorf("for another reason: %v, want %v", got, recheckRefusedFirst)
	}
}
