package release

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
)

const chartFolder = "../../deploy/chart"

func embedded(t *testing.T) *Chart {
	t.Helper()
	c, err := Embedded("")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// minimal are the values without which nothing can be installed.
const minimal = "{discovery: {config: {clusterID: rome}}, ipam: {podCIDR: 10.244.0.0/16}}"

// TestChart compares what values make of the chart.
func TestChart(t *testing.T) {
	for _, tt := range []struct {
		name, namespace, values string
		files                   []string
	}{
		{"everything", "liqo", "", []string{"controller.yaml", "fabric.yaml", "gateway-templates.yaml", "installation.yaml", "namespace.yaml"}},
		{"openshift", "liqo", "openshiftConfig: {enabled: true}", []string{"controller.yaml", "fabric-rbac.yaml", "gateway-templates.yaml"}},
		{"namespace", "network", "", []string{"controller-rbac.yaml", "fabric-rbac.yaml", "role.yaml", "gateway-templates.yaml", "namespace.yaml"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			values := parse(t, tt.values)
			if tt.name == "everything" {
				b, err := os.ReadFile("testdata/everything.yaml")
				if err != nil {
					t.Fatal(err)
				}
				values = parse(t, string(b))
			}
			values = merge(parse(t, minimal), values)
			if err := embedded(t).Check(values); err != nil {
				t.Fatal(err)
			}
			files, err := embedded(t).render(values, tt.namespace)
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range files {
				if _, err := decode(text); err != nil && name != "NOTES.txt" {
					t.Errorf("%s: %v", name, err)
				}
			}
			for _, name := range tt.files {
				golden(t, filepath.Join("testdata", tt.name, name), files[name])
			}
		})
	}
}

func TestEmbeddedVersion(t *testing.T) {
	for version, image := range map[string]string{
		"": "sluice/controller:latest", "unknown": "sluice/controller:latest", "v0.3.0-5-gabcdef0": "sluice/controller:latest", "v0.3.0-dirty": "sluice/controller:latest",
		"v0.3.0": "sluice/controller:v0.3.0", "v1.0.0-rc.1": "sluice/controller:v1.0.0-rc.1",
	} {
		c, err := Embedded(version)
		if err != nil {
			t.Fatal(err)
		}
		files, err := c.render(parse(t, minimal), "liqo")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(files["controller.yaml"], "image: "+image+"\n") {
			t.Errorf("%s: no image %s", version, image)
		}
	}
}

// TestFolder guards that the chart in the folder, which Helm's users have, is the
// one in the program, with the CRDs.
func TestFolder(t *testing.T) {
	c, err := Folder(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.manifests(parse(t, minimal), "liqo")
	if err != nil {
		t.Fatal(err)
	}
	want, err := embedded(t).manifests(parse(t, minimal), "liqo")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(c.chart.CRDObjects()) != 0 {
		t.Error("the CRDs are in the release")
	}
	if crds, err := filepath.Glob(chartFolder + "/crds/*.yaml"); err != nil || len(crds) == 0 {
		t.Errorf("no CRDs for Helm: %v", err)
	}
}

func TestLint(t *testing.T) {
	lint := action.NewLint()
	lint.Strict, lint.Namespace = true, "liqo"
	result := lint.Run([]string{chartFolder}, parse(t, minimal))
	for _, m := range result.Messages {
		if !strings.Contains(m.Error(), "icon is recommended") {
			t.Error(m.Error())
		}
	}
	if result.TotalChartsLinted != 1 {
		t.Errorf("%d charts", result.TotalChartsLinted)
	}
}

func TestRefusedValues(t *testing.T) {
	for _, tt := range []struct{ name, values, want string }{
		{"a misspelt value", "networking: {genevePorts: 6092}", "at '/networking': additional properties 'genevePorts' not allowed"},
		{"a misspelt section", "network: {}", "at '': additional properties 'network' not allowed"},
		{"text for a number", "controllerManager: {replicas: two}", "at '/controllerManager/replicas': got string, want integer"},
		{"no gateway at all", "networking: {gatewayTemplates: {replicas: 0}}", "at '/networking/gatewayTemplates/replicas': minimum: got 0, want 1"},
		{"no CIDR", "ipam: {reservedSubnets: [10.0.0.0]}", "at '/ipam/reservedSubnets/0': '10.0.0.0' does not match pattern"},
		{"a type of Service", "peering: {networking: {gateway: {server: {service: {type: ExternalName}}}}}", "at '/peering/networking/gateway/server/service/type': value must be one of 'LoadBalancer', 'NodePort', 'ClusterIP'"},
		{"an image of Liqo", "controllerManager: {image: {name: ghcr.io/liqotech/liqo-controller-manager}}", "at '/controllerManager/image/name': 'not' failed"},
		{"an image with a tag", "controllerManager: {image: {name: 'sluice/controller:v1'}}", "does not match pattern"},
		{"an address book elsewhere", "ipam: {external: {enabled: true}}", "at '/ipam/external/enabled': value must be false"},
		{"no network", "networking: {enabled: false}", "at '/networking/enabled': value must be true"},
		{"no pod CIDR", "ipam: {podCIDR: ''}", "ipam.podCIDR: what the pods of this cluster have addresses of"},
		{"no cluster ID", "discovery: {config: {clusterID: ''}}", "discovery.config.clusterID: the name of this cluster among its peers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			values := merge(parse(t, minimal), parse(t, tt.values))
			err := embedded(t).Check(values)
			if err == nil {
				_, err = embedded(t).render(values, "liqo")
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// TestIgnoredValues guards that values of Liqo's chart are accepted, and that
// those which do nothing are told.
func TestIgnoredValues(t *testing.T) {
	c := embedded(t)
	v := merge(parse(t, minimal), parse(t, `
authentication: {enabled: true}
common: {globalLabels: {liqo.io/managed: "true"}}
networking:
  enabled: true
  fabric: {config: {nftablesMonitor: true, healthProbeBindAddressPort: "8081"}}
  gatewayTemplates: {wireguard: {implementation: kernel}}
offloading: {defaultNodeResources: {cpu: 4}}
`))
	if err := c.Check(v); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"the value authentication does nothing: Sluice connects networks: it has no authentication between clusters",
		"the value networking.enabled does nothing: it is what is installed",
		"the value networking.fabric.config.nftablesMonitor does nothing: changes by others are always noticed",
		"the value networking.gatewayTemplates.wireguard does nothing: WireGuard is in the gateway's process",
		"the value offloading does nothing: Sluice has no offloading",
	}
	if diff := cmp.Diff(want, c.ignored(v)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestValuesAreDocumented guards that every value has its comment, and that the
// schema knows exactly the values that there are.
func TestValuesAreDocumented(t *testing.T) {
	b, err := os.ReadFile(chartFolder + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documented := documentedValues(string(b))
	var all Values
	if err := json.Unmarshal(embedded(t).chart.Schema, &all); err != nil {
		t.Fatal(err)
	}
	leaves(parse(t, string(b)), "", func(path string, _ any) {
		// A default that is a table is one value.
		for table := range documented {
			if strings.HasPrefix(path, table+".") {
				return
			}
		}
		if !documented[path] {
			t.Errorf("%s has no comment that begins with '# -- '", path)
		}
	})
	for path := range documented {
		if !inSchema(all, strings.Split(path, ".")) {
			t.Errorf("the schema does not know %s", path)
		}
	}
	inValues(t, all, parse(t, string(b)), "")
}

var valueLine = regexp.MustCompile(`^( *)([A-Za-z]+):`)

// documentedValues are the paths of the values below a comment that begins with
// "# -- ".
func documentedValues(text string) map[string]bool {
	found := map[string]bool{}
	var path []string
	comment := false
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch m := valueLine.FindStringSubmatch(line); {
		case strings.HasPrefix(trimmed, "# -- "):
			comment = true
		case strings.HasPrefix(trimmed, "#"):
		case m != nil:
			path = append(path[:min(len(m[1])/2, len(path))], m[2])
			if comment {
				found[strings.Join(path, ".")] = true
			}
			comment = false
		}
	}
	return found
}

func inSchema(s Values, path []string) bool {
	for _, k := range path {
		properties, _ := s["properties"].(map[string]any)
		next, ok := properties[k].(map[string]any)
		if !ok {
			return resolvable(s)
		}
		s = next
	}
	return true
}

// resolvable tells whether a part of the schema stands elsewhere.
func resolvable(s Values) bool { return s["$ref"] != nil }

// inValues fails for what the schema knows, is not ignored, and has no default.
func inValues(t *testing.T, s, v Values, prefix string) {
	properties, _ := s["properties"].(map[string]any)
	for k, p := range properties {
		p := p.(map[string]any)
		below, ok := v[k]
		table, _ := below.(map[string]any)
		switch {
		case p["ignored"] != nil:
		case !ok:
			t.Errorf("values.yaml has no %s%s", prefix, k)
		case p["properties"] != nil:
			inValues(t, p, table, prefix+k+".")
		}
	}
}

// TestCRDs guards that each file is a CRD, and marked with a version if that is
// one.
func TestCRDs(t *testing.T) {
	us, err := crds("v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range us {
		if u.GetKind() != "CustomResourceDefinition" || u.GetAnnotations()[AnnotationVersion] != "v1.2.3" {
			t.Errorf("%s %s: %v", u.GetKind(), u.GetName(), u.GetAnnotations())
		}
	}
	versions, err := crdVersions(us)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"v1beta1"}, versions["configurations.networking.liqo.io"]); diff != "" || len(versions) != len(us) {
		t.Errorf("%d of %d, (-want +got)\n%s", len(versions), len(us), diff)
	}
	if us, err = crds("unknown"); err != nil || us[0].GetAnnotations()[AnnotationVersion] != "" {
		t.Errorf("%v %v", us[0].GetAnnotations(), err)
	}
}

func TestSources(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")
	for name, text := range map[string]string{one: "a: {b: 1, c: 1, d: 1}\nlist: [1, 2]", two: "a: {c: 2}\nlist: [3]"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name    string
		sources Sources
		want    string
		err     string
	}{
		{name: "nothing", want: "{}\n"},
		{name: "files, the last one holds", sources: Sources{Files: []string{one, two}}, want: "a:\n  b: 1\n  c: 2\n  d: 1\nlist:\n- 3\n"},
		{name: "single ones against files", sources: Sources{Files: []string{one, "-"}, Set: []string{"a.d=5,tag=v1"}, SetString: []string{"a.b=7"}}, want: "a:\n  b: \"7\"\n  c: 1\n  d: 5\nin: true\nlist:\n- 1\n- 2\ntag: v1\n"},
		{name: "no file", sources: Sources{Files: []string{"none.yaml"}}, err: "--values: open none.yaml: no such file or directory"},
		{name: "no index", sources: Sources{Set: []string{"a[b]=1"}}, err: `--set a[b]=1: error parsing index: strconv.Atoi: parsing "b": invalid syntax`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := tt.sources.Read(bytes.NewReader([]byte("in: true")))
			if tt.err != "" {
				if err == nil || fmt.Sprint(err) != tt.err {
					t.Errorf("got %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, mustYAML(t, v)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
