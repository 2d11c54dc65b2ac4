package main

import "github.com/spf13/cobra"

func networkInitCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "init", Short: "TODO"}
}
