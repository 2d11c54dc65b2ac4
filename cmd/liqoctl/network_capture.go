package main

import "github.com/spf13/cobra"

func networkCaptureCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "capture", Short: "TODO"}
}
