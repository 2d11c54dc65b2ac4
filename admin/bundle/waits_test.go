package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

const (
	// away is how long the stand-in takes for each answer, of the clock of the test.
	away = time.Second
	// tenants is how many namespaces of peers it has, each with so many pods.
	tenants, podsEach = 4, 6
	// inSequence is how many answers come one by one: who the cluster is, which kinds
	// it serves, which namespaces are of peers.
	inSequence = 10
)

// TestRequestsDoNotWaitForEachOther: a bundle of a far cluster takes as long as the
// answers that depend on each other, and not as long as all of them. The clock is that of
// synctest, which goes on when everybody waits, so it measures no machine.
func TestRequestsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far [2]standIn
		var clusters []*access.Cluster
		for i, name := range []string{access.Local, access.Remote} {
			c, err := access.New(far[i].config(), access.Options{Name: name, Origin: "test"})
			if err != nil {
				t.Fatal(err)
			}
			clusters = append(clusters, c)
		}
		began := time.Now()
		judged := func(ctx context.Context) (any, error) {
			time.Sleep(10 * away)
			return "judged", ctx.Err()
		}
		var out bytes.Buffer
		if _, err := Write(t.Context(), &out, Options{Findings: judged}, nil, clusters...); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		files := unpack(t, out.Bytes())
		for i := range far {
			s := &far[i]
			if want := time.Duration(s.asked/atOnce+inSequence) * away; took > want {
				t.Errorf("%d requests took %v, want %v at most:\n%s", s.asked, took, want, strings.Join(s.lines, "\n"))
			}
			if s.logs != tenants*podsEach || s.asked < 150 {
				t.Errorf("%d requests, of which %d for logs, want %d", s.asked, s.logs, tenants*podsEach)
			}
			// The NetworkPolicies of an installation stop these without a word.
			if slices.ContainsFunc(s.lines, func(line string) bool { return strings.Contains(line, "/proxy") }) {
				t.Errorf("pods are asked through the API server's proxy:\n%s", strings.Join(s.lines, "\n"))
			}
			t.Logf("cluster %d: %d requests, %v", i, s.asked, took)
		}
		if files["doctor.json"] == "" || files["local/logs/tenant-0/pod-0/gateway.log"] == "" {
			t.Errorf("packed are %v", sortedFiles(files))
		}
	})
}

// standIn answers as an API server that is far away.
type standIn struct {
	mu    sync.Mutex
	asked int
	logs  int
	lines []string
}

// config reaches it without a network, so that waiting for it is waiting for the clock.
func (s *standIn) config() *rest.Config {
	return &rest.Config{Host: "http://far.example", QPS: -1, WrapTransport: func(http.RoundTripper) http.RoundTripper { return s }}
}

// RoundTrip answers a request.
func (s *standIn) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.asked++
	s.lines = append(s.lines, fmt.Sprintf("%s %s %s", time.Now().Format("05"), r.Method, r.URL.Path))
	if strings.HasSuffix(r.URL.Path, "/log") {
		s.logs++
	}
	s.mu.Unlock()
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(away):
	}
	if strings.HasSuffix(r.URL.Path, "/exec") {
		return nil, errors.New("nothing runs here")
	}
	status, contentType, body := s.answer(r.URL.Path)
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// served are the kinds of Kubernetes that it has, beside ours.
var served = map[schema.GroupVersion][]string{
	{Version: "v1"}:                                     {"Namespace", "Node", "Pod", "Service", "ServiceAccount", "ConfigMap", "Event", "ResourceQuota", "LimitRange"},
	{Group: "apps", Version: "v1"}:                      {"Deployment", "DaemonSet"},
	{Group: "discovery.k8s.io", Version: "v1"}:          {"EndpointSlice"},
	{Group: "coordination.k8s.io", Version: "v1"}:       {"Lease"},
	{Group: "rbac.authorization.k8s.io", Version: "v1"}: {"Role", "RoleBinding", "ClusterRoleBinding"},
	{Group: "networking.k8s.io", Version: "v1"}:         {"NetworkPolicy"},
	{Group: "apiextensions.k8s.io", Version: "v1"}:      {"CustomResourceDefinition"},
}

// allServed adds ours.
func allServed() map[schema.GroupVersion][]string {
	all := make(map[schema.GroupVersion][]string)
	for gv, of := range served {
		all[gv] = of
	}
	for kind := range kinds.Scheme().AllKnownTypes() {
		if gv := kind.GroupVersion(); strings.HasSuffix(gv.Group, ".liqo.io") {
			if one, ok := strings.CutSuffix(kind.Kind, "List"); ok {
				all[gv] = append(all[gv], one)
			}
		}
	}
	return all
}

type object = map[string]any

func (s *standIn) answer(path string) (status int, contentType, body string) {
	contentType = "application/json"
	encode := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	words := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case path == "/version":
		return http.StatusOK, contentType, `{"gitVersion":"v1.0.0"}`
	case path == "/api" || path == "/apis":
		return http.StatusOK, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", encode(discovery(path == "/api"))
	case words[len(words)-1] == "log":
		return http.StatusOK, "text/plain", "hello\n"
	}
	gv := schema.GroupVersion{Version: words[1]}
	words = words[2:]
	if strings.HasPrefix(path, "/apis/") {
		gv = schema.GroupVersion{Group: gv.Version, Version: words[0]}
		words = words[1:]
	}
	namespace := ""
	if len(words) > 2 && words[0] == "namespaces" {
		namespace, words = words[1], words[2:]
	}
	for _, kind := range allServed()[gv] {
		if plural(kind) == words[0] && len(words) == 1 {
			return http.StatusOK, contentType, encode(object{"apiVersion": gv.String(), "kind": kind + "List", "metadata": object{}, "items": items(kind, namespace)})
		}
	}
	return http.StatusNotFound, contentType, encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
	})
}

// items are the namespaces of peers, and the pods in each.
func items(kind, namespace string) (all []object) {
	all = []object{}
	switch {
	case kind == "Namespace":
		for i := range tenants {
			all = append(all, object{"metadata": object{"name": fmt.Sprintf("tenant-%d", i)}})
		}
	case kind == "Pod" && strings.HasPrefix(namespace, "tenant-"):
		for i := range podsEach {
			all = append(all, object{
				"metadata": object{"name": fmt.Sprintf("pod-%d", i), "namespace": namespace},
				"spec":     object{"containers": []object{{"name": "gateway", "ports": []object{{"name": "metrics", "containerPort": 8082}}}}},
			})
		}
	}
	return all
}

func plural(kind string) string { return strings.ToLower(kind) + "s" }

// discovery is what an API server says of the kinds that it serves, in one answer.
func discovery(legacy bool) object {
	groups := make(map[string][]object)
	for gv, all := range allServed() {
		if (gv.Group == "") != legacy {
			continue
		}
		resources := []object{}
		for _, kind := range all {
			scope := "Namespaced"
			if kind == "Node" || kind == "Namespace" || strings.HasPrefix(kind, "Cluster") || kind == "CustomResourceDefinition" {
				scope = "Cluster"
			}
			resources = append(resources, object{
				"resource": plural(kind), "singularResource": strings.ToLower(kind), "scope": scope, "verbs": []string{"get", "list"},
				"responseKind": object{"group": gv.Group, "version": gv.Version, "kind": kind},
			})
		}
		groups[gv.Group] = append(groups[gv.Group], object{"version": gv.Version, "resources": resources, "freshness": "Current"})
	}
	list := []object{}
	for name, versions := range groups {
		list = append(list, object{"metadata": object{"name": name}, "versions": versions})
	}
	return object{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": object{}, "items": list}
}
