package virtualkubelet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// podMetricsKind stands for a metrics-server of the provider, which serves this kind.
const podMetricsKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pods.metrics.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, of a test"}
spec:
  group: metrics.k8s.io
  names: {kind: PodMetrics, listKind: PodMetricsList, plural: pods, singular: pod}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// podMetricsObjects are what it says: of the offloaded pod, with a container that it does not have, and of another pod.
const podMetricsObjects = `
{apiVersion: metrics.k8s.io/v1beta1, kind: PodMetrics, metadata: {namespace: shop-rome, name: web}, window: 15s,
 containers: [{name: web, usage: {cpu: 250m, memory: 64Mi}}, {name: other, usage: {cpu: "1", memory: 1Gi}}]}
---
{apiVersion: metrics.k8s.io/v1beta1, kind: PodMetrics, metadata: {namespace: shop-rome, name: stranger}, window: 15s,
 containers: [{name: web, usage: {cpu: "1", memory: 1Gi}}]}
`

// reader makes a service account of rome that may get a subresource of nodes, and returns its token.
func (s *scene) reader(name, subresource string) string {
	s.t.Helper()
	s.rome.Create(s.t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: name}})
	s.rome.Create(s.t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{subresource}, Verbs: []string{"get"}}},
	})
	s.rome.Create(s.t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "own", Name: name}},
	})
	return s.rome.ServiceAccount("own", name).BearerToken
}

// series are the samples of Prometheus' text format, by name and labels.
func series(t *testing.T, text string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		of, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out[of] = v
	}
	return out
}

func TestUsage(t *testing.T) {
	s := newScene(t)
	s.milan.Apply(podMetricsKind)
	kind := &apiextensionsv1.CustomResourceDefinition{}
	controlplanetest.Eventually(t, "the provider serves metrics", func(ctx context.Context) error {
		if _, err := s.milan.KubectlInput(podMetricsObjects, "apply", "-f", "-"); err != nil {
			return err
		}
		return s.milan.Get(ctx, "", "pods.metrics.k8s.io", kind)
	})
	p := s.bind("shop", "web")
	s.play(s.shadow(p), "10.243.0.7")
	s.pod(p, "runs", runs)
	reader, other := s.reader("metrics-server", "nodes/metrics"), s.reader("other", "nodes/proxy")

	// Who is answered.
	const path, streams = "/metrics/resource", "/containerLogs/shop/web/web"
	for _, c := range []struct {
		what, path, token string
		want              int
	}{
		{"without anything", path, "", http.StatusUnauthorized},
		{"a token that is none", path, "x", http.StatusUnauthorized},
		{"the token of an account that may not", path, other, http.StatusForbidden},
		{"one that may, about something else", "/stats/summary", reader, http.StatusForbidden},
		{"a token for streams, which are the API server's", streams, other, http.StatusUnauthorized},
		{"one that may", path, reader, http.StatusOK},
	} {
		controlplanetest.Eventually(t, c.what, func(context.Context) error { // rights take a moment
			code, body, err := s.request(c.path, c.token)
			if err != nil || code != c.want {
				return fmt.Errorf("%d %s %w, want %d", code, body, err, c.want)
			}
			return nil
		})
	}

	// What a metrics-server reads.
	const (
		labels = `{container="web",namespace="shop",pod="web"}`
		cpu    = "container_cpu_usage_seconds_total" + labels
	)
	read := func() map[string]float64 {
		code, body, err := s.request(path, reader)
		if err != nil || code != http.StatusOK {
			t.Fatalf("%d %s %v", code, body, err)
		}
		return series(t, body)
	}
	began := time.Now()
	first := read()
	between := time.Now()
	for _, name := range []string{"container_memory_working_set_bytes" + labels, "node_memory_working_set_bytes"} {
		if got := first[name]; got != 64<<20 {
			t.Errorf("%s is %v", name, got)
		}
	}
	for _, name := range []string{"container_start_time_seconds" + labels, `pod_cpu_usage_seconds_total{namespace="shop",pod="web"}`, "node_cpu_usage_seconds_total"} {
		if first[name] <= 0 {
			t.Errorf("%s is %v", name, first[name])
		}
	}
	if got := first["resource_scrape_error"]; got != 0 {
		t.Errorf("resource_scrape_error is %v", got)
	}
	for of := range first {
		if strings.Contains(of, "other") || strings.Contains(of, "stranger") {
			t.Errorf("%s is of something that is not on the node", of)
		}
	}
	later := time.Now()
	second := read()
	ended := time.Now()
	const cores, rounding = 0.25, 1e-6
	for _, name := range []string{cpu, "node_cpu_usage_seconds_total"} {
		used := second[name] - first[name]
		if least, most := cores*later.Sub(between).Seconds()-rounding, cores*ended.Sub(began).Seconds()+rounding; used < least || used > most {
			t.Errorf("%s grew by %v, want %v to %v", name, used, least, most)
		}
	}

	// The summary, which the API server's proxy of the node asks for.
	s.trust()
	s.allow()
	own, err := s.rome.KubeletClient()
	if err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "there is a summary", func(context.Context) error {
		code, out, err := s.ask("/stats/summary", own)
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("%d %s %w", code, out, err)
		}
		var summary struct {
			Node struct{ NodeName string }
			Pods []struct {
				PodRef     struct{ Name, Namespace, UID string }
				Containers []struct {
					Name string
					CPU  struct{ UsageNanoCores int }
				}
			}
		}
		if err := json.Unmarshal([]byte(out), &summary); err != nil {
			return err
		}
		if summary.Node.NodeName != "milan" || len(summary.Pods) != 1 || summary.Pods[0].PodRef.UID != string(p.UID) ||
			len(summary.Pods[0].Containers) != 1 || summary.Pods[0].Containers[0].CPU.UsageNanoCores != 250e6 {
			return errors.New(out)
		}
		return nil
	})

	// Without a metrics-server at the provider there is nothing to tell, and that is told.
	s.milan.Delete(t, kind)
	controlplanetest.Eventually(t, "the answer says that something is missing", func(context.Context) error {
		if now := read(); now["resource_scrape_error"] != 1 || now[cpu] != 0 {
			return fmt.Errorf("%v", now)
		}
		return nil
	})
}
