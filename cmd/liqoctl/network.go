package main

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/admin/peering"
)

// networkCommand is everything about the network between clusters.
func networkCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "network",
		Short: "Connect clusters, watch and repair the connection",
		Long: `Connect two clusters pod to pod, watch the connection and repair it.

Name two clusters: the local one by --kubeconfig and --context, the remote one by the same flags with the prefix
remote-. Both may be contexts of one kubeconfig. The remote cluster gets the gateway server, which waits for
connections, so the local cluster must be able to reach it; the local cluster gets the gateway client.`,
	}
	a.addRemoteFlags(cmd)
	cmd.AddCommand(
		networkInitCommand(a), networkConnectCommand(a), networkDisconnectCommand(a), networkResetCommand(a),
		networkStatusCommand(a), networkDoctorCommand(a), networkCaptureCommand(a), networkDropsCommand(a),
		networkTraceCommand(a), networkRotateKeysCommand(a), networkAdoptCommand(a),
	)
	return cmd
}

// peeringFlags are those of all commands that connect or separate clusters.
type peeringFlags struct {
	timeout        time.Duration
	wait           bool
	skipValidation bool

	set *pflag.FlagSet
}

// add adds the flags. forWhat says what --wait waits for.
func (f *peeringFlags) add(fs *pflag.FlagSet, timeout time.Duration, forWhat string) {
	f.set = fs
	fs.DurationVar(&f.timeout, "timeout", timeout, "`DURATION` to wait before giving up and reporting what is missing; 0: no limit")
	fs.BoolVar(&f.wait, "wait", f.wait, "wait until "+forWhat)
	fs.BoolVar(&f.skipValidation, "skip-validation", false, "do not check templates, node ports and addresses of nodes beforehand")
}

// options are what these flags say, with the global ones.
func (f *peeringFlags) options(a *app) peering.Options {
	return peering.Options{
		Timeout: f.timeout, UntilTimeout: f.set.Changed("timeout"), Wait: f.wait, SkipValidation: f.skipValidation,
		Labels: a.labels, Annotations: a.annotations,
	}
}

// formerNames are flags as earlier versions called them.
var formerNames = map[string]string{
	"server-type":                   "gw-server-type",
	"server-template-name":          "gw-server-template-name",
	"server-template-namespace":     "gw-server-template-namespace",
	"server-service-type":           "gw-server-service-type",
	"server-service-port":           "gw-server-service-port",
	"server-port":                   "gw-server-service-port",
	"server-service-nodeport":       "gw-server-service-nodeport",
	"node-port":                     "gw-server-service-nodeport",
	"server-service-loadbalancerip": "gw-server-service-loadbalancerip",
	"load-balancer-ip":              "gw-server-service-loadbalancerip",
	"client-type":                   "gw-client-type",
	"client-template-name":          "gw-client-template-name",
	"client-template-namespace":     "gw-client-template-namespace",
	"client-address":                "gw-client-address",
	"client-port":                   "gw-client-port",
	"gw-server-gateway-location":    "gw-server-service-location",
}

// currentName has the former names of flags mean what the flags are called now.
func currentName(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(cmp.Or(formerNames[name], name))
}
