package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/progress"
)

// changeCommands are those by which a provider decides about what its consumers have.
func changeCommands(a *app) []*cobra.Command {
	parent := func(verb peering.Change, short, long string, kinds ...*cobra.Command) *cobra.Command {
		cmd := &cobra.Command{Use: string(verb), Short: short, Long: long}
		cmd.AddCommand(kinds...)
		return cmd
	}
	return []*cobra.Command{
		parent(peering.Cordon, "Grant a consumer no more than it has",
			`Grant a consumer, or one of its ResourceSlices, no more than it has. What was granted stays.`,
			changeTenantCommand(a, peering.Cordon, true, &cobra.Command{
				Short: "Grant a consumer no more than it has",
				Long:  `Grant a consumer no more than it has: its new ResourceSlices are denied, and those it has stay as they are.`,
			}),
			changeSliceCommand(a, peering.Cordon, true, &cobra.Command{
				Short: "Grant a ResourceSlice no more than it has",
				Long: `Grant a ResourceSlice of a consumer no more than it has: one that was accepted stays as it is, whatever is asked for from
now on, and one that was not is denied.`,
			})),
		parent(peering.Uncordon, "Undo a cordon",
			`Undo 'liqoctl cordon': what is asked for is granted again.`,
			changeTenantCommand(a, peering.Uncordon, false, &cobra.Command{
				Short: "Undo the cordon of a consumer",
				Long:  `Undo 'liqoctl cordon tenant': what the consumer asks for is granted again.`,
			}),
			changeSliceCommand(a, peering.Uncordon, false, &cobra.Command{
				Short: "Undo the cordon of a ResourceSlice",
				Long:  `Undo 'liqoctl cordon resourceslice': what it asks for is granted again.`,
			})),
		parent(peering.Drain, "Take back what a consumer has",
			`Take back what a consumer has, and refuse what it asks for.`,
			changeTenantCommand(a, peering.Drain, true, &cobra.Command{
				Short: "Take back what a consumer has",
				Long: `Take back what a consumer has, and refuse what it asks for. The command waits until nothing is left.

'liqoctl activate tenant' lets it ask again. To end the relation, delete the Tenant.`,
			})),
		parent(peering.Activate, "Let a drained consumer ask for resources again",
			`Undo 'liqoctl drain': the consumer may ask for resources again.`,
			changeTenantCommand(a, peering.Activate, false, &cobra.Command{
				Short: "Let a drained consumer ask for resources again",
				Long:  `Undo 'liqoctl drain tenant': the consumer may ask for resources again. It needs no new identity.`,
			})),
	}
}

func changeTenantCommand(a *app, c peering.Change, asks bool, cmd *cobra.Command) *cobra.Command {
	cmd.Example = "  liqoctl " + string(c) + " tenant rome"
	return changeCommand(a, kindTenant, c, asks, peering.ChangeTenant, cmd)
}

func changeSliceCommand(a *app, c peering.Change, asks bool, cmd *cobra.Command) *cobra.Command {
	cmd.Example = "  liqoctl " + string(c) + " resourceslice milan -n liqo-tenant-rome"
	return changeCommand(a, kindResourceSlice, c, asks, peering.ChangeSlice, cmd)
}

func changeCommand(a *app, k *kind, c peering.Change, asks bool, change func(ctx context.Context, provider *access.Cluster, name string, c peering.Change, o peering.Options, tell progress.Func) error, cmd *cobra.Command) *cobra.Command {
	cmd.Use = k.name + " NAME"
	cmd.Aliases = k.allAliases()
	cmd.Args = oneName
	cmd.ValidArgsFunction = completeNames(a, k)
	cmd.Long += "\n\nIt is a command for the provider. A name that is there in several namespaces needs -n."
	var timeout time.Duration
	cmd.Flags().DurationVar(&timeout, "timeout", timeoutOfIdentities, "`DURATION` after which to give up waiting for the controller")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		if asks {
			what := fmt.Sprintf("%s %s in cluster %s", k.title, args[0], in.Where())
			if err := a.confirm(cmd.Context(), string(c), []string{what}); err != nil {
				return err
			}
		}
		return change(cmd.Context(), in, args[0], c, peering.Options{Timeout: timeout}, a.console.Progress())
	}
	return cmd
}
