package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
)

func createCommand(a *app) *cobra.Command {
	return parent("create", "Create an object of a peering",
		`Create an object of a peering in one cluster, if 'liqoctl network connect' cannot reach both clusters at
once.

With -o the object is printed, not created. An existing object is not changed, so a command can be repeated.`,
		createConfigurationCommand(a), createGatewayServerCommand(a), createGatewayClientCommand(a), createPublicKeyCommand(a),
		createNonceCommand(a), createTenantCommand(a), createIdentityCommand(a), createResourceSliceCommand(a), createVirtualNodeCommand(a))
}

// creation is what the commands below `create` have in common.
type creation struct {
	*app
	kind            *kind
	out             *output
	remoteClusterID string
	wait            bool
	timeout         time.Duration
	// printed are the flags with which the same object is printed.
	printed string
}

// newCreation gives a command its name and its common flags.
func newCreation(a *app, k *kind, cmd *cobra.Command) *creation {
	c := &creation{app: a, kind: k, printed: "-o yaml"}
	cmd.Use = k.name + " NAME"
	cmd.Aliases = k.allAliases()
	cmd.Args = oneName
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	requireCluster(cmd, &c.remoteClusterID, "remote-cluster-id", "`ID` of the other cluster (liqoctl info --get clusterid prints it there)")
	c.out = a.outputFlag(cmd, formatYAML, formatJSON, formatName)
	return c
}

// oneName is the Args of commands that are about one object.
func oneName(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("expected one NAME for the object, got %d", len(args))
	}
	return nil
}

// addWait adds the flags of kinds that the controllers make something of.
func (c *creation) addWait(cmd *cobra.Command, forWhat string) {
	cmd.Flags().BoolVar(&c.wait, "wait", false, "wait until "+forWhat)
	cmd.Flags().DurationVar(&c.timeout, "timeout", 2*time.Minute, "`DURATION` to wait before giving up")
}

// require marks flags as required.
func require(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		if err := cmd.MarkFlagRequired(flag); err != nil {
			panic(err) // there is no such flag: a mistake where it is called
		}
	}
}

// requireCluster adds the flag that names the other cluster.
func requireCluster(cmd *cobra.Command, id *string, flag, usage string) {
	cmd.Flags().StringVar(id, flag, "", usage)
	require(cmd, flag)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed(flag) && len(validation.IsDNS1123Label(*id)) > 0 {
			return fmt.Errorf("--%s %q: must be lower-case letters, digits and dashes, at most 63", flag, *id)
		}
		return nil
	}
}

// metadata is that of what is created.
func (c *creation) metadata(name, namespace string) peering.Metadata {
	return peering.Metadata{Name: name, Namespace: namespace, RemoteClusterID: c.remoteClusterID, Labels: c.labels, Annotations: c.annotations}
}

// offline is the namespace for an object that is only printed, for which no
// cluster is asked.
func (c *creation) offline() string {
	if namespace, _, err := c.local.kube.ToRawKubeConfigLoader().Namespace(); err == nil {
		return namespace
	}
	return "default" // no kubeconfig at all
}

// run creates an object, or finds that it is there already.
func (c *creation) run(ctx context.Context, in *access.Cluster, obj client.Object) error {
	if c.out.given() {
		return c.out.objects(obj)
	}
	what := c.kind.of(client.ObjectKeyFromObject(obj))
	wanted, err := plainObject(obj)
	if err != nil {
		return err
	}
	err = in.Client.Create(ctx, obj, client.FieldOwner(peering.FieldOwner))
	switch {
	case err == nil:
		c.console.Info(c.kind.sentence() + " created")
	case apierrors.IsAlreadyExists(err):
		if err := c.compare(ctx, in, wanted); err != nil {
			return err
		}
		c.console.Info(c.kind.sentence() + " already exists, as it should be")
	case apierrors.IsNotFound(err) && statusDetails(err).Kind == "namespaces":
		return in.Errorf("create %s: there is no namespace %q: create it, or choose another one with -n", what, obj.GetNamespace())
	default:
		return in.Explain("create "+what, err)
	}
	if !c.wait {
		return nil
	}
	return c.app.await(ctx, in, c.kind, client.ObjectKeyFromObject(obj), c.timeout)
}

// statusDetails say what an error of an API server is about.
func statusDetails(err error) (d metav1.StatusDetails) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		d = *status.Status().Details
	}
	return d
}

// compare fails if what exists is not what is wanted.
func (c *creation) compare(ctx context.Context, in *access.Cluster, wanted *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(wanted)
	there := c.kind.object()
	if err := in.Client.Get(ctx, key, there); err != nil {
		return in.Explain("read "+c.kind.of(key), err)
	}
	actual, err := plainObject(there)
	if err != nil {
		return err
	}
	if diff := objectDifferences(wanted.Object, actual.Object); len(diff) > 0 {
		return in.Errorf("%s already exists, and differs: %s\nto change it, run the same command with '%s | kubectl apply -f -'; to keep it, choose another name",
			c.kind.of(key), strings.Join(diff, "; "), c.printed)
	}
	return nil
}

// await waits until the controllers have made of an object what it is for.
func (a *app) await(ctx context.Context, in *access.Cluster, k *kind, key client.ObjectKey, timeout time.Duration) error {
	say := a.console.Progress()
	say.Waiting(in.Name, fmt.Sprintf("Waiting for %s %s to be ready", k.name, key.Name))
	missing := "nothing is known of it yet"
	late, err := poll(ctx, timeout, func(ctx context.Context) (bool, error) {
		obj := k.object()
		if err := in.Client.Get(ctx, key, obj); err != nil {
			return false, in.Explain("read "+k.of(key), err)
		}
		missing = missingOf(obj)
		return missing == "", nil
	})
	if late {
		return in.Errorf("%s is not ready: %s (waited %v); it stays; 'kubectl -n %s describe %s %s' shows more",
			k.of(key), missing, timeout, key.Namespace, k.name, key.Name)
	}
	if err != nil {
		return err
	}
	say.Done(in.Name, k.name+" is ready")
	return nil
}

// pollInterval is how often an object is looked at while something is awaited.
const pollInterval = 500 * time.Millisecond

// poll asks until the answer is yes or an error. Late tells that the time was up
// before that, and not that somebody interrupted it.
func poll(ctx context.Context, timeout time.Duration, done func(context.Context) (bool, error)) (late bool, err error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = wait.PollUntilContextCancel(limited, pollInterval, true, done)
	switch { // whatever was asked last has failed because of an end of ctx or of the time
	case ctx.Err() != nil:
		return false, errInterrupted
	case limited.Err() != nil:
		return true, nil
	}
	return false, err
}

var errInterrupted = errors.New("interrupted while waiting; what was done stays, and the same command continues from there")
