package virtualkubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/reflection"
)

// component is what the process calls itself in Events and to API servers.
const component = "virtual-kubelet"

const (
	// workers is how many objects are worked on at a time: each waits for both API servers most of the time.
	workers = 32
	// requests is how many requests to a group of an API server there are in a second on average: a provider whose pods
	// change all the time makes no more. burst is how many there are at once: those of a thousand pods that come together,
	// each of which takes three here and two of each group there.
	requests, burst = 200, 4000
	// requestTimeout bounds the work on one object.
	requestTimeout = 30 * time.Second
)

// DefaultLeaseDuration is that of a kubelet.
const DefaultLeaseDuration = 40 * time.Second

// Options say whose virtual nodes are kept.
type Options struct {
	// ClusterID is the ID of this cluster, PeerID that of the provider.
	ClusterID, PeerID string
	// TenantNamespace is the namespace of the peering here, with VirtualNodes, NamespaceMap and kubeconfigs.
	TenantNamespace string
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
	// Address is that of the nodes: of the pod of this process.
	Address netip.Addr
	// Port is where the kubelet API is served.
	Port int32
	// APIServerPort is that of the Service of the API server of this cluster.
	APIServerPort string
	// LeaseDuration is how long a node counts as alive after it was heard of, at least a second. A quarter of it is how often
	// that is. Zero: DefaultLeaseDuration.
	LeaseDuration time.Duration
	// Policies say, by resource, which objects are reflected: those of [reflection.Switchable]. Others are as [reflection.DenyList] has it.
	Policies map[string]reflection.Policy
	// Logger gets changes of state. Nil: slog.Default().
	Logger *slog.Logger
}

// Kubelet keeps the virtual nodes of one provider. New builds it, Run runs it.
type Kubelet struct {
	options Options
	log     *slog.Logger
	peering reflection.Peering
	home    *home
	queue   workqueue.TypedRateLimitingInterface[key]
	made    sync.Map // key of each pod whose ShadowPod was made or seen
	events  budget
	started time.Time

	mu    sync.Mutex
	nodes map[string]*node // by name
	ctx   context.Context  // of Run
	wg    sync.WaitGroup   // of what Run waits for
}

// key names what a worker is to look at: a pod on a virtual node, or, where kind is not empty, an object that the session
// of this node reflects.
type key struct{ node, kind, namespace, name string }

// home is this cluster, and what is read of it all the time.
type home struct {
	clients                        *mirror.Clients
	core, coordination, offloading rest.Interface
	authentication, authorization  rest.Interface
	certificates                   rest.Interface

	mirror         *mirror.Mirror
	virtualNodes   *mirror.Store[offloadingv1beta1.VirtualNode, *offloadingv1beta1.VirtualNode]
	maps           *mirror.Store[offloadingv1beta1.NamespaceMap, *offloadingv1beta1.NamespaceMap]
	configurations *mirror.Store[networkingv1beta1.Configuration, *networkingv1beta1.Configuration]
	connections    *mirror.Store[networkingv1beta1.Connection, *networkingv1beta1.Connection]
	ips            *mirror.Store[ipamv1alpha1.IP, *ipamv1alpha1.IP] // the one of the API server
}

// New builds a Kubelet. Nothing is asked of an API server until Run.
func New(c *rest.Config, o Options) (*Kubelet, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.LeaseDuration = cmp.Or(o.LeaseDuration, DefaultLeaseDuration)
	c = rest.CopyConfig(c)
	c.QPS, c.Burst = requests, burst
	clients, err := mirror.NewClients(c, component, groups...)
	if err != nil {
		return nil, err
	}
	h := &home{
		clients: clients, mirror: mirror.New(o.Logger),
		core: clients.For(corev1.SchemeGroupVersion), coordination: clients.For(coordinationv1.SchemeGroupVersion),
		offloading:     clients.For(offloadingv1beta1.GroupVersion),
		authentication: clients.For(authenticationv1.SchemeGroupVersion),
		authorization:  clients.For(authorizationv1.SchemeGroupVersion), certificates: clients.For(certificatesv1.SchemeGroupVersion),
		virtualNodes:   mirror.NewStore[offloadingv1beta1.VirtualNode](),
		maps:           mirror.NewStore[offloadingv1beta1.NamespaceMap](),
		configurations: mirror.NewStore[networkingv1beta1.Configuration](),
		connections:    mirror.NewStore[networkingv1beta1.Connection](),
		ips:            mirror.NewStore[ipamv1alpha1.IP](),
	}
	h.virtualNodes.Keep = func(n *offloadingv1beta1.VirtualNode) bool { return string(n.Spec.ClusterID) == o.PeerID }
	networking := clients.For(networkingv1beta1.GroupVersion)
	ofPeer := networkingv1beta1.LabelRemoteClusterID + "=" + o.PeerID
	mirror.Add(h.mirror, mirror.Watched{Client: h.offloading, Resource: "virtualnodes", Namespace: o.TenantNamespace}, h.virtualNodes)
	mirror.Add(h.mirror, mirror.Watched{Client: h.offloading, Resource: "namespacemaps", Namespace: o.TenantNamespace, Fields: "metadata.name=" + o.PeerID}, h.maps)
	mirror.Add(h.mirror, mirror.Watched{Client: networking, Resource: "configurations", Namespace: o.TenantNamespace, Labels: ofPeer}, h.configurations)
	mirror.Add(h.mirror, mirror.Watched{Client: networking, Resource: "connections", Namespace: o.TenantNamespace, Labels: ofPeer}, h.connections)
	mirror.Add(h.mirror, mirror.Watched{Client: clients.For(ipamv1alpha1.GroupVersion), Resource: "ips", Namespace: o.LiqoNamespace, Fields: "metadata.name=" + ipamv1alpha1.IPTypeAPIServer}, h.ips)
	k := &Kubelet{
		started: time.Now().Truncate(time.Second), // as Events have it
		options: o, log: o.Logger, home: h, nodes: map[string]*node{},
		peering: reflection.Peering{Consumer: o.ClusterID, Provider: o.PeerID},
	}
	k.queue = fairqueue.By(k.line)("", workqueue.NewTypedItemExponentialFailureRateLimiter[key](250*time.Millisecond, 30*time.Second))
	return k, nil
}

// line is the one in which an object waits for its turn. Each kind has one, and pods have two: what becomes of those that are
// at the provider does not wait behind thousands that are to be made.
func (k *Kubelet) line(at key) string {
	if _, made := k.made.Load(at); made {
		return "made"
	}
	return at.kind
}

// groups are what is read and written on both sides.
var groups = []mirror.Group{
	{Version: corev1.SchemeGroupVersion, AddToScheme: corev1.AddToScheme, Protobuf: true},
	{Version: authenticationv1.SchemeGroupVersion, AddToScheme: authenticationv1.AddToScheme, Protobuf: true},
	{Version: authorizationv1.SchemeGroupVersion, AddToScheme: authorizationv1.AddToScheme, Protobuf: true},
	{Version: certificatesv1.SchemeGroupVersion, AddToScheme: certificatesv1.AddToScheme, Protobuf: true},
	{Version: coordinationv1.SchemeGroupVersion, AddToScheme: coordinationv1.AddToScheme, Protobuf: true},
	{Version: discoveryv1.SchemeGroupVersion, AddToScheme: discoveryv1.AddToScheme, Protobuf: true},
	{Version: networkingv1.SchemeGroupVersion, AddToScheme: networkingv1.AddToScheme, Protobuf: true},
	{Version: ipamv1alpha1.GroupVersion, AddToScheme: ipamv1alpha1.AddToScheme},
	{Version: networkingv1beta1.GroupVersion, AddToScheme: networkingv1beta1.AddToScheme},
	{Version: offloadingv1beta1.GroupVersion, AddToScheme: offloadingv1beta1.AddToScheme},
}

// Run keeps the virtual nodes until ctx ends. Nodes and pods stay as they are then.
func (k *Kubelet) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer k.home.clients.Disconnect()
	defer k.wg.Wait()
	defer stop()
	k.mu.Lock()
	k.ctx = ctx
	k.mu.Unlock()
	for range workers {
		k.wg.Go(func() {
			for k.work(ctx) {
			}
		})
	}
	context.AfterFunc(ctx, k.queue.ShutDown)
	k.home.mirror.Run(ctx, k.synchronize)
	return nil
}

// work works on one object. It is false at the end.
func (k *Kubelet) work(ctx context.Context) bool {
	at, end := k.queue.Get()
	if end {
		return false
	}
	defer k.queue.Done(at)
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	reflectOne := k.pod
	if at.kind != "" {
		reflectOne = k.object
	}
	if err := reflectOne(bounded, at); err != nil {
		if ctx.Err() == nil && k.queue.NumRequeues(at) == 3 && !errors.Is(err, errNotListed) {
			k.log.Warn("cannot reflect, trying again", "kind", cmp.Or(at.kind, "pods"), "namespace", at.namespace, "name", at.name, "node", at.node, "error", mirror.PlainError(err))
		}
		k.queue.AddRateLimited(at)
		return true
	}
	k.queue.Forget(at)
	return true
}

// complete tells whether everything of home.mirror was listed once.
func (k *Kubelet) complete() bool {
	_, err := k.home.mirror.Read(manifests.Digest{}, func() manifests.Objects { return manifests.Objects{} })
	return err == nil
}

// synchronize begins to keep the nodes of new VirtualNodes, and wakes all.
func (k *Kubelet) synchronize() {
	if !k.complete() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range k.home.virtualNodes.List() {
		if k.nodes[v.Name] == nil {
			n := k.newNode(v.Name)
			k.nodes[v.Name] = n
			k.wg.Go(func() { n.run(k.ctx) })
		}
	}
	for _, n := range k.nodes {
		n.wake()
	}
}

// node returns the keeper of a node; nil: there is none.
func (k *Kubelet) node(name string) *node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes[name]
}

// all are the keepers of nodes, by name.
func (k *Kubelet) all() []*node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.SortedFunc(maps.Values(k.nodes), func(a, b *node) int { return strings.Compare(a.name, b.name) })
}

// forget ends the keeping of a node. One that comes back is begun anew.
func (k *Kubelet) forget(name string) {
	k.mu.Lock()
	delete(k.nodes, name)
	k.mu.Unlock()
	k.unmake(name)
	k.home.mirror.Changed()
}

// unmake forgets what was made of the pods on a node.
func (k *Kubelet) unmake(name string) {
	k.made.Range(func(at, _ any) bool {
		if at, is := at.(key); is && at.node == name {
			k.made.Delete(at)
		}
		return true
	})
}

// virtualNode is the VirtualNode of a name; nil: there is none, or it is being deleted.
func (k *Kubelet) virtualNode(name string) *offloadingv1beta1.VirtualNode {
	for _, v := range k.home.virtualNodes.List() {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// addresses translates those of the provider. It is empty until the Configuration has an answer: pods have no address
// here then.
func (k *Kubelet) addresses() reflection.Addresses {
	for _, c := range k.home.configurations.List() {
		if a, err := reflection.NewAddresses(c); err == nil {
			return a
		}
	}
	return reflection.Addresses{}
}

// networkProblem says why the network of the peering does not work; empty: it does, or there is none.
func (k *Kubelet) networkProblem() string {
	connections := k.home.connections.List()
	if len(connections) == 0 {
		if len(k.home.configurations.List()) == 0 {
			return "" // a peering without network
		}
		return "there is a Configuration and no Connection: the gateways are not connected yet"
	}
	for _, c := range connections {
		if c.Status.Value == networkingv1beta1.Connected {
			return ""
		}
	}
	return fmt.Sprintf("Connection %s is %s", connections[0].Name, cmp.Or(connections[0].Status.Value, "without a status"))
}

// Ready tells whether the process sees this cluster, and else why not.
func (k *Kubelet) Ready() (ok bool, why string) {
	if _, err := k.home.mirror.Read(manifests.Digest{}, func() manifests.Objects { return manifests.Objects{} }); err != nil {
		waiting := manifests.Waiting{}
		if errors.As(err, &waiting) {
			return false, waiting.Error()
		}
		return false, err.Error()
	}
	return true, "all objects are read"
}

// State is what the process does now, for display.
type State struct {
	mirror.State
	// Network says why the network of the peering does not work; empty: it does, or there is none.
	Network string
	// Waiting is how many objects wait to be looked at.
	Waiting int
	Nodes   []NodeState
}

// NodeState is one virtual node.
type NodeState struct {
	Name string
	// Provider says why the provider's API server does not answer; empty: it does.
	Provider string
	// Pods is how many there are on the node, Namespaces how many stand at the provider.
	Pods, Namespaces int
}

// State returns what the process does now.
func (k *Kubelet) State() State {
	out := State{State: k.home.mirror.State(), Network: k.networkProblem(), Waiting: k.queue.Len()}
	for _, n := range k.all() {
		s, pods := n.own()
		out.Nodes = append(out.Nodes, NodeState{Name: n.name, Provider: s.problem(), Pods: len(pods.list()), Namespaces: s.count()})
	}
	return out
}
