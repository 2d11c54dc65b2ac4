package main

import "github.com/spf13/cobra"

func networkStatusCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "status", Short: "TODO"}
}
