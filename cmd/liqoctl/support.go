package main

import "github.com/spf13/cobra"

// supportCommand is what helps those who help.
func supportCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "support",
		Short: "Collect data for a problem report",
		Long:  "Collect data for a problem report. Nothing is changed, and nothing leaves this machine.",
	}
	cmd.AddCommand(supportBundleCommand(a))
	return cmd
}
