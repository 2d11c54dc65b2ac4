package daemon_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
)

// TestSmallPages sets it for this process, as there is no way to another one's.
func TestSmallPages(t *testing.T) {
	daemon.SmallPages()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(status), "\nTHP_enabled:\t0\n") {
		t.Errorf("large pages are still enabled:\n%s", status)
	}
}
