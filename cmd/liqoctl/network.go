package main

import "github.com/spf13/cobra"

// networkCommand is everything about the network between clusters.
func networkCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "network", Short: "Connect clusters, watch and repair the connection"}
	a.addRemoteFlags(cmd)
	cmd.AddCommand(
		networkInitCommand(a), networkConnectCommand(a), networkDisconnectCommand(a), networkResetCommand(a),
		networkStatusCommand(a), networkDoctorCommand(a), networkCaptureCommand(a), networkRotateKeysCommand(a),
	)
	return cmd
}
