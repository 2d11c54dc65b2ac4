package main

import "github.com/spf13/cobra"

func installCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "install", Short: "Install Sluice in a cluster"}
}
