package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/peering"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func createGatewayClientCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Create the end of the tunnel that connects to the other cluster",
		Long: `Create a GatewayClient: this cluster's end of the tunnel, which connects to the other cluster's
GatewayServer. Take the address and the port from the GatewayServer's status, which 'kubectl get gatewayservers'
shows.`,
		Example: `  liqoctl create gatewayclient client --remote-cluster-id rome \
    --addresses 172.19.0.8 --port 32009 --wait`,
	}
	c := newCreation(a, kindGatewayClient, cmd)
	g := &gatewayFlags{}
	o := &peering.ClientOptions{}
	g.add(cmd, peering.DefaultClientTemplateType, peering.DefaultClientTemplateName)
	fs := cmd.Flags()
	fs.StringSliceVar(&o.Addresses, "addresses", nil, "`ADDRESS` or DNS name of the gateway server; of several the first is used")
	portsFlag(fs, &o.Ports, "port", "`PORT` of the gateway server, one for each of its tunnels, separated by commas")
	fs.StringVar((*string)(&o.Protocol), "protocol", string(corev1.ProtocolUDP), "`PROTOCOL` of the tunnel: UDP")
	require(cmd, "addresses", "port")
	complete(cmd, "protocol", string(corev1.ProtocolUDP))
	c.addWait(cmd, "the gateway runs and has keys")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.Protocol = corev1.Protocol(strings.ToUpper(string(o.Protocol))); o.Protocol != corev1.ProtocolUDP {
			return fmt.Errorf("--protocol %s: WireGuard supports only UDP", o.Protocol)
		}
		if len(o.Ports) == 0 {
			return errors.New("--port 0: must be from 1 to 65535")
		}
		for _, address := range o.Addresses {
			flags := peering.Options{MTU: g.mtu, Client: peering.ClientFlags{Address: address, Ports: o.Ports}}
			if err := flags.Validate(); err != nil {
				return renamed(err)
			}
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		installed, err := in.Installation(cmd.Context())
		if err != nil {
			return err
		}
		if o.Template, err = g.templateRef(in, networkingv1beta1.ConnectionClient, installed); err != nil {
			return err
		}
		o.MTU = cmp.Or(g.mtu, installed.Gateway.MTU)
		return c.run(cmd.Context(), in, peering.NewGatewayClient(c.metadata(args[0], in.Namespace), *o))
	}
	return cmd
}

// flagNames are the flags of `create` by those of `network connect`, which the
// library speaks of.
var flagNames = strings.NewReplacer(
	"--gw-server-service-type", "--service-type", "--gw-server-service-port", "--port", "--gw-server-service-nodeport", "--node-port",
	"--gw-server-service-loadbalancerip", "--load-balancer-ip", "--gw-client-address", "--addresses", "--gw-client-port", "--port",
)

// renamed is an error of the library about the flags of `network connect`, in
// terms of those of `create`.
func renamed(err error) error { return errors.New(flagNames.Replace(err.Error())) }

// complete gives a flag its possible values.
func complete(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag: a mistake where it is called
	}
}
