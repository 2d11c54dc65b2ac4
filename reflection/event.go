package reflection

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api/text"
)

// Event returns what stands at the consumer for an Event of the provider that is about an object reflected there; about
// names the object here. It is the one direction in which the provider's text is shown, so it is cut, and has no control
// characters.
func Event(e *corev1.Event, about corev1.ObjectReference) *corev1.Event {
	source := cut(e.Source.Component)
	if source == "" {
		source = cut(e.ReportingController)
	}
	kind := corev1.EventTypeNormal
	if e.Type == corev1.EventTypeWarning {
		kind = corev1.EventTypeWarning
	}
	first, last, count := e.FirstTimestamp, e.LastTimestamp, e.Count
	if last.IsZero() { // as events.k8s.io has it
		first, last = metav1.Time{Time: e.EventTime.Time}, metav1.Time{Time: e.EventTime.Time}
		if s := e.Series; s != nil {
			last, count = metav1.Time{Time: s.LastObservedTime.Time}, s.Count
		}
	}
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: about.Namespace, Name: e.Name},
		InvolvedObject: about, Reason: short(e.Reason), Message: text.Printable(e.Message, maxText), Type: kind,
		Source:         corev1.EventSource{Component: short(source) + " (remote)"},
		FirstTimestamp: first, LastTimestamp: last, Count: max(count, 1),
	}
}

// short bounds a word as the API server does: 128 bytes.
func short(s string) string {
	return text.Printable(s, 128-len(" (remote)"))
}
