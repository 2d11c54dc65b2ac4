package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/deploy/images"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

const (
	// appNamespace has the pods that use the connection.
	appNamespace = "app"
	webImage     = images.DefaultRegistry + "/web:" + tag
	webPort      = 8080
)

// deploymentText is a Deployment of servers, or of clients, which are the same
// program. They are spread over the nodes that live.
var deploymentText = template.Must(template.New("deployment").Parse(`
apiVersion: v1
kind: Namespace
metadata:
  name: {{.Namespace}}
  labels: {pod-security.kubernetes.io/enforce: restricted}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{.Name}}, namespace: {{.Namespace}}}
spec:
  replicas: {{.Replicas}}
  selector: {matchLabels: {app: {{.Name}}}}
  template:
    metadata: {labels: {app: {{.Name}}}}
    spec:
      terminationGracePeriodSeconds: 1
      automountServiceAccountToken: {{.Token}}
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, labelSelector: {matchLabels: {app: {{.Name}}}}}
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: web
        image: {{.Image}}
        imagePullPolicy: Never
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        ports: [{containerPort: {{.Port}}}]
        readinessProbe: {httpGet: {path: /, port: {{.Port}}}, periodSeconds: 1}
`))

// servers has so many pods that answer HTTP run in a cluster, spread over its
// nodes, and returns them. They belong to the Deployment web, which stays for the
// tests to come.
func (w *world) servers(t *testing.T, c *kubelab.Cluster, replicas int) []*kubelab.Pod {
	t.Helper()
	return w.deployment(t, c, "web", replicas)
}

// clients is the same for pods that nobody asks anything.
func (w *world) clients(t *testing.T, c *kubelab.Cluster, replicas int) []*kubelab.Pod {
	t.Helper()
	return w.deployment(t, c, "client", replicas)
}

// deployment applies a Deployment and waits until exactly its pods run.
func (w *world) deployment(t *testing.T, c *kubelab.Cluster, name string, replicas int) []*kubelab.Pod {
	t.Helper()
	return w.deploymentIn(t, c, appNamespace, name, replicas)
}

// deploymentIn is deployment in another namespace, which it makes.
func (w *world) deploymentIn(t *testing.T, c *kubelab.Cluster, namespace, name string, replicas int) []*kubelab.Pod {
	t.Helper()
	applyDeployment(t, c, namespace, name, replicas, false)
	var pods []*kubelab.Pod
	lab.Eventually(t, patience, fmt.Sprintf("%d pods of %s run in %s", replicas, name, c.Name), func() (err error) {
		if pods, err = runningPods(t.Context(), c, namespace, map[string]string{"app": name}, replicas); err != nil {
			return err
		}
		return spread(c, pods)
	})
	return pods
}

// applyDeployment applies a Deployment, whose pods may have the token of their service account.
func applyDeployment(t *testing.T, c *kubelab.Cluster, namespace, name string, replicas int, token bool) {
	t.Helper()
	var text strings.Builder
	if err := deploymentText.Execute(&text, map[string]any{
		"Namespace": namespace, "Name": name, "Replicas": replicas, "Token": token, "Image": webImage, "Port": webPort,
	}); err != nil {
		t.Fatal(err)
	}
	manifest{c, "", text.String()}.apply(t)
}

// spread tells whether the pods are spread over the nodes of a cluster, and deletes
// one where they are not, which comes back elsewhere: to scale a Deployment down, and
// to lose a node, leave the pods where they are.
func spread(c *kubelab.Cluster, pods []*kubelab.Pod) error {
	on := make(map[string][]*kubelab.Pod)
	for _, p := range pods {
		on[p.Node.Name] = append(on[p.Node.Name], p)
	}
	full, empty := c.Nodes[0].Name, c.Nodes[0].Name
	for _, n := range c.Nodes {
		if len(on[n.Name]) > len(on[full]) {
			full = n.Name
		}
		if len(on[n.Name]) < len(on[empty]) {
			empty = n.Name
		}
	}
	if len(on[full])-len(on[empty]) <= 1 {
		return nil
	}
	_, err := c.Kubectl("delete", "pod", "-n", on[full][0].Namespace, on[full][0].Name, "--wait=false")
	return errors.Join(fmt.Errorf("%d pods on %s and %d on %s", len(on[full]), full, len(on[empty]), empty), err)
}

// runningPods returns the pods with these labels when there are so many, all of
// them ready.
func runningPods(ctx context.Context, c *kubelab.Cluster, namespace string, labels map[string]string, n int) ([]*kubelab.Pod, error) {
	all, err := podsWith(ctx, c, namespace, labels)
	if err != nil {
		return nil, err
	}
	return readyPods(ctx, c, all, n)
}

// lastingPods is runningPods without the pods that end.
func lastingPods(ctx context.Context, c *kubelab.Cluster, namespace string, labels map[string]string, n int) ([]*kubelab.Pod, error) {
	all, err := podsWith(ctx, c, namespace, labels)
	if err != nil {
		return nil, err
	}
	return readyPods(ctx, c, slices.DeleteFunc(all, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), n)
}

func podsWith(ctx context.Context, c *kubelab.Cluster, namespace string, labels map[string]string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.Client().List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels(labels))
	return list.Items, err
}

func readyPods(ctx context.Context, c *kubelab.Cluster, all []corev1.Pod, n int) (pods []*kubelab.Pod, err error) {
	if len(all) != n {
		return nil, fmt.Errorf("there are %d pods", len(all))
	}
	for _, p := range all {
		if !ready(&p) {
			return nil, fmt.Errorf("pod %s is %s, and not ready", p.Name, p.Status.Phase)
		}
		pod, err := c.Pod(ctx, p.Namespace, p.Name)
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

func ready(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// answer is what a server says: who it is, and who asked.
type answer struct {
	Pod    string     `json:"pod"`
	Node   string     `json:"node"`
	Client netip.Addr `json:"client"`
}

// get asks the server at an address from a pod.
func get(ctx context.Context, from *kubelab.Pod, to netip.Addr) (answer, error) {
	return getAt(ctx, from, netip.AddrPortFrom(to, webPort))
}

// getAt is get for another port than that of the pods.
func getAt(ctx context.Context, from *kubelab.Pod, at netip.AddrPort) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := http.Client{Transport: &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/", at), nil)
	if err != nil {
		return a, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(body, &a)
}

// reach has every pod of from ask every one of to, once. Each must be answered by
// the pod that it asked, which must see it at the address that it has there.
func (w *world) reach(ctx context.Context, t *testing.T, from, to *side) error {
	t.Helper()
	var errs []error
	for _, f := range from.pods {
		for _, s := range to.pods {
			at, as := w.remoteOf(t, from.Cluster, to.Cluster, s.Addr), w.remoteOf(t, to.Cluster, from.Cluster, f.Addr)
			got, err := get(ctx, f, at)
			if want := (answer{Pod: s.Name, Node: s.Node.Name, Client: as}); err == nil && got != want {
				err = fmt.Errorf("got %+v, want %+v", got, want)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s on %s -> %s (%s) on %s: %w", f.Name, f.Node.Name, s.Name, at, s.Node.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// side is a cluster with pods that talk to others.
type side struct {
	*kubelab.Cluster
	pods []*kubelab.Pod
}

// pairOfServers has servers on every node of both clusters.
func (w *world) pairOfServers(t *testing.T, replicas int) [2]*side {
	t.Helper()
	var sides [2]*side
	for i, c := range []*kubelab.Cluster{w.a, w.b} {
		sides[i] = &side{Cluster: c, pods: w.servers(t, c, replicas)}
	}
	return sides
}

// talk waits until all servers of both sides reach each other.
func (w *world) talk(t *testing.T, s [2]*side) {
	t.Helper()
	start := time.Now()
	lab.Eventually(t, patience, "pods reach each other", func() error {
		return errors.Join(w.reach(t.Context(), t, s[0], s[1]), w.reach(t.Context(), t, s[1], s[0]))
	})
	t.Logf("%d pods of %s and %d of %s reach each other after %v", len(s[0].pods), s[0].Name, len(s[1].pods), s[1].Name, time.Since(start).Round(time.Millisecond))
}
