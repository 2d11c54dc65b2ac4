package main

import "github.com/spf13/cobra"

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the versions of client and cluster"}
}
