package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func completionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a shell completion script",
		Long: `Print a shell completion script for commands, flags and their values.

As a plug-in of kubectl (a file named kubectl-liqo in the PATH) it is completed by kubectl's own completion, which
looks for a program named kubectl_complete-liqo: a second link to the same file is enough.`,
		Example: `  # bash, which needs the package bash-completion
  source <(liqoctl completion bash)
  liqoctl completion bash > ~/.local/share/bash-completion/completions/liqoctl

  # zsh
  liqoctl completion zsh > "${fpath[1]}/_liqoctl"

  # fish
  liqoctl completion fish > ~/.config/fish/completions/liqoctl.fish

  # PowerShell
  liqoctl completion powershell | Out-String | Invoke-Expression

  # kubectl liqo
  ln -s $(which liqoctl) ~/.local/bin/kubectl-liqo
  ln -s $(which liqoctl) ~/.local/bin/kubectl_complete-liqo`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.stdout)
			}
			return fmt.Errorf("there is no completion for %s", args[0])
		},
	}
	return cmd
}
