package main

import "github.com/spf13/cobra"

func createCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "create", Short: "Create objects of a peering"}
}
