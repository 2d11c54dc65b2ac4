package kubernetes

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/source"
)

// kubeadmConfig is what kubeadm leaves in a cluster that it has made, and what these
// clusters would say about themselves if it had.
const kubeadmConfig = `
apiVersion: v1
kind: ConfigMap
metadata: {name: kubeadm-config, namespace: kube-system}
data:
  ClusterConfiguration: |
    apiVersion: kubeadm.k8s.io/v1beta4
    kind: ClusterConfiguration
    networking: {podSubnet: %s, serviceSubnet: %s}
`

// TestNewcomer follows the README and the quick start word for word, from a clone without
// tags to the first byte: what is committed, and not what the tree has besides. The
// clusters are two of one company, whose nodes reach each other.
func TestNewcomer(t *testing.T) {
	if !*long {
		t.Skip("SKIPPED: a lab of its own takes minutes: -kubernetes.long")
	}
	w := newWorld(t, kubelab.Options{Clusters: []string{"rome", "milan"}, Nodes: 1, Routed: true})
	defer w.explain(t)
	n := &newcomer{world: w, clone: filepath.Join(t.TempDir(), "sluice")}
	if out, err := exec.CommandContext(t.Context(), "git", "clone", "-q", "--no-tags", source.Path("."), n.clone).CombinedOutput(); err != nil {
		t.Fatalf("clone: %v\n%s", err, out)
	}
	n.admin = w.newShell(w.a, n.clone)
	w.kubeconfigs(t, n.clone)
	for _, c := range w.Clusters {
		manifest{c, "", fmt.Sprintf(kubeadmConfig, kubelab.PodCIDR, kubelab.ServiceCIDR)}.apply(t)
	}
	t.Run("README", n.readme)
	t.Run("look", n.look)
	t.Run("pods talk", n.pods)
	t.Run("clean up", n.cleanUp)
}

// newcomer is somebody who has a clone, and does what the documents say.
type newcomer struct {
	*world
	clone string
	admin *shell
}

// readme runs the README's commands. Its clusters are kind's: the images go into those of
// the test as they go into nodes with containerd.
func (n *newcomer) readme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(n.clone, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n## Connect two clusters\n")
	block := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindStringSubmatch(after)
	if block == nil {
		t.Fatal("the README does not say how to connect clusters")
	}
	commands := regexp.MustCompile(`(?m)^make .*\n`)
	for _, line := range commands.FindAllString(block[1], -1) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
		words := strings.Fields(line)
		cluster, found := strings.CutPrefix(words[len(words)-1], "TO=kind:")
		if !found || n.Cluster(cluster) == nil {
			t.Fatalf("%q names no cluster", line)
		}
		words[len(words)-1] = "TO=containerd"
		for _, node := range n.Cluster(cluster).Nodes {
			if out, err := node.Host.TryContext(t.Context(), append([]string{"make", "-s", "-C", n.clone}, words[1:]...)...); err != nil {
				t.Fatalf("%s on %s: %v\n%s", line, node.Name, err, out)
			}
		}
	}
	n.admin.ok(t, commands.ReplaceAllString(block[1], ""))
	for _, c := range n.Clusters {
		if image := n.kubectl(t, c, "get", "deployment", "-n", liqoNamespace, "liqo-controller", "-o", "jsonpath={.spec.template.spec.containers[0].image}"); strings.HasSuffix(image, ":"+tag) {
			t.Errorf("%s runs %s, which is not of the clone", c.Name, image)
		}
	}
}

// look runs the commands of the quick start that only look.
func (n *newcomer) look(t *testing.T) {
	n.admin.ok(t, section(t, "quick-start.md", "## 4. Look", "sh")[0])
}

// pods has a pod of rome ask one of milan, by its address and by its Service. What answers
// is a program of the tests, since no registry is reached, and nobody resolves names here.
func (n *newcomer) pods(t *testing.T) {
	ours := strings.NewReplacer(" -- /agnhost netexec --http-port=8080", "", "-it", "-i", "curl -s", "web -get", "/hostname", "/")
	image := regexp.MustCompile(`--image=\S+`)
	commands := section(t, "quick-start.md", "## 5. Let pods talk", "sh")
	serve, ask, found := strings.Cut(ours.Replace(image.ReplaceAllString(commands[0], "--image="+webImage)), "\n\n")
	if !found || len(commands) != 2 {
		t.Fatalf("the quick start lets pods talk by %q", commands)
	}
	n.admin.ok(t, serve)
	var pods corev1.PodList
	if err := n.b.Client().List(t.Context(), &pods, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{"app": "web"}); err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods (%v)", len(pods.Items), err)
	}
	web := pods.Items[0]
	const printed = "10.71.2.20"
	answers := func(what, address string) {
		t.Helper()
		// A person is slower than kube-proxy, which refuses connections to a new Service for a moment.
		lab.Eventually(t, patience, "pod "+web.Name+" answers at "+address, func() error {
			got, err := n.admin.run(t.Context(), strings.ReplaceAll(what, printed, address))
			if err == nil && !strings.Contains(got, `"pod":"`+web.Name) {
				err = fmt.Errorf("%s answers", got)
			}
			return err
		})
	}
	answers(ask, n.remote(t, n.a, netip.MustParseAddr(web.Status.PodIP)).String())
	n.admin.ok(t, commands[1])
	_, run, _ := strings.Cut(ask, "\nkubectl ")
	answers("kubectl "+strings.ReplaceAll(run, ":8080", ""), n.kubectl(t, n.a, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"))
}

// cleanUp runs the last commands, which leave nothing of Sluice. Nobody is there to be asked.
func (n *newcomer) cleanUp(t *testing.T) {
	commands := section(t, "quick-start.md", "## 7. Clean up", "sh")[0]
	n.admin.ok(t, regexp.MustCompile(`(?m)^liqoctl .*\.yaml`).ReplaceAllString(commands, "$0 --skip-confirm"))
	for _, c := range n.Clusters {
		if left := n.kubectl(t, c, "get", "crds,namespaces", "-o", "name"); strings.Contains(left, "liqo") {
			t.Errorf("%s still has\n%s", c.Name, left)
		}
	}
}
