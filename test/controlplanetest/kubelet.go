package controlplanetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"

	"github.com/sluice-net/sluice/test/process"
)

// KubeletOptions describe the nodes of a cluster.
type KubeletOptions struct {
	// Nodes is how many there are for everybody; two by default.
	Nodes int
	// ControlPlane adds a node ControlPlaneNode for pods that ask for it.
	ControlPlane bool
	// PodCIDR is a /16 of which each node has a /24; 10.243.0.0/16 by default.
	PodCIDR netip.Prefix
	// Images are the images that can be pulled. Pods with others stay Pending.
	Images map[string]Image
}

// ControlPlaneNode is the name of a node that only takes pods which name it in
// their node selector.
const ControlPlaneNode = "control-plane"

// Image is what a container image holds.
type Image struct {
	// Program is run for the container, with the container's arguments. Without
	// one the container runs, and is ready, without a process: somebody else plays
	// it.
	Program string
	// Args stand before those of the container. $(KUBECONFIG) is a file with the
	// rights of the pod's service account, $(LOOPBACK) the address on which to
	// listen; paths below a mount are replaced as in the container's own.
	Args []string
	// Exec plays the commands that are run in a container without a Program, and
	// returns the exit code. Its context ends with the connection and with stdin, if
	// there is one. Where there is a Program, it is run if the first word is its name.
	Exec func(ctx context.Context, pod *corev1.Pod, argv []string, stdout, stderr io.Writer) int
}

// Node is one node.
type Node struct {
	Name    string
	IP      netip.Addr
	PodCIDR netip.Prefix

	kubelet int32 // port of its API
}

// Kubelet stands for the scheduler and for the kubelets of all nodes: it binds
// pods to nodes in turn and runs them as processes of this machine. What it
// leaves out - images, namespaces, control groups, users where the test is not
// root - it leaves out quietly; what a pod's spec asks for beyond that, and it
// does not know, is an error in the container's status.
type Kubelet struct {
	// Loopback is the network of nodes and pods.
	Loopback *Loopback

	cluster *Cluster
	images  map[string]Image
	nodes   []Node
	dir     string // of volumes; short, as sockets lie in it
	pods    cache.Store
	changed chan struct{} // one slot; sent to by the informer, received by run

	mu      sync.Mutex
	workers map[types.UID]*podWorker
	nextPod []int // host part of the next address, by node
	away    map[string]bool
	turn    int // of the nodes
	serial  int
	wg      sync.WaitGroup
}

// StartKubelet makes the Nodes and runs the pods of a cluster until the test
// ends.
func StartKubelet(tb testing.TB, c *Cluster, o KubeletOptions) *Kubelet {
	tb.Helper()
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	if !o.PodCIDR.IsValid() {
		o.PodCIDR = netip.MustParsePrefix("10.243.0.0/16")
	}
	var names []string
	for i := range o.Nodes {
		names = append(names, "node-"+strconv.Itoa(1+i))
	}
	if o.ControlPlane {
		names = append(names, ControlPlaneNode)
	}
	k := &Kubelet{
		Loopback: ReserveLoopback(tb), cluster: c, images: o.Images, changed: make(chan struct{}, 1),
		workers: make(map[types.UID]*podWorker), nextPod: make([]int, len(names)), away: make(map[string]bool),
	}
	if err := k.makeDir(tb); err != nil {
		tb.Fatalf("folder of the pods: %v", err)
	}
	for i, name := range names {
		base := o.PodCIDR.Addr().As4()
		base[2] = byte(1 + i)
		n := Node{Name: name, IP: k.Loopback.Node(i), PodCIDR: netip.PrefixFrom(netip.AddrFrom4(base), 24)}
		k.nodes = append(k.nodes, n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := k.startServers(ctx, tb); err != nil {
		cancel()
		tb.Fatalf("start the servers of the nodes: %v", err)
	}
	for _, n := range k.nodes {
		if err := k.register(n); err != nil {
			cancel()
			tb.Fatalf("register %s: %v", n.Name, err)
		}
	}
	tb.Cleanup(func() {
		cancel()
		k.wg.Wait()
		if tb.Failed() {
			k.showLogs(tb)
		}
	})
	factory := informers.NewSharedInformerFactory(c.Clientset, 0)
	informer := factory.Core().V1().Pods().Informer()
	k.pods = informer.GetStore()
	wake := func(any) {
		select {
		case k.changed <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: wake, UpdateFunc: func(_, o any) { wake(o) }, DeleteFunc: wake,
	}); err != nil {
		tb.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	k.wg.Go(func() { k.run(ctx) })
	return k
}

// makeDir makes the folder of the pods, which other users may enter.
func (k *Kubelet) makeDir(tb testing.TB) (err error) {
	if k.dir, err = os.MkdirTemp("", "kubelet-"); err != nil {
		return err
	}
	tb.Cleanup(func() { os.RemoveAll(k.dir) })
	return errors.Join(os.Chmod(k.dir, 0o755), os.MkdirAll(k.logs(), 0o755))
}

func (k *Kubelet) logs() string { return k.cluster.path("pods") }

// Nodes are the nodes.
func (k *Kubelet) Nodes() []Node { return k.nodes }

// SetAway cuts a node off: it is not ready, what runs there goes on, and nobody starts, ends or reports anything. Or it brings
// the node back.
func (k *Kubelet) SetAway(tb testing.TB, node string, away bool) {
	tb.Helper()
	k.mu.Lock()
	k.away[node] = away
	k.mu.Unlock()
	status := corev1.ConditionTrue
	if away {
		status = corev1.ConditionUnknown
	}
	EditStatus(tb, k.cluster, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, func(n *corev1.Node) { n.Status.Conditions[0].Status = status })
}

func (k *Kubelet) isAway(node string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.away[node]
}

// register makes a Node object that is ready.
func (k *Kubelet) register(n Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	nodes := k.cluster.Clientset.CoreV1().Nodes()
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux"}},
		Spec:       corev1.NodeSpec{PodCIDR: n.PodCIDR.String(), PodCIDRs: []string{n.PodCIDR.String()}},
	}
	if _, err := nodes.Create(ctx, o, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		o, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		o.Spec.Taints = nil // "not ready", set on admission
		if o, err = nodes.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			return err
		}
		o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.IP.String()}, {Type: corev1.NodeHostName, Address: n.Name}}
		o.Status.DaemonEndpoints = n.endpoints()
		now := metav1.Now()
		o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated", LastHeartbeatTime: now, LastTransitionTime: now}}
		_, err = nodes.UpdateStatus(ctx, o, metav1.UpdateOptions{})
		return err
	})
}

// run gives every pod that is to run here a worker, and tells the workers what
// the pods are now.
func (k *Kubelet) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.changed:
		}
		k.mu.Lock()
		seen := make(map[types.UID]bool)
		for _, o := range k.pods.List() {
			p := o.(*corev1.Pod)
			seen[p.UID] = true
			if w := k.workers[p.UID]; w != nil {
				w.set(p)
			} else if k.mine(p) {
				k.serial++
				w := newPodWorker(k, p, filepath.Join(k.dir, strconv.Itoa(k.serial)))
				k.workers[p.UID] = w
				k.wg.Go(func() { w.run(ctx); k.forget(p.UID) })
			}
		}
		for uid, w := range k.workers {
			if !seen[uid] {
				w.set(nil)
			}
		}
		k.mu.Unlock()
	}
}

func (k *Kubelet) forget(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.workers, uid)
}

// mine tells whether a pod is to run, or to end, here.
func (k *Kubelet) mine(p *corev1.Pod) bool {
	if p.Spec.NodeName != "" && k.node(p.Spec.NodeName) == nil {
		return false
	}
	if p.DeletionTimestamp != nil {
		return p.Spec.NodeName != ""
	}
	for _, c := range p.Spec.Containers {
		if _, ok := k.images[c.Image]; !ok {
			return false
		}
	}
	return true
}

func (k *Kubelet) node(name string) *Node {
	for i := range k.nodes {
		if k.nodes[i].Name == name {
			return &k.nodes[i]
		}
	}
	return nil
}

// Kill kills the processes of a pod, as the kernel does when memory runs out.
// They are started again, after the same short pause each time.
func (k *Kubelet) Kill(namespace, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.workers {
		if w.namespace == namespace && w.name == name {
			w.kill()
			return nil
		}
	}
	return fmt.Errorf("no pod %s/%s runs here", namespace, name)
}

// PIDs are the processes of a pod.
func (k *Kubelet) PIDs(namespace, name string) (pids []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.workers {
		if w.namespace == namespace && w.name == name {
			pids = append(pids, w.pids()...)
		}
	}
	return pids
}

// showLogs prints the end of every log.
func (k *Kubelet) showLogs(tb testing.TB) {
	const size = 6000
	files, _ := filepath.Glob(filepath.Join(k.logs(), "*.log")) // the pattern is fixed
	for _, f := range files {
		tb.Logf("--- %s\n%s", filepath.Base(f), process.Tail(f, size))
	}
}

// apiTimeout bounds one request of a kubelet or of a proxy.
const apiTimeout = 10 * time.Second
