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

// What TestTakenOver demands above the network: the clusters go on to ask each other for
// resources and to run each other's pods, whoever runs the network of the one that has Liqo.

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
	w.renewSooner(t, w.b)
	w.liqoctl(t, w.peerArgs(w.a.Kubeconfig, w.b.Kubeconfig)...)
	w.liqoctl(t, append(w.between(w.b, w.a, "peer"), "--networking-disabled", "--cpu", "2", "--memory", "4Gi")...)
	t.Logf("the clusters are peers both ways after %v", time.Since(start).Round(100*time.Millisecond))
}

// offload has a pod of each cluster run in the other one.
func (f *faults) offload(t *testing.T) {
	t.Helper()
	start := time.Now()
	err := onBoth(f.world, func(c *kubelab.Cluster) error {
		if _, err := c.Kubectl("create", "namespace", offloadedHere); err != nil {
			return err
		}
		_, _, err := f.tryLiqoctl(t.Context(), "offload", "namespace", offloadedHere, "--pod-offloading-strategy", "Remote", "--timeout", patience.String(), "--kubeconfig", c.Kubeconfig)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f.offloadedAnswer(t, lasting, 1)
	t.Logf("each cluster runs a pod of the other one after %v", time.Since(start).Round(100*time.Millisecond))
}

// above is what must be the same in both clusters whoever runs the network: virtual nodes
// and pods that are ready and did not start again, and what each has of the other one.
func (f *faults) above(t *testing.T) (lines []string) {
	t.Helper()
	for _, c := range []*kubelab.Cluster{f.a, f.b} {
		for line := range strings.Lines(f.kubectl(t, c, "get", strings.Join(aboveKinds, ","), "-A", "-o", aboveFields)) {
			kind, rest, _ := strings.Cut(line, " ")
			ours := !strings.Contains(rest, passing)
			switch kind {
			case "Node":
				ours = ours && strings.Contains(rest, " virtual-node ")
			case "Pod":
				ours = ours && (strings.HasPrefix(rest, offloadedHere) || strings.Contains(rest, "/virtual-kubelet-"))
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
func (f *faults) sameAbove(t *testing.T, before []string) {
	t.Helper()
	lab.Eventually(t, patience, "all is as before above the network", func() error {
		if diff := cmp.Diff(before, f.above(t)); diff != "" {
			return fmt.Errorf("changed above the network (-before +after):\n%s", diff)
		}
		return nil
	})
}

// newOffloaded demands that the pods on the virtual nodes are reached, those that have just
// come as well.
func (f *faults) newOffloaded(t *testing.T, virtualNodes int) {
	t.Helper()
	name := fmt.Sprint(passing, virtualNodes) // not that of pods which end
	start := time.Now()
	f.offloadedAnswer(t, name, virtualNodes)
	f.offloadedAnswer(t, lasting, 1)
	t.Logf("pods on %d virtual nodes of each cluster are reached after %v", virtualNodes, time.Since(start).Round(100*time.Millisecond))
	for _, c := range []*kubelab.Cluster{f.a, f.b} {
		f.kubectl(t, c, "delete", "deployment", name, "-n", offloadedHere, "--wait=false")
	}
}

// offloadedAnswer applies a Deployment in the offloaded namespaces, and waits until each of
// its pods answers at the address that it has in its cluster, and reaches the API server
// there. That knows its account, which has no rights.
func (f *faults) offloadedAnswer(t *testing.T, name string, replicas int) {
	t.Helper()
	from := map[*kubelab.Cluster]*kubelab.Pod{f.a: f.clients[0], f.b: f.servers[0]}
	for c := range from {
		applyDeployment(t, c, offloadedHere, name, replicas, true)
	}
	for c, near := range from {
		lab.Eventually(t, patience, fmt.Sprintf("the pods of %s that run elsewhere answer", c.Name), func() error {
			pods, err := podsWith(t.Context(), c, offloadedHere, map[string]string{"app": name})
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
				if got, err := get(t.Context(), near, addr); err != nil || got.Pod != p.Name {
					return fmt.Errorf("at the address %s of pod %s is %q: %v", addr, p.Name, got.Pod, err)
				}
				out, err := c.Kubectl("exec", "-n", offloadedHere, p.Name, "--", "web", "-api", "/api/v1/namespaces/"+offloadedHere+"/pods")
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
func (f *faults) anotherNode(t *testing.T) {
	t.Helper()
	start := time.Now()
	name := func(c *kubelab.Cluster) (slice, peer string) {
		peer = f.a.Name
		if c == f.a {
			peer = f.b.Name
		}
		return passing + "-" + peer, peer
	}
	err := onBoth(f.world, func(c *kubelab.Cluster) error {
		slice, peer := name(c)
		_, _, asked := f.tryLiqoctl(t.Context(), "create", "resourceslice", slice, "--remote-cluster-id", peer, "--cpu", "1", "--memory", "1Gi", "--kubeconfig", c.Kubeconfig)
		_, created := c.Kubectl("wait", "node", slice, "--for=create", "--timeout="+patience.String())
		_, ready := c.Kubectl("wait", "node", slice, "--for=condition=Ready", "--timeout="+patience.String())
		return errors.Join(asked, created, ready)
	})
	if err != nil {
		t.Error(err)
		return
	}
	f.newOffloaded(t, 2)
	err = onBoth(f.world, func(c *kubelab.Cluster) error {
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
