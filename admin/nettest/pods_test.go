package nettest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// TestRefusal: the latest reason is told, whichever way its Event tells its time.
func TestRefusal(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	event := func(name, message string) *corev1.Event {
		e := &corev1.Event{Reason: "FailedCreate", Message: message}
		e.Namespace, e.Name = Namespace, name
		return e
	}
	old, newer := event("b", "exceeded quota"), event("a", "violates PodSecurity\nmore")
	old.LastTimestamp.Time, newer.EventTime.Time = at, at.Add(time.Minute)
	s := &site{Cluster: &access.Cluster{Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(old, newer).Build()}}
	if got := s.refusal(t.Context(), Namespace); got != ": violates PodSecurity" {
		t.Errorf("%q", got)
	}
}
