package main

import "github.com/spf13/cobra"

func infoCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "info", Short: "Show the installation and its peerings"}
}
