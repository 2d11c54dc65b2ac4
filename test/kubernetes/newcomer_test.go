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

	"github.com/google/go-cmp/cmp"
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
	t.Run("install", n.install)
	t.Run("connect", n.connect)
	t.Run("look", n.inspect)
	t.Run("pods talk", n.pods)
	t.Run("resources", n.resources)
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
	n.admin.set("PATH", filepath.Join(n.clone, "bin")+":"+n.bin+":"+os.Getenv("PATH")) // as the README has just done
	for _, c := range n.Clusters {
		if image := n.kubectl(t, c, "get", "deployment", "-n", liqoNamespace, "liqo-controller", "-o", "jsonpath={.spec.template.spec.containers[0].image}"); strings.HasSuffix(image, ":"+tag) {
			t.Errorf("%s runs %s, which is not of the clone", c.Name, image)
		}
	}
}

// install runs the quick start's commands to install, which find what the README's have
// installed: with the images of the build, with images that are named, and as a trial.
func (n *newcomer) install(t *testing.T) {
	installed := func() (all string) {
		for _, c := range n.Clusters {
			all += n.kubectl(t, c, "get", "deployments,daemonsets", "-A", "-l", "app.kubernetes.io/part-of=liqo", "-o",
				`jsonpath={range .items[*]}{.metadata.name} {.metadata.generation} {.spec.template.spec.containers[0].image}{"\n"}{end}`)
		}
		return all
	}
	before := installed()
	image := n.kubectl(t, n.a, "get", "deployment", "-n", liqoNamespace, "liqo-controller", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	registry, tag, found := strings.Cut(image, "/controller:")
	values := section(t, "quick-start.md", "## 2. Install", "yaml")[0]
	named := regexp.MustCompile(`(?m)^(registry|tag|imagePullSecrets): .*`).ReplaceAllStringFunc(values, func(line string) string {
		name, _, _ := strings.Cut(line, ":")
		return map[string]string{"registry": "registry: " + registry, "tag": "tag: " + tag}[name] // no credentials
	})
	if !found || named == values || !strings.Contains(before, image) {
		t.Fatalf("%s runs in\n%s, and the values are\n%s", image, before, values)
	}
	if err := os.WriteFile(filepath.Join(n.clone, "images.yaml"), []byte(named), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, commands := range section(t, "quick-start.md", "## 2. Install", "sh") {
		n.admin.ok(t, commands)
	}
	if out := n.admin.ok(t, "liqoctl install --cluster-id rome --dry-run"); !strings.Contains(out, "kind: Deployment") {
		t.Errorf("--dry-run prints\n%s", out)
	}
	if diff := cmp.Diff(before, installed()); diff != "" {
		t.Errorf("they change what is installed (-before +after)\n%s", diff)
	}
}

// connect runs the quick start's commands to connect by a node port. There is no load
// balancer here.
func (n *newcomer) connect(t *testing.T) {
	commands := section(t, "quick-start.md", "## 3. Connect", "sh")
	if len(commands) != 4 || !strings.Contains(commands[1], "NodePort") || !strings.Contains(commands[2], "203.0.113.7") {
		t.Fatalf("the quick start connects by %q", commands)
	}
	n.admin.ok(t, commands[1])
	n.admin.ok(t, strings.ReplaceAll(commands[2], "203.0.113.7", n.b.Nodes[0].Addr.String()))
}

// resources peers the clusters, and ends that.
func (n *newcomer) resources(t *testing.T) {
	n.admin.ok(t, section(t, "quick-start.md", "## 6. Use the other cluster's resources", "sh")[0])
	lab.Eventually(t, patience, "the virtual node is ready", func() error {
		out, err := n.a.Kubectl("get", "node", n.b.Name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.capacity.cpu} {.status.capacity.memory}`)
		if err == nil && out != "True 4 8Gi" {
			err = fmt.Errorf("it is %q", out)
		}
		return err
	})
}

// inspect runs the commands of the quick start that only look.
func (n *newcomer) inspect(t *testing.T) {
	n.admin.ok(t, section(t, "quick-start.md", "## 4. Check", "sh")[0])
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
