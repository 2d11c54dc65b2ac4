package main

import "github.com/spf13/cobra"

func peerCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "peer", Short: "Connect two clusters"}
}

func unpeerCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "unpeer", Short: "Disconnect two clusters"}
}
