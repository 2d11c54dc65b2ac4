package trace

import (
	"context"
	"io"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
)

// Options say which packet is followed.
type Options struct {
	Local *access.Cluster
	// Remote is nil if the other cluster cannot be read.
	Remote *access.Cluster
	// RemoteErr is why Remote does not answer, nil if it does as far as is known.
	RemoteErr error
	From      types.NamespacedName
	To        netip.Addr
	// Port 0: any.
	Port uint16
	// Live is how long nodes and gateways are watched for such packets. Zero: not at all.
	Live time.Duration
}

// Follow reads both clusters and follows the packet. A hop says what cannot be read there.
// The error is for a cluster that does not answer, a pod that does not exist, and a remote
// cluster that is not the one that the address leads to. If only the remote cluster does not
// answer, Follow also returns a Way, as far as the local cluster knows it.
func Follow(ctx context.Context, o Options) (*Way, error) {
	f := &Facts{To: o.To, Port: o.Port}
	pod, err := o.Local.Clientset.CoreV1().Pods(o.From.Namespace).Get(ctx, o.From.Name, metav1.GetOptions{})
	if err != nil {
		return nil, o.Local.Explain("read Pod "+o.From.String(), err)
	}
	f.From = podOf(pod)
	local, err := readSide(ctx, o.Local, access.Local)
	if err != nil {
		return nil, err
	}
	peer, problem := PeerFor(local.cluster, o.To)
	if problem != nil {
		w := &walk{src: f.From.addr(o.To), dst: o.To}
		w.hop(Hop{Cluster: access.Local, Kind: "pod", Name: f.From.String(), Problem: problem})
		return &Way{There: w.hops}, o.RemoteErr
	}
	sides := []*sideReader{local}
	local.Peer = peer
	if o.Remote != nil && o.RemoteErr == nil {
		remote, err := readSide(ctx, o.Remote, access.Remote)
		switch {
		case ctx.Err() != nil:
			return nil, err
		case err != nil:
			o.RemoteErr = err
		case remote.ID != peer.ID:
			return nil, o.Remote.Errorf("this cluster is %q, but %s leads to %q: name that one with --remote-kubeconfig or --remote-context", remote.ID, o.To, peer.ID)
		default:
			remote.Peer = remote.cluster.Peer(local.ID)
			f.Remote = &remote.Side
			sides = append(sides, remote)
		}
	}
	f.RemoteErr = o.RemoteErr
	inParallel(sides, func(s *sideReader) { s.askGateway(ctx) })
	f.Local = local.Side
	if f.Remote != nil {
		sides[1].findTarget(ctx, f)
	}
	inParallel(sides, func(s *sideReader) {
		node := f.From.Node
		if s.Name == access.Remote {
			if s.Target == nil {
				return
			}
			node = s.Target.Node
		}
		s.askAgent(ctx, node)
	})
	f.Local = local.Side
	way := Trace(f)
	f.askRules(ctx, way, runIn(sides))
	if o.Live > 0 {
		w := newWatch(way, o.Port)
		for _, s := range sides {
			if pod := s.gatewayPod(); pod.Name != "" {
				w.gateways[s.Name] = s.execIn(pod, gatewayProgram)
			}
			end := &f.From
			if s.Name == access.Remote {
				end = s.Target
			}
			link, agent, why := s.counting(end)
			if why == "" {
				w.nodes[s.Name] = &node{capture: s.execIn(agent, fabricProgram), link: link}
			} else {
				w.nodes[s.Name] = &node{failed: why}
			}
		}
		w.run(ctx, o.Live)
		w.judge(way)
	}
	return way, o.RemoteErr
}

// execIn runs commands in a pod.
func (s *sideReader) execIn(pod types.NamespacedName, container string) capturing {
	return func(ctx context.Context, argv []string, to io.Writer) error {
		return s.access.ExecUntil(ctx, pod, container, argv, to)
	}
}

// sideReader reads a cluster, and holds the result.
type sideReader struct {
	Side
	access  *access.Cluster
	cluster *survey.Cluster
}

func inParallel(of []*sideReader, do func(*sideReader)) {
	access.Together(of, func(s *sideReader) error { do(s); return nil })
}

func podOf(p *corev1.Pod) Pod {
	out := Pod{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Phase: string(p.Status.Phase), HostNetwork: p.Spec.HostNetwork}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out.Addrs = append(out.Addrs, a)
		}
	}
	return out
}

func readSide(ctx context.Context, c *access.Cluster, name string) (*sideReader, error) {
	id, err := c.ID(ctx)
	if err != nil {
		return nil, err
	}
	s, err := survey.Read(ctx, c, survey.Options{PeeringsOnly: true, Exposed: true})
	if err != nil {
		return nil, err
	}
	return &sideReader{Side: Side{Name: name, ID: id, Nodes: s.Nodes, Exposed: s.Exposed, Agents: make(map[string]Agent)}, access: c, cluster: s}, nil
}

const (
	// gatewayProgram is a gateway's program, and its container.
	gatewayProgram = "gateway"
	// fabricProgram is an agent's program, and its container.
	fabricProgram = "fabric"
)

// askGateway queries the gateway of the peering for its report and its drops.
func (s *sideReader) askGateway(ctx context.Context) {
	if s.Peer == nil {
		return
	}
	one := &survey.Cluster{Name: s.cluster.Name, Peers: []survey.Peer{*s.Peer}}
	survey.AskGateways(ctx, s.access, one)
	s.Peer = &one.Peers[0]
	if s.report() == nil {
		return
	}
	// An older gateway keeps no drops: then the trace shows less.
	s.Drops, _ = survey.ReadDrops(ctx, s.access, s.gatewayPod())
}

// gatewayPod is the pod that carries the packets, empty if none does that can be asked.
func (s *sideReader) gatewayPod() (n types.NamespacedName) {
	if s.Peer != nil && s.Peer.Gateway != nil && s.Peer.Gateway.Active() != nil && !s.Peer.Gateway.OfLiqo() {
		pod := s.Peer.Gateway.Active()
		n = types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	}
	return n
}

// findTarget finds the pod that the packet is for: the one whose address is the destination
// of the packet when it leaves the other gateway.
func (s *sideReader) findTarget(ctx context.Context, f *Facts) {
	so := *f
	so.Remote = &s.Side
	way := Trace(&so)
	last := way.There[len(way.There)-1]
	if last.Cluster != s.Name || last.Kind == "translation" {
		return
	}
	// The API server can select pods by their first address. To find one by its second
	// address, all pods must be listed.
	s.lookForTarget(ctx, last.Destination, metav1.ListOptions{FieldSelector: "status.podIP=" + last.Destination.String(), Limit: podsAtOnce})
	if s.Target == nil && s.TargetErr == nil && last.Destination.Is6() {
		s.lookForTarget(ctx, last.Destination, metav1.ListOptions{Limit: podsAtOnce})
	}
}

// podsAtOnce is how many pods are read at a time.
const podsAtOnce = 500

// lookForTarget looks for a pod with an address, preferably a running one.
func (s *sideReader) lookForTarget(ctx context.Context, a netip.Addr, o metav1.ListOptions) {
	for {
		list, err := s.access.Clientset.CoreV1().Pods("").List(ctx, o)
		if err != nil {
			s.TargetErr = s.access.Explain("read Pods", err)
			return
		}
		for i := range list.Items {
			p := podOf(&list.Items[i])
			if slices.Contains(p.Addrs, a) && (s.Target == nil || p.Phase == string(corev1.PodRunning)) {
				s.Target = &p
			}
		}
		if o.Continue = list.Continue; o.Continue == "" || s.Target != nil && s.Target.Phase == string(corev1.PodRunning) {
			return
		}
	}
}

// askAgent queries the agent of a node.
func (s *sideReader) askAgent(ctx context.Context, node string) {
	if node == "" {
		return
	}
	list, err := s.access.Clientset.CoreV1().Pods(s.access.LiqoNamespace+access.FabricSuffix).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		s.Agents[node] = Agent{Err: s.access.Explain("read Pods in namespace "+s.access.LiqoNamespace+access.FabricSuffix, err)}
		return
	}
	a := Agent{Err: s.access.Errorf("no agent pod of Sluice runs on the node")}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase == corev1.PodRunning && slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == fabricProgram }) {
			a.Pod = types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
			a.Report, a.Err = survey.ReadFabric(ctx, s.access, a.Pod)
		}
	}
	s.Agents[node] = a
}
