package clusters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/nettest"
	"github.com/sluice-net/sluice/admin/probe"
	"github.com/sluice-net/sluice/dataplane/netstack"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// proberImage is that of `liqoctl test network`. Its pods are TCP/IP stacks in
// this process, on the node that the kubelet has chosen for them.
const proberImage = "sluice/prober:latest"

// probers play the pods of proberImage in both clusters.
type probers struct {
	mu    sync.Mutex
	byUID map[types.UID]*prober
	hosts map[*node]*netstack.Stack // what a node sends with the address for what is no pod
}

// prober is one such pod.
type prober struct {
	*netstack.Stack
	side     *side
	node     *node
	identity probe.Identity
	stop     func()
	// hidden has the node hide the pod's address from other clusters, as a network
	// plugin does that masquerades what leaves its own.
	hidden bool
}

func newProbers() *probers {
	return &probers{byUID: make(map[types.UID]*prober), hosts: make(map[*node]*netstack.Stack)}
}

// image runs the commands of `kubectl exec` in the stack of the pod.
func (ps *probers) image() controlplanetest.Image {
	return controlplanetest.Image{Exec: func(ctx context.Context, pod *corev1.Pod, argv []string, stdout, stderr io.Writer) int {
		ps.mu.Lock()
		p := ps.byUID[pod.UID]
		ps.mu.Unlock()
		if p == nil || len(argv) == 0 || argv[0] != "prober" {
			fmt.Fprintf(stderr, "%q cannot be run in pod %s\n", argv, pod.Name)
			return 127
		}
		return (&probe.Program{Identity: p.identity, Dial: p.dial}).Run(ctx, argv[1:], stdout, stderr)
	}}
}

// play plays the pods of one cluster until the test ends.
func (ps *probers) play(t *testing.T, s *side) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				ps.sync(t, s, nil)
				ps.removeHosts(s)
				return
			case <-tick.C:
			}
			var pods []corev1.Pod
			var err error
			for _, ns := range []string{nettest.Namespace, nettest.HostNamespace} {
				var list corev1.PodList
				err = errors.Join(err, s.Client.List(ctx, &list, client.InNamespace(ns)))
				pods = append(pods, list.Items...)
			}
			if err == nil {
				ps.sync(t, s, pods)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// sync makes the pods of a cluster exactly these.
func (ps *probers) sync(t *testing.T, s *side, pods []corev1.Pod) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	wanted := make(map[types.UID]bool)
	for i := range pods {
		o := &pods[i]
		if o.Status.PodIP == "" || o.DeletionTimestamp != nil {
			continue
		}
		wanted[o.UID] = true
		if ps.byUID[o.UID] != nil {
			continue
		}
		p, err := ps.newProberLocked(s, o)
		if err != nil {
			t.Errorf("pod %s: %v", o.Name, err)
			continue
		}
		ps.byUID[o.UID] = p
	}
	for uid, p := range ps.byUID {
		if p.side == s && !wanted[uid] {
			p.stop()
			delete(ps.byUID, uid)
		}
	}
}

// hide has the nodes of one cluster hide the addresses of the pods.
func (ps *probers) hide(s *side, hidden bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.byUID {
		if p.side == s {
			p.hidden = hidden
		}
	}
}

var podNetwork = netip.MustParsePrefix(podCIDR)

// unknownSource is the address that a node gives what is no pod.
var unknownSource = netip.MustParsePrefix(externalCIDR).Addr()

// hostLocked returns the network of a node.
func (ps *probers) hostLocked(n *node) (stack *netstack.Stack, err error) {
	if ps.hosts[n] == nil {
		ps.hosts[n], err = n.sim.AddPod(unknownSource)
	}
	return ps.hosts[n], err
}

func (ps *probers) removeHosts(s *side) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, n := range s.fabric.nodes {
		if stack := ps.hosts[n]; stack != nil {
			n.sim.RemovePod(stack)
			delete(ps.hosts, n)
		}
	}
}

func (ps *probers) newProberLocked(s *side, o *corev1.Pod) (*prober, error) {
	p := &prober{side: s, node: s.fabric.node(o.Spec.NodeName), stop: func() {}, identity: probe.Identity{Cluster: s.id, Pod: o.Name, Node: o.Spec.NodeName}}
	at, err := netip.ParseAddr(o.Status.PodIP)
	if err != nil {
		return nil, err
	}
	if o.Spec.HostNetwork {
		p.Stack, err = ps.hostLocked(p.node)
		return p, err
	}
	if p.Stack, err = p.node.sim.AddPod(at); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	p.stop = func() {
		cancel()
		wg.Wait()
		p.node.sim.RemovePod(p.Stack)
	}
	web, err1 := p.ListenTCP(netip.AddrPortFrom(at, probe.Port))
	datagrams, err2 := p.ListenUDP(netip.AddrPortFrom(at, probe.Port))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	wg.Go(func() { _ = (&probe.Server{Identity: p.identity}).Serve(ctx, web, datagrams) }) // what it misses, the test sees
	return p, nil
}

// dial is the network of the pod, with what kube-proxy does on its node.
func (p *prober) dial(ctx context.Context, network, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	to, byNode, err := p.side.behind(ctx, to)
	if err != nil {
		return nil, err
	}
	from := p.Stack
	ps := p.side.probers
	ps.mu.Lock()
	if byNode || p.hidden && !podNetwork.Contains(to.Addr()) {
		from, err = ps.hostLocked(p.node)
	}
	ps.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return from.DialContext(ctx, network, to.String())
}

// behind returns an endpoint of the Service that has an address, if one has it,
// and whether the node answers for the way back.
func (s *side) behind(ctx context.Context, to netip.AddrPort) (endpoint netip.AddrPort, byNode bool, err error) {
	var services corev1.ServiceList
	if err := s.Client.List(ctx, &services, client.InNamespace(nettest.Namespace)); err != nil {
		return to, false, err
	}
	for _, o := range services.Items {
		port := o.Spec.Ports[0]
		atNode := s.fabric.has(to.Addr()) && to.Port() == uint16(port.NodePort)
		if !atNode && (o.Spec.ClusterIP != to.Addr().String() || to.Port() != uint16(port.Port)) {
			continue
		}
		var slices discoveryv1.EndpointSliceList
		if err := s.Client.List(ctx, &slices, client.InNamespace(o.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: o.Name}); err != nil {
			return to, false, err
		}
		var all []netip.AddrPort
		for _, slice := range slices.Items {
			for _, e := range slice.Endpoints {
				all = append(all, netip.AddrPortFrom(netip.MustParseAddr(e.Addresses[0]), uint16(*slice.Ports[0].Port)))
			}
		}
		if len(all) == 0 {
			return to, false, errors.New("connection refused: the Service has no endpoint")
		}
		return all[rand.IntN(len(all))], atNode, nil
	}
	return to, false, nil
}

// has tells whether an address is that of a node.
func (f *fabric) has(a netip.Addr) bool {
	for _, n := range f.nodes {
		if n.info.IP == a {
			return true
		}
	}
	return false
}
