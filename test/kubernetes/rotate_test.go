package kubernetes

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// testRotateKeys replaces the keys of the gateways while connections are in use. No
// gateway is started again for that.
func testRotateKeys(t *testing.T, w *world) {
	w.connect(t)
	f, pe := newFaults(t, w), w.peering()
	pods := gatewayPods(t, w)
	rotate := w.both("network", "rotate-keys", "--skip-confirm")
	lines := 0 // that it writes

	t.Run("under traffic", func(t *testing.T) {
		for range repetitions() {
			before := pe.keys(t)
			f.measure(t, "keys rotated", promise{within: blink}, f.paths(t), func() {
				said, err := w.listen(t.Context(), nil, rotate...)
				if err != nil {
					t.Fatalf("%v\n%q", err, said)
				}
				lines = len(said)
			})
			for name, key := range pe.keys(t) {
				if key == before[name] {
					t.Errorf("the key of %s is the same", name)
				}
			}
			if err := pe.keysMatch(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("of one side", func(t *testing.T) {
		before := pe.keys(t)
		w.liqoctl(t, append(rotate, w.b.Name, "--only", "remote")...)
		after := pe.keys(t)
		if before[w.a.Name] != after[w.a.Name] || before[w.b.Name] == after[w.b.Name] {
			t.Errorf("before %v, after %v", before, after)
		}
	})
	t.Run("killed", func(t *testing.T) {
		x := startTraffic(t, f.paths(t)...)
		defer x.end()
		start := time.Now()
		for round := range 2 * repetitions() {
			signal := []os.Signal{syscall.SIGKILL, syscall.SIGINT}[round%2]
			at, heard := signalAt(max(lines, 1), signal)
			said, err := w.listen(t.Context(), heard, rotate...)
			t.Logf("%v at line %d: %v\n%q", signal, at, err, said)
			if signal == syscall.SIGINT {
				if err := pe.keysMatch(t.Context()); err != nil {
					t.Errorf("interrupted: %v", err)
				}
			}
			w.liqoctl(t, rotate...)
			if err := pe.keysMatch(t.Context()); err != nil {
				t.Error(err)
			}
		}
		x.back(t, patience)
		if o := x.since(start); len(o.lost) > 0 {
			t.Errorf("connections are lost: %v", errors.Join(o.lost...))
		}
	})
	t.Run("a peer that has another key", func(t *testing.T) {
		if !*long {
			t.Skip("SKIPPED: a kubelet takes a minute to see a Secret that was replaced: -kubernetes.long")
		}
		pe.server.kubectl(t, "delete", "secret", "gw-"+pe.server.gateway)
		// Somebody asks for keys, and does not tell the peer.
		pe.server.kubectl(t, "create", "secret", "generic", "gw-"+pe.server.gateway)
		pe.server.kubectl(t, "label", "secret", "gw-"+pe.server.gateway, "liqo.io/managed=true", "networking.liqo.io/gateway-resource=true")
		lab.Eventually(t, patience, "there are new keys", func() error {
			err := pe.keysMatch(t.Context())
			switch {
			case err == nil:
				return errors.New("the keys match")
			case apierrors.IsNotFound(err):
				return err
			}
			return nil
		})
		if _, errs := w.liqoctl(t, rotate...); !strings.Contains(errs, "as after an unfinished rotation") {
			t.Errorf("it does not tell of what it found:\n%s", errs)
		}
		if err := pe.keysMatch(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("a Secret that is deleted", func(t *testing.T) {
		before := pe.keys(t)
		f.measure(t, "Secret with keys deleted, connect again", promise{within: blink}, f.paths(t), func() {
			pe.server.kubectl(t, "delete", "secret", "gw-"+pe.server.gateway)
			lab.Eventually(t, patience, "the gateway goes on with its keys", func() error {
				if out := pe.server.kubectl(t, "get", "gatewayservers", pe.server.gateway, "-o=jsonpath={.status.conditions[?(@.type=='KeysReady')].reason}"); out != "SecretDeleted" {
					return errors.New(out)
				}
				return nil
			})
			w.liqoctl(t, w.connectArgs()...)
		})
		if after := pe.keys(t); after[w.a.Name] == before[w.a.Name] && after[w.b.Name] == before[w.b.Name] {
			t.Error("there are no new keys")
		}
		if err := pe.keysMatch(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		before := pe.keys(t)
		w.refuses(t, []string{"--remote-kubeconfig"}, "network", "rotate-keys", "--kubeconfig", w.a.Kubeconfig)
		w.refuses(t, []string{"leads to cluster " + w.b.Name + ", not to naples", "nothing was changed"}, append(rotate, "naples")...)
		w.refuses(t, []string{"--only"}, append(rotate, "--only", "both")...)
		w.refuses(t, []string{"(remote)", "lacks rights", "delete secrets", "nothing was changed"},
			"network", "rotate-keys", "--kubeconfig", w.a.Kubeconfig, "--remote-kubeconfig", w.guest(t, w.b))
		if diff := cmp.Diff(before, pe.keys(t)); diff != "" {
			t.Errorf("keys were replaced (-before +after)\n%s", diff)
		}
	})
	if diff := cmp.Diff(pods, gatewayPods(t, w)); diff != "" {
		t.Errorf("it changed the gateways (-before +after)\n%s", diff)
	}
}

// guest is a kubeconfig of somebody who may look at what is ours and do nothing.
func (w *world) guest(t *testing.T, c *kubelab.Cluster) string {
	t.Helper()
	const roles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: guest}
rules:
- {apiGroups: [networking.liqo.io, ipam.liqo.io], resources: ["*"], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [namespaces, configmaps, pods], verbs: [get, list]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: guest}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: guest}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: guest}]
`
	if out, err := c.KubectlInput(roles, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := c.KubectlInput(roles, "delete", "-f", "-"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	config, err := c.KubeconfigFor("guest", "guests", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return config
}
