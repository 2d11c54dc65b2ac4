package clusters

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/underlay"
)

const (
	genevePort = 6091
	mtu        = 1340
)

// fabric is the network of the nodes of one cluster: it does what the agent on
// each node does - tells where the node's tunnels end, keeps a tunnel to each
// gateway and routes the remote CIDRs into it - and it carries packets between
// nodes as a CNI does.
type fabric struct {
	cluster  *controlplanetest.Cluster
	loopback *controlplanetest.Loopback
	cache    cache.Cache
	changed  chan struct{} // one slot; sent to by informers, received by run
	nodes    []*node
	links    map[client.ObjectKey]*link // by GeneveTunnel; of run only

	mu   sync.Mutex
	away map[string]bool // nodes whose agent does nothing
}

// node is one simulated node.
type node struct {
	info controlplanetest.Node
	sim  *dataplanetest.Node
}

// link is a tunnel that is in place, and what it was made from.
type link struct {
	*dataplanetest.Link
	from dataplanetest.LinkConfig
}

// startFabric connects the nodes until the test ends.
func startFabric(tb testing.TB, c *controlplanetest.Cluster, k *controlplanetest.Kubelet) *fabric {
	tb.Helper()
	f := &fabric{cluster: c, loopback: k.Loopback, changed: make(chan struct{}, 1), links: make(map[client.ObjectKey]*link), away: make(map[string]bool)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	tb.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	for _, info := range k.Nodes() {
		socket, err := underlay.Listen(underlay.Config{Addr: netip.AddrPortFrom(info.IP, genevePort), GSO: true})
		if err != nil {
			tb.Fatalf("socket of %s: %v", info.Name, err)
		}
		n := &node{info: info, sim: dataplanetest.NewNode(dataplanetest.NodeConfig{
			Name: info.Name, Socket: socket, MTU: mtu, SuperSegments: true, CNI: f.carry,
		})}
		f.nodes = append(f.nodes, n)
		wg.Go(func() {
			if err := n.sim.Run(ctx); err != nil {
				tb.Errorf("node: %v", err)
			}
		})
	}
	if err := f.watch(ctx, &wg); err != nil {
		tb.Fatalf("watch the internal network: %v", err)
	}
	wg.Go(func() { f.run(ctx, tb) })
	return f
}

// watch wakes run when an object of the internal network changes.
func (f *fabric) watch(ctx context.Context, wg *sync.WaitGroup) error {
	var err error
	if f.cache, err = cache.New(f.cluster.Config, cache.Options{Scheme: kinds.Scheme()}); err != nil {
		return err
	}
	wake := func(any) {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
	for _, kind := range []client.Object{&networkingv1beta1.InternalNode{}, &networkingv1beta1.InternalFabric{}, &networkingv1beta1.GeneveTunnel{}} {
		informer, err := f.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		handler := toolscache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, o any) { wake(o) }, DeleteFunc: wake}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	wg.Go(func() { _ = f.cache.Start(ctx) }) // it ends with ctx
	if !f.cache.WaitForCacheSync(ctx) {
		return errors.New("the cache has not been filled")
	}
	return nil
}

// run keeps the nodes as the objects say. What could not be written is tried
// again after a second.
func (f *fabric) run(ctx context.Context, tb testing.TB) {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		case <-again.C:
			if !failed {
				continue
			}
		}
		err := f.sync(ctx)
		if failed = err != nil; failed && ctx.Err() == nil {
			tb.Logf("fabric: %v", err)
		}
	}
}

func (f *fabric) sync(ctx context.Context) error {
	var inodes networkingv1beta1.InternalNodeList
	var fabrics networkingv1beta1.InternalFabricList
	var tunnels networkingv1beta1.GeneveTunnelList
	if err := errors.Join(f.cache.List(ctx, &inodes), f.cache.List(ctx, &fabrics), f.cache.List(ctx, &tunnels)); err != nil {
		return err
	}
	var errs []error
	for i := range inodes.Items {
		errs = append(errs, f.report(ctx, &inodes.Items[i]))
	}
	wanted := make(map[client.ObjectKey]bool)
	for _, t := range tunnels.Items {
		n := slices.IndexFunc(inodes.Items, func(n networkingv1beta1.InternalNode) bool { return n.Name == t.Spec.InternalNodeRef.Name })
		g := slices.IndexFunc(fabrics.Items, func(g networkingv1beta1.InternalFabric) bool {
			return g.Namespace == t.Namespace && g.Name == t.Spec.InternalFabricRef.Name
		})
		if n < 0 || g < 0 {
			continue
		}
		on := f.node(inodes.Items[n].Name)
		cfg, err := f.linkConfig(&t, &fabrics.Items[g], &inodes.Items[n])
		if on == nil || err != nil {
			errs = append(errs, err)
			continue
		}
		if f.isAway(on.info.Name) {
			continue
		}
		key := client.ObjectKeyFromObject(&t)
		wanted[key] = true
		if l := f.links[key]; l == nil || !reflect.DeepEqual(l.from, cfg) {
			if l != nil {
				l.Close()
			}
			f.links[key] = &link{Link: on.sim.Connect(cfg), from: cfg}
		}
	}
	for key, l := range f.links {
		if !wanted[key] {
			l.Close()
			delete(f.links, key)
		}
	}
	return errors.Join(errs...)
}

// setAway takes the agent of a node away, and its tunnels with it, or brings it
// back.
func (f *fabric) setAway(node string, away bool) {
	f.mu.Lock()
	f.away[node] = away
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *fabric) isAway(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.away[node]
}

// report tells from where the tunnels of a node come.
func (f *fabric) report(ctx context.Context, o *networkingv1beta1.InternalNode) error {
	n := f.node(o.Name)
	if n == nil {
		return nil
	}
	ip := networkingv1beta1.Address(n.info.IP.String())
	want := networkingv1beta1.NodeIP{Local: ip, Remote: ip}
	if o.Status.NodeIP == want {
		return nil
	}
	changed := o.DeepCopy()
	changed.Status.NodeIP = want
	return client.IgnoreNotFound(f.cluster.Client.Status().Patch(ctx, changed, client.MergeFrom(o)))
}

func (f *fabric) linkConfig(t *networkingv1beta1.GeneveTunnel, g *networkingv1beta1.InternalFabric, n *networkingv1beta1.InternalNode) (dataplanetest.LinkConfig, error) {
	gateway, err1 := netip.ParseAddr(string(g.Spec.GatewayIP))
	inside, err2 := netip.ParseAddr(string(g.Spec.Interface.Gateway.IP))
	own, err3 := netip.ParseAddr(string(n.Spec.Interface.Node.IP))
	if err := errors.Join(err1, err2, err3); err != nil {
		return dataplanetest.LinkConfig{}, err
	}
	cfg := dataplanetest.LinkConfig{
		Gateway: netip.AddrPortFrom(f.loopback.Pod(gateway), genevePort), VNI: geneve.VNI(t.Spec.ID), Encapsulation: geneve.Geneve,
		Internal: own, GatewayInternal: inside, Routes: []netip.Prefix{},
	}
	for _, c := range g.Spec.RemoteCIDRs {
		p, err := netip.ParsePrefix(string(c))
		if err != nil {
			return cfg, err
		}
		cfg.Routes = append(cfg.Routes, p)
	}
	return cfg, nil
}

func (f *fabric) node(name string) *node {
	for _, n := range f.nodes {
		if n.info.Name == name {
			return n
		}
	}
	return nil
}

// carry is the CNI: it brings a packet to the node whose pods have its
// destination.
func (f *fabric) carry(ip []byte) {
	p, ok := packet.Parse(ip)
	if !ok {
		return
	}
	p.CompleteChecksum() // a pod's own is unfinished, as on a virtual link
	for _, n := range f.nodes {
		if n.info.PodCIDR.Contains(p.Dst()) {
			n.sim.Deliver(ip)
			return
		}
	}
}
