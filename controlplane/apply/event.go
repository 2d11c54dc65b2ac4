package apply

import (
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/api/text"
)

// Event records an event about an object. Kind is corev1.EventTypeNormal or
// EventTypeWarning. What is too long for an Event is cut from the end of message:
// an API server would refuse it, and the event would be lost.
func Event(r events.EventRecorder, about client.Object, kind, reason, action, message string) {
	r.Eventf(about, nil, kind, reason, action, "%s", text.Cut(message, text.MaxEvent))
}
