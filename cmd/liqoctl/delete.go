package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
)

func deleteCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Delete an object of a peering",
		Long: `Delete an object of a peering in one cluster, and what the controllers created from it.

'liqoctl network disconnect' and 'liqoctl network reset' do this for both clusters at once.`,
	}
	for _, k := range userKinds {
		cmd.AddCommand(deleteKindCommand(a, k))
	}
	cmd.AddCommand(
		deletePeeringUserCommand(a), deleteVirtualNodeCommand(a),
		refusal(a, "resourceslice", "'kubectl delete rslice' does it; 'liqoctl unauthenticate' comes after the last one"),
		refusal(a, "tenant", "'liqoctl unauthenticate' does it for both clusters, 'kubectl delete tenant' for this one"),
	)
	return cmd
}

func deleteKindCommand(a *app, k *kind) *cobra.Command {
	d := deletion{app: a, kind: k}
	cmd := &cobra.Command{
		Use:     k.name + " NAME...",
		Aliases: k.allAliases(),
		Short:   fmt.Sprintf("Delete a %s", k.title),
		Long:    fmt.Sprintf("Delete a %s, or several.", k.title),
		Example: fmt.Sprintf("  liqoctl delete %s milan -n liqo-tenant-milan", k.name),
		Args:    someNames,
	}
	cmd.ValidArgsFunction = completeNames(a, k)
	cmd.Flags().BoolVar(&d.wait, "wait", true, "wait until it is deleted, with everything that belongs to it")
	cmd.Flags().BoolVar(&d.ignoreNotFound, "ignore-not-found", false, "do not fail if an object does not exist")
	cmd.Flags().DurationVar(&d.timeout, "timeout", 2*time.Minute, "`DURATION` to wait before giving up")
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, names []string) error {
		for _, name := range names {
			if err := d.run(ctx, in, client.ObjectKey{Namespace: in.Namespace, Name: name}); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

type deletion struct {
	*app
	kind                 *kind
	wait, ignoreNotFound bool
	timeout              time.Duration
}

func (d *deletion) run(ctx context.Context, in *access.Cluster, key client.ObjectKey) error {
	obj := d.kind.object()
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	// Foreground: the object stays until everything that belongs to it is gone.
	err := in.Client.Delete(ctx, obj, client.PropagationPolicy("Foreground"))
	switch {
	case apierrors.IsNotFound(err) && d.ignoreNotFound:
		d.console.Info(fmt.Sprintf("%s does not exist", d.kind.of(key)))
		return nil
	case apierrors.IsNotFound(err):
		return in.Errorf("%s does not exist: 'liqoctl get %s -A' lists all of them", d.kind.of(key), d.kind.plural)
	case err != nil:
		return in.Explain("delete "+d.kind.of(key), err)
	}
	if d.wait {
		if err := d.gone(ctx, in, key); err != nil {
			return err
		}
	}
	d.console.Progress().Done(in.Name, d.kind.sentence()+" deleted")
	return nil
}

// gone waits until an object is.
func (d *deletion) gone(ctx context.Context, in *access.Cluster, key client.ObjectKey) error {
	d.console.Progress().Waiting(in.Name, fmt.Sprintf("Waiting for %s %s to be gone", d.kind.name, key.Name))
	var finalizers []string
	late, err := poll(ctx, d.timeout, func(ctx context.Context) (bool, error) {
		obj := d.kind.object()
		err := in.Client.Get(ctx, key, obj)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		finalizers = obj.GetFinalizers()
		return false, in.Explain("read "+d.kind.of(key), err)
	})
	if late {
		return in.Errorf("%s is marked for deletion, but still exists after %v: its finalizers %v wait for what belongs to it; check that the controllers run",
			d.kind.of(key), d.timeout, finalizers)
	}
	return err
}
