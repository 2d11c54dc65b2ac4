package main

import "github.com/spf13/cobra"

func networkConnectCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "connect", Short: "TODO"}
}
