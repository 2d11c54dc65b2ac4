package virtualkubelet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// runsOn makes a pod that runs on a machine of the cluster, as its kubelet tells.
func (s *scene) runsOn(node, namespace, name string) *corev1.Pod {
	s.t.Helper()
	p := s.bind(namespace, name, func(p *corev1.Pod) { p.Spec.NodeName = node })
	s.told(p)
	return p
}

// told writes the status of a pod that runs on a machine.
func (s *scene) told(p *corev1.Pod) {
	s.t.Helper()
	now := metav1.Now().Rfc3339Copy()
	controlplanetest.EditStatus(s.t, s.rome, p, func(p *corev1.Pod) {
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs, p.Status.StartTime = corev1.PodRunning, "10.243.9.9", []corev1.PodIP{{IP: "10.243.9.9"}}, &now
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Ready: true, ContainerID: "containerd://9", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}}
	})
	s.rome.Read(s.t, p.Namespace, p.Name, p)
}

// untouched checks that pods are as they were, and that the provider has no more than these ShadowPods.
func (s *scene) untouched(when string, pods []*corev1.Pod, shadows ...string) {
	s.t.Helper()
	for _, p := range pods {
		now := new(corev1.Pod)
		if err := s.rome.Get(s.t.Context(), p.Namespace, p.Name, now); err != nil || now.ResourceVersion != p.ResourceVersion {
			s.t.Errorf("%s, pod %s/%s was touched (%v): (-before +after)\n%s", when, p.Namespace, p.Name, err, cmp.Diff(p, now))
		}
	}
	var list offloadingv1beta1.ShadowPodList
	if err := s.milan.Client.List(s.t.Context(), &list); err != nil {
		s.t.Fatal(err)
	}
	for _, o := range list.Items {
		if !slices.Contains(shadows, o.Name) {
			s.t.Errorf("%s, the provider has a ShadowPod %s", when, o.Name)
		}
	}
	var events corev1.EventList
	if err := s.rome.Client.List(s.t.Context(), &events); err != nil {
		s.t.Fatal(err)
	}
	for _, e := range events.Items {
		for _, p := range pods {
			if e.InvolvedObject.UID == p.UID {
				s.t.Errorf("%s, an Event about pod %s says %s: %s", when, p.Name, e.Reason, e.Message)
			}
		}
	}
}

// kept waits until the process keeps these nodes, and sees so many pods on each.
func (s *scene) kept(want map[string]int) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, fmt.Sprintf("the process keeps %v", want), func(context.Context) error {
		have := map[string]int{}
		for _, n := range s.kubelet.State().Nodes {
			have[n.Name] = n.Pods
		}
		if diff := cmp.Diff(want, have); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// The pods of a machine are left alone if a VirtualNode has the name of the machine: in a namespace that is offloaded and in one that
// is not, while they run, change and are deleted, after a restart, and after the VirtualNode was deleted.
func TestPodsOfAnotherNode(t *testing.T) {
	s := newScene(t)
	s.settled("first")
	s.rome.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker", Labels: map[string]string{"mine": "yes"}}})
	node := new(corev1.Node)
	s.rome.Read(t, "", "worker", node)
	pods := []*corev1.Pod{s.runsOn("worker", "shop", "web"), s.runsOn("worker", "own", "db"), s.bind("own", "starts", func(p *corev1.Pod) { p.Spec.NodeName = "worker" })}
	ends := s.runsOn("worker", "own", "ends")
	s.rome.Delete(t, ends)
	s.rome.Read(t, "own", "ends", ends)
	pods = append(pods, ends)
	v := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "worker"}, Spec: offloadingv1beta1.VirtualNodeSpec{
		ClusterID: "milan", KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "slice"},
	}}
	s.rome.Create(t, v)
	s.warned(v, "NodeNameTaken", "give the VirtualNode another name")
	pods = append(pods, s.runsOn("worker", "shop", "later"))
	s.told(pods[0])
	s.kept(map[string]int{"milan": 1, "worker": 0})
	s.settled("second")
	s.untouched("beside the VirtualNode", pods, "first", "second")
	s.stop()
	s.start()
	s.kept(map[string]int{"milan": 2, "worker": 0})
	s.settled("third")
	s.untouched("after a restart", pods, "first", "second", "third")
	s.rome.Delete(t, v)
	s.kept(map[string]int{"milan": 3})
	pods = append(pods, s.runsOn("worker", "own", "last"))
	s.settled("fourth")
	s.untouched("without the VirtualNode", pods, "first", "second", "third", "fourth")
	now := new(corev1.Node)
	if err := s.rome.Get(t.Context(), "", "worker", now); err != nil || now.ResourceVersion != node.ResourceVersion {
		t.Errorf("the Node was touched (%v): (-before +after)\n%s", err, cmp.Diff(node, now))
	}
}

// A machine that joins by the name of a virtual node whose Node was deleted has its pods for itself, and so have those that were
// on the virtual node. When it leaves, the virtual node is there again.
func TestNodeBecomesAnothers(t *testing.T) {
	for name, deleted := range map[string]bool{"with its VirtualNode": false, "after its VirtualNode": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			held := s.bind("shop", "held")
			o := s.shadow(held)
			s.play(o, "10.243.3.7")
			s.pod(held, "runs", runs)
			v := new(offloadingv1beta1.VirtualNode)
			s.rome.Read(t, tenant, "milan", v)
			if deleted { // it is drained, for which it has to wait
				s.rome.Delete(t, v)
			}
			machine := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{"mine": "yes"}}}
			controlplanetest.Eventually(t, "a machine takes the name", func(ctx context.Context) error {
				if err := s.rome.Client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}); client.IgnoreNotFound(err) != nil {
					return err
				}
				return s.rome.Client.Create(ctx, machine.DeepCopy())
			})
			// At once: no round of the keeper is awaited.
			pods := []*corev1.Pod{held, s.runsOn("milan", "shop", "web"), s.runsOn("milan", "own", "db")}
			s.told(held)
			if deleted {
				s.kept(map[string]int{})
			} else {
				s.warned(v, "NodeNameTaken", "give the VirtualNode another name")
				s.kept(map[string]int{"milan": 0})
			}
			s.told(held)
			time.Sleep(time.Second) // nothing tells that nothing is done
			s.untouched("beside the machine", pods, "held")
			if err := s.milan.Get(t.Context(), o.Namespace, o.Name, o); err != nil || o.DeletionTimestamp != nil {
				t.Errorf("the ShadowPod was touched: %v", err)
			}
			if deleted {
				return
			}
			s.rome.Delete(t, machine)
			s.node("is a virtual node again", func(n *corev1.Node) error {
				if n.Labels["liqo.io/type"] != "virtual-node" {
					return fmt.Errorf("labels %v", n.Labels)
				}
				return nil
			})
			s.pod(held, "has the status of the provider", func(p *corev1.Pod) error {
				if p.Status.PodIP != "10.71.3.7" {
					return fmt.Errorf("address %q", p.Status.PodIP)
				}
				return nil
			})
		})
	}
}
