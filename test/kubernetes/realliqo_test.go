package kubernetes

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/source"
)

// liqosDeployments are the programs of Liqo that are no node agents. The controllers come last: they end if the IPAM does not
// answer within ten seconds.
var liqosDeployments = []string{"liqo-ipam", "liqo-webhook", "liqo-crd-replicator", "liqo-proxy", liqosController}

// TestRealLiqo does with Liqo itself, as test/liqo/build.sh builds it, what TestTakenOver
// does with programs of ours: its controllers, its IPAM, its webhook, its node agents, its
// gateways, its virtual kubelet and its liqoctl. Where the kernel has no Geneve, its node
// agents carry nothing: then pods are reached only while Sluice's run the nodes, and what
// the gateways hear of each other tells how long the tunnel is silent.
func TestRealLiqo(t *testing.T) {
	if !*realLiqo {
		t.Skip("SKIPPED: this needs Liqo, which test/liqo/build.sh builds: -kubernetes.liqo")
	}
	dir, err := source.Liqo()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, kubelab.Options{Clusters: []string{"rome", "milan"}, DNS: true}) // Liqo finds its IPAM by name
	defer w.explain(t)
	defer (&offloaded{world: w, tenant: "liqo-tenant-" + w.b.Name}).explain(t)
	defer w.explainLiqo(t)
	w.liqoctl(t, reachableArgs(w.a, offloading...)...)
	w.installRealLiqo(t, dir)
	w.peerBothWays(t)
	geneve := hasGeneve(w.b.Nodes[0])
	if !geneve {
		t.Log("!!! LEFT OUT: traffic of pods while Liqo's agents run the nodes, for this kernel has no Geneve")
	}
	t.Log("!!! LEFT OUT: Liqo's metrics, telemetry and uninstaller, and WireGuard of the kernel")
	restarts := make(map[string]int32)
	w.takeOver(t, incumbent{
		// Its virtual kubelet takes what maps namespaces in one direction for that of the other one if they have the same name.
		carries: geneve, offloads: true, inB: "market",
		meanwhile: func(t *testing.T, k *takeover) { k.restartLiqo(t) },
		left: func(t *testing.T, k *takeover) {
			for _, n := range k.b.Nodes {
				checkNothingOfOurs(t, n)
			}
		},
		seen: func(t *testing.T, k *takeover) {
			k.lookAround(t)
			k.liqoLives(t, restarts)
		},
	})
}

// installRealLiqo installs Liqo in b, as its documents say.
func (w *world) installRealLiqo(t *testing.T, dir string) {
	t.Helper()
	start := time.Now()
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no images in %s: %v", dir, err)
	}
	for _, archive := range archives {
		w.b.Load(archive)
	}
	w.liqosLiqoctl(t, dir, "install", "--kubeconfig", w.b.Kubeconfig, "--cluster-id", w.b.Name,
		"--pod-cidr", kubelab.PodCIDR, "--service-cidr", kubelab.ServiceCIDR, "--api-server-url", w.b.Config().Host,
		"--version", liqoTag, "--set", "tag="+liqoTag, "--local-chart-path", filepath.Join(dir, "chart"),
		"--disable-api-server-sanity-check", "--disable-telemetry", "--disable-kernel-version-check", "--timeout", commandLimit.String(),
		"--set", "networking.gatewayTemplates.wireguard.implementation=userspace",
		"--set", "metricAgent.enabled=false", // it has a second program, to make keys
		"--set", "virtualKubelet.extra.args={--node-lease-duration=8s}") // see renewSooner
	for _, name := range liqosDeployments {
		w.kubectl(t, w.b, "rollout", "status", "-n", liqoNamespace, "--timeout="+patience.String(), "deployment/"+name)
	}
	t.Logf("Liqo %s is installed in %s after %v", liqoTag, w.b.Name, time.Since(start).Round(100*time.Millisecond))
}

// hasGeneve tells whether Liqo's agents can make their links on a node.
func hasGeneve(n *kubelab.Node) bool {
	const name = "geneve-trial"
	_, err := n.Host.Try("ip", "link", "add", name, "type", "geneve", "id", "1", "remote", "192.0.2.1", "dstport", "6999")
	if err == nil {
		n.Host.Run("ip", "link", "delete", name)
	}
	return err == nil
}

// restartLiqo starts all programs of Liqo again that are not of the nodes. They must get
// ready although they may not write of the network.
func (k *takeover) restartLiqo(t *testing.T) {
	t.Helper()
	start := time.Now()
	for _, name := range liqosDeployments {
		k.rollout(t, k.b, liqoNamespace, "deployment/"+name)
	}
	t.Logf("Liqo's programs are ready again after %v", time.Since(start).Round(100*time.Millisecond))
}

// lookAround shows what Sluice's liqoctl says of both clusters. While Sluice runs the
// network, nothing may be wrong.
func (k *takeover) lookAround(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"info", "--kubeconfig", k.b.Kubeconfig},
		{"network", "status", "--kubeconfig", k.b.Kubeconfig, "--interval", "0", "--exit-code"},
		k.both("network", "doctor"),
	} {
		var said string
		ask := func() error {
			out, errs, err := k.run(t.Context(), k.command(args...))
			said = fmt.Sprintf("liqoctl %s (%v)\n%s%s", strings.Join(args, " "), err, out, errs)
			if err != nil {
				return errors.New(said)
			}
			return nil
		}
		if k.ours {
			lab.Eventually(t, patience, "all is well", ask)
		} else {
			_ = ask() // what Liqo's part lacks here is no fault of Sluice's
		}
		t.Log(said)
	}
}

// liqoLives demands that Liqo has all of its pods, without agents while Sluice runs the nodes, that they are ready, and have
// not started again since they were seen. Those that are new must not have at all.
func (k *takeover) liqoLives(t *testing.T, restarts map[string]int32) {
	t.Helper()
	first, want := len(restarts) == 0, len(liqosDeployments)
	if !k.ours {
		want += len(k.b.Nodes)
	}
	lab.Eventually(t, patience, "the pods of Liqo are ready", func() error {
		pods, err := podsWith(t.Context(), k.b, liqoNamespace, nil)
		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
			return !slices.ContainsFunc(append(liqosDeployments, "liqo-fabric"), func(of string) bool { return strings.HasPrefix(p.Name, of+"-") })
		})
		if err != nil || len(pods) != want {
			return fmt.Errorf("there are %d, and should be %d: %v", len(pods), want, err)
		}
		for _, p := range pods {
			if !ready(&p) {
				return fmt.Errorf("pod %s is not ready: %s", p.Name, p.Status.Phase)
			}
			for _, c := range p.Status.ContainerStatuses {
				if !first && c.RestartCount > restarts[p.Name] {
					logs, err := k.b.Kubectl("logs", "-n", liqoNamespace, p.Name, "--previous", "--tail=20")
					t.Errorf("pod %s has started again: %+v\n%s (%v)", p.Name, c.LastTerminationState.Terminated, logs, err)
				}
				restarts[p.Name] = c.RestartCount
			}
		}
		return nil
	})
}

// checkNothingOfOurs looks for what Sluice's agent could have left on a node of Liqo's.
func checkNothingOfOurs(t *testing.T, n *kubelab.Node) {
	t.Helper()
	links, err := liqoLinks(n)
	if err != nil {
		t.Error(err)
	}
	for _, l := range links {
		if l.Info.Kind == "tun" || strings.Contains(l.Alias, "sluice") {
			t.Errorf("left on %s: the link %+v", n.Name, l)
		}
	}
	for _, args := range [][]string{{"ip", "rule"}, {"nft", "list", "tables"}} {
		out, err := n.Host.Try(args...)
		if err != nil || strings.Contains(out, "sluice") || strings.Contains(out, "600:") {
			t.Errorf("left on %s: %s: %v\n%s", n.Name, strings.Join(args, " "), err, out)
		}
	}
}

// explainLiqo logs what Liqo's programs say when the test has failed.
func (w *world) explainLiqo(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, name := range liqosDeployments {
		logs, err := w.b.Kubectl("logs", "-n", liqoNamespace, "deployment/"+name, "--tail=40")
		t.Logf("--- %s (%v)\n%s", name, err, logs)
	}
	agents, err := w.b.Kubectl("logs", "-n", liqoNamespace, "-l", "app.kubernetes.io/name=fabric", "--prefix", "--tail=40")
	t.Logf("--- the node agents (%v)\n%s", err, agents)
	pods, err := w.b.Kubectl("describe", "pods", "-n", "liqo-tenant-"+w.a.Name)
	t.Logf("--- the gateway of %s (%v)\n%s", w.b.Name, err, pods)
}
