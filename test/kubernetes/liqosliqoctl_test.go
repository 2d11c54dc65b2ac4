package kubernetes

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/source"
)

// liqosLiqoctl runs Liqo's own liqoctl, which must succeed, and returns what it says.
func (w *world) liqosLiqoctl(t *testing.T, dir string, args ...string) string {
	t.Helper()
	said, err := w.tryLiqosLiqoctl(t, dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

func (w *world) tryLiqosLiqoctl(t *testing.T, dir string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(dir, "liqoctl"), args...)
	cmd.Dir, cmd.Env = w.Dir, w.environment()
	out, errs, err := w.run(t.Context(), cmd)
	if err != nil {
		err = fmt.Errorf("Liqo's liqoctl %s: %w\n%s%s", strings.Join(args, " "), err, out, errs)
	}
	return out + errs, err
}

// TestLiqosLiqoctl has two clusters peered, used and parted by Liqo's own liqoctl: Sluice runs in both, and has just been
// installed.
func TestLiqosLiqoctl(t *testing.T) {
	if !*realLiqo {
		t.Skip("SKIPPED: this needs Liqo's liqoctl, which test/liqo/build.sh builds: -kubernetes.liqo")
	}
	dir, err := source.Liqo()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, kubelab.Options{Clusters: []string{"rome", "milan"}, DNS: true})
	defer w.explain(t)
	w.each(t, func(c *kubelab.Cluster) error {
		_, _, err := w.tryLiqoctl(t.Context(), reachableArgs(c, offloading...)...)
		return err
	})
	before := w.objects(t)
	inA := func(args ...string) []string { return append(args, "--kubeconfig", w.a.Kubeconfig) }

	w.liqosLiqoctl(t, dir, w.peerArgs(w.a.Kubeconfig, w.b.Kubeconfig)...)
	for _, c := range []struct {
		at   *kubelab.Cluster
		args []string
		says []string
	}{
		{w.a, []string{"info"}, []string{"Version:        " + tag, "is healthy", w.b.Name, "Role:                  Provider", "Networking status:     Healthy", "Authentication status: Healthy", "Offloading status:     Healthy"}},
		{w.b, []string{"info"}, []string{w.a.Name, "Role:                  Consumer", "Networking status:     Healthy", "Authentication status: Healthy"}},
		{w.a, []string{"info", "peer", w.b.Name}, []string{kubelab.PodCIDR + " → Remapped to ", "Address: " + w.b.Public.String(), "Resource slice accepted", "Action: Consuming"}},
	} {
		lab.Eventually(t, patience, "Liqo's liqoctl sees the peering", func() error {
			said, err := w.tryLiqosLiqoctl(t, dir, append(c.args, "--kubeconfig", c.at.Kubeconfig)...)
			if err != nil {
				return err
			}
			for _, want := range c.says {
				if !strings.Contains(said, want) {
					return fmt.Errorf("in %s it does not say %q:\n%s", c.at.Name, want, said)
				}
			}
			return nil
		})
	}

	w.kubectl(t, w.a, "create", "namespace", offloadedHere)
	w.liqosLiqoctl(t, dir, inA("offload", "namespace", offloadedHere)...)
	manifest{w.a, offloadedHere, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: away}, spec: {nodeSelector: {liqo.io/type: virtual-node},
securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}},
containers: [{name: web, image: %q, imagePullPolicy: Never, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}`, webImage)}.apply(t)
	w.kubectl(t, w.a, "wait", "-n", offloadedHere, "--for=condition=Ready", "--timeout="+patience.String(), "pod/away")
	w.kubectl(t, w.a, "delete", "pod", "-n", offloadedHere, "away")
	w.liqosLiqoctl(t, dir, inA("unoffload", "namespace", offloadedHere, "--skip-confirm")...)
	w.kubectl(t, w.a, "delete", "namespace", offloadedHere)

	unpeer := w.both("unpeer", "--skip-confirm", "--timeout", commandLimit.String())
	t.Logf("unpeer says\n%s", w.liqosLiqoctl(t, dir, unpeer...))
	// Once more, with what it has left. What would be in its way goes with the Identity.
	lab.Eventually(t, patience, "the signed nonce is gone", func() error {
		left, err := w.a.Kubectl("get", "secrets", "-A", "-l", "liqo.io/signed-nonce", "-o", "name")
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
	w.liqosLiqoctl(t, dir, w.peerArgs(w.a.Kubeconfig, w.b.Kubeconfig)...)
	w.liqosLiqoctl(t, dir, unpeer...)
	lab.Eventually(t, patience, "the virtual node is gone", func() error {
		if _, err := w.a.Kubectl("get", "node", w.b.Name); err == nil {
			return errors.New("it is there")
		}
		return nil
	})
	// Liqo's liqoctl leaves the tenant namespaces.
	w.each(t, func(c *kubelab.Cluster) error {
		_, err := c.Kubectl("delete", "namespaces", "-l", "liqo.io/tenant-namespace=true")
		return err
	})
	w.asBefore(t, before)
}
