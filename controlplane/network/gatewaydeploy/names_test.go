package gatewaydeploy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/controlplane/objectname"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 70)
	for _, row := range []struct{ name, got, want string }{
		{"a child", childName("server"), "gw-server"},
		{"a Service", serviceName("server"), "gw-server"},
		{"the metrics", metricsName("server"), "gw-server-metrics"},
		{"a Lease", leaseName("a", "t", modeClient), "a.t.client.connections.liqo.io"},
		{"a binding", bindingName(gatewayRole, "liqo-tenant-b", "server"), "liqo-gateway-liqo-tenant-b-server"},
	} {
		if row.got != row.want {
			t.Errorf("%s: %q, want %q", row.name, row.got, row.want)
		}
	}
	for _, n := range []string{serviceName(long), metricsName(long)} {
		if errs := validation.IsDNS1035Label(n); len(errs) > 0 {
			t.Errorf("%q is no name of a Service: %v", n, errs)
		}
	}
	if serviceName(long) == serviceName(long+"y") {
		t.Error("two gateways share a shortened name")
	}
	if n := leaseName(strings.Repeat("x", 250), "t", modeServer); len(n) > maxName {
		t.Errorf("a Lease's name has %d characters", len(n))
	}
}

func TestBindingNamesNeverMeet(t *testing.T) {
	seen := make(map[string]string)
	// The last one has the digest of the first for its name.
	for _, gateway := range [][2]string{{"a", "b-c"}, {"a-b", "c"}, {"a-b", "b-c"}, {"a", "b-b-c"}, {"a-b-b", "c"}, {"a-b-c", objectname.Digest("a/b-c", digestBytes)}} {
		n := bindingName(gatewayRole, gateway[0], gateway[1])
		if other, ok := seen[n]; ok {
			t.Errorf("%v and %s are both %q", gateway, other, n)
		}
		seen[n] = gateway[0] + "/" + gateway[1]
	}
}
