package clusters

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// testSupportBundle packs an archive from both clusters.
func testSupportBundle(t *testing.T, p *pair) {
	pe := p.connected(t)
	controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	out := p.liqoctl.ok(t, p.both("support", "bundle", "--output-file", file)...)
	if out != file+"\n" {
		t.Errorf("stdout is %q", out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("file mode %v (%v)", info.Mode(), err)
	}
	files := unpacked(t, file)
	t.Run("no private key", func(t *testing.T) {
		for _, e := range pe.ends() {
			var s corev1.Secret
			if err := e.Get(t.Context(), e.namespace, "gw-"+e.gateway, &s); err != nil {
				t.Fatal(err)
			}
			key := s.Data["privateKey"]
			for name, text := range files {
				for _, form := range []string{string(key), base64.StdEncoding.EncodeToString(key), hex.EncodeToString(key)} {
					if strings.Contains(text, form) {
						t.Errorf("the private key of %s stands in %s", e.id, name)
					}
				}
			}
		}
	})
	t.Run("what is needed", func(t *testing.T) {
		var m struct {
			Clusters []struct{ Folder, ID string }
			Missing  []struct{ Cluster, What, Why string }
		}
		if err := json.Unmarshal([]byte(files["manifest.json"]), &m); err != nil {
			t.Fatal(err)
		}
		if len(m.Clusters) != 2 || m.Clusters[0].ID != "consumer" || m.Clusters[1].ID != "provider" {
			t.Errorf("%+v", m)
		}
		for _, gap := range m.Missing {
			if !strings.HasPrefix(gap.What, "the metrics of pod") { // no network leads from the API server to these pods
				t.Errorf("missing: (%s) %s: %s", gap.Cluster, gap.What, gap.Why)
			}
		}
		for _, e := range pe.ends() {
			folder := map[string]string{"consumer": "local", "provider": "remote"}[e.id]
			pods, err := e.gatewayPods(t.Context())
			if err != nil || len(pods) != 1 {
				t.Fatal(pods, err)
			}
			controller, err := e.controllerPod(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			key := kubectl(t, e.side, "get", "secret", "gw-"+e.gateway, "-n", e.namespace, "-o", "jsonpath={.data.publicKey}")
			for name, want := range map[string]string{
				"README.md":                   e.id,
				"doctor.json":                 `"check"`,
				folder + "/survey.json":       e.peerID,
				folder + "/objects/Node.yaml": "node-1",
				folder + "/objects/Connection.networking.liqo.io.yaml":                "Connected",
				folder + "/objects/Configuration.networking.liqo.io.yaml":             podCIDR,
				folder + "/objects/Secret.yaml":                                       "privateKey",
				folder + "/objects/Deployment.apps.yaml":                              "liqo-controller",
				folder + "/reports/" + e.namespace + "/" + pods[0].Name + ".json":     `"` + key + `"`,
				folder + "/logs/" + e.namespace + "/" + pods[0].Name + "/gateway.log": "level",
				folder + "/logs/liqo/" + controller + "/controller.log":               "level",
			} {
				if !strings.Contains(files[name], want) {
					t.Errorf("%s lacks %q:\n%.500s", name, want, files[name])
				}
			}
		}
		for name := range files {
			if strings.Contains(name, "/pod-1") {
				t.Errorf("%s is of a workload", name)
			}
		}
	})
	t.Run("nothing is overwritten", func(t *testing.T) {
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p.liqoctl.refuses(t, []string{"exists", "--output-file"}, p.both("support", "bundle", "--output-file", file)...)
		if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
			t.Error("the file was changed")
		}
	})
	t.Run("one cluster away", func(t *testing.T) {
		away := filepath.Join(t.TempDir(), "away.tar.gz")
		config := *p.provider.Config
		config.Host = "https://127.0.0.1:1"
		remote, err := p.provider.WriteKubeconfig("away", &config)
		if err != nil {
			t.Fatal(err)
		}
		_, errs, err := p.liqoctl.run(t.Context(), "support", "bundle", "--output-file", away, "--kubeconfig", p.consumer.Kubeconfig, "--remote-kubeconfig", remote)
		if err != nil || !strings.Contains(errs, "(remote)") {
			t.Errorf("%v\n%s", err, errs)
		}
		if files := unpacked(t, away); files["local/survey.json"] == "" || !strings.Contains(files["README.md"], "(remote) the whole cluster") {
			t.Errorf("README.md:\n%s", files["README.md"])
		}
	})
}

// unpacked are the files of an archive, without the folder that they are in.
func unpacked(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(text)
	}
}
