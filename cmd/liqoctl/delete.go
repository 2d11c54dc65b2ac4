package main

import "github.com/spf13/cobra"

func deleteCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "delete", Short: "Delete objects of a peering"}
}
