package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// canaries are secrets, one for each place where one is planted. None of them may
// get into an archive.
var canaries = map[string]string{
	"the private key of a gateway":          privateKey,
	"an entry of a Secret":                  "canary-entry-of-a-secret",
	"a token in a Secret":                   jwtText,
	"an environment variable":               "canary-environment",
	"an environment variable in a log":      "canary-password-of-a-database",
	"an annotation":                         "canary-annotation",
	"the last applied configuration":        "canary-last-applied",
	"a ConfigMap":                           "canary-configmap",
	"an argument of a template":             "canary-template-argument",
	"an environment variable of a template": "canary-template-environment",
	"a log line with a password":            "canary-log-password",
	"a log line with credentials":           "canary-log-bearer-0123",
	"a log line with an URL":                "canary-log-url",
	"a PEM block in a log":                  "MHcCAQEEIBase64TextOfNobodysKey",
	"a report of a gateway":                 "canary-report",
	"an Event":                              "canary-event",
}

// planted are objects with these in them, and with what has to be kept.
var planted = fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: liqo-tenant-milan, labels: {liqo.io/tenant-namespace: "true", liqo.io/remote-cluster-id: milan}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: liqo-clusterid-configmap, namespace: liqo}
data: {CLUSTER_ID: rome}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: theirs, namespace: liqo}
data: {config.yaml: "x: %[1]s"}
---
apiVersion: v1
kind: Secret
metadata: {name: gw-milan, namespace: liqo-tenant-milan, labels: {networking.liqo.io/gateway-resource: "true", liqo.io/remote-cluster-id: milan}}
data: {privateKey: %[2]s, publicKey: %[3]s}
---
apiVersion: v1
kind: Secret
metadata: {name: theirs, namespace: liqo}
stringData: {password: %[4]s, token: %[5]s}
---
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec: {publicKey: %[3]s}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata:
  name: milan
  namespace: liqo-tenant-milan
  labels: {liqo.io/remote-cluster-id: milan}
  annotations: {example.com/note: %[6]s}
spec: {endpoint: {port: 51840, serviceType: NodePort}}
---
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayServerTemplate
metadata: {name: theirs, namespace: liqo}
spec:
  objectKind: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServer}
  template:
    metadata: {name: "{{ .Name }}"}
    spec:
      deployment:
        spec:
          template:
            spec:
              containers:
              - name: gateway
                args: ["--mode=server", "--secret-of-mine", "%[7]s"]
                env: [{name: HARMLESS, value: %[8]s}]
---
apiVersion: v1
kind: Pod
metadata:
  name: gw-milan-0
  namespace: liqo-tenant-milan
  labels: {networking.liqo.io/component: gateway, networking.liqo.io/gateway-name: milan, networking.liqo.io/gateway-namespace: liqo-tenant-milan, networking.liqo.io/active: "true"}
spec:
  nodeName: node-1
  containers: [{name: gateway, image: test/gateway, ports: [{name: gw-metrics, containerPort: 8082}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: chatty, namespace: liqo, annotations: {kubectl.kubernetes.io/last-applied-configuration: %[9]s}}
spec:
  nodeName: node-1
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: chatty
    image: test/chatty
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    env: [{name: HARMLESS, value: %[10]s}, {name: DB_PASSWORD, value: %[11]s}]
---
apiVersion: v1
kind: Pod
metadata: {name: user, namespace: liqo-tenant-milan}
spec: {nodeName: node-1, containers: [{name: user, image: test/chatty}]}
---
apiVersion: v1
kind: Event
metadata: {name: e1, namespace: liqo}
involvedObject: {kind: Pod, name: chatty, namespace: liqo}
reason: Failed
message: "token=%[12]s refused"
type: Warning
`, canaries["a ConfigMap"], privateKey, publicKey, canaries["an entry of a Secret"], canaries["a token in a Secret"],
	canaries["an annotation"], canaries["an argument of a template"], canaries["an environment variable of a template"],
	canaries["the last applied configuration"], canaries["an environment variable"], canaries["an environment variable in a log"], canaries["an Event"])

// chat is what the program of a pod logs.
var chat = []string{
	"hello world, 10.71.0.3 answers", "private key is " + privateKey, "peer is " + publicKey,
	"connecting with " + canaries["an environment variable in a log"],
	"password=" + canaries["a log line with a password"], "Authorization: Bearer " + canaries["a log line with credentials"],
	"GET https://me:" + canaries["a log line with an URL"] + "@example.com/", pemText, "bye",
}

// testReport is what the gateway of the test says of itself.
func testReport(_ context.Context, _ *corev1.Pod, argv []string, stdout, stderr io.Writer) int {
	switch strings.Join(argv, " ") {
	case "gateway status -o json":
		fmt.Fprintf(stdout, `{"version":"v1","dataPlane":{"tunnel":{"self":%q,"peer":%q}},"apiToken":%q}`, publicKey, publicKey, canaries["a report of a gateway"])
	case "gateway metrics --metrics-address=127.0.0.1:8082":
		fmt.Fprintln(stdout, "liqo_peer_is_connected 1")
	default:
		fmt.Fprintln(stderr, "unknown command")
		return 1
	}
	return 0
}

func TestBundleHoldsNoSecrets(t *testing.T) {
	cluster := controlplanetest.Start(t)
	controlplanetest.StartKubelet(t, cluster, controlplanetest.KubeletOptions{Images: map[string]controlplanetest.Image{
		"test/gateway": {Exec: testReport},
		"test/chatty":  {Program: "/bin/sh", Args: []string{"-c", "cat <<'END'\n" + strings.Join(chat, "\n") + "\nEND\nexec sleep 1000"}},
	}})
	cluster.Apply(planted)
	local := reach(t, cluster, cluster.Config, access.Local)
	for _, name := range []string{"liqo-tenant-milan/gw-milan-0", "liqo/chatty"} {
		controlplanetest.Eventually(t, name+" runs", func(ctx context.Context) error {
			ns, pod, _ := strings.Cut(name, "/")
			var p corev1.Pod
			if err := cluster.Get(ctx, ns, pod, &p); err != nil || p.Status.Phase == corev1.PodRunning {
				return err
			}
			return fmt.Errorf("phase %s", p.Status.Phase)
		})
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := Options{Version: "v1", Time: at, Findings: func(context.Context) (any, error) {
		return map[string]string{"message": "password: " + canaries["a log line with a password"]}, nil
	}}

	var told []string
	var out bytes.Buffer
	controlplanetest.Eventually(t, "the log is complete", func(ctx context.Context) error {
		told = nil
		out.Reset()
		if _, err := Write(ctx, &out, o, func(e progress.Event) {
			if e.Kind == progress.Done {
				told = append(told, e.Cluster+": "+e.Text)
			}
		}, local); err != nil {
			return err
		}
		if log := unpack(t, out.Bytes())["local/logs/liqo/chatty/chatty.log"]; !strings.Contains(log, "bye") {
			return fmt.Errorf("the log is %q", log)
		}
		return nil
	})
	files := unpack(t, out.Bytes())
	for where, secret := range canaries {
		forms := []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(secret))}
		if secret == privateKey {
			forms = append(forms, hex.EncodeToString(privateRaw), string(privateRaw))
		}
		for _, form := range forms {
			for name, text := range files {
				if strings.Contains(text, form) {
					t.Errorf("%s: %q stands in %s", where, form, name)
				}
			}
		}
	}
	for name, want := range map[string][]string{
		"README.md":                                           {"liqoctl v1", "local", "rome"},
		"doctor.json":                                         {"message"},
		"local/survey.json":                                   {"rome", "milan"},
		"local/objects/ConfigMap.yaml":                        {"CLUSTER_ID: rome", "config.yaml"},
		"local/objects/Pod.yaml":                              {"name: DB_PASSWORD", "gw-milan-0", "chatty"},
		"local/objects/Node.yaml":                             {"node-1", "podCIDR"},
		"local/objects/Event.yaml":                            {"refused"},
		"local/objects/PublicKey.networking.liqo.io.yaml":     {publicKey},
		"local/objects/GatewayServer.networking.liqo.io.yaml": {"51840", "example.com/note"},
		"local/objects/WgGatewayServerTemplate.networking.liqo.io.yaml":    {"--mode=server", "--secret-of-mine"},
		"local/objects/CustomResourceDefinition.apiextensions.k8s.io.yaml": {"gatewayservers.networking.liqo.io", "v1beta1", "storedVersions"},
		"local/reports/liqo-tenant-milan/gw-milan-0.json":                  {publicKey},
		"local/metrics/liqo-tenant-milan/gw-milan-0.txt":                   {"liqo_peer_is_connected 1"},
		"local/logs/liqo/chatty/chatty.log":                                {"hello world, 10.71.0.3 answers", "peer is " + publicKey, "bye"},
	} {
		for _, w := range want {
			if !strings.Contains(files[name], w) {
				t.Errorf("%s lacks %q:\n%.2000s", name, w, files[name])
			}
		}
	}
	if text, ok := files["local/objects/Secret.yaml"]; ok {
		t.Errorf("Secrets were read:\n%s", text)
	}
	if strings.Contains(files["local/objects/Pod.yaml"], "name: user") {
		t.Error("a pod of somebody else is packed")
	}
	t.Logf("%d files, %d bytes packed; told: %q", len(files), out.Len(), told)

	t.Run("manifest", func(t *testing.T) {
		var m manifest
		if err := json.Unmarshal([]byte(files["manifest.json"]), &m); err != nil {
			t.Fatal(err)
		}
		if m.Format != format || len(m.Files) != len(files)-1 || len(m.Clusters) != 1 || m.Clusters[0].ID != "rome" {
			t.Errorf("%+v", m)
		}
		for _, gap := range m.Missing {
			t.Logf("missing: %s: %s", gap.What, gap.Why)
		}
	})
	t.Run("partial", func(t *testing.T) {
		cluster.Apply(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: guest, namespace: liqo}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: guest, namespace: liqo}
rules: [{apiGroups: [""], resources: [pods, pods/log, configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: guest, namespace: liqo}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: guest}
subjects: [{kind: ServiceAccount, name: guest, namespace: liqo}]
`)
		guest := reach(t, cluster, cluster.ServiceAccount("liqo", "guest"), access.Local)
		away := reach(t, cluster, &rest.Config{Host: "https://127.0.0.1:1"}, access.Remote)
		var out bytes.Buffer
		s, err := Write(t.Context(), &out, Options{Time: at}, nil, guest, away)
		if err != nil {
			t.Fatal(err)
		}
		files := unpack(t, out.Bytes())
		if !strings.Contains(files["local/objects/Pod.yaml"], "chatty") || files["local/logs/liqo/chatty/chatty.log"] == "" {
			t.Errorf("files %v\n%s", sortedFiles(files), files["README.md"])
		}
		for _, want := range []string{"Service objects of namespace liqo", "the whole cluster"} {
			if !slices.ContainsFunc(s.Gaps, func(g Gap) bool { return g.What == want }) || !strings.Contains(files["README.md"], want) {
				t.Errorf("nothing tells that %s is missing: %+v", want, s.Gaps)
			}
		}
		if _, err := Write(t.Context(), io.Discard, Options{}, nil, away); err == nil || !strings.Contains(err.Error(), "(remote)") {
			t.Errorf("no cluster at all: %v", err)
		}
	})
	t.Run("full", func(t *testing.T) {
		s, err := Write(t.Context(), io.Discard, Options{MaxBytes: 20_000, LogBytes: 100}, nil, local)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(s.Gaps, func(g Gap) bool { return strings.Contains(g.Why, "full") }) {
			t.Errorf("%+v", s.Gaps)
		}
	})
}

func reach(t *testing.T, c *controlplanetest.Cluster, config *rest.Config, name string) *access.Cluster {
	t.Helper()
	a, err := access.New(config, access.Options{Name: name, Origin: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// unpack returns the files of an archive, without the folder that they are in.
func unpack(t *testing.T, packed []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(b)
	}
}

func sortedFiles(files map[string]string) (names []string) {
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestArchiveIsTheSameForTheSameInput(t *testing.T) {
	var packed [2][]byte
	for i := range packed {
		a := newArchive(1000)
		names := []string{"b/2", "a", "b/1", "c/d/e"}
		if i == 1 {
			slices.Reverse(names)
		}
		for _, n := range names {
			a.add("", n, []byte("content of "+n))
			a.miss("", n, io.EOF)
		}
		a.sortGaps()
		if err := a.describe(Options{}.withDefaults(), nil); err != nil {
			t.Fatal(err)
		}
		delete(a.files, "README.md") // they tell the time
		delete(a.files, "manifest.json")
		var out bytes.Buffer
		if err := a.writeTo(&out, "x", time.Unix(1000, 0)); err != nil {
			t.Fatal(err)
		}
		packed[i] = out.Bytes()
	}
	if !bytes.Equal(packed[0], packed[1]) {
		t.Error("two archives of the same files differ")
	}
}

func TestTailBeginsWithAWholeLine(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		max, lines int
	}{
		{"all of it", "line 0\nline 1\nline 2\n", 100, 3},
		{"the end", "(14 bytes left out)\nline 2\nline 3\nline 4\n", 25, 5},
		{"much of it", "(6986 bytes left out)\nline 998\nline 999\n", 20, 1000},
		{"less than a line", "(7 bytes left out)\n", 3, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &tail{max: tt.max}
			for i := range tt.lines {
				fmt.Fprintf(w, "line %d\n", i)
			}
			if diff := cmp.Diff(tt.want, string(w.text())); diff != "" && tt.name != "much of it" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if got := string(w.text()); !strings.HasSuffix(tt.want, got[strings.IndexByte(got, '\n')+1:]) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestFileName(t *testing.T) {
	for in, want := range map[string]string{"a.b-c_D9": "a.b-c_D9", "..": "_", "a/b": "a_b", "": "_", "ü:x": "__x"} {
		if got := fileName("x", in); got != "x/"+want {
			t.Errorf("%q: %s, want x/%s", in, got, want)
		}
	}
}
