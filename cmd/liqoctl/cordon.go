package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/progress"
)

// changeCommands are those by which a provider decides about what its consumers have.
func changeCommands(a *app) []*cobra.Command {
	return []*cobra.Command{
		parent(string(peering.Cordon), "Grant no more resources to a consumer",
			`Grant no more resources to a consumer, or for one of its ResourceSlices. What was granted stays granted.`,
			changeTenantCommand(a, peering.Cordon, "Grant no more resources to a consumer",
				`Grant no more resources to a consumer: new ResourceSlices are denied, and existing ones stay as they are.`),
			changeSliceCommand(a, peering.Cordon, "Grant no more resources for a ResourceSlice",
				`Grant no more resources for a ResourceSlice of a consumer. A ResourceSlice that was accepted
stays as it is, whatever it asks for from now on. Any other ResourceSlice is denied.`)),
		parent(string(peering.Uncordon), "Undo a cordon",
			`Undo 'liqoctl cordon': new requests are granted again.`,
			changeTenantCommand(a, peering.Uncordon, "Undo the cordon of a consumer",
				`Undo 'liqoctl cordon tenant': the consumer's requests are granted again.`),
			changeSliceCommand(a, peering.Uncordon, "Undo the cordon of a ResourceSlice",
				`Undo 'liqoctl cordon resourceslice': the ResourceSlice's requests are granted again.`)),
		parent(string(peering.Drain), "Take back the resources of a consumer",
			`Take back the resources of a consumer, and deny its requests.`,
			changeTenantCommand(a, peering.Drain, "Take back the resources of a consumer",
				`Take back the resources of a consumer, and deny its requests. The command waits until nothing is
left.

'liqoctl activate tenant' lets the consumer ask again. To remove the consumer for good, delete the Tenant.`)),
		parent(string(peering.Activate), "Let a drained consumer ask for resources again",
			`Undo 'liqoctl drain': the consumer may ask for resources again.`,
			changeTenantCommand(a, peering.Activate, "Let a drained consumer ask for resources again",
				`Undo 'liqoctl drain tenant': the consumer may ask for resources again. It needs no new identity.`)),
	}
}

func changeTenantCommand(a *app, c peering.Change, short, long string) *cobra.Command {
	return changeCommand(a, kindTenant, c, peering.ChangeTenant, &cobra.Command{Short: short, Long: long, Example: "  liqoctl " + string(c) + " tenant rome"})
}

func changeSliceCommand(a *app, c peering.Change, short, long string) *cobra.Command {
	return changeCommand(a, kindResourceSlice, c, peering.ChangeSlice, &cobra.Command{Short: short, Long: long, Example: "  liqoctl " + string(c) + " resourceslice milan -n liqo-tenant-rome"})
}

func changeCommand(a *app, k *kind, c peering.Change, change func(ctx context.Context, provider *access.Cluster, name string, c peering.Change, o peering.Options, tell progress.Func) error, cmd *cobra.Command) *cobra.Command {
	cmd.Use = k.name + " NAME"
	cmd.Aliases = k.allAliases()
	cmd.Args = oneName
	cmd.ValidArgsFunction = completeNames(a, k)
	cmd.Long += "\n\nRun this command in the provider's cluster. If the name exists in several namespaces, add -n."
	timeout := cmd.Flags().Duration("timeout", timeoutOfIdentities, "`DURATION` to wait for the controller before giving up")
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, args []string) error {
		o := peering.Options{Timeout: *timeout}
		switch {
		case a.skipConfirm:
		case c == peering.Cordon: // which destroys nothing
			o.Confirm = func(ctx context.Context, what []string) error { return a.console.Ask(ctx, cmd.Parent().Name(), what) }
		case c == peering.Drain:
			o.Confirm = a.confirmer(cmd.Parent().Name())
		}
		return change(ctx, in, args[0], c, o, a.console.Progress())
	})
	return cmd
}
