package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// maxKubeconfig is what a Secret can hold.
const maxKubeconfig = corev1.MaxSecretSize

func createTenantCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenant",
		Short: "Let a consumer ask for resources as a user of this cluster",
		Long: `Let a consumer ask this cluster, the provider, for resources as a user whose credentials you create and
hand over yourself. Use it if this cluster does not sign client certificates, or has its own users.

The command creates the tenant namespace, a RoleBinding of the user to the ClusterRole liqo-remote-controlplane, and a
Tenant with authzPolicy TolerateNoHandshake. The consumer stores the credentials with 'liqoctl create identity', before
or after this command.

For a consumer without credentials, 'liqoctl generate tenant' prints the Tenant.`,
		Example: `  liqoctl create tenant --remote-cluster-id rome --user rome

  # A service account of this cluster.
  liqoctl create tenant --remote-cluster-id rome --user system:serviceaccount:liqo-tenant-rome:controllers-of-rome`,
		Args: cobra.NoArgs,
	}
	c := newOneCluster(a, cmd, "remote-cluster-id", consumerID)
	user := cmd.Flags().String("user", "", "`NAME` of the user in the credentials, such as the CN of a client certificate")
	require(cmd, "user")
	c.addTimeout(cmd)
	liqo := addForLiqo(cmd, "create the namespace without a PodSecurity level, for a cluster in which Liqo runs (default: if it does; with -o the cluster is not asked)")
	out := a.outputFlag(cmd, formatYAML, formatJSON, formatName)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if strings.TrimSpace(*user) == "" {
			return errors.New("--user: must be the name of a user")
		}
		if out.given() {
			space, binding, tenant := peering.NewTenantObjects(c.metadata(), *user, liqo.said)
			return out.objects(space, binding, tenant)
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		return peering.CreateTenant(cmd.Context(), in, c.peer, *user, liqo.runs, c.options(), a.console.Progress())
	}
	return cmd
}

func createIdentityCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "identity",
		Short: "Store credentials that the operator of a provider has made",
		Long: `Store credentials for a provider, made by the provider's operator, if 'liqoctl authenticate' cannot be
used. They go into a Secret of this cluster, the consumer, whose controllers use it to ask the provider for resources.
Run the command again with newer credentials to replace them; nothing is interrupted. If the provider's API server can
also be reached from here, the command warns if the user may not ask for resources.

The kubeconfig must be self-contained: it may refer to no programs or files. 'kubectl config view --raw --minify
--flatten' prints such a kubeconfig. Its user is the one that was given to 'liqoctl create tenant' at the provider.

After a handshake, use 'liqoctl generate identity' instead: it prints what the provider has granted.`,
		Example: `  liqoctl create identity --remote-cluster-id milan --identity-kubeconfig rome-in-milan.yaml

  kubectl --context rome-in-milan config view --raw --minify --flatten |
    liqoctl create identity --remote-cluster-id milan --identity-kubeconfig -`,
		Args: cobra.NoArgs,
	}
	c := newOneCluster(a, cmd, "remote-cluster-id", providerID)
	fs := cmd.Flags()
	path := fs.String("identity-kubeconfig", "", "`FILE` with the credentials; - is stdin")
	namespace := fs.String("remote-tenant-namespace", "", "`NAME` of the tenant namespace at the provider (default liqo-tenant-<ID of this cluster>)")
	require(cmd, "identity-kubeconfig")
	c.addTimeout(cmd)
	out := a.outputFlag(cmd, formatYAML, formatJSON, formatName)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		text, err := readKubeconfig(*path, cmd.InOrStdin())
		if err != nil {
			return fmt.Errorf("--identity-kubeconfig: %w", err)
		}
		given := peering.Given{ProviderID: c.peer, Namespace: *namespace, Kubeconfig: text}
		if out.given() {
			if *namespace == "" {
				return errors.New("--remote-tenant-namespace is required with -o, which queries no cluster")
			}
			return out.objects(peering.NewIdentitySecret(c.metadata(), given))
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		return peering.CreateIdentity(cmd.Context(), in, given, c.options(), a.console.Progress())
	}
	return cmd
}

// metadata is that of objects which are only printed, for which no cluster is asked.
func (c *oneCluster) metadata() peering.Metadata {
	return peering.Metadata{
		Namespace: cmp.Or(*c.local.kube.Namespace, peering.TenantNamespaceName(c.peer)), RemoteClusterID: c.peer, Labels: c.labels, Annotations: c.annotations,
	}
}

// readKubeconfig reads a kubeconfig that a Secret may hold.
func readKubeconfig(path string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxKubeconfig+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKubeconfig {
		return nil, errors.New("larger than the 1 MiB that a Secret can hold")
	}
	if _, err := credentials.ReadKubeconfig(text); err != nil {
		return nil, fmt.Errorf("%w; 'kubectl config view --raw --minify --flatten' prints one that needs no files", err)
	}
	return text, nil
}
