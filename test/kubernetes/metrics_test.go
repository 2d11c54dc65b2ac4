package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/source"
)

// monitoring is the namespace from which the chart allows scrapes by default, and
// prometheusPort the port that the documents forward.
const (
	monitoring     = "monitoring"
	prometheusPort = 9090
)

// testMetrics has a real Prometheus, in the place of a pod, scrape a cluster as the
// documents configure it, evaluate the alerts, and give the page its past.
func testMetrics(t *testing.T, w *world) {
	program, err := source.Prometheus()
	if err != nil {
		t.Fatal(err)
	}
	w.connect(t)
	w.install(t, "--set", "metrics.enabled=true")
	pod := w.deploymentIn(t, w.a, monitoring, "prometheus", 1)[0]
	t.Cleanup(func() { w.kubectl(t, w.a, "delete", "namespace", monitoring, "--wait=false") })
	dir := t.TempDir()
	alerts, err := filepath.Abs("../../deploy/chart/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const discovery = "kubernetes_sd_configs: [{role: pod}]"
	example, err := os.ReadFile("../../docs/examples/prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documented := string(example)
	if !strings.Contains(documented, discovery) {
		t.Fatalf("pods are discovered otherwise:\n%s", documented)
	}
	targets := filepath.Join(dir, "targets.json")
	if err := os.WriteFile(targets, discovered(t, w.a), 0o600); err != nil {
		t.Fatal(err)
	}
	config := strings.NewReplacer("[alerts.yaml]", "["+alerts+"]", discovery, "file_sd_configs: [{files: ["+targets+"]}]").Replace(documented)
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte("global: {scrape_interval: 2s, evaluation_interval: 2s}\n"+config), 0o600); err != nil {
		t.Fatal(err)
	}
	keepRunning(t, pod, program, "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", fmt.Sprintf("127.0.0.1:%d", prometheusPort))
	lab.Eventually(t, patience, "Prometheus listens", func() error {
		conn, err := pod.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", prometheusPort))
		if err == nil {
			conn.Close()
		}
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	forwards := w.follows(ctx, "Forwarding from", "", "-n", monitoring, "port-forward", "pod/"+pod.Name, fmt.Sprint(prometheusPort))
	defer func() {
		cancel()
		<-forwards.done
	}()
	forwards.wait(t)

	ask := func(into any, path string) error { return w.askPrometheus(t.Context(), into, path) }
	lab.Eventually(t, patience, "Prometheus scrapes every program of the cluster", func() error {
		var answer struct {
			Data struct {
				ActiveTargets []struct {
					Labels            map[string]string
					Health, LastError string
				}
			}
		}
		if err := ask(&answer, "targets?state=active"); err != nil {
			return err
		}
		jobs := make(map[string]int)
		for _, target := range answer.Data.ActiveTargets {
			if target.Health != "up" || target.Labels["namespace"] == "" || target.Labels["pod"] == "" || target.Labels["instance"] == "" {
				return fmt.Errorf("%v is %s: %s", target.Labels, target.Health, target.LastError)
			}
			jobs[target.Labels["job"]]++
		}
		if diff := cmp.Diff(map[string]int{"gateway": 1, "liqo-controller": 2, "liqo-fabric": len(w.a.Nodes)}, jobs); diff != "" {
			return fmt.Errorf("targets by job (-want +got):\n%s", diff)
		}
		return nil
	})
	lab.Eventually(t, patience, "Prometheus evaluates every alert, and none is on", func() error {
		var answer struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, State, Health, LastError string }
				}
			}
		}
		if err := ask(&answer, "rules"); err != nil {
			return err
		}
		n := 0
		for _, group := range answer.Data.Groups {
			for _, rule := range group.Rules {
				if n++; rule.Health != "ok" || rule.State != "inactive" {
					return fmt.Errorf("%s is %s, %s: %s", rule.Name, rule.State, rule.Health, rule.LastError)
				}
			}
		}
		if n < 15 {
			return fmt.Errorf("%d alerts", n)
		}
		return nil
	})

	c := &console{world: w, client: w.clients(t, w.a, 1)[0], server: w.servers(t, w.b, 1)[0]}
	c.to = w.remote(t, w.a, c.server.Addr)
	c.open(t, "--prometheus", fmt.Sprintf("%s=http://localhost:%d", w.a.Name, prometheusPort))
	c.view("plots")
	c.Until(`/\d/.test(document.querySelector("canvas").getAttribute("aria-label"))`)
	lab.Eventually(t, patience, "the page shows the past", func() error {
		if _, err := bulk(t.Context(), path{from: c.client, to: c.server, at: c.to}, time.Second); err != nil {
			return err
		}
		c.Must(`(() => { performance.clearResourceTimings(); const far = document.querySelector("main label select"); far.value = far.value === "6" ? "24" : "6"; far.dispatchEvent(new Event("change")); })()`, nil)
		c.Until(`performance.getEntriesByType("resource").some((e) => e.name.includes("/api/past?") && e.responseEnd > 0)`)
		c.Must(`(() => { window.drawn = 0; const frame = () => { if (++window.drawn < 5) requestAnimationFrame(frame); }; requestAnimationFrame(frame); })()`, nil)
		c.Until(`window.drawn === 5`) // what came is drawn
		var shown struct {
			Trouble string
			Plots   []string
		}
		c.Must(`({ Trouble: document.querySelector("main p.down").innerText, Plots: [...document.querySelectorAll("canvas")].map((c) => c.getAttribute("aria-label")) })`, &shown)
		text := strings.Join(shown.Plots, "\n")
		if shown.Trouble != "" {
			return errors.New(shown.Trouble)
		}
		for _, number := range []string{"bit/s", "/s", " ms", "MiB"} {
			if !strings.Contains(text, number) {
				return fmt.Errorf("nothing is in %s:\n%s", number, text)
			}
		}
		t.Logf("the past:\n%s", text)
		return nil
	})
	c.usable(t)
	c.keep(t, "past")
	for _, text := range c.Troubles() {
		t.Errorf("the browser says: %s", text)
	}
}

// discovered is what Prometheus discovers of the pods of a cluster, as file_sd_configs reads
// it: Debian's Prometheus is built without the discovery by the API server.
func discovered(t *testing.T, c *kubelab.Cluster) []byte {
	t.Helper()
	var pods corev1.PodList
	if err := c.Client().List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	var groups []group
	invalid := regexp.MustCompile(`[^a-zA-Z0-9_]`)
	for _, p := range pods.Items {
		labels := map[string]string{"namespace": p.Namespace, "pod_name": p.Name, "pod_node_name": p.Spec.NodeName}
		for name, value := range p.Labels {
			labels["pod_label_"+invalid.ReplaceAllString(name, "_")] = value
		}
		for _, container := range p.Spec.Containers {
			for _, port := range container.Ports {
				g := group{[]string{fmt.Sprintf("%s:%d", p.Status.PodIP, port.ContainerPort)}, map[string]string{"__meta_kubernetes_pod_container_port_name": port.Name}}
				for name, value := range labels {
					g.Labels["__meta_kubernetes_"+name] = value
				}
				groups = append(groups, g)
			}
		}
	}
	out, err := json.Marshal(groups)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// askPrometheus asks the API of Prometheus, through the forwarded port.
func (w *world) askPrometheus(ctx context.Context, into any, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/api/v1/%s", prometheusPort, path), nil)
	if err != nil {
		return err
	}
	answer, err := w.httpClient().Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return json.NewDecoder(answer.Body).Decode(into)
}
