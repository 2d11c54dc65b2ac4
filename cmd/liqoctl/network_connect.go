package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/survey"
)

func networkConnectCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "connect",
		Short: "Connect two clusters pod to pod",
		Long: `Connect two clusters pod to pod through a gateway in each and a WireGuard tunnel between them.

The remote cluster gets the gateway server, behind a Service that the local cluster must be able to reach: make the
cluster that is easier to reach the remote one. The type of the Service decides how:

  LoadBalancer  at the address that the cloud, or MetalLB, gives the Service
  NodePort      at the address of a node and a port from 30000 to 32767
  ClusterIP     at the Service's own address, for clusters that already reach each other's Services

The local cluster gets the gateway client, which dials that address; --gw-client-address and --gw-client-port set
another address, such as that of a NAT or a port forward.

Before anything is changed, both clusters are checked: access, rights, versions, templates. The steps are then:

  1. each cluster gets a tenant namespace, liqo-tenant-<ID of the other>, with a Configuration that
     holds the CIDRs of the other; it chooses the CIDRs by which it reaches them
  2. the remote cluster gets a GatewayServer, the local one a GatewayClient
  3. each gets the public key of the other's gateway, unless you set --disable-sharing-keys
  4. with --wait: the command waits until the gateways answer each other

The command can be repeated, and continues where it was interrupted. Existing objects stay as they are: flags that are
not given change nothing. Objects with other names, or in another namespace, are used if they are for the same cluster.
If the flags expose the gateway server in another way, it is deleted and created again. Clusters that are connected in
the opposite direction stay connected that way.

With several ports, --gw-server-service-port 51840,51841,51842, there is a tunnel for each, which share the traffic: one
may not be enough where a provider limits each flow. The client dials as many. Repeated with more or fewer ports after
the first, the command adds or removes tunnels of a connection; the others keep their node ports.

With -o, both ends of the connection are printed on stdout, as 'liqoctl info peer' prints them, under "local" and
"remote". Progress always goes to stderr.`,
		Example: `  liqoctl network connect --kubeconfig rome.yaml --remote-kubeconfig milan.yaml \
    --gw-server-service-type NodePort --wait

  # Milan is behind a router that forwards UDP port 51840 of 203.0.113.7 to node port 30742.
  liqoctl network connect --context rome --remote-context milan --wait \
    --gw-server-service-type NodePort --gw-server-service-nodeport 30742 \
    --gw-client-address 203.0.113.7 --gw-client-port 51840

  # Four tunnels instead of one.
  liqoctl network connect --context rome --remote-context milan --wait \
    --gw-server-service-port 51840,51841,51842,51843

  # In a script: print the state of the connection.
  liqoctl network connect --context rome --remote-context milan --wait -o json \
    | jq -r .local.network.connection.status`,
		Args: cobra.NoArgs,
	}
	var f connectFlags
	f.add(cmd.Flags(), timeoutOfNetwork, "the clusters are connected")
	f.addGateways(cmd)
	out := a.outputFlag(cmd, formatJSON, formatYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := f.options(a)
		if err != nil {
			return err
		}
		local, remote, err := a.two(cmd.Context())
		if err != nil {
			return err
		}
		if err := peering.Connect(cmd.Context(), local, remote, o, a.console.Progress()); err != nil || !out.given() {
			return err
		}
		return a.printConnection(cmd.Context(), out, local, remote)
	}
	return cmd
}

// connectionInfo is what `network connect -o json` prints: the peering as each of the two
// clusters has it.
type connectionInfo struct {
	Local  peerInfo `json:"local"`
	Remote peerInfo `json:"remote"`
}

// printConnection prints both ends of a connection.
func (a *app) printConnection(ctx context.Context, out *output, local, remote *access.Cluster) error {
	var readings [2]*survey.Cluster
	for i, c := range []*access.Cluster{local, remote} {
		s, err := a.survey(ctx, c, infoPeerReads)
		if err != nil {
			return err
		}
		a.missing(s, c)
		readings[i] = s
	}
	info, err := connectionInfoOf(readings[0], readings[1])
	if err != nil {
		return err
	}
	return out.data(info)
}

// connectionInfoOf is what two readings say of each other's cluster.
func connectionInfoOf(local, remote *survey.Cluster) (info connectionInfo, err error) {
	for _, e := range []struct {
		at, of *survey.Cluster
		into   *peerInfo
	}{{local, remote, &info.Local}, {remote, local, &info.Remote}} {
		p := e.at.Peer(e.of.Installation.ClusterID)
		if p == nil || p.ID == "" {
			return info, fmt.Errorf("(%s) the clusters are connected, but the objects of cluster %q cannot be read here", e.at.Name, e.of.Installation.ClusterID)
		}
		*e.into = peerInfoOf(e.at, p)
	}
	return info, nil
}

// connectFlags are those that say how clusters are connected.
type connectFlags struct {
	peeringFlags
	server             peering.ServerFlags
	serviceType        string
	client             peering.ClientFlags
	mtu                int
	disableSharingKeys bool
}

// addGateways adds the flags of the gateways.
func (f *connectFlags) addGateways(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SetNormalizeFunc(currentName)
	addTemplate(fs, "gw-server", &f.server.Template, peering.DefaultServerTemplateType, peering.DefaultServerTemplateName)
	fs.StringVar(&f.serviceType, "gw-server-service-type", "", "`TYPE` of the gateway server's Service: LoadBalancer, NodePort or ClusterIP (default that of the installation, LoadBalancer)")
	portsFlag(fs, &f.server.Ports, "gw-server-service-port", "`PORT` of the gateway server's Service; several separated by commas are as many tunnels (default that of the installation, 51840)")
	portsFlag(fs, &f.server.NodePorts, "gw-server-service-nodeport", "node `PORT` of a Service of type NodePort or LoadBalancer, one for each tunnel (default any free one)")
	fs.StringVar(&f.server.LoadBalancerIP, "gw-server-service-loadbalancerip", "", "`ADDRESS` to request for a Service of type LoadBalancer (default any)")
	addTemplate(fs, "gw-client", &f.client.Template, peering.DefaultClientTemplateType, peering.DefaultClientTemplateName)
	fs.StringVar(&f.client.Address, "gw-client-address", "", "`ADDRESS`, or DNS name, at which the client reaches the server (default the one in the server's status)")
	portsFlag(fs, &f.client.Ports, "gw-client-port", "`PORT` at which the client reaches the server, one for each tunnel (default those in the server's status)")
	fs.IntVar(&f.mtu, "mtu", 0, "`BYTES` of the largest packet in the tunnel, the same at both ends (default that of the installation, 1340)")
	fs.BoolVar(&f.disableSharingKeys, "disable-sharing-keys", false, "do not give each cluster the public key of the other: you do it yourself")
	complete(cmd, "gw-server-service-type", serviceTypes()...)
}

func addTemplate(fs *pflag.FlagSet, prefix string, t *peering.TemplateFlags, typ, name string) {
	which := strings.TrimPrefix(prefix, "gw-")
	fs.StringVar(&t.Type, prefix+"-type", "", "`GROUP/VERSION/RESOURCE` of the gateway "+which+"'s template (default "+typ+")")
	fs.StringVar(&t.Name, prefix+"-template-name", "", "`NAME` of the gateway "+which+"'s template (default "+name+")")
	fs.StringVar(&t.Namespace, prefix+"-template-namespace", "", "`NAMESPACE` of the gateway "+which+"'s template (default that of the installation)")
}

// options are what all flags say.
func (f *connectFlags) options(a *app) (peering.Options, error) {
	o := f.peeringFlags.options(a)
	o.Server, o.Client, o.MTU, o.DisableSharingKeys = f.server, f.client, f.mtu, f.disableSharingKeys
	var err error
	if o.Server.ServiceType, err = serviceType(f.serviceType); err != nil {
		return o, err
	}
	return o, errors.Join(f.zeros(), o.Validate())
}

// zeros refuses a zero that was given: only where nothing is said it stands for
// the default.
func (f *connectFlags) zeros() error {
	var errs []error
	for _, n := range []struct {
		flag  string
		zero  bool
		bound string
	}{
		{"gw-server-service-port", len(f.server.Ports) == 0, "from 1 to 65535"},
		{"gw-client-port", len(f.client.Ports) == 0, "from 1 to 65535"},
		{"mtu", f.mtu == 0, fmt.Sprintf("from %d to %d", peering.MinMTU, peering.MaxMTU)},
	} {
		if n.zero && f.set.Changed(n.flag) {
			errs = append(errs, fmt.Errorf("--%s 0: must be %s", n.flag, n.bound))
		}
	}
	return errors.Join(errs...)
}

// serviceType reads a type of Services, however its letters are written.
func serviceType(s string) (corev1.ServiceType, error) {
	for _, t := range peering.ServiceTypes {
		if strings.EqualFold(s, string(t)) {
			return t, nil
		}
	}
	if s == "" {
		return "", nil
	}
	return "", fmt.Errorf("--gw-server-service-type %q: must be %s", s, strings.Join(serviceTypes(), ", "))
}

// hide keeps flags out of the help.
func hide(fs *pflag.FlagSet, names ...string) {
	for _, n := range names {
		fs.Lookup(n).Hidden = true
	}
}
