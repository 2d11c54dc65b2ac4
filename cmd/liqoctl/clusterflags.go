package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-net/sluice/admin/access"
)

// clusterFlags say how a cluster is reached: the flags of kubectl, for the remote
// cluster with remote- in front.
type clusterFlags struct {
	prefix        string // "" or "remote-"
	name          string // access.Local, access.Remote; empty where there is one cluster
	kube          *genericclioptions.ConfigFlags
	liqoNamespace string
	flags         *pflag.FlagSet // all of them
	warnings      rest.WarningHandler
}

// newClusterFlags builds the flags for the cluster that a prefix stands for.
func (a *app) newClusterFlags(prefix string) *clusterFlags {
	f := &clusterFlags{prefix: prefix, kube: genericclioptions.NewConfigFlags(true), flags: pflag.NewFlagSet("", pflag.ContinueOnError)}
	f.warnings = &warnings{flags: f, warn: a.console.Warn}
	f.kube.CacheDir = nil // nothing is discovered often enough
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.kube.AddFlags(all)
	all.StringVar(&f.liqoNamespace, "liqo-namespace", access.DefaultLiqoNamespace, "")
	common := map[string]string{
		"kubeconfig":     "`FILE` with the address of the API server and the credentials",
		"context":        "`NAME` of the context in the kubeconfig",
		"cluster":        "`NAME` of the cluster in the kubeconfig",
		"user":           "`NAME` of the user in the kubeconfig",
		"namespace":      "`NAME` of the namespace to work in",
		"liqo-namespace": "`NAME` of the namespace of the installation",
	}
	all.VisitAll(func(flag *pflag.Flag) {
		if usage, ok := common[flag.Name]; ok {
			flag.Usage = usage
		} else {
			// They work as in kubectl, for those who know them; letters are for what
			// everybody uses.
			flag.Hidden, flag.Shorthand = true, ""
		}
		if prefix != "" {
			flag.Name, flag.Shorthand, flag.Usage = prefix+flag.Name, "", "remote cluster: "+flag.Usage
		}
		f.flags.AddFlag(flag)
	})
	return f
}

// addTo adds the flags to a command and to those below it. Several commands may
// have the same flags.
func (f *clusterFlags) addTo(cmd *cobra.Command) {
	cmd.PersistentFlags().AddFlagSet(f.flags)
	for flag, names := range map[string]func(clientcmd.ClientConfig) []string{
		"context": contextNames, "cluster": clusterNames, "user": userNames,
	} {
		if _, known := cmd.GetFlagCompletionFunc(f.prefix + flag); known {
			continue
		}
		complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return names(f.kube.ToRawKubeConfigLoader()), cobra.ShellCompDirectiveNoFileComp
		}
		if err := cmd.RegisterFlagCompletionFunc(f.prefix+flag, complete); err != nil {
			panic(err) // there is no such flag: a mistake above
		}
	}
}

// given tells whether the user named this cluster by any of the flags.
func (f *clusterFlags) given() bool {
	given := false
	f.flags.VisitAll(func(flag *pflag.Flag) { given = given || flag.Changed })
	return given
}

// chosen tells whether the user said which cluster this is. An empty name, as of a variable
// that is not set, says nothing.
func (f *clusterFlags) chosen() bool {
	return slices.ContainsFunc([]string{"kubeconfig", "context", "cluster", "server"}, func(name string) bool {
		flag := f.flags.Lookup(f.prefix + name)
		return flag != nil && flag.Changed && flag.Value.String() != ""
	})
}

// dialTimeout is how long an API server may take to accept a connection: the
// kernel would try for two minutes.
const dialTimeout = 5 * time.Second

// connect builds the Cluster that the flags name. It asks the cluster nothing
// yet.
func (f *clusterFlags) connect() (*access.Cluster, error) {
	if f.prefix != "" && !f.chosen() {
		return nil, errNoRemote
	}
	loader := f.kube.ToRawKubeConfigLoader()
	origin, err := f.origin(loader)
	if err != nil {
		return nil, f.errorf("%w", err)
	}
	o := access.Options{Name: f.name, LiqoNamespace: f.liqoNamespace, Origin: origin, Flags: f.naming()}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, f.errorf("%s cannot be used: %w; name another with --%skubeconfig or --%scontext", origin, err, f.prefix, f.prefix)
	}
	if o.Namespace, _, err = loader.Namespace(); err != nil {
		return nil, f.errorf("%s names no usable namespace: %w", origin, err)
	}
	o.NamespaceGiven = *f.kube.Namespace != ""
	config.QPS = -1 // the server's own limits are enough
	config.WarningHandler = f.warnings
	config.UserAgent = "liqoctl/" + clientVersion()
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	return access.New(config, o)
}

// naming are the flags by which the user named the cluster, as those of the local one. None is a secret.
func (f *clusterFlags) naming() (flags []string) {
	for _, name := range []string{"kubeconfig", "context", "cluster", "user", "server", "liqo-namespace"} {
		if flag := f.flags.Lookup(f.prefix + name); flag.Changed {
			flags = append(flags, "--"+name+"="+flag.Value.String())
		}
	}
	return flags
}

func (f *clusterFlags) errorf(format string, args ...any) error {
	return &access.Error{Cluster: f.name, Err: fmt.Errorf(format, args...)}
}

// origin says where the credentials come from: "kubeconfig FILE, context NAME". The
// error says what is wrong with that.
func (f *clusterFlags) origin(loader clientcmd.ClientConfig) (string, error) {
	files := f.files(loader)
	origin := "kubeconfig " + strings.Join(files, string(listSeparator))
	raw, err := loader.RawConfig()
	if err != nil {
		return "", fmt.Errorf("%s cannot be read: %w; name another with --%skubeconfig", origin, err, f.prefix)
	}
	if clientcmdapi.IsConfigEmpty(&raw) {
		return f.originWithout(files)
	}
	name := cmp.Or(*f.kube.Context, raw.CurrentContext)
	context := raw.Contexts[name]
	switch contexts := slices.Sorted(maps.Keys(raw.Contexts)); {
	case name != "" && context == nil:
		return "", fmt.Errorf("%s has no context %q: it has %s", origin, name, cmp.Or(strings.Join(contexts, ", "), "none"))
	case name != "":
		if len(files) > 1 { // the one that has it
			origin = "kubeconfig " + cmp.Or(context.LocationOfOrigin, strings.Join(files, string(listSeparator)))
		}
		origin += ", context " + name
	case *f.kube.ClusterName == "" && *f.kube.APIServer == "":
		return "", fmt.Errorf("%s has no current context: choose one of %s with --%scontext", origin, strings.Join(contexts, ", "), f.prefix)
	default:
		context = clientcmdapi.NewContext()
	}
	return origin, f.complete(origin, &raw, context)
}

// complete says what a kubeconfig lacks that a context refers to. Client libraries
// would look for a cluster on this machine instead.
func (f *clusterFlags) complete(origin string, raw *clientcmdapi.Config, context *clientcmdapi.Context) error {
	cluster := cmp.Or(*f.kube.ClusterName, context.Cluster)
	if raw.Clusters[cluster] == nil && *f.kube.APIServer == "" {
		return fmt.Errorf("%s refers to the cluster %q, which is not in it", origin, cluster)
	}
	user := cmp.Or(*f.kube.AuthInfoName, context.AuthInfo)
	if raw.AuthInfos[user] == nil && user != "" {
		return fmt.Errorf("%s refers to the user %q, which is not in it", origin, user)
	}
	return nil
}

// originWithout is origin where there is no kubeconfig: in a pod its own
// credentials, or what the flags say.
func (f *clusterFlags) originWithout(files []string) (string, error) {
	if *f.kube.APIServer != "" {
		return "the flags", nil
	}
	if _, err := rest.InClusterConfig(); err == nil && *f.kube.KubeConfig == "" {
		return "the pod's service account", nil
	} else if err != nil && !errors.Is(err, rest.ErrNotInCluster) {
		return "", fmt.Errorf("the pod's service account cannot be used: %w", err)
	}
	return "", fmt.Errorf("there is no cluster in the kubeconfig %s: name a kubeconfig with --%skubeconfig or the variable KUBECONFIG",
		strings.Join(files, string(listSeparator)), f.prefix)
}

// files are those that the kubeconfig is read from.
func (f *clusterFlags) files(loader clientcmd.ClientConfig) []string {
	if *f.kube.KubeConfig != "" {
		return []string{*f.kube.KubeConfig}
	}
	return loader.ConfigAccess().GetLoadingPrecedence()
}
