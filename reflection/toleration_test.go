package reflection_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/reflection"
)

func TestStaying(t *testing.T) {
	notReady := corev1.Toleration{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	unreachable := corev1.Toleration{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	within := func(t corev1.Toleration, seconds int64) corev1.Toleration {
		t.TolerationSeconds = &seconds
		return t
	}
	other := within(corev1.Toleration{Key: "guest", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}, 300)
	all := corev1.Toleration{Operator: corev1.TolerationOpExists}
	scheduling := corev1.Toleration{Key: notReady.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	equal := corev1.Toleration{Key: notReady.Key, Operator: corev1.TolerationOpEqual, Value: "yes"}
	type list []corev1.Toleration
	for _, tt := range []struct {
		name      string
		has, want list
		changed   bool
	}{
		{"what an API server adds", list{other, within(notReady, 300), within(unreachable, 300)}, list{other, notReady, unreachable}, true},
		{"none", nil, list{notReady, unreachable}, true},
		{"nothing to change", list{notReady, other, unreachable}, list{notReady, other, unreachable}, false},
		{"everything", list{all}, list{all}, false},
		{"its own seconds", list{within(notReady, 20), within(unreachable, 300)}, list{within(notReady, 20), unreachable}, true},
		{"another effect, another value", list{scheduling, equal, unreachable}, list{scheduling, equal, unreachable, notReady}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			had := cmp.Diff(tt.has, nil)
			got, changed := reflection.Staying(tt.has)
			if diff := cmp.Diff(tt.want, list(got)); diff != "" || changed != tt.changed {
				t.Errorf("changed %v (-want +got)\n%s", changed, diff)
			}
			if cmp.Diff(tt.has, nil) != had {
				t.Error("it changes what it is given")
			}
			if again, changed := reflection.Staying(got); changed {
				t.Errorf("changed again: %v", again)
			}
		})
	}
}
