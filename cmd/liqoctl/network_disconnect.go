package main

import "github.com/spf13/cobra"

func networkDisconnectCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "disconnect", Short: "TODO"}
}
