package release_test

import (
	"testing"

	"github.com/sluice-net/sluice/admin/release"
)

// TestUnpeer: what a refusal names removes the peerings that are there.
func TestUnpeer(t *testing.T) {
	const network, all = "'liqoctl network reset'", "'liqoctl unpeer'"
	for _, tt := range []struct {
		peerings []string
		want     string
	}{
		{[]string{"Configuration a/b", "GatewayClient a/b"}, network},
		{[]string{"Tenant a/b"}, all},
		{[]string{"Identity a/b", "VirtualNode a/b"}, all},
		{[]string{"GatewayServer a/b", "Identity a/b"}, all + ", or where only the networks are connected with " + network},
	} {
		if got := release.Unpeer(tt.peerings...); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.peerings, got, tt.want)
		}
	}
}
