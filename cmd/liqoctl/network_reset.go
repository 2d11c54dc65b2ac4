package main

import "github.com/spf13/cobra"

func networkResetCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "reset", Short: "TODO"}
}
