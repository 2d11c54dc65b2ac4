package main

import "github.com/spf13/cobra"

func supportCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "support", Short: "Help those who help"}
}
