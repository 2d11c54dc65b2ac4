package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/nettest"
)

// networkTest is one call of the command.
type networkTest struct {
	*app
	*testFlags
	remotes  []string // kubeconfigs
	info     bool
	internet string
	options  nettest.Options
	out      *output
}

func testNetworkCommand(a *app, f *testFlags) *cobra.Command {
	t := &networkTest{app: a, testFlags: f}
	cmd := &cobra.Command{
		Use:   "network",
		Short: "Test that pods of connected clusters reach each other, in every way that should work",
		Long: `Test that pods of connected clusters reach each other, in every way that should work.

In each cluster a pod starts on every node, in the namespace ` + nettest.Namespace + `. Each pod tries to reach the pods
of its own cluster, which shows that the cluster's network works, and those of the other clusters, at the addresses that
these have here. A check succeeds if the right pod answers and sees the client pod's own address, as it is in the
answering pod's cluster, not the address of a node that hides it. These checks run by default:

  pod-to-pod           every pod to every other
  large packets        a download, and datagrams with and without fragments: finds an MTU that
                       is too large
  pod-to-service       through a Service whose endpoints are the pods of the other cluster
  pod-to-exported-service
                       through a Service that the other cluster exports, if both share Services
  node-to-pod          from the network of every node
  pod-to-internet      to --internet-address

The pods have no privileges. Those that stand for nodes need the network of their node, so they run in the namespace
` + nettest.HostNamespace + `; if a policy forbids such pods, nodes are not tested.

The pods stay, and the next test uses them again. With --rm they are removed at the end, also after Ctrl-C.`,
		Example: `  liqoctl test network --kubeconfig rome.yaml --remote-kubeconfig milan.yaml --rm

  # One cluster with two others.
  liqoctl test network --kubeconfig rome.yaml -p milan.yaml -p turin.yaml

  # Also through the node ports of the worker nodes, from pods and from this machine.
  liqoctl test network -p milan.yaml --pod-np --np-ext --np-nodes workers

  # What failed, in a script.
  liqoctl test network -p milan.yaml --rm -o json | jq '.checks[] | select(.ok | not)'`,
		Args: cobra.NoArgs,
	}
	a.addRemoteFlags(cmd)
	o := &t.options
	fs := cmd.Flags()
	fs.StringSliceVarP(&t.remotes, "remote-kubeconfigs", "p", nil, "`FILES` with the kubeconfigs of the remote clusters")
	fs.BoolVar(&o.Remove, "rm", false, "remove the pods and Services at the end")
	fs.BoolVar(&t.info, "info", false, "show pods, nodes and CIDRs of each cluster before the checks")
	fs.BoolVar(&o.Basic, "basic", false, "only pod-to-pod, and checks requested by flags")
	fs.BoolVar(&o.ExternalNodePort, "np-ext", false, "also reach node ports from this machine")
	fs.BoolVar(&o.PodNodePort, "pod-np", false, "also reach node ports from pods")
	fs.StringVar((*string)(&o.Nodes), "np-nodes", string(nettest.AllNodes), "`NODES` whose ports are tested: all, workers or control-planes")
	fs.BoolVar(&o.LoadBalancer, "lb", false, "also reach Services of type LoadBalancer from this machine")
	fs.BoolVar(&o.ExternalIP, "ip", false, "also reach --internet-address, port 443, through an address of each cluster's external CIDR")
	fs.StringVar(&t.internet, "internet-address", "1.1.1.1", "`ADDRESS` outside of all clusters that serves HTTP and HTTPS; empty: no check of the Internet")
	fs.StringVar(&o.Image, "image", "", "`IMAGE` of the pods (default: from the same place as the controller's)")
	fs.Int32Var(&o.Replicas, "replicas", 0, "`NUMBER` of pods in each cluster; 0: one on every node")
	complete(cmd, "np-nodes", nettest.NodeSets...)
	t.out = a.outputFlag(cmd, formatJSON, formatYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return t.run(cmd.Context()) }
	return cmd
}

func (t *networkTest) run(ctx context.Context) error {
	if err := t.complete(); err != nil {
		return err
	}
	clusters, err := t.connect(ctx)
	if err != nil {
		return err
	}
	report, err := nettest.Run(ctx, clusters, t.options, t.console.Progress())
	if err = errors.Join(t.show(report), err); err != nil {
		return err
	}
	if !t.options.Remove {
		t.console.Info("The pods stay for the next test; run it with --rm to remove them")
	}
	return verdict(report)
}

// complete makes options of the flags.
func (t *networkTest) complete() error {
	o := &t.options
	switch o.Nodes {
	case nettest.AllNodes, nettest.Workers, nettest.ControlPlanes:
	default:
		return fmt.Errorf("--np-nodes %s is not one of %v", o.Nodes, nettest.NodeSets)
	}
	if t.internet != "" {
		var err error
		if o.Internet, err = netip.ParseAddr(t.internet); err != nil {
			return fmt.Errorf("--internet-address %s is not an address: use one such as 1.1.1.1", t.internet)
		}
	} else if o.ExternalIP {
		return errors.New("--ip needs --internet-address")
	}
	if o.Replicas < 0 {
		return fmt.Errorf("--replicas %d: must not be negative", o.Replicas)
	}
	o.Timeout, o.FailFast, o.Labels, o.Annotations = t.timeout, t.failFast, t.labels, t.annotations
	if t.info && !t.out.given() {
		o.Prepared = func(clusters []nettest.Inventory) { t.console.Show(inventoryPage(clusters)) }
	}
	return nil
}

// connect reaches the local cluster and all remote ones.
func (t *networkTest) connect(ctx context.Context) ([]*access.Cluster, error) {
	flags := []*clusterFlags{t.local}
	t.local.name, t.remote.name = access.Local, access.Remote
	if t.remote.chosen() {
		flags = append(flags, t.remote)
	}
	for _, path := range t.remotes {
		f := t.newClusterFlags("remote-")
		f.name, f.liqoNamespace = remoteName(path, len(t.remotes)), t.remote.liqoNamespace
		if err := f.flags.Set("remote-kubeconfig", path); err != nil {
			return nil, err
		}
		flags = append(flags, f)
	}
	if len(flags) < 2 {
		return nil, errors.New("no remote cluster given: name it with --remote-kubeconfig or --remote-context, or several with -p")
	}
	clusters, errs := access.Parallel(flags, len(flags), func(f *clusterFlags) (*access.Cluster, error) {
		c, err := f.connect()
		if err != nil {
			return nil, err
		}
		return c, t.reach(ctx, c)
	})
	t.console.Close()
	return clusters, errors.Join(errs...)
}

// remoteName is what a remote cluster is called in messages: by its file where
// there are several.
func remoteName(path string, of int) string {
	if of == 1 {
		return access.Remote
	}
	return access.Remote + " " + filepath.Base(path)
}
