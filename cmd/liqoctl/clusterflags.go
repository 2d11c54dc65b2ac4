package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-net/sluice/controlplane/access"
)

// clusterFlags say how a cluster is reached: the flags of kubectl, for the remote
// cluster with remote- in front.
type clusterFlags struct {
	prefix        string // "" or "remote-"
	name          string // access.Local, access.Remote
	kube          *genericclioptions.ConfigFlags
	liqoNamespace string
}

// addClusterFlags adds the flags to a command and to those below it.
func addClusterFlags(cmd *cobra.Command, prefix string) *clusterFlags {
	f := &clusterFlags{prefix: prefix, kube: genericclioptions.NewConfigFlags(true)}
	f.kube.CacheDir = nil // nothing is discovered often enough
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.kube.AddFlags(all)
	common := map[string]string{
		"kubeconfig": "`FILE` with the address of the API server and the credentials",
		"context":    "`NAME` of the kubeconfig's context",
		"cluster":    "`NAME` of the kubeconfig's cluster",
		"user":       "`NAME` of the kubeconfig's user",
		"namespace":  "`NAME` of the namespace to work in",
	}
	all.VisitAll(func(flag *pflag.Flag) {
		if usage, ok := common[flag.Name]; ok {
			flag.Usage = usage
		} else {
			flag.Hidden = true // as in kubectl, for those who know them
		}
		if prefix != "" {
			flag.Name, flag.Shorthand, flag.Usage = prefix+flag.Name, "", flag.Usage+", of the remote cluster"
		}
		cmd.PersistentFlags().AddFlag(flag)
	})
	usage := "`NAME` of the namespace of the installation"
	if prefix != "" {
		usage += ", of the remote cluster"
	}
	cmd.PersistentFlags().StringVar(&f.liqoNamespace, prefix+"liqo-namespace", access.DefaultLiqoNamespace, usage)
	return f
}

// connect builds the Cluster that the flags name. It asks the cluster nothing
// yet.
func (f *clusterFlags) connect() (*access.Cluster, error) {
	loader := f.kube.ToRawKubeConfigLoader()
	o := access.Options{Name: f.name, LiqoNamespace: f.liqoNamespace, Origin: f.origin(loader)}
	fail := func(err error) error {
		return &access.Error{Cluster: f.name, Err: fmt.Errorf("%s is of no use: %w; name another with --%skubeconfig or --%scontext", o.Origin, err, f.prefix, f.prefix)}
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fail(err)
	}
	if o.Namespace, o.NamespaceGiven, err = loader.Namespace(); err != nil {
		return nil, fail(err)
	}
	o.NamespaceGiven = *f.kube.Namespace != ""
	config.QPS, config.Burst = -1, 0 // the server's own limits are enough
	return access.New(config, o)
}

// origin says where the credentials come from.
func (f *clusterFlags) origin(loader clientcmd.ClientConfig) string {
	file := *f.kube.KubeConfig
	if file == "" {
		file = loader.ConfigAccess().GetDefaultFilename()
	}
	context := *f.kube.Context
	if raw, err := loader.RawConfig(); err == nil {
		context = cmp.Or(context, raw.CurrentContext)
	}
	if context == "" {
		return "kubeconfig " + file
	}
	return fmt.Sprintf("kubeconfig %s, context %s", file, context)
}
