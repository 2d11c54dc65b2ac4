package release

import (
	"context"
	"net/netip"
	"time"

	"helm.sh/helm/v4/pkg/release/common"

	"github.com/sluice-net/sluice/controlplane/access"
)

// Interrupt makes the release one whose upgrade began some time ago, by a program
// that is gone.
func Interrupt(c *access.Cluster, ago time.Duration) error {
	h, err := newHelm(c)
	if err != nil {
		return err
	}
	last, err := h.last()
	if err != nil {
		return err
	}
	last.Info.Status, last.Info.LastDeployed = common.StatusPendingUpgrade, time.Now().Add(-ago)
	return h.config.Releases.Update(last)
}

// ServiceRange is what the API server tells of its Services by a refusal.
func ServiceRange(ctx context.Context, c *access.Cluster) ([]netip.Prefix, error) {
	g := gatherer{Cluster: c}
	err := g.askRange(ctx)
	return serviceRange(g.facts), err
}
