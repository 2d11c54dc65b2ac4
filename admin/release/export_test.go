package release

import (
	"context"
	"net/netip"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"

	"github.com/sluice-net/sluice/admin/access"
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

// Rollback makes the release what it was before, as Helm's own command does.
func Rollback(c *access.Cluster) error {
	h, err := newHelm(c)
	if err != nil {
		return err
	}
	r := action.NewRollback(h.config)
	r.WaitStrategy, r.ForceConflicts, r.ServerSideApply = kube.HookOnlyStrategy, true, "auto"
	return r.Run(Name)
}

// ServiceRange is what the API server tells of its Services by a refusal.
func ServiceRange(ctx context.Context, c *access.Cluster) ([]netip.Prefix, error) {
	g := gatherer{Cluster: c}
	err := g.askRange(ctx)
	return serviceRange(g.facts), err
}

// Unpeer names the commands that remove peerings with these objects.
func Unpeer(peerings ...string) string { return (&Removal{Peerings: peerings}).unpeer() }

// LeftWithin is how long agents may take to remove what is Liqo's.
func LeftWithin(d time.Duration) { leftWithin = d }

// GiveUpAfter bounds the waits that begin from now on.
func (a *Adoption) GiveUpAfter(d time.Duration) { a.timeout = d }
