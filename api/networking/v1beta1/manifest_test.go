package v1beta1_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/source"
)

// strictDecoder refuses unknown and repeated fields, and fields in the wrong case, as an API server does.
func strictDecoder(t *testing.T) runtime.Decoder {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, corev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
}

// TestManifests decodes every manifest in testdata and writes it again: nothing may be unknown, lost or invented.
// testdata/published-*.yaml are the manifests of Liqo's public documentation over three editions, in which every
// placeholder is replaced; the others set every field of their kind.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	decoder := strictDecoder(t)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, doc := range strings.Split(string(b), "\n---\n") {
				decodeAndCompare(t, decoder, doc)
			}
		})
	}
}

func decodeAndCompare(t *testing.T, decoder runtime.Decoder, doc string) {
	t.Helper()
	obj, _, err := decoder.Decode([]byte(doc), nil, nil)
	if err != nil {
		t.Errorf("%v\n%s", err, doc)
		return
	}
	if diff := cmp.Diff(obj, obj.DeepCopyObject()); diff != "" {
		t.Errorf("copied (-want +got):\n%s", diff)
	}
	b, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := yaml.Unmarshal([]byte(doc), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	// "creationTimestamp: null" is what older tools write for "none".
	if m, ok := want.(map[string]any)["metadata"].(map[string]any); ok && m["creationTimestamp"] == nil {
		delete(m, "creationTimestamp")
	}
	// And these are written empty by the types of apimachinery and of the core group.
	for _, k := range []string{"metadata", "spec", "status"} {
		m := got.(map[string]any)
		_, written := want.(map[string]any)[k]
		if v, ok := m[k].(map[string]any); ok && len(v) == 0 && !written {
			delete(m, k)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("written again (-want +got):\n%s", diff)
	}
}

// TestManifestsCoverSchema keeps the comparison above honest: each field of each kind's schema stands in some manifest.
func TestManifestsCoverSchema(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var collect func(path string, v any)
	collect = func(path string, v any) {
		seen[path] = true
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				collect(path+"."+k, e)
			}
		case []any:
			for _, e := range v {
				collect(path+"[]", e)
			}
		}
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range strings.Split(string(b), "\n---\n") {
			var m map[string]any
			if err := yaml.Unmarshal([]byte(doc), &m); err != nil {
				t.Fatal(err)
			}
			collect(m["kind"].(string), m)
		}
	}
	// Kubernetes' own types: their fields are tested where they are defined.
	foreign := regexp.MustCompile(`Ref\.|(deployment|service|serviceMonitor)\.(spec|metadata)\.|\{\}$`)
	for _, c := range readCRDs(t) {
		if c.Spec.Group != v1beta1.GroupVersion.Group {
			continue
		}
		walk(c.Spec.Names.Kind, c.Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, _ schema) {
			if !seen[path] && !foreign.MatchString(path) {
				t.Errorf("no manifest has %s", path)
			}
		})
	}
}

func TestStrictness(t *testing.T) {
	decoder := strictDecoder(t)
	for _, doc := range []string{
		"{apiVersion: networking.liqo.io/v1beta1, kind: Configuration, spec: {remote: {cidr: {pods: 10.0.0.0/8}}}}",
		"{apiVersion: networking.liqo.io/v1beta1, kind: Configuration, spec: {remote: {cidr: {Pod: 10.0.0.0/8}}}}",
		"{apiVersion: networking.liqo.io/v1beta1, kind: GatewayServer, spec: {mtu: 1, mtu: 2}}",
		"{apiVersion: networking.liqo.io/v1beta1, kind: PublicKey, spec: {publicKey: no base64!}}",
	} {
		if obj, _, err := decoder.Decode([]byte(doc), nil, nil); err == nil {
			t.Errorf("%s was decoded: %v", doc, obj)
		}
	}
}

// TestDocuments decodes the manifests that stand in documents.
func TestDocuments(t *testing.T) {
	decoder := strictDecoder(t)
	kinds := map[string]int{}
	for file, text := range documents(t) {
		t.Run(file, func(t *testing.T) {
			blocks := yamlBlocks(text, strings.HasSuffix(file, ".md"))
			decoded := 0
			for _, block := range blocks {
				doc, kind, ours := manifest(t, block)
				if !ours {
					continue
				}
				decodeAndCompare(t, decoder, doc)
				kinds[kind]++
				decoded++
			}
			t.Logf("%d blocks, %d of them decoded", len(blocks), decoded)
			// One edition reached us with most of its lines lost, apiVersion among them. What is left is no YAML.
			if lost := strings.Count(text, "\nkind: ") - strings.Count(text, "\napiVersion: "); lost > 0 {
				t.Logf("NOT DECODED: %d manifests of which the document holds fragments only", lost)
			}
		})
	}
	want := []string{"Configuration", "GatewayServer", "GatewayClient", "PublicKey", "Secret", "Namespace"}
	if os.Getenv(liqoDocuments) != "" {
		want = append(want, "WgGatewayServerTemplate")
	}
	for _, kind := range want {
		if kinds[kind] == 0 {
			t.Errorf("no %s was found: the blocks are not recognised any more", kind)
		}
	}
}

// liqoDocuments, in the environment, names the folder of Liqo's documents, which are not part of this repository.
const liqoDocuments = "SLUICE_SPEC"

// documents returns our documents, and Liqo's where they are: name to text.
func documents(t *testing.T) map[string]string {
	t.Helper()
	folders := []string{source.Path("test", "document", "testdata")}
	if dir := os.Getenv(liqoDocuments); dir != "" {
		folders = append(folders, dir)
	} else {
		t.Logf("NOT CHECKED: Liqo's documents, whose folder %s names. Ours are.", liqoDocuments)
	}
	documents := map[string]string{}
	for _, dir := range folders {
		before := len(documents)
		for _, pattern := range []string{"*.md", "*.txt"} {
			files, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				documents[filepath.Base(f)] = string(b)
			}
		}
		if len(documents) == before {
			t.Fatalf("there are no documents in %q", dir)
		}
	}
	return documents
}

// yamlBlocks takes the YAML out of a document: the fenced blocks of a Markdown file (they may be indented), or the
// paragraphs of a text file that begin as a manifest or a part of one does.
func yamlBlocks(text string, markdown bool) []string {
	var blocks []string
	var block []string
	in := false
	indent := ""
	end := func() {
		if len(block) > 0 {
			blocks = append(blocks, strings.Join(block, "\n")+"\n")
		}
		block, in = nil, false
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		switch {
		case markdown && !in && (trimmed == "```yaml" || trimmed == "``` yaml"):
			in, indent = true, line[:strings.Index(line, "`")]
			continue
		case !markdown && !in && (strings.HasPrefix(line, "apiVersion: ") || line == "spec:"):
			in, indent = true, ""
		}
		if in && (markdown && strings.HasPrefix(trimmed, "```") || !markdown && trimmed == "") {
			end()
			continue
		}
		if in && trimmed == "---" {
			end()
			in = true
			continue
		}
		if in {
			block = append(block, strings.TrimPrefix(line, indent))
		}
	}
	end()
	return blocks
}

// manifest makes a whole, valid manifest of a block: placeholders get values, the earlier version of the group becomes
// today's, and a part of a manifest is put where the text around it says it belongs.
func manifest(t *testing.T, block string) (doc, kind string, ours bool) {
	t.Helper()
	doc = regexp.MustCompile(`<[A-Z0-9_]+>`).ReplaceAllStringFunc(block, func(p string) string {
		switch p = strings.Trim(p, "<>"); {
		case strings.Contains(p, "CIDR"):
			return "10.70.0.0/16"
		case strings.HasSuffix(p, "_KEY"):
			return "SU+Ba3jBNgofBrZtVHwad1VJotcVs4TmgpOdFQhx/UE="
		case strings.HasSuffix(p, "_IP"):
			return "192.0.2.1"
		case strings.HasSuffix(p, "_PORT"):
			return "30742"
		case strings.HasPrefix(p, "BASE64_"):
			return "Z2F0ZXdheQ=="
		default:
			return strings.ToLower(strings.ReplaceAll(p, "_", "-"))
		}
	})
	doc = strings.ReplaceAll(doc, "networking.liqo.io/v1alpha1", v1beta1.GroupVersion.String())
	var m map[string]any
	if err := yaml.Unmarshal([]byte(doc), &m); err != nil {
		t.Errorf("%v\n%s", err, doc)
		return "", "", false
	}
	if m["kind"] == nil {
		spec, _ := m["spec"].(map[string]any)
		m["apiVersion"], m["kind"] = v1beta1.GroupVersion.String(), "GatewayServer"
		if spec["serverTemplateRef"] == nil {
			m["kind"] = "WgGatewayServerTemplate"
			m["spec"] = map[string]any{"template": map[string]any{"spec": spec}}
		}
		b, err := yaml.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		doc = string(bytes.TrimSpace(b)) + "\n"
	}
	kind, _ = m["kind"].(string)
	group, _, _ := strings.Cut(m["apiVersion"].(string), "/")
	return doc, kind, slices.Contains([]string{v1beta1.GroupVersion.Group, "v1"}, group)
}
