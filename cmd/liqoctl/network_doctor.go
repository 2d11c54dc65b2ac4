package main

import "github.com/spf13/cobra"

func networkDoctorCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "doctor", Short: "TODO"}
}
