package main

import (
	"cmp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func createGatewayServerCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Create the end of the tunnel that the other cluster connects to",
		Long: `Create a GatewayServer: this cluster's end of the tunnel, behind a Service that the other cluster's
GatewayClient must reach. Its status shows the address and the port.`,
		Example: `  liqoctl create gatewayserver server --remote-cluster-id milan --service-type NodePort --wait

  # Show the object first.
  liqoctl create gatewayserver server --remote-cluster-id milan --service-type NodePort -o yaml`,
	}
	c := newCreation(a, kindGatewayServer, cmd)
	g := &gatewayFlags{}
	o := &peering.ServerOptions{}
	g.add(cmd, peering.DefaultServerTemplateType, peering.DefaultServerTemplateName)
	fs := cmd.Flags()
	exposed := fs.String("service-type", "", "`TYPE` of the Service: LoadBalancer, NodePort or ClusterIP (default that of the installation, LoadBalancer)")
	portsFlag(fs, &o.Ports, "port", "`PORT` of the Service; several separated by commas are as many tunnels (default that of the installation, 51840)")
	portsFlag(fs, &o.NodePorts, "node-port", "node `PORT` of a Service of type NodePort, one for each tunnel (default any free one)")
	fs.StringVar(&o.LoadBalancerIP, "load-balancer-ip", "", "`ADDRESS` to request for a Service of type LoadBalancer (default any)")
	complete(cmd, "service-type", serviceTypes()...)
	c.addWait(cmd, "the gateway runs, has keys, and an address for the other cluster")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if o.ServiceType, err = serviceType(*exposed); err != nil {
			return renamed(err)
		}
		flags := peering.Options{MTU: g.mtu, Server: peering.ServerFlags{ServiceType: o.ServiceType, Ports: o.Ports, NodePorts: o.NodePorts, LoadBalancerIP: o.LoadBalancerIP}}
		if err := flags.Validate(); err != nil {
			return renamed(err)
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		installed, err := in.Installation(cmd.Context())
		if err != nil {
			return err
		}
		if o.Template, err = g.templateRef(in, networkingv1beta1.ConnectionServer, installed); err != nil {
			return err
		}
		o.MTU = cmp.Or(g.mtu, installed.Gateway.MTU)
		o.ServiceType = cmp.Or(o.ServiceType, installed.Gateway.ServerServiceType)
		if len(o.Ports) == 0 {
			o.Ports = []int32{installed.Gateway.ServerServicePort}
		}
		return c.run(cmd.Context(), in, peering.NewGatewayServer(c.metadata(args[0], in.Namespace), *o))
	}
	return cmd
}

func serviceTypes() []string {
	var types []string
	for _, t := range peering.ServiceTypes {
		types = append(types, string(t))
	}
	return types
}

// gatewayFlags are those of both ends of a tunnel.
type gatewayFlags struct {
	flags    *pflag.FlagSet
	template peering.TemplateFlags
	mtu      int
}

func (g *gatewayFlags) add(cmd *cobra.Command, templateType, templateName string) {
	fs := cmd.Flags()
	g.flags = fs
	fs.IntVar(&g.mtu, "mtu", 0, "`BYTES` of the largest packet in the tunnel, the same at both ends (default that of the installation, 1340)")
	fs.StringVar(&g.template.Type, "type", templateType, "`GROUP/VERSION/RESOURCE` of the template")
	fs.StringVar(&g.template.Name, "template-name", templateName, "`NAME` of the template")
	fs.StringVar(&g.template.Namespace, "template-namespace", "", "`NAMESPACE` of the template (default that of the installation)")
}

func (g *gatewayFlags) templateRef(in *access.Cluster, role networkingv1beta1.ConnectionType, installed access.Installation) (corev1.ObjectReference, error) {
	t := g.template
	if !g.flags.Changed("template-name") {
		t.Name = "" // the default of the installation
	}
	return peering.TemplateRef(in, role, t, installed.Adopted)
}
