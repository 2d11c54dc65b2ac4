package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/progress"
)

func authenticateCommand(a *app) *cobra.Command {
	var proxy proxyFlags
	authenticate := func(ctx context.Context, consumer, provider *access.Cluster, o peering.Options, tell progress.Func) (err error) {
		if err = proxy.into(&o); err != nil {
			return err
		}
		return peering.Authenticate(ctx, consumer, provider, o, tell)
	}
	cmd := identityCommand(a, authenticate, &cobra.Command{
		Use:     "authenticate",
		Aliases: []string{"auth"},
		Short:   "Give this cluster an identity in the other one",
		Long: `Give the local cluster, the consumer, an identity in the remote one, the provider, so that it can ask for resources.

The provider makes a nonce, the consumer signs it with its key, and the provider signs a client certificate for that
key. No private key leaves its cluster. With the certificate the consumer can create ResourceSlices in its tenant
namespace at the provider, and nothing else.

Authentication must be enabled in both clusters: 'liqoctl install --set authentication.enabled=true'. The command can be
repeated; existing objects are left unchanged.`,
		Example: `  liqoctl authenticate --kubeconfig consumer.yaml --remote-kubeconfig provider.yaml`,
	}, "both clusters have what the identity takes")
	proxy.add(cmd.Flags())
	return cmd
}

// proxyFlags say how the consumer reaches the provider's API server.
type proxyFlags struct {
	url    string
	inBand bool
}

func (p *proxyFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&p.url, "proxy-url", "", "`URL` of the HTTP proxy through which the consumer reaches the provider's API server")
	fs.BoolVar(&p.inBand, "in-band", false, "the consumer reaches the provider's API server through the tunnel, by the provider's proxy behind the IP api-server-proxy")
}

func (p *proxyFlags) into(o *peering.Options) (err error) {
	if p.inBand && p.url != "" {
		return errors.New("--in-band and --proxy-url each name a proxy: use only one of them")
	}
	o.InBand = p.inBand
	o.ProxyURL, err = proxyURL(p.url)
	return err
}

func unauthenticateCommand(a *app) *cobra.Command {
	return identityCommand(a, peering.Unauthenticate, &cobra.Command{
		Use:     "unauthenticate",
		Aliases: []string{"unauth"},
		Short:   "Remove this cluster's identity in the other one",
		Long: `Remove the identity of the local cluster, the consumer, in the remote one, the provider.

The command fails while the consumer has ResourceSlices of the provider. Delete them first.`,
		Example: `  liqoctl unauthenticate --kubeconfig consumer.yaml --remote-kubeconfig provider.yaml`,
	}, "nothing of the identity is left")
}

// identityCommand completes a command that does something to the identity of the local cluster in the remote one.
func identityCommand(a *app, do func(ctx context.Context, consumer, provider *access.Cluster, o peering.Options, tell progress.Func) error, cmd *cobra.Command, forWhat string) *cobra.Command {
	cmd.Args = cobra.NoArgs
	a.addRemoteFlags(cmd)
	f := peeringFlags{wait: true}
	f.add(cmd.Flags(), 2*time.Minute, forWhat)
	hide(cmd.Flags(), "wait", "skip-validation")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		consumer, provider, err := a.two(cmd.Context())
		if err != nil {
			return err
		}
		return do(cmd.Context(), consumer, provider, f.options(a), a.console.Progress())
	}
	return cmd
}
