package main

import "github.com/spf13/cobra"

func networkRotateKeysCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "rotate-keys", Short: "TODO"}
}
