package peering

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestConnectionMissing(t *testing.T) {
	answers := metav1.Condition{Type: string(networkingv1beta1.ConditionPeerAnswers), Status: "False", Reason: "NoHandshake", Message: "no handshake"}
	waits := metav1.Condition{Type: string(networkingv1beta1.ConditionConfigurationApplied), Status: "False", Reason: "WaitingForObjects", Message: "no PublicKey"}
	refused := metav1.Condition{Type: string(networkingv1beta1.ConditionConfigurationApplied), Status: "False", Reason: "Refused", Message: "two prefixes"}
	for _, tt := range []struct {
		name       string
		value      networkingv1beta1.ConnectionValue
		conditions []metav1.Condition
		want       string
		complaint  bool
	}{
		{name: "connected", value: "Connected"},
		{name: "nothing yet", want: "Connection n/c is without status"},
		{name: "no answer", value: "Connecting", conditions: []metav1.Condition{answers}, want: "Connection n/c is Connecting: no handshake"},
		{name: "objects are missing", value: "Connecting", conditions: []metav1.Condition{answers, waits}, want: "Connection n/c is Connecting: no PublicKey"},
		{name: "connected by what was before", value: "Connected", conditions: []metav1.Condition{refused}, want: "Connection n/c is Connected: two prefixes", complaint: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			missing, err := connectionMissing(&networkingv1beta1.Connection{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, Status: networkingv1beta1.ConnectionStatus{Value: tt.value, Conditions: tt.conditions},
			})
			check(t, missing, err, tt.want, tt.complaint)
		})
	}
}
