package main

import "github.com/spf13/cobra"

// supportCommand is what helps those who help.
func supportCommand(a *app) *cobra.Command {
	return parent("support", "Collect data for a problem report",
		"Collect data for a problem report. Nothing is changed, and nothing leaves this machine.", supportBundleCommand(a))
}
