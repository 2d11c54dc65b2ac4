package main

import "github.com/spf13/cobra"

func testCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "test", Short: "Test what is connected"}
}
