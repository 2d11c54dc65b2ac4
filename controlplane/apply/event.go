package apply

import (
	"strings"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxNote is how many bytes of text an API server accepts in an Event.
const maxNote = 1024

// Event records an event about an object. Kind is corev1.EventTypeNormal or
// EventTypeWarning. What is too long for an Event is cut from the end of message:
// an API server would refuse it, and the event would be lost.
func Event(r events.EventRecorder, about client.Object, kind, reason, action, message string) {
	if len(message) > maxNote {
		message = strings.ToValidUTF8(message[:maxNote], "") // without half a character
	}
	r.Eventf(about, nil, kind, reason, action, "%s", message)
}
