package kubernetes

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/release"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// What TestTakenOver and TestRealLiqo demand above the network: the clusters go on to ask
// each other for resources and to run each other's pods, whoever runs the network of the one
// that has Liqo.

const (
	// lasting is a Deployment of the offloaded namespace of either cluster.
	lasting = "lasting"
	// passing is in the names of all that comes in one step and goes again.
	passing = "passing"
)

// aboveKinds are the kinds that the network is no part of. Their CRDs stay those of Liqo.
var aboveKinds = []string{
	"nodes", "pods", "tenants.authentication.liqo.io", "identities.authentication.liqo.io", "resourceslices.authentication.liqo.io",
	"virtualnodes.offloading.liqo.io", "namespaceoffloadings.offloading.liqo.io", "foreignclusters.core.liqo.io", "customresourcedefinitions.apiextensions.k8s.io",
}

// aboveFields tell which objects these are, and how they are.
var aboveFields = `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.uid} {.metadata.labels.liqo\.io/type} ` +
	`{.metadata.annotations.` + strings.ReplaceAll(release.AnnotationVersion, ".", `\.`) + `} {.status.role} {.status.kubeconfigSecretRef.name} ` +
	`{.status.containerStatuses[*].restartCount} {range .status.conditions[*]}{.type}={.status} {end}{"\n"}{end}`

// peerBothWays connects a and b, and lets each ask the other one for a virtual node.
func (w *world) peerBothWays(t *testing.T) {
	t.Helper()
	start := time.Now()
	w.renewSooner(t, w.a)
	w.liqoctl(t, w.peerArgs(w.a.Kubeconfig, w.b.Kubeconfig)...)
	w.liqoctl(t, append(w.between(w.b, w.a, "peer"), "--networking-disabled", "--cpu", "2", "--memory", "4Gi")...)
	t.Logf("the clusters are peers both ways after %v", time.Since(start).Round(100*time.Millisecond))
}

// offloadedIn is the namespace of a cluster whose pods run in the other one.
func (k *takeover) offloadedIn(c *kubelab.Cluster) string {
	if c == k.b {
		return k.liqo.inB
	}
	return offloadedHere
}

// offload has a pod of each cluster run in the other one.
func (k *takeover) offload(t *testing.T) {
	t.Helper()
	start := time.Now()
	err := onBoth(k.world, func(c *kubelab.Cluster) error {
		if _, err := c.Kubectl("create", "namespace", k.offloadedIn(c)); err != nil {
			return err
		}
		_, _, err := k.tryLiqoctl(t.Context(), "offload", "namespace", k.offloadedIn(c), "--pod-offloading-strategy", "Remote", "--timeout", patience.String(), "--kubeconfig", c.Kubeconfig)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	k.offloadedAnswer(t, lasting, 1)
	t.Logf("each cluster runs a pod of the other one after %v", time.Since(start).Round(100*time.Millisecond))
}

// above is what must be the same in both clusters whoever runs the network: virtual nodes
// and pods that are ready and did not start again, and what each has of the other one.
func (k *takeover) above(t *testing.T) (lines []string) {
	t.Helper()
	for _, c := range []*kubelab.Cluster{k.a, k.b} {
		for line := range strings.Lines(k.kubectl(t, c, "get", strings.Join(aboveKinds, ","), "-A", "-o", aboveFields)) {
			kind, rest, _ := strings.Cut(line, " ")
			ours := !strings.Contains(rest, passing)
			switch kind {
			case "Node":
				ours = ours && strings.Contains(rest, " virtual-node ")
			case "Pod":
				ours = ours && (strings.HasPrefix(rest, offloadedHere) || strings.HasPrefix(rest, k.liqo.inB) ||
					strings.Contains(rest, "/virtual-kubelet-") || strings.Contains(rest, "/vk-")) // vk-NODE is Liqo's
			case "CustomResourceDefinition":
				ours = slices.ContainsFunc([]string{"authentication", "offloading", "core"}, func(group string) bool { return strings.Contains(rest, "."+group+".liqo.io ") })
			}
			if ours {
				lines = append(lines, c.Name+": "+strings.TrimSpace(line))
			}
		}
	}
	return lines
}

// sameAbove demands that all above the network is as it was, or is so again: where traffic stops for some seconds, virtual
// nodes are not ready meanwhile.
func (k *takeover) sameAbove(t *testing.T, before []string) {
	t.Helper()
	lab.Eventually(t, patience, "all is as before above the network", func() error {
		if diff := cmp.Diff(before, k.above(t)); diff != "" {
			return fmt.Errorf("changed above the network (-before +after):\n%s", diff)
		}
		return nil
	})
}

// newOffloaded demands that the pods on the virtual nodes run, those that have just come as
// well, and are reached where traffic passes.
func (k *takeover) newOffloaded(t *testing.T, virtualNodes int) {
	t.Helper()
	name := fmt.Sprint(passing, virtualNodes) // not that of pods which end
	start := time.Now()
	k.offloadedAnswer(t, name, virtualNodes)
	k.offloadedAnswer(t, lasting, 1)
	t.Logf("pods on %d virtual nodes of each cluster run after %v, reached: %t", virtualNodes, time.Since(start).Round(100*time.Millisecond), k.carried())
	for _, c := range []*kubelab.Cluster{k.a, k.b} {
		k.kubectl(t, c, "delete", "deployment", name, "-n", k.offloadedIn(c), "--wait=false")
	}
}

// offloadedAnswer applies a Deployment in the offloaded namespaces, and waits until each of
// its pods is ready. Where traffic passes, each answers at the address that it has in its
// cluster, and reaches the API server there. That knows its account, which has no rights.
func (k *takeover) offloadedAnswer(t *testing.T, name string, replicas int) {
	t.Helper()
	from := map[*kubelab.Cluster]*kubelab.Pod{k.a: k.clients[0], k.b: k.servers[0]}
	for c := range from {
		applyDeployment(t, c, k.offloadedIn(c), name, replicas, true)
	}
	for c, near := range from {
		namespace := k.offloadedIn(c)
		lab.Eventually(t, patience, fmt.Sprintf("the pods of %s that run elsewhere answer", c.Name), func() error {
			pods, err := podsWith(t.Context(), c, namespace, map[string]string{"app": name})
			if err != nil {
				return err
			}
			pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
			nodes := map[string]bool{}
			for i := range pods {
				p := &pods[i]
				nodes[p.Spec.NodeName] = true
				addr, err := netip.ParseAddr(p.Status.PodIP)
				if err != nil || !ready(p) {
					return fmt.Errorf("pod %s on %q with the address %q is %s, and not ready: %+v", p.Name, p.Spec.NodeName, p.Status.PodIP, p.Status.Phase, p.Status.Conditions)
				}
				if !k.carried() {
					continue
				}
				if got, err := get(t.Context(), near, addr); err != nil || got.Pod != p.Name {
					return fmt.Errorf("at the address %s of pod %s is %q: %v", addr, p.Name, got.Pod, err)
				}
				out, err := c.Kubectl("exec", "-n", namespace, p.Name, "--", "web", "-api", "/api/v1/namespaces/"+namespace+"/pods")
				if err == nil || !strings.Contains(err.Error(), "403 Forbidden") {
					return fmt.Errorf("the API server tells pod %s: %q, %v", p.Name, out, err)
				}
			}
			if len(pods) != replicas || len(nodes) != replicas {
				return fmt.Errorf("there are %d pods on %v", len(pods), nodes)
			}
			return nil
		})
	}
}

// anotherNode has each cluster ask the other one for more: a virtual node comes, runs a pod
// and goes.
func (k *takeover) anotherNode(t *testing.T) {
	t.Helper()
	start := time.Now()
	name := func(c *kubelab.Cluster) (slice, peer string) {
		peer = k.a.Name
		if c == k.a {
			peer = k.b.Name
		}
		return passing + "-" + peer, peer
	}
	err := onBoth(k.world, func(c *kubelab.Cluster) error {
		slice, peer := name(c)
		_, _, asked := k.tryLiqoctl(t.Context(), "create", "resourceslice", slice, "--remote-cluster-id", peer, "--cpu", "1", "--memory", "1Gi", "--kubeconfig", c.Kubeconfig)
		_, created := c.Kubectl("wait", "node", slice, "--for=create", "--timeout="+patience.String())
		_, ready := c.Kubectl("wait", "node", slice, "--for=condition=Ready", "--timeout="+patience.String())
		return errors.Join(asked, created, ready)
	})
	if err != nil {
		t.Error(err)
		return
	}
	k.newOffloaded(t, 2)
	err = onBoth(k.world, func(c *kubelab.Cluster) error {
		slice, peer := name(c)
		_, deleted := c.Kubectl("delete", "resourceslices.authentication.liqo.io", slice, "-n", "liqo-tenant-"+peer, "--timeout="+patience.String())
		_, gone := c.Kubectl("wait", "node", slice, "--for=delete", "--timeout="+patience.String())
		return errors.Join(deleted, gone)
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("another virtual node of each cluster came and went within %v", time.Since(start).Round(100*time.Millisecond))
}
