package controlplanetest

import (
	"strconv"
	"strings"
	"testing"
)

// Patches counts the PATCH requests for a resource, "ips" say, that the API server has had.
func (c *Cluster) Patches(tb testing.TB, resource string) (sum int) {
	tb.Helper()
	out, err := c.Kubectl("get", "--raw", "/metrics")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="`+resource+`"`) && strings.Contains(line, `verb="PATCH"`) {
			fields := strings.Fields(line)
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				tb.Fatal(err)
			}
			sum += int(n)
		}
	}
	return sum
}
