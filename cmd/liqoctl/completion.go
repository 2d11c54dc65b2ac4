package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
)

// shells are those that there are completions for.
var shells = []string{"bash", "zsh", "fish", "powershell"}

// chooseShell is the shell that was named or, if none was, the login shell.
func chooseShell(args []string, login string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	if shell := filepath.Base(login); slices.Contains(shells, shell) {
		return shell, nil
	}
	return "", fmt.Errorf("no shell given: name one of %s; the variable SHELL, %q, is none of them", strings.Join(shells, ", "), login)
}

func completionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion [bash|zsh|fish|powershell]",
		Short: "Print a shell completion script",
		Long: `Print a shell completion script for commands, flags and their values. Without an argument, the script is
for the login shell, from the variable SHELL; a comment at the top of the script names that shell.

If liqoctl is a kubectl plug-in (a file named kubectl-liqo in the PATH), kubectl's own completion completes it. For
this, kubectl looks for a program named kubectl_complete-liqo: a second link to the same file is enough.`,
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
		Args:      oneOf("shell", shells...),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			shell, err := chooseShell(args, os.Getenv("SHELL"))
			if err != nil {
				return err
			}
			switch shell {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.stdout)
			}
			return fmt.Errorf("there is no completion for %s", shell)
		},
	}
	return cmd
}

// completionTimeout is how long a user waits for a completion.
const completionTimeout = 3 * time.Second

// completion completes the names that a function reads from the cluster, without those on the line, up to so many
// arguments; 0: any number.
func (a *app) completion(most int, read func(ctx context.Context, in *access.Cluster) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		in, err := a.local.connect()
		if err != nil || most > 0 && len(given) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		names := slices.DeleteFunc(read(ctx, in), func(name string) bool { return slices.Contains(given, name) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completePeers completes the IDs of peers.
func (a *app) completePeers() cobra.CompletionFunc { return a.completion(0, survey.PeerIDs) }

// completeServices completes the one argument of a command about a Service.
func (a *app) completeServices() cobra.CompletionFunc {
	return a.completion(1, func(ctx context.Context, in *access.Cluster) []string {
		return namesOf(ctx, in, &corev1.ServiceList{}, in.Namespace)
	})
}

// maxCompletions bounds what is asked of a large cluster for a completion.
const maxCompletions = 500

// namesOf are the names of objects in a namespace; without one, those of all with their namespaces.
func namesOf(ctx context.Context, in *access.Cluster, list client.ObjectList, namespace string) (names []string) {
	if err := in.Client.List(ctx, list, client.InNamespace(namespace), client.Limit(maxCompletions)); err != nil {
		return nil
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error { // it only hands on the errors of the function
		obj := o.(client.Object)
		if namespace == "" {
			names = append(names, obj.GetNamespace()+"/"+obj.GetName())
		} else {
			names = append(names, obj.GetName())
		}
		return nil
	})
	return names
}
