package clusters

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

const (
	// rotations is how often keys are replaced under traffic.
	rotations = 3
	// rotationGap is the longest silence that a rotation may cost. Each of its two
	// halves costs a round trip and what it takes to notice.
	rotationGap = time.Second
)

// testRotateKeys replaces keys while connections are in use.
func testRotateKeys(t *testing.T, p *pair) {
	pe := p.connected(t)
	controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
	pods := pe.gatewayPods(t)
	out, err1 := pe.consumer.here(t.Context(), p.provider.pods[1])
	in, err2 := pe.provider.here(t.Context(), p.consumer.pods[1])
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	streams := map[string]*stream{"to the provider": p.consumer.pods[0].stream(t, out), "to the consumer": p.provider.pods[0].stream(t, in)}
	rotate := p.both("network", "rotate-keys")

	t.Run("under traffic", func(t *testing.T) {
		for round := range rotations {
			before := pe.keys(t)
			for _, s := range streams {
				s.longest()
			}
			start := time.Now()
			lines, err := p.liqoctl.listen(t.Context(), nil, rotate...)
			if err != nil {
				t.Fatalf("%v\n%s", err, text(lines))
			}
			took := time.Since(start)
			if round == 0 {
				logSteps(t, lines, took)
			}
			for direction, s := range streams {
				controlplanetest.Eventually(t, "the connection goes on", s.lives)
				gap, err := s.longest()
				if err != nil || gap > rotationGap {
					t.Errorf("round %d: the connection %s: silence of %v (%v)", round+1, direction, gap, err)
				}
				t.Logf("round %d: keys replaced in %v; longest silence of the TCP connection %s %v", round+1, took.Round(time.Millisecond), direction, gap.Round(time.Millisecond))
			}
			if err := pe.keysMatch(t); err != nil {
				t.Error(err)
			}
			for name, key := range pe.keys(t) {
				if key == before[name] {
					t.Errorf("round %d: the key of %s is the same", round+1, name)
				}
			}
		}
		pe.samePods(t, pods)
	})
	t.Run("of one side", func(t *testing.T) {
		before := pe.keys(t)
		p.liqoctl.ok(t, append(rotate, "provider", "--only", "remote")...)
		after := pe.keys(t)
		if before["consumer"] != after["consumer"] || before["provider"] == after["provider"] {
			t.Errorf("before %v, after %v", before, after)
		}
	})
	t.Run("killed", func(t *testing.T) {
		for round := range rotations {
			kill := time.Duration(200+rand.IntN(1500)) * time.Millisecond
			signal := []os.Signal{syscall.SIGKILL, syscall.SIGINT}[round%2]
			lines, err := p.liqoctl.listen(t.Context(), signalAfter(kill, signal), rotate...)
			t.Logf("round %d: %v after %v: %v\n%s", round+1, signal, kill, err, text(lines))
			if signal == syscall.SIGINT {
				if err := pe.keysMatch(t); err != nil {
					t.Errorf("interrupted: %v", err)
				}
			}
			lines, err = p.liqoctl.listen(t.Context(), nil, rotate...)
			if err != nil {
				t.Fatalf("after that: %v\n%s", err, text(lines))
			}
			if err := pe.keysMatch(t); err != nil {
				t.Error(err)
			}
		}
		for direction, s := range streams {
			controlplanetest.Eventually(t, "the connection goes on", s.lives)
			gap, err := s.longest()
			if err != nil {
				t.Errorf("the connection %s: %v", direction, err)
			}
			t.Logf("longest silence of the TCP connection %s %v", direction, gap.Round(time.Millisecond))
		}
		pe.samePods(t, pods)
	})
	t.Run("a peer that has another key", func(t *testing.T) {
		kubectl(t, p.provider, "delete", "secret", "gw-consumer", "-n", pe.provider.namespace) // and the peer is not told
		controlplanetest.Eventually(t, "there are new keys", func(ctx context.Context) error {
			if err := pe.keysMatch(t); err == nil {
				return fmt.Errorf("the keys match")
			} else if strings.Contains(err.Error(), "not found") {
				return err
			}
			return nil
		})
		out, errs, err := p.liqoctl.run(t.Context(), rotate...)
		if err != nil || !strings.Contains(errs, "did not come to its end") {
			t.Errorf("%v\n%s%s", err, out, errs)
		}
		if err := pe.keysMatch(t); err != nil {
			t.Error(err)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		before := pe.keys(t)
		p.liqoctl.refuses(t, []string{"--remote-kubeconfig"}, "network", "rotate-keys", "--kubeconfig", p.consumer.Kubeconfig)
		p.liqoctl.refuses(t, []string{"leads to cluster provider, not to milan", "nothing was changed"}, append(rotate, "milan")...)
		p.liqoctl.refuses(t, []string{"--only"}, append(rotate, "--only", "both")...)
		guest := p.guest(t, p.provider)
		p.liqoctl.refuses(t, []string{"(remote)", "lacks rights", "delete secrets", "nothing was changed"},
			"network", "rotate-keys", "--kubeconfig", p.consumer.Kubeconfig, "--remote-kubeconfig", guest)
		for name, key := range pe.keys(t) {
			if key != before[name] {
				t.Errorf("the key of %s was replaced", name)
			}
		}
	})
}

// keys are the public keys of both gateways.
func (pe *peering) keys(t *testing.T) map[string]string {
	t.Helper()
	keys := make(map[string]string)
	for _, e := range pe.ends() {
		keys[e.id] = kubectl(t, e.side, "get", "secret", "gw-"+e.gateway, "-n", e.namespace, "-o", "jsonpath={.data.publicKey}")
	}
	return keys
}

// signalAfter sends a signal once, so long after the first line.
func signalAfter(wait time.Duration, signal os.Signal) func(string, *os.Process) {
	sent := false
	return func(_ string, of *os.Process) {
		if sent {
			return
		}
		sent = true
		time.AfterFunc(wait, func() { _ = of.Signal(signal) }) // it may have ended
	}
}

// guest is a kubeconfig of somebody who may look at what is ours and do nothing.
func (p *pair) guest(t *testing.T, s *side) string {
	t.Helper()
	s.Apply(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: guest, namespace: default}
---
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
subjects: [{kind: ServiceAccount, name: guest, namespace: default}]
`)
	t.Cleanup(func() {
		if _, err := s.Kubectl("delete", "clusterrolebinding/guest", "clusterrole/guest", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
		if _, err := s.Kubectl("delete", "serviceaccount/guest", "-n", "default", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	config, err := s.WriteKubeconfig("guest", s.ServiceAccount("default", "guest"))
	if err != nil {
		t.Fatal(err)
	}
	return config
}
