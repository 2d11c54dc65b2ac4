package offloading_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// conditioned waits until the condition VirtualKubelet of a VirtualNode has a status.
func conditioned(t *testing.T, c *controlplanetest.Cluster, namespace, name string, want offloadingv1beta1.VirtualNodeConditionStatus) {
	t.Helper()
	controlplanetest.Eventually(t, fmt.Sprintf("VirtualNode %s is %s", name, want), func(ctx context.Context) error {
		v := new(offloadingv1beta1.VirtualNode)
		if err := c.Get(ctx, namespace, name, v); err != nil {
			return err
		}
		for _, is := range v.Status.Conditions {
			if is.Type == offloadingv1beta1.VirtualNodeVirtualKubelet && is.Status == want && is.Message != "" {
				return nil
			}
		}
		return fmt.Errorf("%+v", v.Status)
	})
}

// process is what there is for a provider.
func process(peer string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: "liqo-tenant-" + peer, Name: "virtual-kubelet"}
	return []client.Object{
		&appsv1.Deployment{ObjectMeta: meta}, &corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.Role{ObjectMeta: meta}, &rbacv1.RoleBinding{ObjectMeta: meta},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "liqo-virtual-kubelet-liqo-tenant-" + peer}},
	}
}

// TestVirtualNode goes from a slice to a process, and back.
func TestVirtualNode(t *testing.T) {
	c := consumer(t)
	run(t, c)
	ns := tenant("milan")
	ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	ns.Labels["pod-security.kubernetes.io/warn"] = "restricted"
	c.Create(t, ns)
	slice := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns.Name, Name: "milan", Annotations: map[string]string{"liqo.io/create-virtual-node": "true"},
		Labels: map[string]string{"liqo.io/replication": "true", "liqo.io/remoteID": "milan", "liqo.io/remote-cluster-id": "milan"},
	}}
	c.Create(t, slice)
	c.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "any-name", Labels: map[string]string{
			"liqo.io/remote-cluster-id": "milan", "liqo.io/identity-type": "ResourceSlice", "liqo.io/resourceslice-name": "milan",
		}},
		Data: map[string][]byte{"kubeconfig": []byte("of the slice")},
	})
	controlplanetest.EditStatus(t, c, slice, func(s *authv1beta1.ResourceSlice) {
		s.Status.Resources = corev1.ResourceList{"cpu": resource.MustParse("2")}
		for _, of := range []authv1beta1.ResourceSliceConditionType{authv1beta1.SliceAuthentication, authv1beta1.SliceResources} {
			s.Status.Conditions = append(s.Status.Conditions, authv1beta1.ResourceSliceCondition{Type: of, Status: authv1beta1.SliceAccepted, LastTransitionTime: metav1.Now()})
		}
	})
	conditioned(t, c, ns.Name, "milan", offloadingv1beta1.VirtualNodeCreating)
	mapped(t, c, "milan", map[string]string{})
	d := new(appsv1.Deployment)
	c.Read(t, ns.Name, "virtual-kubelet", d)
	// What its pods are made of is admitted in a namespace that enforces PodSecurity restricted.
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "like-the-process", Labels: d.Spec.Template.Labels}, Spec: d.Spec.Template.Spec}
	controlplanetest.Eventually(t, "a pod of the Deployment is admitted", func(ctx context.Context) error { return c.Client.Create(ctx, p.DeepCopy(), client.DryRunAll) })
	controlplanetest.Eventually(t, "its pod is ready", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := c.Client.List(ctx, &pods, client.InNamespace(ns.Name), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil || len(pods.Items) != 1 {
			return fmt.Errorf("%d pods, %w", len(pods.Items), err)
		}
		p := &pods.Items[0]
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		return c.Client.Status().Update(ctx, p)
	})
	conditioned(t, c, ns.Name, "milan", offloadingv1beta1.VirtualNodeRunning)

	t.Run("a larger slice", func(t *testing.T) {
		controlplanetest.EditStatus(t, c, slice, func(s *authv1beta1.ResourceSlice) {
			s.Status.Resources = corev1.ResourceList{"cpu": resource.MustParse("3")}
		})
		controlplanetest.Eventually(t, "the VirtualNode is larger", func(ctx context.Context) error {
			v := new(offloadingv1beta1.VirtualNode)
			if err := c.Get(ctx, ns.Name, "milan", v); err != nil {
				return err
			}
			if cpu := v.Spec.ResourceQuota.Hard["cpu"]; cpu.String() != "3" {
				return fmt.Errorf("%+v", v.Spec)
			}
			return nil
		})
	})
	t.Run("rights in offloaded namespaces", func(t *testing.T) {
		may := func(namespace, resource, name string) func(want bool) {
			return func(want bool) {
				t.Helper()
				controlplanetest.Eventually(t, fmt.Sprintf("it may read %s %s in %s: %v", resource, name, namespace, want), func(ctx context.Context) error {
					review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
						User: "system:serviceaccount:" + ns.Name + ":virtual-kubelet", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + ns.Name, "system:authenticated"},
						ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Namespace: namespace, Resource: resource, Name: name},
					}}
					if err := c.Client.Create(ctx, review); err != nil {
						return err
					}
					if review.Status.Allowed != want {
						return fmt.Errorf("allowed: %v, %s", review.Status.Allowed, review.Status.Reason)
					}
					return nil
				})
			}
		}
		may(ns.Name, "secrets", "any-name")(true)
		may(ns.Name, "secrets", "kubeconfig-controlplane-milan")(false)
		for _, namespace := range []string{"shop", "private"} {
			c.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
			may(namespace, "secrets", "")(false)
		}
		o := offloadingOf("shop", nil)
		c.Create(t, o)
		may("shop", "secrets", "")(true)
		// The provider has rights on the NamespaceMap.
		m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "milan"}}
		controlplanetest.Edit(t, c, m, func(m *offloadingv1beta1.NamespaceMap) { m.Spec.DesiredMapping["private"] = "stolen" })
		controlplanetest.EditStatus(t, c, m, func(m *offloadingv1beta1.NamespaceMap) {
			m.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{"private": {RemoteNamespace: "stolen", Phase: offloadingv1beta1.MappingAccepted}}
		})
		mapped(t, c, "milan", map[string]string{"shop": "shop-rome"})
		may("private", "secrets", "")(false)
		c.Delete(t, o)
		may("shop", "secrets", "")(false)
		mapped(t, c, "milan", map[string]string{})
	})
	t.Run("another namespace", func(t *testing.T) {
		v := virtualNode("milan", "intruder", "eu")
		v.Namespace = "default"
		c.Create(t, v)
		conditioned(t, c, "default", "intruder", offloadingv1beta1.VirtualNodeNone)
		if err := c.Get(t.Context(), "default", "virtual-kubelet", new(appsv1.Deployment)); !apierrors.IsNotFound(err) {
			t.Errorf("a process with rights: %v", err)
		}
		c.Delete(t, v)
	})

	// The Node, as the process makes it, with a pod. The slice goes.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "milan"}}}
	c.Create(t, node)
	physical := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "physical"}}
	c.Create(t, physical)
	c.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-logging"}}) // of a user, whatever it sounds like
	offloaded := pod("kube-logging", func(s *corev1.PodSpec) { s.NodeName = "milan" })
	c.Create(t, offloaded)
	// What runs on every node is not evicted, as it would come back at once, and nothing waits for it.
	daemon := pod("default", func(s *corev1.PodSpec) { s.NodeName = "milan" })
	daemon.Labels = map[string]string{"app": "logs"}
	daemon.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "logs", UID: daemonSet(t, c), Controller: new(true)}}
	system := pod("kube-system", func(s *corev1.PodSpec) { s.NodeName = "milan" })
	c.Create(t, daemon)
	c.Create(t, system)
	c.Delete(t, slice)
	// Its VirtualNode goes with it, by the garbage collector.
	c.Gone(t, &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "milan"}})
	controlplanetest.Eventually(t, "the Node is cordoned and its pod evicted", func(ctx context.Context) error {
		if err := errors.Join(c.Client.Get(ctx, client.ObjectKeyFromObject(node), node), c.Client.Get(ctx, client.ObjectKeyFromObject(offloaded), offloaded)); err != nil {
			return err
		}
		if !node.Spec.Unschedulable || offloaded.DeletionTimestamp.IsZero() {
			return fmt.Errorf("cordoned %v, pod %v", node.Spec.Unschedulable, offloaded.DeletionTimestamp)
		}
		return nil
	})
	for _, o := range append(process("milan"), &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "milan"}}) {
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Errorf("while the pod ends: %v", err)
		}
	}
	for _, p := range []*corev1.Pod{daemon, system} {
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || !p.DeletionTimestamp.IsZero() {
			t.Errorf("a pod of the node itself, of namespace %s: deleted at %v, %v", p.Namespace, p.DeletionTimestamp, err)
		}
	}
	// It ends.
	c.Delete(t, offloaded, client.GracePeriodSeconds(0))
	c.Gone(t, node)
	c.Gone(t, process("milan")...)
	mapped(t, c, "milan", nil)
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(physical), physical); err != nil || physical.Spec.Unschedulable {
		t.Errorf("the other node: %v", err)
	}
}

// daemonSet makes one that wants every node, and leaves the pods alone that it has.
func daemonSet(t *testing.T, c *controlplanetest.Cluster) types.UID {
	t.Helper()
	labels := map[string]string{"app": "logs"}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.org/c"}}}},
	}}
	c.Create(t, d)
	return d.UID
}

// TestVirtualNodeTenantGone removes the tenant namespace first: nobody could end the pods of the Node, and it goes all the
// same, with the rights of its process.
func TestVirtualNodeTenantGone(t *testing.T) {
	c := consumer(t)
	stop := run(t, c)
	c.Create(t, tenant("milan"))
	c.Create(t, virtualNode("milan", "milan", "eu"))
	conditioned(t, c, "liqo-tenant-milan", "milan", offloadingv1beta1.VirtualNodeCreating)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "milan"}}}
	c.Create(t, node)
	c.Create(t, pod("default", func(s *corev1.PodSpec) { s.NodeName = "milan" }))
	stop()
	c.Delete(t, tenant("milan"))
	c.Gone(t, tenant("milan"))
	run(t, c)
	c.Gone(t, node)
	c.Gone(t, process("milan")...)
}

// TestVirtualNodeLimits has the processes and the controller write to Nodes, Leases, pods and namespaces of others.
func TestVirtualNodeLimits(t *testing.T) {
	c := consumer(t)
	run(t, c)
	c.Create(t, tenant("milan"))
	c.Create(t, virtualNode("milan", "milan", "eu"))
	conditioned(t, c, "liqo-tenant-milan", "milan", offloadingv1beta1.VirtualNodeCreating)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "physical", Labels: map[string]string{"a": "b"}}}
	c.Create(t, node)
	burstable := func(s *corev1.PodSpec) {
		s.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("2")}
	}
	shop, web := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, pod("shop", burstable)
	logging, logs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-logging"}}, pod("kube-logging", func(*corev1.PodSpec) {})
	for _, o := range []client.Object{shop, web, logging, logs} {
		c.Create(t, o)
	}
	as := func(namespace, name string) client.Client {
		t.Helper()
		cl, err := client.New(c.ServiceAccount(namespace, name), client.Options{Scheme: c.Client.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		return cl
	}
	kubelet, controller := as("liqo-tenant-milan", "virtual-kubelet"), as(controlplanetest.LiqoNamespace, controlplanetest.Controller)
	evict := func(namespace, name string) func(context.Context) error {
		return func(ctx context.Context) error {
			return controller.SubResource("eviction").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, new(policyv1.Eviction), client.DryRunAll)
		}
	}
	virtualOne := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual", Labels: map[string]string{"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "other"}}}
	for _, tt := range []struct {
		name string
		do   func(context.Context) error
		want string // "": it may
	}{
		{"a kubelet makes a virtual node", func(ctx context.Context) error { return kubelet.Create(ctx, virtualOne.DeepCopy(), client.DryRunAll) }, ""},
		{"a kubelet makes another node", func(ctx context.Context) error {
			return kubelet.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, client.DryRunAll)
		}, "and no others"},
		{"a kubelet deletes another node", func(ctx context.Context) error { return kubelet.Delete(ctx, node.DeepCopy(), client.DryRunAll) }, "and no others"},
		{"a kubelet takes another node over", func(ctx context.Context) error {
			taken := node.DeepCopy()
			taken.Labels["liqo.io/type"] = "virtual-node"
			return kubelet.Patch(ctx, taken, client.MergeFrom(node), client.DryRunAll)
		}, "and no others"},
		{"a kubelet takes a lease", func(ctx context.Context) error {
			return kubelet.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "l"}}, client.DryRunAll)
		}, "Leases of Nodes"},
		{"a kubelet makes the lease of a node", func(ctx context.Context) error {
			return kubelet.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "virtual"}}, client.DryRunAll)
		}, ""},
		{"the controller deletes another node", func(ctx context.Context) error { return controller.Delete(ctx, node.DeepCopy(), client.DryRunAll) }, "and no others"},
		{"the controller makes a pod of nobody's", func(ctx context.Context) error {
			return controller.Create(ctx, pod("shop", func(*corev1.PodSpec) {}), client.DryRunAll)
		}, "does nothing else to pods"},
		{"the controller deletes a user's pod", func(ctx context.Context) error { return controller.Delete(ctx, web.DeepCopy(), client.DryRunAll) }, "does nothing else to pods"},
		{"the controller resizes a user's pod", func(ctx context.Context) error {
			return controller.SubResource("resize").Patch(ctx, web.DeepCopy(), resizeTo("c", "1"), client.DryRunAll)
		}, "does nothing else to pods"},
		{"the controller evicts a pod of the cluster", evict("kube-system", "dns"), "none of what runs this one"},
		{"the controller evicts an agent", evict("liqo-fabric", "dns"), "none of what runs this one"},
		{"the controller evicts a controller", evict(controlplanetest.LiqoNamespace, "dns"), "none of what runs this one"},
		{"the controller evicts a user's pod", evict("shop", web.Name), ""},
		{"the controller evicts a user's pod of a namespace that sounds like one of Kubernetes", evict("kube-logging", logs.Name), ""},
		{"the controller makes a namespace of nobody's", func(ctx context.Context) error {
			return controller.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, client.DryRunAll)
		}, "namespaces that it has made"},
		{"the controller deletes a user's namespace", func(ctx context.Context) error { return controller.Delete(ctx, shop.DeepCopy(), client.DryRunAll) }, "namespaces that it has made"},
	} {
		// A policy takes an API server a moment, as a binding does.
		controlplanetest.Eventually(t, tt.name, func(ctx context.Context) error {
			err := tt.do(ctx)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	}
}
