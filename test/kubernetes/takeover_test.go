package kubernetes

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// keptFields are those of all objects that a change of hands must leave alone: keys,
// addresses, ports, and the names of links.
const keptFields = `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.uid} {.spec.clusterIP} {.spec.ports} ` +
	`{.spec.cidr} {.spec.interface} {.spec.ip} {.status.cidr} {.status.ip} {.status.ipMappings} {.status.remote} {.status.endpoint.port} {.data}{"\n"}{end}`

// TestTakenOver lets the network of a cluster change hands below traffic: from Liqo to
// Sluice, first the gateway and then the rest, and back. The peer has Sluice. How long the
// network is silent is told and not judged: this runs beside much else, and links of kind
// tun, which nodes without Geneve have, pause while one agent takes the other's place. With
// -kubernetes.long pods of each cluster run in the other one, and more come at each step.
func TestTakenOver(t *testing.T) {
	w := newWorld(t, kubelab.Options{Clusters: []string{"rome", "milan"}})
	defer w.explain(t)
	defer (&offloaded{world: w, tenant: "liqo-tenant-" + w.b.Name}).explain(t)
	values := []string{"--set", "authentication.enabled=true", "--set", "offloading.enabled=true"}
	w.liqoctl(t, reachableArgs(w.a, values...)...)
	w.installLiqo(t, w.b, values...)
	if *long {
		w.peerBothWays(t)
	} else {
		w.connect(t)
	}
	w.playAgents(t, w.b)
	f := newFaults(t, w)
	if *long {
		f.offload(t)
	}
	x := startTraffic(t, f.paths(t)...)
	defer x.end()
	before, above, pod := f.kept(t), f.above(t), f.gatewayPod(t)
	local := []string{"--kubeconfig", w.b.Kubeconfig}
	for _, step := range []struct {
		name string
		args []string
		// replaced says that the gateway's pod is another one afterwards.
		replaced bool
		// prepare and complete are what the part of Liqo needs.
		prepare, complete, check func(t *testing.T)
	}{
		{name: "the gateway is handed over", args: []string{"network", "adopt", "--all"}, replaced: true},
		{name: "the network is taken over", args: []string{"install", "--adopt", "--pod-cidr", kubelab.PodCIDR, "--service-cidr", kubelab.ServiceCIDR}, check: f.takenOver},
		{name: "again", args: []string{"install", "--adopt"}, check: func(t *testing.T) {
			f.takenOver(t)
			if *long {
				f.anotherNode(t)
			}
		}},
		{
			name: "the network is given back", args: []string{"uninstall", "--hand-back"}, check: f.givenBack,
			prepare:  func(t *testing.T) { w.agentsImage(t, w.b, pauses) },
			complete: func(t *testing.T) { w.agentsImage(t, w.b, liqosImage("fabric")) },
		},
		{name: "the gateway is handed back", args: []string{"network", "adopt", "--all", "--back"}, replaced: true},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			if step.prepare != nil {
				step.prepare(t)
			}
			dry, _ := w.liqoctl(t, append(append(step.args, "--dry-run"), local...)...)
			t.Logf("the dry run says\n%s", dry)
			start := time.Now()
			w.liqoctl(t, append(append(step.args, "--skip-confirm"), local...)...)
			took := time.Since(start)
			if step.complete != nil {
				step.complete(t)
			}
			for range 2 { // what is heard first may have been on its way
				x.back(t, patience)
			}
			o := x.since(start)
			t.Logf("done after %v: %v", took.Round(10*time.Millisecond), o)
			if len(o.lost) > 0 {
				t.Errorf("%d of %d TCP connections are lost", len(o.lost), o.streams)
			}
			if now := f.gatewayPod(t); (now != pod) != step.replaced {
				t.Errorf("the gateway's pod was %s and is %s", pod, now)
			} else {
				pod = now
			}
			if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(f.kept(t), "\n")); diff != "" {
				t.Errorf("changed (-before +after):\n%s", diff)
			}
			if *long {
				f.sameAbove(t, above)
				f.newOffloaded(t, 1)
			}
			if step.check != nil {
				step.check(t)
			}
			w.connected(t)
		}) {
			return // what follows begins with what this has left
		}
	}
}

// kept is what must be the same in b whoever runs the network.
func (f *faults) kept(t *testing.T) string {
	t.Helper()
	const kinds = "configurations,gatewayservers,publickeies,networks.ipam.liqo.io,ips,internalfabrics,internalnodes,genevetunnels,services,secrets"
	all := f.kubectl(t, f.b, "get", kinds, "-A", "-o", keptFields)
	var lines []string
	for line := range strings.Lines(all) {
		if !strings.Contains(line, "/sh.helm.release.") && !strings.Contains(line, "/liqo-controller-metrics ") && !strings.Contains(line, passing) {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, ""))
}

// gatewayPod is the name of the only pod of b's gateway.
func (f *faults) gatewayPod(t *testing.T) (name string) {
	t.Helper()
	lab.Eventually(t, patience, "one pod of the gateway", func() error {
		p, err := leader(t.Context(), f.b)
		if err == nil {
			name = p.Name
		}
		return err
	})
	return name
}

// takenOver demands that Sluice's programs run the network, and Liqo's the rest.
func (f *faults) takenOver(t *testing.T) {
	t.Helper()
	f.newPod(t)
	if pods := f.kubectl(t, f.b, "get", "pods", "-n", "liqo", "-l", "app.kubernetes.io/name=liqo-fabric", "-o", "name"); pods != "" {
		t.Errorf("Liqo's agents run: %s", pods)
	}
	out, err := f.b.KubectlInput(`{"apiVersion":"ipam.liqo.io/v1alpha1","kind":"Network","metadata":{"namespace":"liqo","name":"of-liqo"},"spec":{"cidr":"10.99.0.0/24"}}`,
		"apply", "--as=system:serviceaccount:liqo:"+liqosController, "-f", "-")
	if err == nil || !strings.Contains(err.Error()+out, "--hand-back") {
		t.Errorf("Liqo's controller may write of the network: %v, %s", err, out)
	}
}

// givenBack demands that Liqo's programs run the network, and that nothing of Sluice's is left.
func (f *faults) givenBack(t *testing.T) {
	t.Helper()
	f.newPod(t)
	for _, kind := range []string{"deployments", "daemonsets", "configmaps", "validatingadmissionpolicies"} {
		if left := f.kubectl(t, f.b, "get", kind, "-A", "-l", "app.kubernetes.io/managed-by=Helm,helm.sh/chart", "-o", "name"); strings.Contains(left, "sluice") {
			t.Errorf("left is %s", left)
		}
	}
	if releases := f.kubectl(t, f.b, "get", "secrets", "-A", "-l", "owner=helm,name=sluice", "-o", "name"); releases != "" {
		t.Errorf("left is %s", releases)
	}
}

// newPod demands that whoever runs the network leads to a pod that has just come.
func (f *faults) newPod(t *testing.T) {
	t.Helper()
	pod := f.deployment(t, f.b, "new", 1)[0]
	defer f.kubectl(t, f.b, "-n", appNamespace, "delete", "deployment", "new", "--wait=false")
	lab.Eventually(t, patience, "an answer from a new pod", func() error {
		_, err := get(t.Context(), f.clients[0], f.remote(t, f.a, pod.Addr))
		return err
	})
}
