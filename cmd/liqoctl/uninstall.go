package main

import "github.com/spf13/cobra"

func uninstallCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "uninstall", Short: "Remove Sluice from a cluster"}
}
