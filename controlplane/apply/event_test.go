package apply_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/sluice-net/sluice/controlplane/apply"
)

func TestEvent(t *testing.T) {
	for _, tt := range []struct{ name, message, want string }{
		{"short", "100% of it", "100% of it"},
		{"as long as may be", strings.Repeat("a", 1024), strings.Repeat("a", 1024)},
		{"too long", strings.Repeat("a", 1025), strings.Repeat("a", 1021) + "..."},
		{"too long within a character", "a" + strings.Repeat("é", 512), "a" + strings.Repeat("é", 510) + "..."},
	} {
		r := events.NewFakeRecorder(1)
		apply.Event(r, new(corev1.Pod), corev1.EventTypeWarning, "Reason", "Act", tt.message)
		if got := <-r.Events; got != "Warning Reason "+tt.want {
			t.Errorf("%s: %d bytes: %q", tt.name, len(got), got)
		}
	}
}
