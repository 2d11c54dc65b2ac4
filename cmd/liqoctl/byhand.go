package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// timeoutOfIdentities is how long the controllers may take, and the signer of the cluster.
const timeoutOfIdentities = 2 * time.Minute

// oneCluster are the flags of a command that does in one cluster a part of what 'liqoctl authenticate' does in two.
type oneCluster struct {
	*app
	peer    string // the ID of the other cluster
	timeout time.Duration
}

// newOneCluster adds the flag that names the other cluster.
func newOneCluster(a *app, cmd *cobra.Command, flag, usage string) *oneCluster {
	c := &oneCluster{app: a}
	requireCluster(cmd, &c.peer, flag, usage)
	return c
}

func (c *oneCluster) addTimeout(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&c.timeout, "timeout", timeoutOfIdentities, "`DURATION` to wait before giving up and reporting what is missing; 0: no limit")
}

func (c *oneCluster) options() peering.Options {
	return peering.Options{Timeout: c.timeout, Labels: c.labels, Annotations: c.annotations}
}

const (
	consumerID = "`ID` of the consumer (liqoctl info --get clusterid prints it there)"
	providerID = "`ID` of the provider (liqoctl info --get clusterid prints it there)"
)

func createNonceCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nonce",
		Short: "Create a nonce for a consumer to sign",
		Long: `Create a nonce in this cluster, the provider, and the tenant namespace for it. The consumer proves its
identity by signing the nonce.

This is the first of four steps for two operators who each have access to one cluster only. 'liqoctl authenticate' does
all of them at once:

  1. provider: liqoctl create nonce, liqoctl get nonce
  2. consumer: liqoctl generate tenant --nonce ... > tenant.yaml
  3. provider: kubectl apply -f tenant.yaml, liqoctl generate identity > identity.yaml
  4. consumer: kubectl apply -f identity.yaml

The operators can exchange the output by any means, as it contains no secrets. Each should make sure that what they
receive comes from the other.`,
		Example: `  liqoctl create nonce --remote-cluster-id rome
  liqoctl get nonce --remote-cluster-id rome`,
		Args: cobra.NoArgs,
	}
	c := newOneCluster(a, cmd, "remote-cluster-id", consumerID)
	c.addTimeout(cmd)
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, _ []string) error {
		return peering.CreateNonce(ctx, in, c.peer, c.options(), a.console.Progress())
	})
	return cmd
}

func getNonceCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nonce",
		Short: "Print the nonce for a consumer",
		Long: `Print, without a newline, the nonce that 'liqoctl create nonce' has created in this cluster, the
provider. It can be used once: after a Tenant with it was accepted, there is a new nonce.`,
		Example: `  liqoctl get nonce --remote-cluster-id rome`,
		Args:    cobra.NoArgs,
	}
	c := newOneCluster(a, cmd, "remote-cluster-id", consumerID)
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, _ []string) error {
		nonce, err := peering.ReadNonce(ctx, in, c.peer)
		if err != nil {
			return err
		}
		_, err = a.stdout.Write(nonce)
		return err
	})
	return cmd
}

func getKubeconfigCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "kubeconfig IDENTITY",
		Aliases: []string{"kc"},
		Short:   "Print the kubeconfig of an identity",
		Long: `Print the kubeconfig of an Identity: how this cluster, the consumer, reaches the provider.

It contains the private key of this cluster. Whoever has it can ask the provider for resources in the name of this
cluster: keep it out of logs and shared files.`,
		Example: `  liqoctl get kubeconfig controlplane-milan --remote-cluster-id milan > milan.yaml
  chmod 600 milan.yaml`,
		Args:              oneName,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c := newOneCluster(a, cmd, "remote-cluster-id", providerID)
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, args []string) error {
		text, err := peering.ReadKubeconfig(ctx, in, c.peer, args[0])
		if err != nil {
			return err
		}
		_, err = a.stdout.Write(text)
		return err
	})
	return cmd
}

func generateTenantCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenant",
		Short: "Print the Tenant that proves to a provider who this cluster is",
		Long: `Print the Tenant by which this cluster, the consumer, proves to a provider who it is. The provider applies it.

The controller of this cluster signs the provider's nonce with the key of the cluster and asks for a certificate for
that key; both are in the Tenant. The key itself does not leave the cluster.`,
		Example: `  liqoctl generate tenant --remote-cluster-id milan --nonce "$NONCE" > rome-tenant.yaml
  kubectl --kubeconfig milan.yaml apply -f rome-tenant.yaml`,
		Args: cobra.NoArgs,
	}
	c := newOneCluster(a, cmd, "remote-cluster-id", providerID)
	var proof peering.Proof
	fs := cmd.Flags()
	nonce := fs.String("nonce", "", "`NONCE` of the provider, as 'liqoctl get nonce' prints it there (default the one that was signed last)")
	fs.StringVar(&proof.Namespace, "remote-tenant-namespace", "", "`NAME` of the tenant namespace at the provider (default liqo-tenant-<ID of this cluster>)")
	proxy := fs.String("proxy-url", "", "`URL` of the HTTP proxy through which this cluster reaches the provider's API server")
	c.addTimeout(cmd)
	out := orYAML(a.outputFlag(cmd, formatYAML, formatJSON, formatName))
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if proof.Nonce = []byte(*nonce); *nonce != "" && !credentials.ValidNonce(proof.Nonce) {
			return errors.New("--nonce: not a nonce: use the output of 'liqoctl get nonce' at the provider")
		}
		if proof.ProxyURL, err = proxyURL(*proxy); err != nil {
			return err
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		proof.ProviderID = c.peer
		t, err := peering.ProveTenant(cmd.Context(), in, proof, c.options(), a.console.Progress())
		if err != nil {
			return err
		}
		return out.objects(t)
	}
	return cmd
}

// proxyURL is that of an HTTP proxy; nil: none.
func proxyURL(text string) (*string, error) {
	if text == "" {
		return nil, nil
	}
	if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("--proxy-url %q: must be the URL of an HTTP proxy without a user, such as http://10.0.0.1:8118", text)
	}
	return &text, nil
}

func generateIdentityCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "identity",
		Short: "Print the Identity that this cluster grants to a consumer",
		Long: `Print the Identity that this cluster, the provider, grants to a consumer. The consumer applies it.

The Tenant of the consumer must have been applied here; the command waits until the controller has accepted it. The
certificate in the Identity is useful only with the consumer's key.`,
		Example: `  liqoctl generate identity --remote-cluster-id rome > milan-identity.yaml
  kubectl --kubeconfig rome.yaml apply -f milan-identity.yaml`,
		Args: cobra.NoArgs,
	}
	c := newOneCluster(a, cmd, "remote-cluster-id", consumerID)
	namespace := cmd.Flags().String("remote-tenant-namespace", "", "`NAME` of the tenant namespace at the consumer (default liqo-tenant-<ID of this cluster>)")
	c.addTimeout(cmd)
	out := orYAML(a.outputFlag(cmd, formatYAML, formatJSON, formatName))
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, _ []string) error {
		i, err := peering.GrantIdentity(ctx, in, c.peer, *namespace, c.options(), a.console.Progress())
		if err != nil {
			return err
		}
		return out.objects(i)
	})
	return cmd
}
