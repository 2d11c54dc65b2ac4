package kubernetes

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/kubelab"
)

// The capability sets of a process: none at all, and NET_ADMIN alone (bit 12).
const (
	noCapability = "0000000000000000"
	netAdmin     = "0000000000001000"
)

// testRestricted looks at what the API server has admitted where, and at what the
// running processes may do: of all that is installed only the agent of the nodes
// has a privilege, in a namespace of its own.
func testRestricted(t *testing.T, w *world) {
	w.connect(t)
	for _, c := range w.Clusters {
		t.Run(c.Name, func(t *testing.T) {
			peer := w.b.Name
			if c == w.b {
				peer = w.a.Name
			}
			checkEnforcement(t, c, map[string]string{"liqo": "restricted", "liqo-fabric": "privileged", "liqo-tenant-" + peer: "restricted"})
			for _, p := range []struct {
				namespace, program string
				pods               int
				capabilities       string
			}{
				{"liqo", "controller", 2, noCapability},
				{"liqo-tenant-" + peer, "gateway", 1, noCapability},
				{"liqo-fabric", "fabric", len(c.Nodes), netAdmin},
			} {
				checkProcesses(t, c, p.namespace, p.program, p.pods, p.capabilities)
			}
		})
	}
}

// checkEnforcement compares the namespaces that have pods of ours with those that
// should have them, and what the API server enforces there.
func checkEnforcement(t *testing.T, c *kubelab.Cluster, want map[string]string) {
	t.Helper()
	var pods corev1.PodList
	if err := c.Client().List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Labels["k8s-app"] == "kube-dns" {
			continue // the lab's CoreDNS
		}
		if p.Namespace != appNamespace && want[p.Namespace] == "" {
			t.Errorf("%s has a pod in another namespace than it should: %s/%s", c.Name, p.Namespace, p.Name)
		}
		for _, container := range p.Spec.Containers {
			if s := container.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
				t.Errorf("%s: container %s of pod %s/%s is privileged", c.Name, container.Name, p.Namespace, p.Name)
			}
		}
	}
	for name, level := range want {
		var n corev1.Namespace
		if err := c.Client().Get(t.Context(), client.ObjectKey{Name: name}, &n); err != nil {
			t.Fatal(err)
		}
		if got := n.Labels["pod-security.kubernetes.io/enforce"]; got != level {
			t.Errorf("%s: PodSecurity enforces %q in namespace %s, want %s", c.Name, got, name, level)
		}
	}
}

// checkProcesses reads what the kernel says of the processes of the pods in a
// namespace.
func checkProcesses(t *testing.T, c *kubelab.Cluster, namespace, program string, pods int, capabilities string) {
	t.Helper()
	found, err := c.Pods(t.Context(), namespace, nil)
	if err != nil || len(found) != pods {
		t.Fatalf("%s has %d running pods in %s (%v), want %d", c.Name, len(found), namespace, err, pods)
	}
	for _, p := range found {
		pids, err := p.PIDs()
		if err != nil || len(pids) != 1 {
			t.Fatalf("pod %s has the processes %v (%v), want one", p.Name, pids, err)
		}
		s, err := processStatus(pids[0])
		if err != nil {
			t.Fatal(err)
		}
		if s["Name"] != program || s["CapEff"] != capabilities || s["CapPrm"] != capabilities || s["CapBnd"] != capabilities ||
			s["NoNewPrivs"] != "1" || s["Seccomp"] != "2" {
			t.Errorf("%s: pod %s runs %s with CapEff %s, CapPrm %s, CapBnd %s, NoNewPrivs %s, Seccomp %s; want %s with capabilities %s, 1 and 2", c.Name, p.Name,
				s["Name"], s["CapEff"], s["CapPrm"], s["CapBnd"], s["NoNewPrivs"], s["Seccomp"], program, capabilities)
		}
		if root := strings.HasPrefix(s["Uid"], "0\t"); root != (capabilities != noCapability) {
			t.Errorf("%s: pod %s runs as user %s", c.Name, p.Name, s["Uid"])
		}
		t.Logf("%s on %s: user %s, CapEff %s, Seccomp %s", program, p.Node.Name, strings.Fields(s["Uid"])[0], s["CapEff"], s["Seccomp"])
	}
}

// processStatus reads /proc/PID/status.
func processStatus(pid int) (map[string]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.TrimSpace(value)
	}
	return fields, nil
}
