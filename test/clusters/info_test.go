package clusters

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// infoUser may look at one peering and do nothing else.
const infoUser = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: looker, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: looker, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: looker}
subjects: [{kind: ServiceAccount, name: looker, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: looker, namespace: %[1]s}
rules:
- {apiGroups: [networking.liqo.io], resources: ["*"], verbs: [get, list]}
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
`

// testInfo looks at a peering with `liqoctl info` and `liqoctl network status`,
// while it is well, by somebody without rights, and when it is not well.
func testInfo(t *testing.T, p *pair) {
	liqoctl, pe := p.liqoctl, p.connected(t)
	local := func(args ...string) []string { return append(args, "--kubeconfig", p.consumer.Kubeconfig) }
	controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
	at, err := pe.consumer.here(t.Context(), p.provider.pods[1])
	if err != nil {
		t.Fatal(err)
	}
	p.consumer.pods[0].stream(t, at)

	t.Run("info", func(t *testing.T) {
		if got := liqoctl.ok(t, local("info", "--get", "clusterid")...); got != "consumer\n" {
			t.Errorf("cluster ID %q", got)
		}
		var i struct {
			Network struct{ PodCIDRs []string }
			Health  struct{ Healthy bool }
		}
		liqoctl.decode(t, &i, local("info", "-o", "json")...)
		if len(i.Network.PodCIDRs) != 1 || i.Network.PodCIDRs[0] != podCIDR || !i.Health.Healthy {
			t.Errorf("%+v", i)
		}
		text := liqoctl.ok(t, local("info", "-v")...)
		for _, want := range []string{"Cluster ID:     consumer", "Pod CIDR:      10.243.0.0/16", "Networking status:     Healthy"} {
			if !strings.Contains(text, want) {
				t.Errorf("there is no %q in\n%s", want, text)
			}
		}
	})
	t.Run("info peer", func(t *testing.T) { testInfoPeer(t, liqoctl, pe) })
	t.Run("network status of both ends", func(t *testing.T) { testStatusNumbers(t, p) })
	t.Run("network status goes on", func(t *testing.T) { testStatusWatch(t, p) })
	t.Run("network status of one cluster twice", func(t *testing.T) {
		liqoctl.refuses(t, []string{"(remote) its ID is consumer, too"}, local("network", "status", "--remote-kubeconfig", p.consumer.Kubeconfig)...)
	})
	t.Run("network status with few rights", func(t *testing.T) {
		p.consumer.Apply(fmt.Sprintf(infoUser, pe.consumer.namespace))
		config, err := p.consumer.WriteKubeconfig("looker", rest.CopyConfig(p.consumer.ServiceAccount("default", "looker")))
		if err != nil {
			t.Fatal(err)
		}
		out, errs, err := liqoctl.run(t.Context(), "--kubeconfig", config, "-n", pe.consumer.namespace, "network", "status")
		if err != nil || !strings.Contains(out, "Connected") || !strings.Contains(errs, "pods/exec") || strings.Count(errs, "WARN") != 1 {
			t.Errorf("%v\n%s\n%s", err, out, errs)
		}
	})
	t.Run("network status of what is not well", func(t *testing.T) {
		if out, _, err := liqoctl.run(t.Context(), local("network", "status", "--interval", "0", "--exit-code")...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if _, err := p.consumer.Kubectl("delete", "publickeies", "-n", pe.consumer.namespace, "--all"); err != nil {
			t.Fatal(err)
		}
		controlplanetest.Eventually(t, "it says what is missing", func(ctx context.Context) error {
			out, errs, err := liqoctl.run(ctx, local("network", "status", "--interval", "0", "--exit-code")...)
			if err == nil || !strings.Contains(errs, "not healthy: provider") || !strings.Contains(out, "there is no PublicKey with the label") {
				return fmt.Errorf("%w\n%s\n%s", errors.New("not yet"), out, errs)
			}
			return nil
		})
	})
}

// testInfoPeer compares with what the objects say.
func testInfoPeer(t *testing.T, liqoctl program, pe *peering) {
	type gateway struct {
		Address []string
		Port    int
		Role    string
	}
	var there, here gateway
	liqoctl.decode(t, &there, "--kubeconfig", pe.provider.Kubeconfig, "info", "peer", "consumer", "--get", "network.gateway", "-o", "json")
	liqoctl.decode(t, &here, "--kubeconfig", pe.consumer.Kubeconfig, "info", "peer", "provider", "--get", "network.gateway", "-o", "json")
	ip, port := endpoint(t, pe.provider.side, pe.provider.namespace, pe.provider.gateway)
	for role, g := range map[string]gateway{"Client": there, "Server": here} {
		if g.Role != role || len(g.Address) != 1 || g.Address[0] != ip || fmt.Sprint(g.Port) != port {
			t.Errorf("gateway %+v, want the endpoint %s:%s and role %s", g, ip, port, role)
		}
	}
	liqoctl.refuses(t, []string{`there is no peering with "nobody": this cluster's are with provider`}, "--kubeconfig", pe.consumer.Kubeconfig, "info", "peer", "nobody")
	completed := liqoctl.ok(t, "__complete", "--kubeconfig", pe.consumer.Kubeconfig, "info", "peer", "")
	if !strings.HasPrefix(completed, "provider\n") {
		t.Errorf("completion: %q", completed)
	}
}

// statusOutput is the part of `network status -o json` that is looked at here.
type statusOutput struct {
	Peerings []struct {
		Cluster, Self, Peer, Health, State, Latency string
		Gateway                                     struct {
			Role, ActivePod, Version string
			Replicas, Ready, MTU     int
		}
		Traffic struct {
			WindowSeconds   float64
			Egress, Ingress struct {
				Bytes uint64
				Rate  struct{ BytesPerSecond float64 }
			}
		}
		Keys  struct{ Since, PeerSince, LastHandshake time.Time }
		Nodes struct{ Known, Joined, Heard int }
	}
}

func testStatusNumbers(t *testing.T, pair *pair) {
	var s statusOutput
	start := time.Now()
	pair.liqoctl.decode(t, &s, pair.both("network", "status", "-o", "json", "--interval", "1s")...)
	t.Logf("two clusters and two readings in %v", time.Since(start).Round(10*time.Millisecond))
	if len(s.Peerings) != 2 || s.Peerings[0].Cluster != "local" || s.Peerings[0].Self != "consumer" || s.Peerings[1].Cluster != "remote" || s.Peerings[1].Self != "provider" {
		t.Fatalf("%+v, want both ends", s)
	}
	for _, p := range s.Peerings {
		recent := func(at time.Time) bool { return time.Since(at) < 10*time.Minute && time.Until(at) < time.Second }
		g, tr := p.Gateway, p.Traffic
		switch {
		case p.Health != "Healthy" || p.State != "Connected" || p.Latency == "" || p.Latency == "N/A":
			t.Errorf("state: %+v", p)
		case g.Replicas != 1 || g.Ready != 1 || g.MTU != 1340 || g.ActivePod == "" || g.Version == "":
			t.Errorf("gateway: %+v", g)
		case tr.WindowSeconds < 0.5 || tr.Egress.Bytes == 0 || tr.Egress.Rate.BytesPerSecond < 100 || tr.Ingress.Rate.BytesPerSecond < 100:
			t.Errorf("traffic, with a stream between pods: %+v", tr)
		case !recent(p.Keys.Since) || !recent(p.Keys.PeerSince) || !recent(p.Keys.LastHandshake):
			t.Errorf("keys: %+v", p.Keys)
		case p.Nodes.Known == 0 || p.Nodes.Joined != p.Nodes.Known || p.Nodes.Heard == 0:
			t.Errorf("nodes: %+v", p.Nodes)
		}
	}
}

// testStatusWatch reads some documents and then ends it as Ctrl-C does.
func testStatusWatch(t *testing.T, p *pair) {
	ctx, cancel := context.WithTimeout(t.Context(), controlplanetest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, string(p.liqoctl), p.both("network", "status", "-w", "--interval", "500ms", "-o", "json")...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	rates := false
	for in, n := json.NewDecoder(bufio.NewReader(out)), 0; n < 4; n++ {
		var s statusOutput
		if err := in.Decode(&s); err != nil || len(s.Peerings) != 2 {
			t.Fatalf("%v: %+v %s", err, s, &errs)
		}
		rates = s.Peerings[0].Traffic.Egress.Rate.BytesPerSecond > 0
	}
	if !rates {
		t.Error("the last reading has no rates")
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || errs.Len() > 0 {
		t.Errorf("after Ctrl-C: %v %s", err, &errs)
	}
}
