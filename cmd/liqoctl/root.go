package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Groups of commands in the help.
const (
	groupNetwork = "network"
	groupAllow   = "allow"
	groupOffload = "offload"
	groupObjects = "objects"
	groupInstall = "install"
)

// rootCommand is the tree of all commands.
func rootCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:         strings.ReplaceAll(a.name, " ", "-"),
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: a.name},
		Short:       "Connect Kubernetes clusters pod to pod",
		Long: `Connect Kubernetes clusters pod to pod, even if both use the same addresses.

Commands find a cluster as kubectl does: by --kubeconfig and --context, KUBECONFIG, or ~/.kube/config. Commands for two
clusters take the same flags with the prefix remote- for the other cluster.`,
		Example: `  # Connect two clusters; the remote one is the gateway server.
  liqoctl network connect --kubeconfig rome.yaml --remote-kubeconfig milan.yaml \
    --gw-server-service-type NodePort --wait

  # Show the state of this cluster's peerings.
  liqoctl network status

  # Find out why a connection does not work.
  liqoctl network doctor --kubeconfig rome.yaml --remote-kubeconfig milan.yaml`,
		SilenceErrors: true, // run prints them
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			a.quietLibraries()
		},
	}
	cobra.EnableCommandSorting = false // the order in which one needs them tells more
	a.addGlobalFlags(cmd)
	cmd.AddGroup(
		&cobra.Group{ID: groupNetwork, Title: "Clusters and their connection:"},
		&cobra.Group{ID: groupAllow, Title: "Resources of this cluster that consumers use:"},
		&cobra.Group{ID: groupOffload, Title: "Pods and Services in other clusters:"},
		&cobra.Group{ID: groupObjects, Title: "Objects of a peering, one cluster at a time:"},
		&cobra.Group{ID: groupInstall, Title: "Installation:"},
	)
	info := infoCommand(a)
	info.Aliases = append(info.Aliases, "status") // as it was called first
	support := parent("support", "Collect data for a problem report",
		"Collect data for a problem report. Nothing is changed, and nothing leaves this machine.", supportBundleCommand(a))
	group(cmd, groupNetwork, networkCommand(a), peerCommand(a), unpeerCommand(a), authenticateCommand(a), unauthenticateCommand(a), forceCommand(a), exposeCommand(a), info, consoleCommand(a), testCommand(a), support)
	group(cmd, groupAllow, changeCommands(a)...)
	group(cmd, groupOffload, offloadCommands(a)...)
	group(cmd, groupOffload, serviceCommands(a)...)
	group(cmd, groupObjects, generateCommand(a), createCommand(a), getCommand(a), deleteCommand(a))
	group(cmd, groupInstall, installCommand(a), uninstallCommand(a))
	group(cmd, "", versionCommand(a), completionCommand(a), optionsCommand(a), manCommand())
	cmd.AddCommand(refusal(a, "move", "it moves volumes between clusters, which Sluice cannot: pods with PersistentVolumeClaims stay here; 'liqoctl offload namespace --help' tells which pods go"))
	cmd.CompletionOptions.DisableDefaultCmd = true
	help := helpCommand()
	group(cmd, "", help)
	cmd.SetHelpCommand(help)
	a.finish(cmd)
	return cmd
}

// parent is a command that only holds others.
func parent(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long}
	cmd.AddCommand(commands...)
	return cmd
}

func group(parent *cobra.Command, id string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = id
		parent.AddCommand(c)
	}
}

func (a *app) addGlobalFlags(cmd *cobra.Command) {
	a.local.addTo(cmd)
	fs := cmd.PersistentFlags()
	fs.BoolVar(&a.skipConfirm, "skip-confirm", false, "do not ask for confirmation")
	fs.StringToStringVar(&a.labels, "global-labels", nil, "`LABELS` (key=value,...) for every object that is created")
	fs.StringToStringVar(&a.annotations, "global-annotations", nil, "`ANNOTATIONS` (key=value,...) for every object that is created")
	for _, name := range []string{"global-labels", "global-annotations"} {
		fs.Lookup(name).DefValue = "" // "[]" tells nobody anything
	}
	a.console.AddFlags(fs)
}

// addRemoteFlags makes a command one that works on two clusters.
func (a *app) addRemoteFlags(cmd *cobra.Command) { a.remote.addTo(cmd) }

// helpCommand is cobra's, which would otherwise be named after the program.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show help for a command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return fmt.Errorf("there is no command %q: '%s --help' lists the commands", strings.Join(args, " "), about.CommandPath())
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			about, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, c := range available(about) {
				names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
