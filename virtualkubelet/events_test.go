package virtualkubelet

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestBudget(t *testing.T) {
	var b budget
	now := time.Unix(1000, 0)
	many := func(of types.UID, now time.Time) (taken int) {
		for i := range 2 * maxEvents {
			if b.take(of, fmt.Sprint(i), now) {
				taken++
			}
			if b.take(of, fmt.Sprint(i), now) {
				t.Error("the same twice")
			}
		}
		return taken
	}
	for _, tt := range []struct {
		name string
		of   types.UID
		at   time.Time
		want int
	}{
		{"the first", "a", now, maxEvents},
		{"the same pod", "a", now.Add(eventPeriod - 1), 0},
		{"another pod", "b", now.Add(eventPeriod - 1), maxEvents},
		{"later", "a", now.Add(eventPeriod), maxEvents},
	} {
		if got := many(tt.of, tt.at); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	b.giveBack("a", "0")
	if !b.take("a", "0", now.Add(eventPeriod)) {
		t.Error("one that was not made may be made again")
	}
}

func TestMatters(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, tt := range []struct {
		phase corev1.PodPhase
		kind  string
		at    time.Time
		want  bool
	}{
		{corev1.PodPending, corev1.EventTypeNormal, start.Add(-time.Hour), true},
		{corev1.PodPending, corev1.EventTypeWarning, start.Add(-time.Hour), true},
		{corev1.PodRunning, corev1.EventTypeNormal, start, false},
		{corev1.PodRunning, corev1.EventTypeWarning, start, true},
		{corev1.PodRunning, corev1.EventTypeWarning, start.Add(-time.Second), false},
		{corev1.PodFailed, corev1.EventTypeWarning, start, true},
	} {
		e := &corev1.Event{Type: tt.kind, LastTimestamp: metav1.NewTime(tt.at)}
		if got := matters(&corev1.Pod{Status: corev1.PodStatus{Phase: tt.phase}}, e, start); got != tt.want {
			t.Errorf("%s %s at %v: %v", tt.phase, tt.kind, tt.at, got)
		}
	}
}
