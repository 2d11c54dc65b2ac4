package main

import "github.com/spf13/cobra"

func getCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "get", Short: "Get objects of a peering"}
}
