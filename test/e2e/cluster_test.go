package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/source"
)

// controllerPackage is the controller, for lab.Build.
const controllerPackage = "github.com/sluice-net/sluice/cmd/controller"

// What the controllers and the agents are in the API server of cluster a.
const (
	tenant     = "liqo-tenant-cluster-b"
	fabricName = "liqo-fabric" // of the namespace and of the service account
)

// managed is cluster a with a control plane: its nodes, pods and gateway are
// objects, and what runs in the hosts of the lab is configured by them. Cluster
// b is not managed: both ways to configure work together.
type managed struct {
	*controlplanetest.Cluster
	*lab.Topology
	fabric, gateway string // the programs
	agents          map[*lab.Node]*lab.Fabric
	before          map[*lab.Node][]string
	gatewayA        *lab.Process

	controller     string // the program
	stopController func()
	testing        *testing.T // of the whole
}

// newManaged starts the control plane and the controllers.
func newManaged(t *testing.T) *managed {
	t.Helper()
	source.NeedKubernetes(t)
	l := lab.New(t, tools...)
	ctrl.SetLogger(logr.Discard())
	m := &managed{
		Topology: l.NewTopology([]lab.NodeSpec{{Agent: true}, {Agent: true}, {Agent: true}}, []lab.NodeSpec{{Agent: true}}),
		fabric:   lab.Build(t, lab.FabricPackage), gateway: lab.Build(t, lab.GatewayPackage),
		agents: map[*lab.Node]*lab.Fabric{}, before: map[*lab.Node][]string{}, testing: t,
	}
	m.controller = lab.Build(t, controllerPackage)
	m.Cluster = controlplanetest.Start(t)
	for _, n := range m.A.Nodes {
		m.forward(t, n.Host)
	}
	m.forward(t, m.A.Gateway)
	m.startController(t)
	return m
}

// forward makes the API server, which listens on this machine's loopback,
// reachable on that of a host.
func (m *managed) forward(t *testing.T, h *lab.Host) {
	t.Helper()
	u, err := url.Parse(m.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	if err := h.Do(func() (err error) {
		listener, err = net.Listen("tcp", u.Host)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			here, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", u.Host)
			if err != nil {
				here.Close() // as a client sees an API server that is away
				continue
			}
			for _, pair := range [][2]net.Conn{{here, there}, {there, here}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					pair[0].Close()
				}()
			}
		}
	}()
}

// startController runs the controllers until the test ends, or anew.
func (m *managed) startController(t *testing.T) {
	t.Helper()
	if m.stopController != nil {
		m.stopController()
	}
	config := m.ServiceAccount(controlplanetest.LiqoNamespace, controlplanetest.Controller)
	kubeconfig, err := m.WriteKubeconfig("controller", config)
	if err != nil {
		t.Fatal(err)
	}
	// An API server is ready before it knows its roles. Whoever is refused then
	// waits long until he asks again.
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the controller may read", func(ctx context.Context) error {
		_, err := clientset.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	})
	var log strings.Builder
	cmd := exec.Command(m.controller, "--kubeconfig="+kubeconfig, "--cluster-id=cluster-a", "--pod-cidr="+lab.PodCIDR, "--service-cidr=10.96.0.0/16",
		"--external-cidr="+lab.ExternalCIDR, "--leader-election=false", "--metrics-address=0", "--health-probe-address=0")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.stopController = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the controller said last:\n%s", log.String()[max(0, log.Len()-5000):])
		}
	})
	t.Cleanup(m.stopController)
}

// create makes objects, and writes their status if they have one.
func (m *managed) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		desired := o.DeepCopyObject().(client.Object)
		if err := m.Client.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
		desired.SetResourceVersion(o.GetResourceVersion())
		desired.SetUID(o.GetUID())
		if err := m.Client.Status().Update(t.Context(), desired); err != nil {
			t.Fatalf("status of %T %s: %v", o, o.GetName(), err)
		}
	}
}

// pod is a Pod that runs on a node.
func pod(namespace, name, account string, n *lab.Node, addr netip.Addr) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: n.Name, ServiceAccountName: account, HostNetwork: addr == n.Underlay,
			Containers: []corev1.Container{{Name: "main", Image: "none"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: n.Underlay.String(), PodIP: addr.String(), PodIPs: []corev1.PodIP{{IP: addr.String()}}},
	}
}

// addNode registers a node with its one pod, as a kubelet does, and starts the
// agent with the credentials that its DaemonSet's pod has there.
func (m *managed) addNode(t *testing.T, n *lab.Node) {
	t.Helper()
	m.before[n] = network(t, n, true)
	agent := pod(fabricName, "fabric-"+n.Name, fabricName, n, n.Underlay)
	m.create(t,
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{"kubernetes.io/hostname": n.Name}},
			Spec:       corev1.NodeSpec{PodCIDR: n.PodNet.String(), PodCIDRs: []string{n.PodNet.String()}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.Underlay.String()}}},
		},
		pod("default", "web-"+n.Name, "default", n, n.PodAddr),
		agent,
	)
	token, err := m.Clientset.CoreV1().ServiceAccounts(fabricName).CreateToken(t.Context(), fabricName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: agent.Name, UID: agent.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(m.Config)
	config.BearerToken = token.Status.Token
	if _, err := m.WriteKubeconfig("fabric-"+n.Name, config); err != nil {
		t.Fatal(err)
	}
	m.startAgent(n)
}

func (m *managed) startAgent(n *lab.Node) *lab.Fabric {
	kubeconfig := filepath.Join(m.Dir, "fabric-"+n.Name+".kubeconfig")
	m.agents[n] = n.StartFabric(m.fabric, lab.FabricOptions{Cluster: true, Args: []string{"--kubeconfig", kubeconfig}})
	return m.agents[n]
}

// connect has the users of both clusters make the peering, and plays the kubelet
// for the gateway's pod.
func (m *managed) connect(t *testing.T) (gatewayB *lab.Gateway) {
	t.Helper()
	if err := m.CreateNamespace(tenant, map[string]string{"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": "cluster-b"}); err != nil {
		t.Fatal(err)
	}
	manifests := m.A.Manifests()
	manifests.Pods, manifests.External = manifests.Pods[:1], manifests.External[:1] // as cluster a has no IPv6
	files := manifests.Files()
	for _, name := range []string{"configuration.yaml", "keys.yaml", "gateway.yaml"} {
		m.Apply(files[name])
	}
	m.B.Nodes[0].StartFabric(m.fabric, lab.FabricOptions{})
	gatewayB = m.B.StartGateway(m.gateway, lab.GatewayOptions{})

	var pods corev1.PodList
	controlplanetest.Eventually(t, "the gateway has a pod", func(ctx context.Context) error {
		err := m.Client.List(ctx, &pods, client.InNamespace(tenant), client.MatchingLabels{"networking.liqo.io/component": "gateway"})
		if err == nil && len(pods.Items) != 1 {
			err = fmt.Errorf("there are %d", len(pods.Items))
		}
		return err
	})
	m.runGateway(t, &pods.Items[0])
	return gatewayB
}

// runGateway runs the gateway's pod on the first node: in the gateway's host,
// with the pod's arguments, keys and service account.
func (m *managed) runGateway(t *testing.T, p *corev1.Pod) {
	t.Helper()
	n := m.A.Nodes[0]
	dir, err := os.MkdirTemp(m.Lab.Dir, "gateway-pod-")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := m.WriteKubeconfig("gateway", m.ServiceAccount(tenant, p.Spec.ServiceAccountName))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	var keys corev1.Secret
	for _, v := range p.Spec.Volumes {
		if v.Secret != nil {
			if err := m.Get(t.Context(), tenant, v.Secret.SecretName, &keys); err != nil {
				t.Fatal(err)
			}
		}
	}
	keys.Data["kubeconfig"] = text
	for name, content := range keys.Data {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil { // only this test's secrets
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, lab.UnprivilegedID, lab.UnprivilegedID); err != nil { // it keeps its socket there
		t.Fatal(err)
	}
	args := []string{m.gateway}
	for _, arg := range p.Spec.Containers[0].Args {
		arg = strings.NewReplacer("$(NODE_NAME)", n.Name, "$(POD_NAME)", p.Name, "/etc/wireguard/keys", dir).Replace(arg)
		if !strings.HasPrefix(arg, "--admin-socket") {
			args = append(args, arg)
		}
	}
	m.gatewayA = m.A.Gateway.Start(lab.Program{Name: "gateway", Unprivileged: true,
		Args: append(args, "--kubeconfig", filepath.Join(dir, "kubeconfig"), "--admin-socket", filepath.Join(dir, "admin.sock"))})
	err = m.Clientset.CoreV1().Pods(tenant).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: tenant}, Target: corev1.ObjectReference{Kind: "Node", Name: n.Name},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Get(t.Context(), tenant, p.Name, p); err != nil {
		t.Fatal(err)
	}
	p.Status = pod(tenant, p.Name, "", n, m.A.Underlay).Status
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	if err := m.Client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// nodesReported waits until the agents of nodes have said where they are and
// that all is well.
func (m *managed) nodesReported(t *testing.T, nodes ...*lab.Node) {
	t.Helper()
	for _, n := range nodes {
		var o networkingv1beta1.InternalNode
		controlplanetest.Eventually(t, n.Name+" reports", func(ctx context.Context) error {
			if err := m.Get(ctx, "", n.Name, &o); err != nil {
				return err
			}
			well := 0
			for _, c := range o.Status.Conditions {
				if c.Status == metav1.ConditionTrue {
					well++
				}
			}
			if o.Status.NodeIP.Remote == "" && o.Status.NodeIP.Local == "" || well != 2 {
				return fmt.Errorf("the status is %+v", o.Status)
			}
			return nil
		})
		t.Logf("%s: nodeIP %+v", n.Name, o.Status.NodeIP)
	}
}

// learnRemapped has the lab address cluster b as the controllers have decided.
func (m *managed) learnRemapped(t *testing.T) {
	t.Helper()
	var o networkingv1beta1.Configuration
	if err := m.Get(t.Context(), tenant, "cluster-b", &o); err != nil {
		t.Fatal(err)
	}
	pods, err := o.Status.Remote.CIDR.Pod.Prefixes()
	if err != nil || len(pods) == 0 {
		t.Fatalf("the Configuration's status is %+v, %v", o.Status, err)
	}
	t.Logf("cluster b is %s to cluster a", pods)
	m.A.RemotePod = pods[0]
}
