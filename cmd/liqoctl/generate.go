package main

import "github.com/spf13/cobra"

func generateCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "generate", Short: "Print objects for the other cluster"}
}
