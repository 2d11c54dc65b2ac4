package cluster

import (
	"context"

	"github.com/sluice-net/sluice/controlplane/gatewaysync"
)

// writeFirewalls tells each FirewallConfiguration what became of it here.
func (r *reporter) writeFirewalls(context.Context, gatewaysync.Report) (wrote bool, err error) {
	return false, nil
}
