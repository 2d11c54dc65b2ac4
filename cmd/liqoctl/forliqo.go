package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
)

// flagForLiqo says that an object is for a cluster in which Liqo runs.
const flagForLiqo = "for-liqo"

// forLiqo is what that flag says.
type forLiqo struct {
	cmd  *cobra.Command
	said bool
}

func addForLiqo(cmd *cobra.Command, usage string) *forLiqo {
	f := &forLiqo{cmd: cmd}
	cmd.Flags().BoolVar(&f.said, flagForLiqo, false, usage)
	return f
}

// runs tells whether Liqo runs where an object is for: as the user says, or else as in a cluster.
func (f *forLiqo) runs(ctx context.Context, in *access.Cluster) (bool, error) {
	if f.cmd.Flags().Changed(flagForLiqo) {
		return f.said, nil
	}
	liqo, err := peering.LiqoRuns(ctx, in)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w; or say it yourself, with --%[2]s or --%[2]s=false", err, flagForLiqo)
	}
	return liqo, err
}
