package kubernetes

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/kubelab"
)

// templateName is that of the templates which the test makes.
const templateName = "of-ours"

// testTemplates connects with templates of the administrator's own: copies of those
// that are installed, under other names, in which every variable of the document is
// used, and optional fields.
func testTemplates(t *testing.T, w *world) {
	t.Cleanup(func() {
		for c, kind := range map[*kubelab.Cluster]string{w.a: "wggatewayclienttemplates", w.b: "wggatewayservertemplates"} {
			if out, err := c.Kubectl("delete", kind, "-n", appNamespace, templateName, "--ignore-not-found"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	})
	sides := w.pairOfServers(t, 2)
	w.copyTemplate(t, w.b, "wggatewayservertemplate", "wireguard-server", "{{ .Spec.Endpoint.NodePort }}")
	w.copyTemplate(t, w.a, "wggatewayclienttemplate", "wireguard-client", "{{ index .Spec.Endpoint.Addresses 0 }}")
	w.connectAs(t, "--gw-server-template-name", templateName, "--gw-server-template-namespace", appNamespace,
		"--gw-client-template-name", templateName, "--gw-client-template-namespace", appNamespace)
	w.talk(t, sides)
	for _, tt := range []struct {
		c              *kubelab.Cluster
		peer           string
		kind, endpoint string
	}{
		{w.b, w.a.Name, "gatewayserver", nodePort},
		{w.a, w.b.Name, "gatewayclient", w.b.Public.String()},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			namespace := "liqo-tenant-" + tt.peer
			uid := w.kubectl(t, tt.c, "get", tt.kind, "-n", namespace, tt.peer, "-o", "jsonpath={.metadata.uid}")
			want := map[string]string{
				"ours/name": tt.peer, "ours/namespace": namespace, "ours/uid": uid, "ours/cluster": tt.peer,
				"ours/mtu": "1340", "ours/endpoint": tt.endpoint, "ours/given": "always",
			}
			for _, object := range []string{"wg" + tt.kind + "/" + tt.peer, "deployment/gw-" + tt.peer} {
				got := ours(t, w.kubectl(t, tt.c, "get", object, "-n", namespace, "-o", "jsonpath={.metadata.annotations}"))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("annotations of %s (-want +got)\n%s", object, diff)
				}
			}
			if got := w.kubectl(t, tt.c, "get", "pods", "-n", namespace, "-l", "ours=yes", "-o", "name"); strings.Count(got, "pod/") != 1 {
				t.Errorf("pods with the label of the template: %q, want one", got)
			}
		})
	}
}

// copyTemplate copies a template to another name and namespace, and adds to it: a
// label for the pods, and annotations from all variables, one of which is left out
// because it renders to nothing.
func (w *world) copyTemplate(t *testing.T, c *kubelab.Cluster, kind, name, endpoint string) {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(w.kubectl(t, c, "get", kind, "-n", "liqo", name, "-o", "json")), &object); err != nil {
		t.Fatal(err)
	}
	object["metadata"] = map[string]any{"name": templateName, "namespace": appNamespace}
	annotations := map[string]any{
		"ours/name": "{{ .Name }}", "ours/namespace": "{{ .Namespace }}", "ours/uid": "{{ .GatewayUID }}", "ours/cluster": "{{ .ClusterID }}",
		"ours/mtu": "{{ .Spec.MTU }}", "ours/endpoint": endpoint,
		"?ours/given": "{{ if .Name }}always{{ end }}", "?ours/secret": "{{ .SecretName }}",
	}
	template := field(object, "spec", "template")
	maps.Copy(field(template, "metadata", "annotations"), annotations)
	deployment := field(template, "spec", "deployment")
	maps.Copy(field(deployment, "metadata", "annotations"), annotations)
	maps.Copy(field(deployment, "spec", "template", "metadata", "labels"), map[string]any{"ours": "yes"})
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.KubectlInput(string(text), "apply", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// field returns the object at a path, and makes what is missing of it.
func field(of map[string]any, path ...string) map[string]any {
	for _, key := range path {
		inner, ok := of[key].(map[string]any)
		if !ok {
			inner = make(map[string]any)
			of[key] = inner
		}
		of = inner
	}
	return of
}

// ours are the annotations that the template has added.
func ours(t *testing.T, text string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	maps.DeleteFunc(all, func(key, _ string) bool { return !strings.HasPrefix(key, "ours/") })
	return all
}
