package virtualkubelet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/offloading/virtualnode"
	"github.com/sluice-net/sluice/reflection"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/testlog"
	"github.com/sluice-net/sluice/virtualkubelet"
)

const tenant = "liqo-tenant-milan"

// scene is a peering: rome's pods run at milan. Nobody plays the provider's controllers: the test does.
type scene struct {
	t           *testing.T
	rome, milan *controlplanetest.Cluster
	stop        func()
	kubelet     *virtualkubelet.Kubelet
	listener    net.Listener // of the kubelet API
	sliceText   string
	policies    map[string]reflection.Policy
}

// logged makes log lines lines of the test.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, rome: controlplanetest.Start(t), milan: controlplanetest.Start(t)}
	for c, namespaces := range map[*controlplanetest.Cluster][]string{s.rome: {tenant, "shop", "own"}, s.milan: {"shop-rome"}} {
		for _, ns := range namespaces {
			c.Namespace(t, ns, nil)
		}
	}
	peer := map[string]string{networkingv1beta1.LabelRemoteClusterID: "milan"}
	cidrs := func(c networkingv1beta1.CIDR) networkingv1beta1.CIDRs {
		return networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{c}, Scalar: true}
	}
	configuration := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan", Labels: peer}}
	configuration.Spec.Remote.CIDR = networkingv1beta1.ClusterCIDR{Pod: cidrs("10.243.0.0/16"), External: cidrs("10.70.0.0/16")}
	configuration.Spec.Local = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: cidrs("10.243.0.0/16"), External: cidrs("10.70.0.0/16")}}
	s.rome.Create(t, configuration)
	controlplanetest.EditStatus(t, s.rome, configuration, func(c *networkingv1beta1.Configuration) {
		c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: cidrs("10.71.0.0/16"), External: cidrs("10.72.0.0/16")}}
	})
	connection := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan", Labels: peer}}
	connection.Spec.Type, connection.Spec.GatewayRef = networkingv1beta1.ConnectionServer, corev1.ObjectReference{Name: "milan"}
	s.rome.Create(t, connection)
	s.connect(networkingv1beta1.Connected)
	s.account()
	s.kubeconfig(s.slice())
	s.mapNamespaces(map[string]string{"shop": "shop-rome"})
	s.rome.Create(t, &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan", Labels: peer},
		Spec: offloadingv1beta1.VirtualNodeSpec{
			ClusterID: "milan", KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "slice"},
			ResourceQuota: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
			}},
			Labels: map[string]string{"region": "north", corev1.LabelArchStable: "arm64", "liqo.io/type": "mine"},
			Taints: []corev1.Taint{{Key: "guest", Value: "yes", Effect: corev1.TaintEffectNoSchedule}},
		},
	})
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// account makes the service account of the process, with the roles that are shipped and those that the controller makes, and
// no others.
func (s *scene) account() {
	s.t.Helper()
	s.rome.ApplyManifest(s.t, "offloading", "virtual-kubelet.yaml")
	objects, _, _ := virtualnode.Build(s.rights())
	for _, o := range objects {
		if _, is := o.(*appsv1.Deployment); !is {
			s.rome.Create(s.t, o)
		}
	}
}

// rights are what the controller makes the rights of the process of.
func (s *scene) rights(offloaded ...string) virtualnode.Facts {
	return virtualnode.Facts{
		Own: "rome", Peer: "milan", Namespace: tenant, Tenant: true, LiqoNamespace: controlplanetest.LiqoNamespace,
		Template:     &offloadingv1beta1.VkOptionsTemplateSpec{ContainerImage: "virtualkubelet"},
		VirtualNodes: 1, Kubeconfigs: []string{"slice"}, Offloaded: offloaded,
	}
}

// start runs the process. The end of the test ends it.
func (s *scene) start() {
	s.t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.listener = l
	k, err := virtualkubelet.New(s.rome.ServiceAccount(tenant, "virtual-kubelet"), virtualkubelet.Options{
		ClusterID: "rome", PeerID: "milan", TenantNamespace: tenant, LiqoNamespace: controlplanetest.LiqoNamespace,
		Address: netip.MustParseAddr("127.0.0.1"), Port: s.port(), APIServerPort: "443", Policies: s.policies, Logger: slog.New(slog.NewTextHandler(testlog.Writer(s.t), nil)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.kubelet = k
	ctx, cancel := context.WithCancel(context.Background())
	done, served := make(chan error, 1), make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	go func() { served <- k.Serve(ctx, l) }()
	ended := false
	s.stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := errors.Join(<-done, <-served); err != nil {
			s.t.Errorf("the process ends: %v", err)
		}
		// One whose work is done may be there for a moment: it has yet to return, or a reflector left it a request that it
		// no longer waits for.
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			all := make([]byte, 4<<20)
			var ours []string
			for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
				if strings.Contains(stack, "sluice/virtualkubelet.") {
					ours = append(ours, stack)
				}
			}
			if len(ours) == 0 {
				return
			}
			if time.Now().After(end) {
				s.t.Errorf("%d goroutines outlive Run:\n%s", len(ours), strings.Join(ours, "\n\n"))
				return
			}
		}
	}
}

// port is that of the kubelet API.
func (s *scene) port() int32 {
	return int32(s.listener.Addr().(*net.TCPAddr).Port)
}

func (s *scene) connect(v networkingv1beta1.ConnectionValue) {
	s.t.Helper()
	controlplanetest.EditStatus(s.t, s.rome, &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}},
		func(c *networkingv1beta1.Connection) { c.Status.Value = v })
}

// slice is the kubeconfig of the slice at milan, whose user has the role that is shipped, in shop-rome alone.
func (s *scene) slice() string {
	s.t.Helper()
	if s.sliceText == "" {
		s.milan.ApplyManifest(s.t, "offloading", "offloading.yaml")
		s.milan.Create(s.t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "slice"}})
		s.milan.Create(s.t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "rome"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-virtual-kubelet-remote"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "slice"}},
		})
		path, err := s.milan.WriteKubeconfig("slice", s.milan.ServiceAccount("default", "slice"))
		if err != nil {
			s.t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			s.t.Fatal(err)
		}
		s.sliceText = string(text)
	}
	return s.sliceText
}

func (s *scene) kubeconfig(text string) {
	s.t.Helper()
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "slice"}, Data: map[string][]byte{"kubeconfig": []byte(text)}}
	err := s.rome.Client.Create(s.t.Context(), o)
	if apierrors.IsAlreadyExists(err) {
		controlplanetest.Edit(s.t, s.rome, o, func(o *corev1.Secret) { o.Data["kubeconfig"] = []byte(text) })
	} else if err != nil {
		s.t.Fatal(err)
	}
}

// mapNamespaces makes the NamespaceMap as the provider has answered it.
func (s *scene) mapNamespaces(mapping map[string]string) {
	s.t.Helper()
	m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}}
	if err := s.rome.Client.Create(s.t.Context(), m); err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
	rights := s.rights(slices.Collect(maps.Keys(mapping))...)
	for _, b := range rights.Bindings() {
		if err := s.rome.Client.Create(s.t.Context(), b); err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			s.t.Fatal(err)
		}
	}
	controlplanetest.Edit(s.t, s.rome, m, func(m *offloadingv1beta1.NamespaceMap) { m.Spec.DesiredMapping = mapping })
	controlplanetest.EditStatus(s.t, s.rome, m, func(m *offloadingv1beta1.NamespaceMap) {
		m.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{}
		for here, there := range mapping {
			m.Status.CurrentMapping[here] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: there, Phase: offloadingv1beta1.MappingAccepted}
		}
	})
}

// node waits until the Node is as check wants it.
func (s *scene) node(what string, check func(*corev1.Node) error) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, what, func(ctx context.Context) error {
		n := new(corev1.Node)
		if err := s.rome.Get(ctx, "", "milan", n); err != nil {
			return err
		}
		return check(n)
	})
}

func ready(status corev1.ConditionStatus, reason string) func(*corev1.Node) error {
	return func(n *corev1.Node) error {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == status && c.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", n.Status.Conditions)
	}
}

// bind makes a pod on the virtual node.
func (s *scene) bind(namespace, name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "milan", Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
	for _, change := range changes {
		change(p)
	}
	s.rome.Create(s.t, p)
	return p
}

// shadow waits for the ShadowPod of a pod.
func (s *scene) shadow(p *corev1.Pod) *offloadingv1beta1.ShadowPod {
	s.t.Helper()
	o := new(offloadingv1beta1.ShadowPod)
	controlplanetest.Eventually(s.t, "there is a ShadowPod of "+p.Name, func(ctx context.Context) error {
		if err := s.milan.Get(ctx, "shop-rome", p.Name, o); err != nil {
			return err
		}
		if uid := o.Annotations["offloading.liqo.io/origin-uid"]; uid != string(p.UID) || o.DeletionTimestamp != nil {
			return fmt.Errorf("it is of %s", uid)
		}
		return nil
	})
	return o
}

// play makes the pod of a ShadowPod, as the provider's controller does, and has it run with an address.
func (s *scene) play(o *offloadingv1beta1.ShadowPod, address string) *corev1.Pod {
	s.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: o.Labels, Annotations: o.Annotations}, Spec: o.Spec.Pod}
	s.milan.Create(s.t, p)
	now := metav1.Now().Rfc3339Copy()
	controlplanetest.EditStatus(s.t, s.milan, p, func(p *corev1.Pod) {
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs, p.Status.StartTime = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}, &now
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Ready: true, ContainerID: "containerd://1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}}
	})
	return p
}

// says plays the provider that does not make the pod of o.
func (s *scene) says(o *offloadingv1beta1.ShadowPod, reason, message string) {
	s.t.Helper()
	controlplanetest.EditStatus(s.t, s.milan, o, func(o *offloadingv1beta1.ShadowPod) {
		o.Status = offloadingv1beta1.ShadowPodStatus{Phase: corev1.PodPending, Reason: reason, Message: message}
	})
}

// pod waits until a pod is as check wants it.
func (s *scene) pod(p *corev1.Pod, what string, check func(*corev1.Pod) error) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, "pod "+p.Name+" "+what, func(ctx context.Context) error {
		o := new(corev1.Pod)
		if err := s.rome.Get(ctx, p.Namespace, p.Name, o); err != nil {
			return err
		}
		return check(o)
	})
}

func (s *scene) gone(c *controlplanetest.Cluster, o client.Object) {
	s.t.Helper()
	uid := o.GetUID()
	controlplanetest.Eventually(s.t, fmt.Sprintf("%T %s is gone", o, o.GetName()), func(ctx context.Context) error {
		err := c.Get(ctx, o.GetNamespace(), o.GetName(), o)
		if apierrors.IsNotFound(err) || err == nil && o.GetUID() != uid {
			return nil
		}
		return fmt.Errorf("it is there (%v)", err)
	})
}

func runs(p *corev1.Pod) error {
	if p.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("is %s", p.Status.Phase)
	}
	return nil
}

// podReady checks the condition Ready of a pod.
func podReady(status corev1.ConditionStatus, reason string) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == status && c.Reason == reason
		}) {
			return fmt.Errorf("conditions %+v", p.Status.Conditions)
		}
		return nil
	}
}

// warned waits for an Event of a pod.
func (s *scene) warned(p client.Object, reason, part string) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, "an Event "+reason, func(ctx context.Context) error {
		var list corev1.EventList
		if err := s.rome.Client.List(ctx, &list, client.InNamespace(p.GetNamespace())); err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == p.GetName() && e.Reason == reason && strings.Contains(e.Message, part)
		}) {
			return fmt.Errorf("there are %d others", len(list.Items))
		}
		return nil
	})
}

// settled waits until a pod that was made now has its ShadowPod: whatever was to be done before is done.
func (s *scene) settled(name string) {
	s.t.Helper()
	s.shadow(s.bind("shop", name))
}

func TestNode(t *testing.T) {
	s := newScene(t)
	s.node("is ready", ready(corev1.ConditionTrue, "KubeletReady"))
	s.node("is what the VirtualNode says", func(n *corev1.Node) error {
		for k, v := range map[string]string{
			"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "milan", "region": "north", "kubernetes.io/arch": "arm64",
			"kubernetes.io/hostname": "milan", "node.kubernetes.io/exclude-from-external-load-balancers": "true",
		} {
			if n.Labels[k] != v {
				return fmt.Errorf("label %s is %q", k, n.Labels[k])
			}
		}
		for _, taint := range []corev1.Taint{{Key: "virtual-node.liqo.io/not-allowed", Value: "true", Effect: corev1.TaintEffectNoExecute}, {Key: "guest", Value: "yes", Effect: corev1.TaintEffectNoSchedule}} {
			if !slices.Contains(n.Spec.Taints, taint) {
				return fmt.Errorf("taints %v", n.Spec.Taints)
			}
		}
		if n.Status.Capacity.Cpu().String() != "4" || n.Status.Allocatable.Pods().Value() != 110 || n.Status.NodeInfo.Architecture != "arm64" ||
			n.Status.DaemonEndpoints.KubeletEndpoint.Port != s.port() || n.Status.Addresses[0].Address != "127.0.0.1" || n.Status.NodeInfo.KubeletVersion == "" {
			return fmt.Errorf("status %+v", n.Status)
		}
		return nil
	})
	controlplanetest.Eventually(t, "the node has a lease", func(ctx context.Context) error {
		var l coordinationv1.Lease
		if err := s.rome.Get(ctx, "kube-node-lease", "milan", &l); err != nil {
			return err
		}
		if l.Spec.RenewTime == nil || time.Since(l.Spec.RenewTime.Time) > time.Minute || len(l.OwnerReferences) != 1 {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
	v := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}}
	condition := func(status offloadingv1beta1.VirtualNodeConditionStatus, reason string) {
		t.Helper()
		controlplanetest.Eventually(t, "the VirtualNode says "+reason, func(ctx context.Context) error {
			if err := s.rome.Get(ctx, tenant, "milan", v); err != nil {
				return err
			}
			if c := v.Status.Conditions; len(c) != 1 || c[0].Type != "Node" || c[0].Status != status || c[0].Reason != reason {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
	}
	condition("Running", "NodeReady")
	s.connect(networkingv1beta1.ConnectionError)
	s.node("is not ready without network", ready(corev1.ConditionFalse, "LiqoNetworkingDown"))
	condition("Creating", "LiqoNetworkingDown")
	controlplanetest.Edit(t, s.rome, v, func(v *offloadingv1beta1.VirtualNode) {
		v.Spec.DisableNetworkCheck = new(true)
		delete(v.Spec.Labels, "region")
		v.Spec.Labels["zone"] = "a"
	})
	s.node("is ready if nobody asks for the network", ready(corev1.ConditionTrue, "KubeletReady"))
	s.node("has the labels of now", func(n *corev1.Node) error {
		if _, ok := n.Labels["region"]; ok || n.Labels["zone"] != "a" {
			return fmt.Errorf("%v", n.Labels)
		}
		return nil
	})
	// Another kubeconfig needs no restart; one that would run a program is refused, and the one before stays.
	s.kubeconfig(strings.Replace(s.slice(), "token:", "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}\n    token:", 1))
	s.warned(v, "KubeconfigInvalid", "would run a program")
	s.node("is still ready", ready(corev1.ConditionTrue, "KubeletReady"))
	s.kubeconfig(strings.Replace(s.slice(), "token: ", "token: x", 1))
	s.node("is not ready when the provider refuses the credentials", ready(corev1.ConditionFalse, "ProviderUnavailable"))
	for _, name := range []string{"system:public-info-viewer", "system:discovery"} {
		s.milan.Delete(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	controlplanetest.Eventually(t, "nobody may ask whether the provider's API server lives", func(ctx context.Context) error {
		who, err := kubernetes.NewForConfig(s.milan.ServiceAccount("default", "slice"))
		if err != nil {
			return err
		}
		if err := who.RESTClient().Get().AbsPath("/livez").Do(ctx).Error(); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
	s.kubeconfig(s.slice())
	s.node("is ready with credentials", ready(corev1.ConditionTrue, "KubeletReady"))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
	s.rome.Read(t, "", "milan", n)
	s.rome.Delete(t, v)
	s.gone(s.rome, n)
}

// A Node that somebody else keeps is left alone.
func TestNodeOfAnother(t *testing.T) {
	s := newScene(t)
	s.rome.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker", Labels: map[string]string{"mine": "yes"}}})
	v := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "worker"}, Spec: offloadingv1beta1.VirtualNodeSpec{
		ClusterID: "milan", KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "slice"},
	}}
	s.rome.Create(t, v)
	s.warned(v, "NodeNameTaken", "give the VirtualNode another name")
	s.rome.Delete(t, v)
	s.settled("after")
	n := new(corev1.Node)
	if err := s.rome.Get(t.Context(), "", "worker", n); err != nil || n.Labels["liqo.io/type"] != "" || n.Status.DaemonEndpoints.KubeletEndpoint.Port != 0 {
		t.Errorf("the node is %+v, %v", n, err)
	}
}

func TestPod(t *testing.T) {
	s := newScene(t)
	p := s.bind("shop", "web")
	o := s.shadow(p)
	if o.Labels["offloading.liqo.io/origin"] != "rome" || o.Labels["offloading.liqo.io/nodename"] != "milan" || o.Spec.Pod.NodeName != "" || len(o.Spec.Pod.Volumes) != 0 {
		t.Errorf("ShadowPod %+v", o)
	}
	copied := s.play(o, "10.243.3.7")
	s.pod(p, "runs with the address of this side", func(p *corev1.Pod) error {
		if p.Status.PodIP != "10.71.3.7" || p.Status.HostIP != "127.0.0.1" || p.Labels["liqo.io/shadowPod"] != "true" {
			return fmt.Errorf("address %q, labels %v", p.Status.PodIP, p.Labels)
		}
		return runs(p)
	})
	s.pod(p, "stays while its node is not ready", func(p *corev1.Pod) error {
		for _, key := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
			if !slices.Contains(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}) {
				return fmt.Errorf("it tolerates %v", p.Spec.Tolerations)
			}
		}
		return nil
	})
	if tolerations := s.shadow(p).Spec.Pod.Tolerations; len(tolerations) > 0 {
		t.Errorf("at the provider it tolerates %v", tolerations)
	}
	// A label that changes here changes there; annotations and the image as well.
	controlplanetest.Edit(t, s.rome, p, func(p *corev1.Pod) {
		delete(p.Labels, "app")
		p.Labels["tier"], p.Spec.Containers[0].Image = "front", "web:2"
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "note", "x")
	})
	controlplanetest.Eventually(t, "the ShadowPod follows", func(ctx context.Context) error {
		if err := s.milan.Get(ctx, o.Namespace, o.Name, o); err != nil {
			return err
		}
		if o.Labels["tier"] != "front" || o.Labels["app"] != "" || o.Annotations["note"] != "x" || o.Spec.Pod.Containers[0].Image != "web:2" {
			return errors.New("as before")
		}
		return nil
	})
	controlplanetest.Eventually(t, "the pod has an ephemeral container", func(ctx context.Context) error {
		o := new(corev1.Pod)
		if err := s.rome.Get(ctx, p.Namespace, p.Name, o); err != nil {
			return err
		}
		o.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "sh"}}}
		return s.rome.Client.SubResource("ephemeralcontainers").Update(ctx, o)
	})
	s.warned(p, "FailedReflection", "ephemeral container debugger does not run")
	s.pod(p, "goes on", runs)
	// One that is deleted there is made again; its pod is recreated.
	s.milan.Delete(t, o)
	s.gone(s.milan, o)
	o = s.shadow(p)
	s.milan.Delete(t, copied, client.GracePeriodSeconds(0))
	s.pod(p, "is not running while there is no pod", func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodPending || p.Status.ContainerStatuses[0].Ready {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	copied = s.play(o, "10.243.3.8")
	s.pod(p, "runs again", runs)
	// One that is deleted here goes there first.
	s.rome.Delete(t, p)
	s.gone(s.milan, o)
	s.settled("after")
	if err := s.rome.Get(t.Context(), p.Namespace, p.Name, new(corev1.Pod)); err != nil {
		t.Errorf("it went before the pod there: %v", err)
	}
	s.milan.Delete(t, copied, client.GracePeriodSeconds(0))
	s.gone(s.rome, p)
}

func TestPodIsRefused(t *testing.T) {
	s := newScene(t)
	taken := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "taken", Labels: map[string]string{"offloading.liqo.io/origin": "naples"}}}
	s.milan.Create(t, taken)
	p := s.bind("shop", "taken")
	s.warned(p, "FailedReflection", "was not reflected from here")
	host := s.bind("shop", "host", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	})
	s.warned(host, "FailedReflection", "is a hostPath")
	stray := s.bind("own", "stray")
	s.warned(stray, "OffloadingBackOff", "its namespace is not offloaded")
	s.pod(host, "waits", func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodPending || p.Status.Reason != "FailedReflection" {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	if err := s.milan.Get(t.Context(), "shop-rome", "host", new(offloadingv1beta1.ShadowPod)); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is refused reaches the provider: %v", err)
	}
	now := new(offloadingv1beta1.ShadowPod)
	if err := s.milan.Get(t.Context(), "shop-rome", "taken", now); err != nil || now.ResourceVersion != taken.ResourceVersion {
		t.Errorf("what is another's was touched: %+v, %v", now, err)
	}
	s.rome.Delete(t, stray)
	s.gone(s.rome, stray)
}

// Nothing is taken back while the NamespaceMap is missing or unanswered, and everything when nobody wants the namespace.
func TestMapVanishes(t *testing.T) {
	s := newScene(t)
	p := s.bind("shop", "web")
	o := s.shadow(p)
	copied := s.play(o, "10.243.3.7")
	s.pod(p, "runs", runs)
	m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}}
	s.rome.Delete(t, m)
	s.stop()
	s.start() // without any memory
	s.node("is ready", ready(corev1.ConditionTrue, "KubeletReady"))
	// One that was lost and made anew is empty.
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	controlplanetest.Edit(t, s.rome, shop, func(o *corev1.Namespace) { o.Labels["liqo.io/scheduling-enabled"] = "true" })
	s.mapNamespaces(nil)
	late := s.bind("shop", "late")
	s.warned(late, "OffloadingBackOff", "its namespace is not offloaded")
	s.pod(p, "runs", runs)
	s.mapNamespaces(map[string]string{"shop": "shop-rome"})
	s.shadow(late)
	now := new(offloadingv1beta1.ShadowPod)
	if err := s.milan.Get(t.Context(), o.Namespace, o.Name, now); err != nil || now.UID != o.UID || now.ResourceVersion != o.ResourceVersion {
		t.Errorf("the ShadowPod was touched: %v", err)
	}
	s.pod(p, "runs", runs)
	// Nobody wants the namespace any more, and the provider takes it away.
	s.mapNamespaces(map[string]string{"other": "other-rome"})
	s.milan.Delete(t, copied, client.GracePeriodSeconds(0))
	s.milan.Delete(t, now)
	s.pod(p, "has failed", func(p *corev1.Pod) error {
		if t := p.Status.ContainerStatuses[0].State.Terminated; p.Status.Phase != corev1.PodFailed || p.Status.Reason != "OffloadingAborted" || t == nil || t.Reason != "OffloadingAborted" {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
}

// The provider takes a namespace away with all that is in it, as it does when a Tenant is drained, and gives it back: its pods do
// not run meanwhile, and are made again with what they need.
func TestNamespaceComesBack(t *testing.T) {
	s := newScene(t)
	settings := &corev1.ConfigMap{ObjectMeta: named("settings"), Data: map[string]string{"a": "1"}}
	s.rome.Create(t, settings)
	p := s.bind("shop", "web")
	o, copied := s.shadow(p), new(corev1.ConfigMap)
	pod := s.play(o, "10.243.3.7")
	s.pod(p, "is ready", podReady(corev1.ConditionTrue, ""))
	s.there(copied, "settings", func() error { return nil })
	m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}}
	phase := func(is offloadingv1beta1.MappingPhase) {
		controlplanetest.EditStatus(t, s.rome, m, func(m *offloadingv1beta1.NamespaceMap) {
			m.Status.CurrentMapping["shop"] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "shop-rome", Phase: is}
		})
	}
	phase(offloadingv1beta1.MappingCreationLoopBackOff)
	controlplanetest.Eventually(t, "the pod is not ready", func(ctx context.Context) error {
		for _, there := range []client.Object{o, pod, copied} { // until the NamespaceMap was read they are made again
			if err := s.milan.Client.Delete(ctx, there.DeepCopyObject().(client.Object), client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		if err := s.rome.Get(ctx, "shop", "web", p); err != nil {
			return err
		}
		return podReady(corev1.ConditionFalse, "OffloadedPodMissing")(p)
	})
	phase(offloadingv1beta1.MappingAccepted)
	s.says(s.shadow(p), "Cordoned", "of the\x1b[2J provider")
	s.pod(p, "says why it does not run", func(p *corev1.Pod) error {
		if err := podReady(corev1.ConditionFalse, "OffloadedPodMissing")(p); err != nil {
			return err
		}
		if w := p.Status.ContainerStatuses[0].State.Waiting; p.Status.Reason != "Cordoned" || p.Status.Message != "of the [2J provider" || w == nil || w.Reason != "Cordoned" {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	s.play(s.shadow(p), "10.243.3.8")
	s.pod(p, "is ready again", podReady(corev1.ConditionTrue, ""))
	s.there(copied, "settings", func() error { return nil })
}

// A pod that was deleted, or deleted and made again, while the process was away.
func TestChangesWhileAway(t *testing.T) {
	s := newScene(t)
	web, gone := s.bind("shop", "web-0"), s.bind("shop", "gone")
	before, stale := s.shadow(web), s.shadow(gone)
	copied := s.play(before, "10.243.3.7")
	s.pod(web, "runs", runs)
	s.stop()
	for _, p := range []*corev1.Pod{web, gone} {
		s.rome.Delete(t, p, client.GracePeriodSeconds(0))
	}
	again := s.bind("shop", "web-0")
	s.start()
	s.gone(s.milan, stale)
	after := s.shadow(again)
	if after.UID == before.UID {
		t.Error("the ShadowPod of a former pod goes on")
	}
	s.pod(again, "has no status of the former one", func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodPending || p.Status.PodIP != "" {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	s.milan.Delete(t, copied, client.GracePeriodSeconds(0))
	s.play(after, "10.243.3.9")
	s.pod(again, "runs", runs)
	// A start with everything in its place writes nothing.
	s.settled("before")
	now := new(corev1.Pod)
	s.rome.Read(t, "shop", "web-0", now)
	s.stop()
	s.start()
	s.settled("after")
	for _, o := range []client.Object{now, after} {
		c, version := s.rome, o.GetResourceVersion()
		if o == client.Object(after) {
			c = s.milan
		}
		was := o.DeepCopyObject()
		if err := c.Get(t.Context(), o.GetNamespace(), o.GetName(), o); err != nil || o.GetResourceVersion() != version {
			t.Errorf("%T was written (%v): (-before +after)\n%s", o, err, cmp.Diff(was, o))
		}
	}
}

// Pods that ended at the provider, or were to end, while the process was away.
func TestEndsWhileAway(t *testing.T) {
	s := newScene(t)
	pods, copies, shadows := map[string]*corev1.Pod{}, map[string]*corev1.Pod{}, map[string]*offloadingv1beta1.ShadowPod{}
	for _, name := range []string{"done", "failed", "removed", "deleted"} {
		pods[name] = s.bind("shop", name, func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		shadows[name] = s.shadow(pods[name])
		copies[name] = s.play(shadows[name], "10.243.3.7")
	}
	for _, p := range pods {
		s.pod(p, "runs", runs)
	}
	s.stop()
	ends := func(name string, phase corev1.PodPhase, code int32) {
		t.Helper()
		controlplanetest.EditStatus(t, s.milan, copies[name], func(p *corev1.Pod) {
			p.Status.Phase = phase
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Ended"}}
		})
		controlplanetest.EditStatus(t, s.milan, shadows[name], func(o *offloadingv1beta1.ShadowPod) { o.Status.Phase = phase })
	}
	ends("done", corev1.PodSucceeded, 0)
	ends("failed", corev1.PodFailed, 3)
	ends("removed", corev1.PodFailed, 4)
	s.milan.Delete(t, copies["removed"], client.GracePeriodSeconds(0))
	s.rome.Delete(t, pods["deleted"])
	s.start()
	ended := func(name string, phase corev1.PodPhase, code int32, reason string) {
		t.Helper()
		s.pod(pods[name], "has ended", func(p *corev1.Pod) error {
			c := p.Status.ContainerStatuses
			if p.Status.Phase != phase || len(c) != 1 || c[0].State.Terminated == nil || c[0].State.Terminated.ExitCode != code || c[0].State.Terminated.Reason != reason {
				return fmt.Errorf("%+v", p.Status)
			}
			return nil
		})
	}
	ended("done", corev1.PodSucceeded, 0, "Ended")
	ended("failed", corev1.PodFailed, 3, "Ended")
	ended("removed", corev1.PodFailed, 137, "ContainerStatusUnknown")
	s.gone(s.milan, shadows["deleted"])
	s.milan.Delete(t, copies["deleted"], client.GracePeriodSeconds(0))
	s.gone(s.rome, pods["deleted"])
}

// While the provider is away nothing is deleted and nothing is made up; afterwards everything is settled.
func TestProviderAway(t *testing.T) {
	s := newScene(t)
	stays, goes := s.bind("shop", "stays"), s.bind("shop", "goes")
	s.play(s.shadow(stays), "10.243.3.7")
	o := s.shadow(goes)
	copied := s.play(o, "10.243.3.8")
	s.pod(stays, "runs", runs)
	s.pod(goes, "runs", runs)
	s.milan.StopAPIServer()
	s.node("is not ready", ready(corev1.ConditionFalse, "ProviderUnavailable"))
	s.pod(stays, "is not ready either", podReady(corev1.ConditionFalse, "ProviderUnavailable"))
	s.rome.Delete(t, goes)
	comes := s.bind("shop", "comes")
	s.stop()
	s.start() // without any memory
	s.node("is still not ready", ready(corev1.ConditionFalse, "ProviderUnavailable"))
	s.pod(stays, "runs", runs)
	s.pod(goes, "waits for its end", func(p *corev1.Pod) error {
		if p.DeletionTimestamp == nil {
			return errors.New("is not being deleted")
		}
		return nil
	})
	if err := s.milan.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	s.node("is ready", ready(corev1.ConditionTrue, "KubeletReady"))
	s.gone(s.milan, o)
	s.milan.Delete(t, copied, client.GracePeriodSeconds(0))
	s.gone(s.rome, goes)
	s.shadow(comes)
	s.pod(stays, "runs", runs)
	s.pod(stays, "is ready", podReady(corev1.ConditionTrue, ""))
}

// What the provider tells of a pod there, and of its ShadowPod, is told of the pod here.
func TestEvents(t *testing.T) {
	s := newScene(t)
	waits, works := s.bind("shop", "waits"), s.bind("shop", "works")
	shadow := s.shadow(waits)
	tell := func(name, kind string, about client.Object, warning, reason, message string) {
		t.Helper()
		s.milan.Create(t, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: name}, Type: warning, Reason: reason, Message: message,
			InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "shop-rome", Name: about.GetName(), UID: about.GetUID()},
			Source:         corev1.EventSource{Component: "kubelet"}, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
		})
	}
	tell("quota", "ShadowPod", shadow, corev1.EventTypeWarning, "QuotaExceeded", "of 2, which are granted, other pods have 2")
	s.warned(waits, "QuotaExceeded", "which are granted")
	copied := s.play(s.shadow(works), "10.243.3.7")
	s.pod(works, "runs", runs)
	other := copied.DeepCopy()
	other.UID = "of-another"
	tell("other", "Pod", other, corev1.EventTypeWarning, "Failed", "of an earlier pod")
	tell("unhealthy", "Pod", copied, corev1.EventTypeWarning, "Unhealthy", "\x1b[2Jit does not answer")
	s.warned(works, "Unhealthy", " [2Jit does not answer")
	s.stop()
	tell("later", "Pod", copied, corev1.EventTypeWarning, "BackOff", "while the process was away")
	s.start()
	tell("sentinel", "Pod", copied, corev1.EventTypeWarning, "Sentinel", "the last one")
	s.warned(works, "Sentinel", "the last one")
	s.warned(waits, "QuotaExceeded", "which are granted")
	var list corev1.EventList
	if err := s.rome.Client.List(t.Context(), &list, client.InNamespace("shop")); err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	for _, e := range list.Items {
		if strings.HasSuffix(e.Source.Component, " (remote)") {
			told[e.Reason]++
			if e.InvolvedObject.UID != works.UID && e.InvolvedObject.UID != waits.UID || e.InvolvedObject.Kind != "Pod" {
				t.Errorf("about %+v", e.InvolvedObject)
			}
		}
	}
	delete(told, "BackOff") // of before the start, by clocks that may differ
	if diff := cmp.Diff(map[string]int{"QuotaExceeded": 1, "Unhealthy": 1, "Sentinel": 1}, told); diff != "" {
		t.Errorf("Events (-want +got)\n%s", diff)
	}
}
