package kubernetes

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/deploy/images"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/source"
)

// testInstallAgain repeats the installation with the words of the README. It changes
// nothing: what runs is what was installed with more to say, and no image is another one.
func testInstallAgain(t *testing.T, w *world) {
	readme, err := os.ReadFile(source.Path("README.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^liqoctl install .*$`).FindAllString(string(readme), -1)
	if len(commands) != 2 {
		t.Fatalf("the README installs by %q", commands)
	}
	admin := w.newShell(w.a, t.TempDir())
	w.kubeconfigs(t, admin.dir)
	installed := func() string {
		var all strings.Builder
		for _, c := range []*kubelab.Cluster{w.a, w.b} {
			all.WriteString(w.kubectl(t, c, "get", "deployments,daemonsets,configmaps,wggatewayservertemplates,wggatewayclienttemplates,secrets", "-A",
				"-o", `jsonpath={range .items[?(@.metadata.namespace!="kube-system")]}{.kind}/{.metadata.name} {.metadata.generation} {.data.version}{"\n"}{end}`))
		}
		return all.String()
	}
	before := installed()
	if !strings.Contains(before, "Deployment/liqo-controller 1") || !strings.Contains(before, "Secret/sh.helm.release.v1.sluice.v1") {
		t.Fatalf("installed:\n%s", before)
	}
	for _, command := range commands {
		admin.ok(t, command)
	}
	if diff := cmp.Diff(before, installed()); diff != "" {
		t.Errorf("it changed something (-before +after)\n%s", diff)
	}
}

// kubeconfigs puts those of both clusters where the documents have them.
func (w *world) kubeconfigs(t *testing.T, dir string) {
	t.Helper()
	for _, c := range []*kubelab.Cluster{w.a, w.b} {
		text, err := os.ReadFile(c.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, c.Name+".yaml"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// testDocuments runs what the documents of this repository tell an administrator
// to do, where other tests do not do the same anyway.
func testDocuments(t *testing.T, w *world) {
	w.apart(t)
	sides := w.pairOfServers(t, 2)
	admin := w.newShell(w.a, t.TempDir())
	w.kubeconfigs(t, admin.dir)
	t.Run("one cluster at a time", func(t *testing.T) {
		t.Cleanup(func() { removePeering(t, w, "liqo-tenant-"+w.a.Name, "liqo-tenant-"+w.b.Name) })
		commands := section(t, "quick-start.md", "## One cluster at a time", "sh")[0]
		admin.ok(t, strings.ReplaceAll(commands, "203.0.113.7", w.b.Public.String()))
		w.connected(t)
		w.talk(t, sides)
	})
	t.Run("look", func(t *testing.T) {
		w.connect(t)
		for _, from := range []struct{ document, section string }{
			{"quick-start.md", "## 4. Check"},
			{"troubleshooting.md", "# Troubleshooting"},
			{"troubleshooting.md", "## Read the status"},
			{"troubleshooting.md", "## Report a problem"},
		} {
			for _, commands := range section(t, from.document, from.section, "sh") {
				for line := range strings.Lines(commands) {
					if strings.Contains(line, " -w") || strings.Contains(line, "test network") {
						continue // it goes on until somebody ends it; it has a test of its own
					}
					admin.ok(t, line)
				}
			}
		}
		admin.ok(t, "kubectl -n liqo-tenant-"+w.b.Name+" exec deployment/gw-"+w.b.Name+" -- gateway status")
		wire := regexp.MustCompile(`(?m)^liqoctl network capture .* --point wire .*$`).FindString(section(t, "troubleshooting.md", "## Record packets", "sh")[0])
		admin.ok(t, wire)
		if st, err := os.Stat(filepath.Join(admin.dir, "wire.pcapng")); err != nil || st.Size() == 0 {
			t.Errorf("the capture is empty: %v", err)
		}
	})
	t.Run("templates for Liqo", func(t *testing.T) {
		server := section(t, "liqo.md", "## The gateway as a template", "yaml")[0]
		server = regexp.MustCompile(`image: \S+`).ReplaceAllString(server, "image: "+images.DefaultRegistry+"/gateway:"+tag+"\n                imagePullPolicy: Never")
		for name, text := range map[string]string{"server.yaml": server, "client.yaml": clientTemplate(t, server)} {
			if err := os.WriteFile(filepath.Join(admin.dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []*kubelab.Cluster{w.a, w.b} {
			admin.ok(t, "kubectl --kubeconfig "+c.Name+".yaml apply -f server.yaml -f client.yaml")
			t.Cleanup(func() {
				_, err := c.Kubectl("-n", "liqo", "delete", "wggatewayservertemplates/sluice-server", "wggatewayclienttemplates/sluice-client")
				if err != nil {
					t.Error(err)
				}
			})
		}
		w.connectAs(t, "--gw-server-template-name", "sluice-server", "--gw-client-template-name", "sluice-client")
		w.talk(t, sides)
	})
}

// clientTemplate makes of the server's template the client's, as the document says.
func clientTemplate(t *testing.T, server string) string {
	t.Helper()
	text := strings.NewReplacer("WgGatewayServer", "WgGatewayClient", "sluice-server", "sluice-client", "--mode=server", "--mode=client").Replace(server)
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	delete(o["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any), "service")
	out, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// section returns the blocks of a language that follow a heading in a document, up
// to the next heading.
func section(t *testing.T, document, heading, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", document))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut("\n"+string(text), "\n"+heading+"\n")
	body, _, _ := strings.Cut(after, "\n## ")
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(body, -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no block of %s below %q", document, language, heading)
	}
	return blocks
}
