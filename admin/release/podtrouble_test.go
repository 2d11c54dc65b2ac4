package release

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestImageTrouble(t *testing.T) {
	pod := func(name, image string, status corev1.ContainerStatus) corev1.Pod {
		status.Image = image
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: "node-1"},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status}},
		}
	}
	waits := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	serves := pod("old", "sluice/controller:v1", corev1.ContainerStatus{Ready: true})
	for _, tt := range []struct {
		name string
		pods []corev1.Pod
		want []string // nothing: no trouble
	}{
		{"no pod", nil, nil},
		{"one that is being made", []corev1.Pod{pod("new", "sluice/controller:v2", waits("ContainerCreating", ""))}, nil},
		{"one that fails", []corev1.Pod{pod("new", "sluice/controller:v2", waits("CrashLoopBackOff", ""))}, nil},
		{"the first installation", []corev1.Pod{pod("new", "sluice/controller:v2", waits("ImagePullBackOff", "no such host"))},
			[]string{"image sluice/controller:v2, which pod new needs on node node-1, cannot be pulled: ImagePullBackOff: no such host\nIf the tag is right", "install --set tag=TAG"}},
		{"an upgrade", []corev1.Pod{pod("new", "sluice/controller:v2", waits("ErrImageNeverPull", "")), serves},
			[]string{"image sluice/controller:v2", "Pod old keeps running with image sluice/controller:v1."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := imageTrouble(tt.pods, correctTag)
			if len(tt.want) == 0 && got != "" {
				t.Errorf("%q", got)
			}
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q does not say %q", got, want)
				}
			}
		})
	}
	if got := podTrouble(pod("new", "sluice/controller:v2", waits("ErrImagePull", strings.Repeat("x", 200)))); !strings.HasPrefix(got, "pod new: ErrImagePull of image sluice/controller:v2: ...xxx") {
		t.Errorf("the trouble of a pod: %s", got)
	}
}

// A moment in which all is well begins anew.
func TestSince(t *testing.T) {
	var s since
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	for _, step := range []struct {
		so   bool
		at   int
		want time.Duration
	}{{true, 1, 0}, {true, 9, 8 * time.Second}, {false, 10, 0}, {true, 20, 0}, {true, 21, time.Second}} {
		if got := s.lasts(step.so, at(step.at)); got != step.want {
			t.Errorf("at %d s: %v, want %v", step.at, got, step.want)
		}
	}
}
