package objectname_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/controlplane/objectname"
)

// TestShorten pins the names: objects that exist have them.
func TestShorten(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit int
		want  string
	}{
		{"rome", 63, "rome"},
		{strings.Repeat("a", 63), 63, strings.Repeat("a", 63)},
		{strings.Repeat("a", 64), 63, strings.Repeat("a", 54) + "-ffe054fe"},
		{"gateway-of-rome", 14, "gatew-8051963d"},
		{"of-a.-rome-and-milan", 14, "of-a-c768bdba"}, // no name ends in a dot before the dash
	} {
		got := objectname.Shorten(tt.name, tt.limit)
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if len(got) > tt.limit || len(validation.IsDNS1123Subdomain(got)) > 0 {
			t.Errorf("%s: %s is not a name of at most %d bytes", tt.name, got, tt.limit)
		}
	}
}
