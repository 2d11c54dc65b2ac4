package tunlink_test

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/node/tunlink"
)

// A device that is out of the way lives on, and its queues with it: nothing but
// the index tells that the name means another one now.
func TestApplyFollowsTheName(t *testing.T) {
	n := newNetwork(t, 1500)
	n.startBoth(tunlink.Options{})
	elsewhere := n.lab.Host("elsewhere")
	for _, away := range []string{
		"link set liqo.test down name liqo.old",
		"link set liqo.test netns elsewhere name liqo.old",
	} {
		n.a.node.IP("%s", strings.ReplaceAll(away, "elsewhere", elsewhere.Namespace()))
		apply := func() error { return n.a.endpoint.Apply([]tunlink.Tunnel{n.tunnel(n.a)}) }
		if err := n.a.node.Do(apply); err == nil || err.Error() != "tunnel liqo.test: no such device" {
			t.Errorf("after %s: %v", away, err)
		}
		n.a.addDevice(device, n.b)
		if err := n.a.node.Do(apply); err != nil {
			t.Error(err)
		}
		if p := n.a.pod.Ping(n.b.pod4, "-c3 -i0.2 -W1"); p.Received == 0 {
			t.Errorf("after %s nothing arrives:\n%s\n%+v", away, p.Output, n.a.status())
		}
	}
}
