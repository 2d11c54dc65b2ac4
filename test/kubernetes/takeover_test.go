package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/admin/release"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// keptFields are those of all objects that a change of hands must leave alone: keys,
// addresses, ports, and the names of links.
const keptFields = `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.uid} {.spec.clusterIP} {.spec.ports} ` +
	`{.spec.cidr} {.spec.interface} {.spec.ip} {.status.cidr} {.status.ip} {.status.ipMappings} {.status.remote} {.status.endpoint.port} {.data}{"\n"}{end}`

// takeover is clusters while the network of b changes hands. That of a is Sluice's.
type takeover struct {
	*faults
	liqo incumbent
	// ours tells whether Sluice's agents run the nodes of b.
	ours bool
}

// carried tells whether traffic of pods passes, by who runs the nodes.
func (k *takeover) carried() bool { return k.ours || k.liqo.carries }

// incumbent is the Liqo that runs the network of b at first.
type incumbent struct {
	// carries tells whether traffic of pods passes while its agents run the nodes.
	carries bool
	// offloads tells whether the clusters run pods of each other, and inB from which namespace of b.
	offloads bool
	inB      string
	// ends and begins are what it needs before the hand-back and after it.
	ends, begins func(t *testing.T)
	// meanwhile is what happens to it while Sluice runs the network; left is looked at when all is Liqo's again, and seen
	// before the first step and after each.
	meanwhile, left, seen func(t *testing.T, k *takeover)
}

// offloading is what lets clusters run pods of each other.
var offloading = []string{"--set", "authentication.enabled=true", "--set", "offloading.enabled=true"}

// TestTakenOver lets the network of a cluster change hands below traffic: from Liqo to
// Sluice, first the gateway and then the rest, and back. The peer has Sluice. Programs of
// this project play Liqo; TestRealLiqo does the same with Liqo's own. How long the network
// is silent is told and not judged: this runs beside much else, and links of kind tun,
// which nodes without Geneve have, pause while one agent takes the other's place. With
// -kubernetes.long pods of each cluster run in the other one, and more come at each step.
func TestTakenOver(t *testing.T) {
	w := newWorld(t, kubelab.Options{Clusters: []string{"rome", "milan"}})
	defer w.explain(t)
	defer (&offloaded{world: w, tenant: "liqo-tenant-" + w.b.Name}).explain(t)
	w.liqoctl(t, reachableArgs(w.a, offloading...)...)
	w.installLiqo(t, w.b, offloading...)
	if *long {
		w.renewSooner(t, w.b)
		w.peerBothWays(t)
	} else {
		w.connect(t)
	}
	w.playAgents(t, w.b)
	w.takeOver(t, incumbent{
		carries: true, offloads: *long, inB: offloadedHere,
		ends:   func(t *testing.T) { w.agentsImage(t, w.b, pauses) },
		begins: func(t *testing.T) { w.agentsImage(t, w.b, liqosImage("fabric")) },
	})
}

// takeOver has Sluice take the network of b over from Liqo and hand it back, with traffic
// wherever it passes. The clusters are connected.
func (w *world) takeOver(t *testing.T, liqo incumbent) {
	t.Helper()
	k := &takeover{faults: newFaults(t, w), liqo: liqo}
	var above []string
	if liqo.offloads {
		k.offload(t)
		above = k.above(t)
	}
	look := func(t *testing.T, what func(*testing.T, *takeover)) {
		if what != nil {
			what(t, k)
		}
	}
	before, names, pod := k.kept(t), k.names(t), k.gatewayPod(t)
	look(t, liqo.seen)
	local := []string{"--kubeconfig", w.b.Kubeconfig}
	var x *traffic
	for _, step := range []struct {
		name string
		args []string
		// replaced says that the gateway's pod is another one afterwards, ours that Sluice's agents run the nodes.
		replaced, ours bool
		// prepare and complete are what the part of Liqo needs.
		prepare, complete, check func(t *testing.T)
	}{
		{name: "the gateway is handed over", args: []string{"network", "adopt", "--all"}, replaced: true},
		{
			name: "the network is taken over", ours: true, check: k.takenOver,
			args: []string{"install", "--adopt", "--pod-cidr", kubelab.PodCIDR, "--service-cidr", kubelab.ServiceCIDR},
		},
		{name: "again", args: []string{"install", "--adopt"}, ours: true, check: func(t *testing.T) {
			k.takenOver(t)
			look(t, liqo.meanwhile)
			if liqo.offloads {
				k.anotherNode(t)
			}
		}},
		{name: "the network is given back", args: []string{"uninstall", "--hand-back"}, prepare: liqo.ends, complete: liqo.begins, check: k.givenBack},
		{name: "the gateway is handed back", args: []string{"network", "adopt", "--all", "--back"}, replaced: true, check: func(t *testing.T) {
			k.nothingLeft(t, names)
			look(t, liqo.left)
		}},
	} {
		if k.carried() && x == nil {
			x = startTraffic(t, k.paths(t)...)
			defer x.end()
		}
		if !t.Run(step.name, func(t *testing.T) {
			if step.prepare != nil {
				step.prepare(t)
			}
			dry, _ := w.liqoctl(t, append(append(step.args, "--dry-run"), local...)...)
			t.Logf("the dry run says\n%s", dry)
			tunnel := k.listen(t)
			start := time.Now()
			w.liqoctl(t, append(append(step.args, "--skip-confirm"), local...)...)
			took := time.Since(start)
			if step.complete != nil {
				step.complete(t)
			}
			k.ours = step.ours
			back := time.Now()
			lab.Eventually(t, patience, "the gateways hear each other", func() error {
				if !tunnel.after(back) {
					return errors.New("nothing has come")
				}
				return nil
			})
			t.Logf("done after %v; the gateway of %s heard nothing for %v", took.Round(10*time.Millisecond), k.a.Name, round(tunnel.longest(start)))
			x = k.judge(t, x, start)
			if now := k.gatewayPod(t); (now != pod) != step.replaced {
				t.Errorf("the gateway's pod was %s and is %s", pod, now)
			} else {
				pod = now
			}
			if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(k.kept(t), "\n")); diff != "" {
				t.Errorf("changed (-before +after):\n%s", diff)
			}
			if liqo.offloads {
				k.sameAbove(t, above)
				k.newOffloaded(t, 1)
			}
			if step.check != nil {
				step.check(t)
			}
			w.connected(t)
			look(t, liqo.seen)
		}) {
			return // what follows begins with what this has left
		}
	}
}

// judge tells what traffic has seen of a step, and judges it if traffic passes before and
// after. It returns the traffic that goes on.
func (k *takeover) judge(t *testing.T, x *traffic, start time.Time) *traffic {
	t.Helper()
	if !k.carried() {
		t.Logf("!!! LEFT OUT: what traffic of pods would hear, for Liqo's agents run the nodes of %s, and carry nothing there", k.b.Name)
		if x != nil {
			var silent time.Duration
			for _, silences := range x.since(start).silences {
				for _, s := range silences[:max(0, len(silences)-1)] { // the last one is not over
					silent = max(silent, s.to.Sub(s.from))
				}
			}
			t.Logf("until they did, pings were silent for %v", round(silent))
			x.end()
		}
		return nil
	}
	if x == nil {
		t.Logf("traffic of pods was not looked at, for it did not pass before; it does now")
		return nil // takeOver starts it
	}
	for range 2 { // what is heard first may have been on its way
		x.back(t, patience)
	}
	o := x.since(start)
	t.Logf("%v", o)
	if len(o.lost) > 0 {
		t.Errorf("%d of %d TCP connections are lost", len(o.lost), o.streams)
	}
	return x
}

// listen remembers until the test ends when the gateway of a hears that of b. They ping
// each other every two seconds, whoever runs the nodes.
func (k *takeover) listen(t *testing.T) *arrivals {
	t.Helper()
	gateway := leads(t, k.a)
	heard := &arrivals{last: time.Now()}
	var last string
	controlplanetest.Repeat(t, 100*time.Millisecond, func(ctx context.Context) {
		metrics, err := gateway.TryContext(ctx, "curl", "-sf", "http://127.0.0.1:8082/metrics") // only its own node reaches it
		_, bytes, found := strings.Cut(metrics, "\nliqo_peer_receive_bytes_total")
		bytes, _, _ = strings.Cut(bytes, "\n")
		if err == nil && found && bytes != last {
			heard.note(time.Now())
			last = bytes
		}
	})
	return heard
}

// kept is what must be the same in b whoever runs the network.
func (k *takeover) kept(t *testing.T) string {
	t.Helper()
	const kinds = "configurations,gatewayservers,publickeies,networks.ipam.liqo.io,ips,internalfabrics,internalnodes,genevetunnels,services,secrets"
	all := k.kubectl(t, k.b, "get", kinds, "-A", "-o", keptFields)
	var lines []string
	for line := range strings.Lines(all) {
		if !strings.Contains(line, "/sh.helm.release.") && !strings.Contains(line, "/liqo-controller-metrics ") && !strings.Contains(line, passing) {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, ""))
}

// gatewayPod is the name of the only pod of b's gateway.
func (k *takeover) gatewayPod(t *testing.T) (name string) {
	t.Helper()
	lab.Eventually(t, patience, "one pod of the gateway", func() error {
		p, err := leader(t.Context(), k.b)
		if err == nil {
			name = p.Name
		}
		return err
	})
	return name
}

// takenOver demands that Sluice's programs run the network, and Liqo's the rest.
func (k *takeover) takenOver(t *testing.T) {
	t.Helper()
	k.newPod(t)
	if pods := k.kubectl(t, k.b, "get", "pods", "-n", "liqo", "-o", "name"); strings.Contains(pods, "/liqo-fabric-") {
		t.Errorf("Liqo's agents run: %s", pods)
	}
	out, err := k.b.KubectlInput(`{"apiVersion":"ipam.liqo.io/v1alpha1","kind":"Network","metadata":{"namespace":"liqo","name":"of-liqo"},"spec":{"cidr":"10.99.0.0/24"}}`,
		"apply", "--as=system:serviceaccount:liqo:"+liqosController, "-f", "-")
	if err == nil || !strings.Contains(err.Error()+out, "--hand-back") {
		t.Errorf("Liqo's controller may write of the network: %v, %s", err, out)
	}
}

// givenBack demands that Liqo's programs run the network, and that nothing of Sluice's is left but the gateways.
func (k *takeover) givenBack(t *testing.T) {
	t.Helper()
	if k.carried() {
		k.newPod(t)
	}
	for _, kind := range []string{"deployments", "daemonsets", "configmaps", "validatingadmissionpolicies"} {
		if left := k.kubectl(t, k.b, "get", kind, "-A", "-l", "app.kubernetes.io/managed-by=Helm,helm.sh/chart", "-o", "name"); strings.Contains(left, "sluice") {
			t.Errorf("left is %s", left)
		}
	}
	if releases := k.kubectl(t, k.b, "get", "secrets", "-A", "-l", "owner=helm,name=sluice", "-o", "name"); releases != "" {
		t.Errorf("left is %s", releases)
	}
}

// names are those of all objects in b that an installation could leave, without what gets another name each time.
func (k *takeover) names(t *testing.T) []string {
	t.Helper()
	names, err := allNames(k.b, "serviceaccounts", "wggatewayservertemplates.networking.liqo.io", "wggatewayclienttemplates.networking.liqo.io")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(append(names, crds(t, k.b)...), func(n string) bool {
		return strings.HasPrefix(n, "Pod/") || strings.HasPrefix(n, "ReplicaSet/") || strings.Contains(n, passing)
	})
}

// nothingLeft demands that b has the objects that it had, and Liqo's CRDs.
func (k *takeover) nothingLeft(t *testing.T, before []string) {
	t.Helper()
	lab.Eventually(t, patience, "nothing is left in "+k.b.Name, func() error {
		ours, err := k.b.Kubectl("get", "crds", "-o", `jsonpath={range .items[?(@.metadata.annotations.`+strings.ReplaceAll(release.AnnotationVersion, ".", `\.`)+`)]}{.metadata.name} {end}`)
		if diff := cmp.Diff(before, k.names(t)); err != nil || diff != "" || ours != "" {
			return fmt.Errorf("CRDs of Sluice: %q (%v), objects (-before +after):\n%s", ours, err, diff)
		}
		return nil
	})
}

// newPod demands that whoever runs the network leads to a pod that has just come.
func (k *takeover) newPod(t *testing.T) {
	t.Helper()
	pod := k.deployment(t, k.b, "new", 1)[0]
	defer k.kubectl(t, k.b, "-n", appNamespace, "delete", "deployment", "new", "--wait=false")
	lab.Eventually(t, patience, "an answer from a new pod", func() error {
		_, err := get(t.Context(), k.clients[0], k.remote(t, k.a, pod.Addr))
		return err
	})
}
