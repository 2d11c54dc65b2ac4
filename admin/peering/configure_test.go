package peering

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestConfigurationMissing(t *testing.T) {
	cond := func(status metav1.ConditionStatus, reason networkingv1beta1.ConditionReason, generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: string(networkingv1beta1.ConditionNetworkCIDRsConfigured), Status: status, Reason: string(reason), Message: "because", ObservedGeneration: generation}}
	}
	for _, tt := range []struct {
		name      string
		status    networkingv1beta1.ConfigurationStatus
		want      string
		complaint bool
	}{
		{name: "done", status: networkingv1beta1.ConfigurationStatus{Conditions: cond("True", "NetworkCIDRsConfigured", 2)}},
		{name: "done, by controllers without conditions", status: networkingv1beta1.ConfigurationStatus{Remote: new(networkingv1beta1.ClusterConfig)}},
		{name: "nobody looked", want: "Configuration n/c has no status: no controller has processed it yet"},
		{name: "done for an older spec", status: networkingv1beta1.ConfigurationStatus{Conditions: cond("True", "NetworkCIDRsConfigured", 1)},
			want: "Configuration n/c: no controller has processed its latest version yet"},
		{name: "under way", status: networkingv1beta1.ConfigurationStatus{Conditions: cond("False", networkingv1beta1.ReasonWaitingForNetworks, 2)}, want: "Configuration n/c: because"},
		{name: "refused", status: networkingv1beta1.ConfigurationStatus{Conditions: cond("False", networkingv1beta1.ReasonNetworkRefused, 2)}, want: "Configuration n/c: because", complaint: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", Generation: 2}, Status: tt.status}
			missing, err := configurationMissing(c)
			check(t, missing, err, tt.want, tt.complaint)
		})
	}
}

func check(t *testing.T, missing string, err error, want string, wantComplaint bool) {
	t.Helper()
	var c *complaint
	if errors.As(err, &c) != wantComplaint || missing+errText(err) != want {
		t.Errorf("got %q, %v; want %q, as a complaint: %v", missing, err, want, wantComplaint)
	}
}
