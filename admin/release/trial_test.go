package release

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTrialRuns: only a program that ends by itself tells of a wrong image.
func TestTrialRuns(t *testing.T) {
	pod := func(phase corev1.PodPhase, reason string, status ...corev1.ContainerStatus) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "trial"}, Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Image: "sluice/controller:v1"}}},
			Status: corev1.PodStatus{Phase: phase, Reason: reason, ContainerStatuses: status},
		}
	}
	ended := func(code int32, reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}}
	}
	evicted := pod(corev1.PodFailed, "Evicted")
	evicted.Status.Message = "the node was low on memory"
	displaced := pod(corev1.PodFailed, "", ended(143, "Error"))
	displaced.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler"}}
	deleted := pod(corev1.PodRunning, "", ended(143, "Error"))
	deleted.DeletionTimestamp = new(metav1.Now())
	for _, tt := range []struct {
		name    string
		pod     corev1.Pod
		away    []string
		missing string
		again   bool // a single pod
		wrong   bool
	}{
		{"it has run", pod(corev1.PodSucceeded, "", ended(0, "Completed")), nil, "", false, false},
		{"it has run on a node that is not ready now", pod(corev1.PodSucceeded, "", ended(0, "Completed")), []string{"node-1"}, "", false, false},
		{"it waits", pod(corev1.PodPending, ""), nil, "1 of 1 pods have not run", false, false},
		{"another program", pod(corev1.PodFailed, "", ended(1, "Error")), nil, "", false, true},
		{"no program", pod(corev1.PodFailed, "", ended(128, "StartError")), nil, "", false, true},
		{"evicted", evicted, nil, "1 of 1 pods have not run: pod trial: the cluster has ended it: Evicted: the node was low on memory", true, false},
		{"without room on its node", pod(corev1.PodFailed, "OutOfpods"), nil, "OutOfpods", true, false},
		{"displaced", displaced, nil, "pod trial: the cluster ends it: PreemptionByScheduler", true, false},
		{"deleted", deleted, nil, "pod trial: it is being deleted", true, false},
		{"lost by its node", pod(corev1.PodFailed, "", ended(137, "ContainerStatusUnknown")), nil, "its node has lost it", true, false},
	} {
		for _, single := range []bool{true, false} {
			missing, again, err := trialRuns([]corev1.Pod{tt.pod}, 1, tt.away, single)
			if !strings.Contains(missing, tt.missing) || (missing == "") != (tt.missing == "") || again != (tt.again && single) || (err != nil) != tt.wrong {
				t.Errorf("%s, single %v: %q, again %v, %v", tt.name, single, missing, again, err)
			}
		}
	}
	// On a node that is not ready a single pod is not waited for, but made again; the others are not waited for.
	away := pod(corev1.PodRunning, "")
	if missing, again, err := trialRuns([]corev1.Pod{away}, 1, []string{"node-1"}, true); !strings.Contains(missing, "node node-1 is not ready") || !again || err != nil {
		t.Errorf("%q, %v, %v", missing, again, err)
	}
	if missing, again, err := trialRuns([]corev1.Pod{away}, 1, []string{"node-1"}, false); missing != "" || again || err != nil {
		t.Errorf("%q, %v, %v", missing, again, err)
	}
}
