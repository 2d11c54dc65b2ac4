package mirror

import (
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-net/sluice/objects/manifests"
)

func TestContactIsLoggedOnce(t *testing.T) {
	var log strings.Builder
	c := NewContact(slog.New(slog.NewTextHandler(&log, nil)))
	refused := func(where string) error {
		return &url.Error{Op: "Get", URL: where, Err: errors.New("connection refused")}
	}
	for range 3 {
		c.Note("ips", refused("https://api/ips"))
		c.Note("nodes", refused("https://api/nodes"))
	}
	want := manifests.Problems{{Reason: "cannot read from the API server yet: connection refused"}}
	if diff := cmp.Diff(want, c.Problems()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if since, why := c.Away(); since.IsZero() || why != "ips: connection refused" {
		t.Errorf("away since %v: %s", since, why)
	}
	c.Note("ips", nil)
	if since, _ := c.Away(); since.IsZero() {
		t.Error("one watch of two is not all")
	}
	c.Note("nodes", apierrors.NewResourceExpired("too old")) // an answer, too
	if since, why := c.Away(); !since.IsZero() || len(c.Problems()) > 0 {
		t.Errorf("away since %v: %s", since, why)
	}
	for _, line := range []string{"cannot read from the API server", "reading from the API server again"} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("%q is logged %d times:\n%s", line, n, log.String())
		}
	}
}
