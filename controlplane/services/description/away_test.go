package description

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
)

func TestAway(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := func(status corev1beta1.ConditionStatus, since time.Duration) *corev1beta1.ForeignCluster {
		f := new(corev1beta1.ForeignCluster)
		f.Status.Modules.Networking.Conditions = []corev1beta1.Condition{{
			Type: corev1beta1.ConditionNetworkConnection, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-since)),
		}}
		return f
	}
	for _, test := range []struct {
		name  string
		of    *corev1beta1.ForeignCluster
		away  bool
		again time.Duration
	}{
		{"connected", c(corev1beta1.StatusEstablished, time.Hour), false, 0},
		{"lost just now", c(corev1beta1.StatusError, 10*time.Second), false, 20 * time.Second},
		{"lost for longer", c(corev1beta1.StatusError, 31*time.Second), true, 0},
		{"lost in the future", c(corev1beta1.StatusError, -time.Hour), false, Hold},
		{"nothing known of the network", new(corev1beta1.ForeignCluster), true, 0},
		{"nothing known", nil, true, 0},
	} {
		if why, again := Away(test.of, now); (why != "") != test.away || again != test.again {
			t.Errorf("%s: %q, again in %v", test.name, why, again)
		}
	}
}
