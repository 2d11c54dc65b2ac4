package reflection

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Event returns what stands at the consumer for an Event of the provider that is about an object reflected there; about
// names the object here. It is the one direction in which the provider's text is shown, so it is cut.
func Event(e *corev1.Event, about corev1.ObjectReference) *corev1.Event {
	source := cut(e.Source.Component)
	if source == "" {
		source = cut(e.ReportingController)
	}
	kind := corev1.EventTypeNormal
	if e.Type == corev1.EventTypeWarning {
		kind = corev1.EventTypeWarning
	}
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: about.Namespace, Name: e.Name},
		InvolvedObject: about, Reason: short(e.Reason), Message: cut(e.Message), Type: kind,
		Source:         corev1.EventSource{Component: short(source) + " (remote)"},
		FirstTimestamp: e.FirstTimestamp, LastTimestamp: e.LastTimestamp, Count: max(e.Count, 0),
	}
}

// short bounds a word as the API server does: 128 bytes.
func short(s string) string {
	const most = 128 - len(" (remote)")
	return cut(s[:min(len(s), most)])
}
