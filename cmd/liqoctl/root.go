package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/controlplane/access"
)

// rootCommand is the tree of all commands.
func rootCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:           a.name,
		Short:         "Connect Kubernetes clusters pod to pod",
		SilenceErrors: true, // run prints them
		SilenceUsage:  true,
	}
	a.local = addClusterFlags(cmd, "")
	fs := cmd.PersistentFlags()
	fs.BoolVar(&a.skipConfirm, "skip-confirm", false, "do not ask before something is destroyed")
	fs.StringToStringVar(&a.labels, "global-labels", nil, "`labels` (k=v,...) for everything that is created")
	fs.StringToStringVar(&a.annotations, "global-annotations", nil, "`annotations` (k=v,...) for everything that is created")
	a.console.AddFlags(fs)
	cmd.AddCommand(
		networkCommand(a), peerCommand(a), unpeerCommand(a),
		createCommand(a), generateCommand(a), deleteCommand(a), getCommand(a),
		infoCommand(a), testCommand(a), supportCommand(a),
		installCommand(a), uninstallCommand(a), versionCommand(a),
	)
	return cmd
}

// addRemoteFlags makes a command one that works on two clusters.
func (a *app) addRemoteFlags(cmd *cobra.Command) {
	a.remote = addClusterFlags(cmd, "remote-")
}

// one is the cluster of a command that works on one.
func (a *app) one() (*access.Cluster, error) { return a.local.connect() }

// two are the clusters of a command that works on both. Nothing tells yet that
// they are not the same.
func (a *app) two() (local, remote *access.Cluster, err error) {
	a.local.name, a.remote.name = access.Local, access.Remote
	if local, err = a.local.connect(); err != nil {
		return nil, nil, err
	}
	if remote, err = a.remote.connect(); err != nil {
		return nil, nil, err
	}
	return local, remote, nil
}

// confirm asks before something is destroyed. The error is errAborted when the
// user does not want it.
func (a *app) confirm(ctx context.Context, command string) error {
	if a.skipConfirm {
		return nil
	}
	return a.console.Confirm(ctx, command)
}
