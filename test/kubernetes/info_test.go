package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// lookerRole may look at one peering and do nothing else.
const lookerRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: looker, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: looker}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: looker}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: looker, namespace: %[1]s}
rules:
- {apiGroups: [networking.liqo.io], resources: ["*"], verbs: [get, list]}
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
`

// looker is a kubeconfig of somebody with that role.
func (w *world) looker(t *testing.T, e *end) string {
	t.Helper()
	e.apply(t, fmt.Sprintf(lookerRole, e.namespace))
	config, err := e.KubeconfigFor("looker", "lookers", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// testInfo looks at a peering with `liqoctl info` and `liqoctl network status`, while
// it is well, as somebody without rights, and when it is not well.
func testInfo(t *testing.T, w *world) {
	w.connect(t)
	local := func(args ...string) []string { return append(args, "--kubeconfig", w.a.Kubeconfig) }
	f := newFaults(t, w)
	x := startTraffic(t, f.paths(t)...)

	t.Run("info", func(t *testing.T) {
		if got, _ := w.liqoctl(t, local("info", "--get", "clusterid")...); got != w.a.Name+"\n" {
			t.Errorf("cluster ID %q", got)
		}
		var i struct {
			Network struct{ PodCIDRs []string }
			Health  struct{ Healthy bool }
		}
		w.decode(t, &i, local("info", "-o", "json")...)
		if len(i.Network.PodCIDRs) != 1 || i.Network.PodCIDRs[0] != kubelab.PodCIDR || !i.Health.Healthy {
			t.Errorf("%+v", i)
		}
		text, _ := w.liqoctl(t, local("info", "-v")...)
		for _, want := range []string{"Cluster ID:     " + w.a.Name, "Pod CIDR:      " + kubelab.PodCIDR, "Networking status:     Healthy"} {
			if !strings.Contains(text, want) {
				t.Errorf("there is no %q in\n%s", want, text)
			}
		}
		if got, _ := w.liqoctl(t, "get", "peerings", "--kubeconfig", w.b.Kubeconfig); !strings.Contains(got, w.a.Name) {
			t.Errorf("get peerings prints\n%s", got)
		}
	})
	t.Run("a ForeignCluster in each cluster", func(t *testing.T) {
		for on, peer := range map[*kubelab.Cluster]string{w.a: w.b.Name, w.b: w.a.Name} {
			lab.Eventually(t, patience, "cluster "+on.Name+" shows that all is well", func() error {
				got, err := on.Kubectl("get", "fc", peer, "-o", "jsonpath={.status.role} {.status.modules.networking.conditions[*].status} {.status.modules.authentication.enabled}")
				if err == nil && strings.TrimSpace(got) != "Unknown Ready Ready Ready Established false" {
					err = errors.New(got)
				}
				return err
			})
		}
	})
	t.Run("connect again, as JSON", func(t *testing.T) {
		var ends map[string]struct {
			Info    struct{ ClusterID string }
			Network struct{ Status string }
		}
		w.decode(t, &ends, w.connectArgs("-o", "json")...)
		for end, peer := range map[string]string{"local": w.b.Name, "remote": w.a.Name} {
			if got := ends[end]; got.Info.ClusterID != peer || got.Network.Status != "Healthy" {
				t.Errorf("%s: %+v, want %s", end, got, peer)
			}
		}
	})
	t.Run("info peer", func(t *testing.T) { testInfoPeer(t, w) })
	t.Run("network status of both ends", func(t *testing.T) { testStatusNumbers(t, w) })
	t.Run("network status goes on", func(t *testing.T) { testStatusWatch(t, w) })
	x.end()
	t.Run("network status with few rights", func(t *testing.T) {
		client := w.peering().client
		out, errs := w.liqoctl(t, "--kubeconfig", w.looker(t, client), "-n", client.namespace, "network", "status")
		if !strings.Contains(out, "Connected") || !strings.Contains(errs, "pods/exec") || strings.Count(errs, "WARN") != 1 {
			t.Errorf("%s\n%s", out, errs)
		}
	})
	t.Run("with the role view", func(t *testing.T) {
		config, err := w.a.KubeconfigFor("on-call", "", time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		w.kubectl(t, w.a, "create", "clusterrolebinding", "on-call", "--clusterrole=view", "--user=on-call")
		defer w.kubectl(t, w.a, "delete", "clusterrolebinding", "on-call")
		for _, command := range []string{"info", "network status", "get peerings"} {
			if out, _ := w.liqoctl(t, append(strings.Fields(command), "--kubeconfig", config)...); !strings.Contains(out, w.b.Name) {
				t.Errorf("liqoctl %s shows no peering:\n%s", command, out)
			}
		}
	})
	t.Run("network status with a frozen API server", func(t *testing.T) {
		thaw := w.b.FreezeAPIServer()
		defer thaw()
		for silent, args := range map[string][]string{
			"(remote)": w.both("network", "status", "--interval", "0", "--remote-request-timeout", "1s"),
			"(local)":  w.between(w.b, w.a, "network", "status", "--interval", "0", "--request-timeout", "1s"),
		} {
			out, errs, err := w.run(t.Context(), w.command(args...))
			if err == nil || !strings.Contains(out, "Connected") || !strings.Contains(errs, silent) || !strings.Contains(errs, w.b.Public.String()) || !strings.Contains(errs, "does not answer: check") {
				t.Errorf("%v\n%s\n%s", err, out, errs)
			}
		}
	})
	t.Run("network status of what is not well", func(t *testing.T) {
		status := local("network", "status", "--interval", "0", "--exit-code")
		if _, _, err := w.tryLiqoctl(t.Context(), status...); err != nil {
			t.Error(err)
		}
		w.peering().client.kubectl(t, "delete", "publickeies", "--all")
		lab.Eventually(t, patience, "it says what is missing", func() error {
			out, errs, err := w.run(t.Context(), w.command(status...))
			if err == nil || !strings.Contains(errs, "not healthy: "+w.b.Name) || !strings.Contains(out, "there is no PublicKey with the label") {
				return fmt.Errorf("%w\n%s\n%s", err, out, errs)
			}
			return nil
		})
		w.liqoctl(t, w.connectArgs()...) // which brings it back
	})
}

// testInfoPeer compares with what the objects say.
func testInfoPeer(t *testing.T, w *world) {
	type gateway struct {
		Address []string
		Port    int
		Role    string
	}
	var there, here gateway
	w.decode(t, &there, "--kubeconfig", w.b.Kubeconfig, "info", "peer", w.a.Name, "--get", "network.gateway", "-o", "json")
	w.decode(t, &here, "--kubeconfig", w.a.Kubeconfig, "info", "peer", w.b.Name, "--get", "network.gateway", "-o", "json")
	own := w.kubectl(t, w.b, "get", "gatewayservers", "-A", "-o", "jsonpath={.items[0].status.endpoint.addresses[0]}")
	if there.Role != "Client" || len(there.Address) != 1 || there.Address[0] != own || fmt.Sprint(there.Port) != nodePort {
		t.Errorf("the server's cluster says %+v, want what the server is at, %s:%s", there, own, nodePort)
	}
	if here.Role != "Server" || len(here.Address) != 1 || here.Address[0] != w.b.Public.String() || fmt.Sprint(here.Port) != nodePort {
		t.Errorf("the client's cluster says %+v, want what the client dials, %s:%s", here, w.b.Public, nodePort)
	}
	text, _ := w.liqoctl(t, "info", "peer", w.b.Name, "--kubeconfig", w.a.Kubeconfig)
	cidr, err := remoteCIDR(t.Context(), w.a, w.b.Name)
	if err != nil || !strings.Contains(text, cidr.String()) {
		t.Errorf("no %v (%v) in\n%s", cidr, err, text)
	}
	w.refuses(t, []string{`there is no peering with "nobody": this cluster's are with ` + w.b.Name}, "--kubeconfig", w.a.Kubeconfig, "info", "peer", "nobody")
	if completed, _ := w.liqoctl(t, "__complete", "--kubeconfig", w.a.Kubeconfig, "info", "peer", ""); !strings.HasPrefix(completed, w.b.Name+"\n") {
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

func testStatusNumbers(t *testing.T, w *world) {
	var s statusOutput
	w.decode(t, &s, w.both("network", "status", "-o", "json", "--interval", "1s")...)
	if len(s.Peerings) != 2 || s.Peerings[0].Cluster != "local" || s.Peerings[0].Self != w.a.Name || s.Peerings[1].Cluster != "remote" || s.Peerings[1].Self != w.b.Name {
		t.Fatalf("%+v, want both ends", s)
	}
	for _, p := range s.Peerings {
		g, tr := p.Gateway, p.Traffic
		switch {
		case p.Health != "Healthy" || p.State != "Connected" || p.Latency == "" || p.Latency == "N/A":
			t.Errorf("state: %+v", p)
		case g.Replicas != 1 || g.Ready != 1 || g.MTU != 1340 || g.ActivePod == "" || g.Version == "":
			t.Errorf("gateway: %+v", g)
		case tr.WindowSeconds < 0.5 || tr.Egress.Bytes == 0 || tr.Egress.Rate.BytesPerSecond < 100 || tr.Ingress.Rate.BytesPerSecond < 100:
			t.Errorf("traffic, with streams between pods: %+v", tr)
		case p.Keys.Since.IsZero() || p.Keys.PeerSince.IsZero() || p.Keys.LastHandshake.IsZero() || time.Until(p.Keys.LastHandshake) > time.Second:
			t.Errorf("keys: %+v", p.Keys)
		case p.Nodes.Known != 2 || p.Nodes.Joined != 2 || p.Nodes.Heard != 2:
			t.Errorf("nodes: %+v", p.Nodes)
		}
	}
}

// testStatusWatch reads some documents and then ends it as Ctrl-C does.
func testStatusWatch(t *testing.T, w *world) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := w.command(w.both("network", "status", "-w", "--interval", "500ms", "-o", "json")...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := w.WAN.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	rates := false
	for in, n := json.NewDecoder(bufio.NewReader(out)), 0; n < 3; n++ {
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
