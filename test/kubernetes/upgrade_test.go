package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/deploy/images"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/source"
)

// previousTag is that of the images from which is upgraded. They are those under
// test: what is tested is the change from one to another.
const previousTag = "previous"

// nextRights is what today's controller needs and the chart of the version before
// does not give it.
const nextRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: next-version}
rules:
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [core.liqo.io], resources: [foreignclusters, foreignclusters/status], verbs: [get, list, watch, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: next-version}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: next-version}
subjects: [{kind: ServiceAccount, name: liqo-controller, namespace: liqo}]
`

// upgradeGap is how long an upgrade may silence the network. The templates of the
// version before have no election: of its gateways the new one waits for the end.
const upgradeGap = 5 * time.Second

// testUpgrade installs this version on a and the version before on b, connects them,
// and upgrades b below traffic. By -kubernetes.long a begins with the version before,
// too.
func testUpgrade(t *testing.T, w *world) {
	old := []*kubelab.Cluster{w.b}
	if *long {
		old = w.Clusters
	}
	for _, c := range old {
		w.previous(t, c)
	}
	w.each(t, func(c *kubelab.Cluster) error {
		if slices.Contains(old, c) {
			return w.installPrevious(t.Context(), c)
		}
		return w.reinstall(c)
	})
	w.connect(t)
	f := newFaults(t, w)
	for _, c := range old {
		f.measure(t, "upgrade from the version before, "+c.Name, promise{within: upgradeGap}, f.paths(t), func() {
			// The tag that was set is kept unless it is taken back.
			w.liqoctl(t, installArgs(c, "--set", "tag=")...)
			f.runs(t, c, tag)
		})
		w.kubectl(t, c, "delete", "clusterrole,clusterrolebinding", "next-version")
	}
	w.installed = true
}

// testFailedUpgrades upgrades to a version whose images cannot be had, and back, and
// drains the node of the gateway, all below traffic.
func testFailedUpgrades(t *testing.T, w *world) {
	w.connect(t)
	f := newFaults(t, w)
	f.onEachSide(func(side string, c *kubelab.Cluster) {
		// The pods that run are those to which it goes back.
		f.measure(t, "upgrade to images that do not exist and back, "+side, promise{within: blink}, f.paths(t), func() {
			f.failedUpgrade(t, c)
			w.liqoctl(t, installArgs(c, "--reset-values")...)
			f.runs(t, c, tag)
		})
	})
	f.onEachSide(func(side string, c *kubelab.Cluster) {
		f.measure(t, "node of the gateway drained, "+side, promise{within: upgradeGap}, f.paths(t), func() { f.drain(t, c) })
	})
}

// previous prepares a cluster for the version before.
func (w *world) previous(t *testing.T, c *kubelab.Cluster) {
	t.Helper()
	for _, n := range c.Nodes {
		for _, program := range []string{"controller", "fabric", "gateway"} {
			image, before := images.DefaultRegistry+"/"+program+":"+tag, "docker.io/sluice/"+program+":"+previousTag
			if out, err := n.Host.Try("ctr", "-n", "k8s.io", "images", "tag", "--force", image, before); err != nil {
				t.Fatalf("%s: %v: %s", n.Name, err, out)
			}
		}
	}
	if out, err := c.KubectlInput(nextRights, "apply", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
}

// installPrevious installs the version before.
func (w *world) installPrevious(ctx context.Context, c *kubelab.Cluster) error {
	_, _, err := w.tryLiqoctl(ctx, installArgs(c, "--local-chart-path", source.Path("admin", "release", "testdata", "previous-chart.tgz"), "--set", "tag="+previousTag)...)
	return err
}

// runs waits until the only gateway pod is of a tag, and leads.
func (f *faults) runs(t *testing.T, c *kubelab.Cluster, tag string) {
	t.Helper()
	lab.Eventually(t, patience, "the gateway of "+c.Name+" is of tag "+tag+" and alone", func() error {
		pods, err := gateways(t.Context(), c)
		if err != nil {
			return err
		}
		if len(pods) != 1 || !strings.HasSuffix(pods[0].Spec.Containers[0].Image, ":"+tag) {
			return fmt.Errorf("%d pods, the first of %s", len(pods), pods[0].Spec.Containers[0].Image)
		}
		_, err = leader(t.Context(), c)
		return err
	})
}

// failedUpgrade upgrades to images that nobody has. The command says so, long before
// its time is over, and the pods that run go on.
func (f *faults) failedUpgrade(t *testing.T, c *kubelab.Cluster) {
	t.Helper()
	before := leads(t, c)
	start := time.Now()
	_, stderr, err := f.tryLiqoctl(t.Context(), installArgs(c, "--set", "tag=absent,pullPolicy=Never")...)
	t.Logf("gave up after %v", time.Since(start).Round(time.Second))
	if err == nil {
		t.Fatal("an upgrade to images that do not exist has worked")
	}
	if said := stderr + err.Error(); !strings.Contains(said, ":absent, which pod ") || !strings.Contains(said, "cannot be pulled") || !strings.Contains(said, "ErrImageNeverPull") {
		t.Errorf("nothing says which image is missing: %v", err)
	}
	// The gateway's new pod has been tried, too.
	lab.Eventually(t, patience, "a gateway pod of "+c.Name+" without image", func() error {
		pods, err := gateways(t.Context(), c)
		if err != nil {
			return err
		}
		for i := range pods {
			if p := &pods[i]; p.Status.Phase == corev1.PodPending && strings.HasSuffix(p.Spec.Containers[0].Image, ":absent") {
				return nil
			}
		}
		return errors.New("there is none")
	})
	pods, err := gateways(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		if pods[i].Name == before.Name && ready(&pods[i]) {
			return
		}
	}
	t.Errorf("%s, which led, is not ready any more", before.Name)
}

// drain takes the gateway off its node, as an administrator does before work on
// the node, and waits until it leads elsewhere.
func (f *faults) drain(t *testing.T, c *kubelab.Cluster) {
	t.Helper()
	before := leads(t, c)
	defer f.kubectl(t, c, "uncordon", before.Node.Name)
	f.kubectl(t, c, "drain", before.Node.Name, "--pod-selector=networking.liqo.io/component=gateway",
		"--ignore-daemonsets", "--delete-emptydir-data", "--timeout="+patience.String())
	lab.Eventually(t, patience, "the gateway leads on another node", func() error {
		p, err := leader(context.Background(), c)
		if err == nil && p.Node == before.Node {
			err = fmt.Errorf("it is on %s", p.Node.Name)
		}
		return err
	})
}
