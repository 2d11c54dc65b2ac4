package description

import (
	"time"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
)

// Hold is for how long endpoints stay ready after the network of their peering was lost. A gateway that is replaced takes
// less, and so does a handover.
const Hold = 30 * time.Second

// Away says why nothing of a peer is ready, or when to ask again: endpoints stay ready for a while after the network was
// lost. What a ForeignCluster does not say is taken for bad news.
func Away(c *corev1beta1.ForeignCluster, now time.Time) (why string, again time.Duration) {
	if c == nil {
		return "there is no ForeignCluster of the peer", 0
	}
	for _, n := range c.Status.Modules.Networking.Conditions {
		if n.Type != corev1beta1.ConditionNetworkConnection {
			continue
		}
		if n.Status == corev1beta1.StatusEstablished {
			return "", 0
		}
		if left := Hold - now.Sub(n.LastTransitionTime.Time); left > 0 {
			return "", min(left, Hold)
		}
	}
	return "the network of the peering is down", 0
}
