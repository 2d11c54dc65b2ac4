package kubernetes

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-net/sluice/test/kubelab"
)

// testSupportBundle packs an archive from both clusters.
func testSupportBundle(t *testing.T, w *world) {
	w.connect(t)
	pe := w.peering()
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	start := time.Now()
	out, _ := w.liqoctl(t, w.both("support", "bundle", "--output-file", file)...)
	t.Logf("the bundle of both clusters took %v", time.Since(start).Round(time.Millisecond))
	if out != file+"\n" {
		t.Errorf("stdout is %q", out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("file mode %v (%v)", info.Mode(), err)
	}
	files := unpacked(t, file)
	t.Run("no private key", func(t *testing.T) { pe.checkSecrecy(t, files) })
	t.Run("what is needed", func(t *testing.T) { w.checkBundle(t, pe, files) })
	t.Run("nothing is overwritten", func(t *testing.T) {
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w.refuses(t, []string{"exists", "--output-file"}, w.both("support", "bundle", "--output-file", file)...)
		if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
			t.Error("the file was changed")
		}
	})
	t.Run("one cluster away", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "away.tar.gz")
		away := w.kubeconfig(t, w.b, "away", func(c *api.Cluster, _ *api.AuthInfo) { c.Server = fmt.Sprintf("https://%s:6499", w.b.Public) })
		_, errs := w.liqoctl(t, "support", "bundle", "--output-file", file, "--kubeconfig", w.a.Kubeconfig, "--remote-kubeconfig", away)
		if !strings.Contains(errs, "(remote)") {
			t.Errorf("it does not tell what is missing:\n%s", errs)
		}
		if files := unpacked(t, file); files["local/survey.json"] == "" || !strings.Contains(files["README.md"], "(remote) the whole cluster") {
			t.Errorf("README.md:\n%s", files["README.md"])
		}
	})
}

// checkSecrecy looks for the private keys of the gateways.
func (p peering) checkSecrecy(t *testing.T, files map[string]string) {
	t.Helper()
	for _, e := range p.ends() {
		var s corev1.Secret
		if err := e.get(t.Context(), "gw-"+e.gateway, &s); err != nil {
			t.Fatal(err)
		}
		key := s.Data["privateKey"]
		if len(key) == 0 {
			t.Fatalf("the Secret of %s has no key", e.Name)
		}
		for name, text := range files {
			for _, form := range []string{string(key), base64.StdEncoding.EncodeToString(key), hex.EncodeToString(key)} {
				if strings.Contains(text, form) {
					t.Errorf("the private key of %s stands in %s", e.Name, name)
				}
			}
		}
	}
}

// checkBundle looks for what somebody needs who knows nothing else of the clusters.
func (w *world) checkBundle(t *testing.T, pe peering, files map[string]string) {
	var m struct {
		Clusters []struct{ Folder, ID string }
		Missing  []struct{ Cluster, What, Why string }
	}
	if err := json.Unmarshal([]byte(files["manifest.json"]), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Clusters) != 2 || m.Clusters[0].ID != w.a.Name || m.Clusters[1].ID != w.b.Name {
		t.Errorf("%+v", m)
	}
	for _, gap := range m.Missing {
		t.Errorf("missing: (%s) %s: %s", gap.Cluster, gap.What, gap.Why)
	}
	for folder, e := range map[string]*end{"local": pe.client, "remote": pe.server} {
		gateway := leads(t, e.Cluster)
		controllers, err := e.Pods(t.Context(), liqoNamespace, nil)
		if err != nil || len(controllers) == 0 {
			t.Fatal(controllers, err)
		}
		contains := map[string]string{
			"README.md":                   e.Name,
			"doctor.json":                 `"check"`,
			folder + "/survey.json":       e.peer,
			folder + "/objects/Node.yaml": e.Nodes[0].Name,
			folder + "/objects/Connection.networking.liqo.io.yaml":                "Connected",
			folder + "/objects/Configuration.networking.liqo.io.yaml":             kubelab.PodCIDR,
			folder + "/objects/Deployment.apps.yaml":                              "liqo-controller",
			folder + "/reports/" + e.namespace + "/" + gateway.Name + ".json":     `"` + pe.keys(t)[e.Name] + `"`,
			folder + "/logs/" + e.namespace + "/" + gateway.Name + "/gateway.log": "level",
		}
		// The leader's and the others'.
		for _, controller := range controllers {
			contains[folder+"/logs/liqo/"+controller.Name+"/controller-manager.log"] = "level"
		}
		for name, want := range contains {
			if !strings.Contains(files[name], want) {
				t.Errorf("%s lacks %q:\n%.500s", name, want, files[name])
			}
		}
	}
	for name := range files {
		if strings.HasSuffix(name, "/objects/Secret.yaml") {
			t.Errorf("%s: Secrets were read", name)
		}
		if strings.Contains(name, "/"+appNamespace+"/") {
			t.Errorf("%s is of a workload", name)
		}
	}
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
