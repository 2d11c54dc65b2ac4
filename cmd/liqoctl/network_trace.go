package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/trace"
)

func networkTraceCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace [NAMESPACE/]POD ADDRESS[:PORT]",
		Short: "Show the path of a packet from a pod to the other cluster and back, and where it stops",
		Long: `Show the path of a packet from a pod of the local cluster to an address behind a peering, and of its answer: pod,
node, gateway, translation, WireGuard, and the same at the other end. Each hop shows the addresses with which the packet
leaves it, the route, the link, the MTU and the session that it uses, and the object that decides. If the reports of
nodes and gateways mean that the packet goes no further, the output explains why and what to do.

No packet is sent: the output shows what would happen to a packet in the present state. Packets with the same addresses
(and port, if you give one) that a gateway has dropped within the last minute count as well, so filters show once
somebody has tried. With --live, nodes and gateways also count such packets as they pass: nodes between pod and node and
between node and link, gateways at each point of 'network capture'. If some are seen at one point and none at the next,
they stop there. Send some packets while the command counts. NetworkPolicies and what the pod at the other end does are
not checked; for these use 'liqoctl network doctor' and 'liqoctl test network'.

The hops in the remote cluster are shown if --remote-kubeconfig or --remote-context names it. Gateways and node agents
are queried in the same way as with 'kubectl exec'. The exit code is 1 if the packet stops, and if the remote cluster
does not answer: then the hops that the local cluster knows are shown.`,
		Example: `  liqoctl network trace default/client 10.71.2.20:443 --remote-kubeconfig milan.yaml
  liqoctl network trace default/client 10.71.2.20 --remote-kubeconfig milan.yaml --live 10s
  liqoctl network trace -n default client 10.71.2.20 -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("expected [NAMESPACE/]POD and ADDRESS[:PORT], got %s", count(len(args), "argument"))
			}
			return nil
		},
		ValidArgsFunction: a.completePods(),
	}
	out := a.outputFlag(cmd, formatJSON, formatYAML)
	var live time.Duration
	cmd.Flags().DurationVar(&live, "live", 0, "`TIME` to watch nodes and gateways for such packets, to find out where they stop")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := traceOptions(a.podNamed(args[0]), args[1])
		if err != nil {
			return err
		}
		if o.Live = live; live != 0 && (live < trace.MinLive || live > trace.MaxLive) {
			return fmt.Errorf("--live %v: must be from %v to %v", live, trace.MinLive, trace.MaxLive)
		}
		return a.trace(cmd.Context(), o, out)
	}
	return cmd
}

// podNamed completes the name of a pod by the namespace that -n gives.
func (a *app) podNamed(name string) string {
	if ns := *a.local.kube.Namespace; ns != "" && !strings.Contains(name, "/") {
		return ns + "/" + name
	}
	return name
}

// completePods completes the first argument: pods of the namespace that -n gives by name, and
// without it those of all as NAMESPACE/POD.
func (a *app) completePods() cobra.CompletionFunc {
	return a.completion(1, func(ctx context.Context, in *access.Cluster) []string {
		return namesOf(ctx, in, &corev1.PodList{}, *a.local.kube.Namespace)
	})
}

// traceOptions reads the arguments.
func traceOptions(pod, to string) (o trace.Options, err error) {
	namespace, name, ok := strings.Cut(pod, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return o, fmt.Errorf("%q is not a pod: write NAMESPACE/POD, or POD with its namespace as -n", pod)
	}
	o.From = types.NamespacedName{Namespace: namespace, Name: name}
	if at, err := netip.ParseAddrPort(to); err == nil {
		o.To, o.Port = at.Addr(), at.Port()
	} else if o.To, err = netip.ParseAddr(strings.Trim(to, "[]")); err != nil {
		return o, fmt.Errorf("%q is not an address: write ADDRESS or ADDRESS:PORT, such as 10.71.2.20:443 or [fd00:71::20]:443; names are not looked up", to)
	}
	if o.To.Zone() != "" {
		return o, fmt.Errorf("%q is a link-local address, which is valid on one link only", to)
	}
	o.To = o.To.Unmap()
	return o, nil
}

func (a *app) trace(ctx context.Context, o trace.Options, out *output) (err error) {
	if a.remote.given() {
		clusters, unreached, either := a.either(ctx)
		if o.Local, o.Remote, o.RemoteErr, err = clusters[0], clusters[1], unreached[1], cmp.Or(either, unreached[0]); err != nil {
			return err
		}
		o.Remote.NamespaceGiven = false // that flag is about the local cluster
	} else if o.Local, err = a.one(ctx); err != nil {
		return err
	}
	doing := "Asking gateways and agents"
	if o.Live > 0 {
		doing += fmt.Sprintf(", then watching packets for %v", o.Live)
	}
	a.console.Progress().Waiting(o.Local.Name, doing)
	way, err := trace.Follow(ctx, o)
	a.console.Close()
	switch {
	case way == nil:
		return err
	case out.given():
		err = errors.Join(out.data(way), err)
	default:
		err = errors.Join(way.Write(a.stdout), err)
	}
	if stop := way.Stop(); stop != nil {
		err = errors.Join(err, fmt.Errorf("the packet stops: %s", stop.Problem.Message))
	}
	return err
}
