package release

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-net/sluice/test/golden"
)

const chartFolder = "../../deploy/chart"

func embedded(t *testing.T) *Chart {
	t.Helper()
	c, err := Embedded(Build{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// minimal are the values without which nothing can be installed.
const minimal = "{discovery: {config: {clusterID: rome}}, ipam: {podCIDR: 10.244.0.0/16}}"

// TestChart compares what values make of the chart. What the defaults make of it is
// deploy/manifests.
func TestChart(t *testing.T) {
	for _, tt := range []struct {
		name, namespace, values string
		files                   []string
	}{
		{"everything", "liqo", "", []string{"clusterdns.yaml", "controller.yaml", "controller-policies.yaml", "fabric.yaml", "gateway-templates.yaml", "installation.yaml", "namespace.yaml", "podmonitors.yaml"}},
		{"replicas", "liqo", "{controllerManager: {replicas: 2}, networking: {gatewayTemplates: {replicas: 2}}}", []string{"controller.yaml", "controller-policies.yaml"}},
		{"metrics", "liqo", "metrics: {enabled: true, prometheusOperator: {enabled: true}}", []string{"controller.yaml", "fabric.yaml", "podmonitors.yaml"}},
		{"open", "liqo", "{networkPolicies: {enabled: false}, podDisruptionBudgets: {enabled: false}}", []string{"controller.yaml"}},
		{"offloading", "liqo", `{authentication: {enabled: true}, apiServer: {address: "https://203.0.113.7:6443", ca: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==}, offloading: {enabled: true, podSecurity: restricted, maxNamespaces: 3, limitsEnforcement: Hard, apiServerAccess: false,
			namespaceQuota: {secrets: null, services.nodeports: 0}, reflection: {ingress: {ingressClasses: [{name: nginx}, {name: traefik, default: true}]},
			service: {loadBalancerClasses: [{name: example.org/public, default: true}]}}}, discovery: {config: {clusterLabels: {topology.kubernetes.io/zone: a, rank: 1000000}}}}`, []string{"controller.yaml", "installation.yaml"}},
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
				golden.Compare(t, filepath.Join("testdata", tt.name, name), files[name])
			}
		})
	}
}

// TestNamespacePolicies: what is off lets the controller create no namespaces, and what is on does although the other is on.
func TestNamespacePolicies(t *testing.T) {
	const imported, managed = "'liqo.io/imported-from' in variables.labels &&", "'liqo.io/managed' in variables.labels\n"
	for _, tt := range []struct{ offloading, services bool }{{true, false}, {false, true}, {true, true}} {
		files, err := embedded(t).render(merge(parse(t, minimal), parse(t, fmt.Sprintf("{authentication: {enabled: true}, offloading: {enabled: %t}, services: {enabled: %t}}", tt.offloading, tt.services))), "liqo")
		if err != nil {
			t.Fatal(err)
		}
		offloading, services := files["offloading.yaml"], files["services.yaml"]
		if got := strings.Contains(offloading, imported); got != (tt.offloading && tt.services) {
			t.Errorf("%+v: the policy of offloading lets namespaces of imported Services be created: %t", tt, got)
		}
		if got := strings.Contains(services, imported); got != tt.services {
			t.Errorf("%+v: there is a policy of Services: %t", tt, got)
		}
		if got := strings.Contains(services, managed); got != (tt.offloading && tt.services) {
			t.Errorf("%+v: the policy of Services leaves others to that of offloading: %t", tt, got)
		}
	}
}

// TestLiqosInfo: Liqo's liqoctl reads the version in the only Deployment of the namespace with two labels, behind the last colon
// of the image of a container.
func TestLiqosInfo(t *testing.T) {
	c, err := Embedded(Build{Version: "v1.2.3", Registry: "registry.example.org:5000/sluice"})
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := c.manifests(parse(t, minimal), "liqo")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode(manifests)
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	for _, u := range objects {
		labels := u.GetLabels()
		if u.GetKind() != "Deployment" || u.GetNamespace() != "liqo" || labels["app.kubernetes.io/name"] != "controller-manager" || labels["app.kubernetes.io/component"] != "controller-manager" {
			continue
		}
		var d appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &d); err != nil {
			t.Fatal(err)
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			if c.Name == "controller-manager" {
				versions = append(versions, c.Image[strings.LastIndex(c.Image, ":")+1:])
			}
		}
	}
	if diff := cmp.Diff([]string{"v1.2.3"}, versions); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestBuild guards that a program installs the images of its own build.
func TestBuild(t *testing.T) {
	packaged := filepath.Join("testdata", "previous-chart.tgz") // it says of which version its images are
	for _, tt := range []struct {
		build             Build
		image, ofPackaged string
		version           string // of the chart
	}{
		{Build{}, "sluice.local/controller:unknown", "sluice/controller:latest", "0.0.0"},
		{Build{Version: "(devel)"}, "sluice.local/controller:unknown", "sluice/controller:latest", "0.0.0"},
		{Build{Version: "v0.0.0-20261123014643-a823017aaaaa+dirty"}, "sluice.local/controller:unknown", "sluice/controller:latest", "0.0.0"},
		{Build{Version: "a823017"}, "sluice.local/controller:a823017", "sluice/controller:latest", "0.0.0"},
		{Build{Version: "v0.3.0-5-gabcdef0-dirty"}, "sluice.local/controller:v0.3.0-5-gabcdef0-dirty", "sluice/controller:latest", "0.0.0"},
		{Build{Version: "v1.0.0-rc.1"}, "sluice.local/controller:v1.0.0-rc.1", "sluice/controller:latest", "1.0.0-rc.1"},
		{Build{"v0.3.0", "r.example:5000/x"}, "r.example:5000/x/controller:v0.3.0", "sluice/controller:latest", "0.3.0"},
	} {
		embedded, err := Embedded(tt.build)
		if err != nil {
			t.Fatal(err)
		}
		folder, err := Folder(chartFolder, tt.build)
		if err != nil {
			t.Fatal(err)
		}
		before, err := Folder(packaged, tt.build)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, image string
			chart       *Chart
		}{{"in the program", tt.image, embedded}, {"of the source tree", tt.image, folder}, {"packaged", tt.ofPackaged, before}} {
			files, err := c.chart.render(parse(t, minimal), "liqo")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(files["controller.yaml"], "image: "+c.image+"\n") {
				t.Errorf("%+v, chart %s: no image %s", tt.build, c.name, c.image)
			}
		}
		if got := embedded.chart.Metadata.Version; got != tt.version {
			t.Errorf("%+v: chart %s, want %s", tt.build, got, tt.version)
		}
	}
}

// TestFolder guards that the chart in the folder, which Helm's users have, is the
// one in the program, with the CRDs.
func TestFolder(t *testing.T) {
	c, err := Folder(chartFolder, Build{})
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
	for name, values := range variants(t) {
		lint := action.NewLint()
		lint.Strict, lint.Namespace = true, "liqo"
		result := lint.Run([]string{chartFolder}, values)
		for _, m := range result.Messages {
			if !strings.Contains(m.Error(), "icon is recommended") {
				t.Errorf("%s: %v", name, m)
			}
		}
		if result.TotalChartsLinted != 1 {
			t.Errorf("%s: %d charts", name, result.TotalChartsLinted)
		}
	}
}

// TestCRDs guards that each file is a CRD, and marked with the version.
func TestCRDs(t *testing.T) {
	for _, version := range []string{"v1.2.3", "unknown"} {
		us, err := crds(version)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range us {
			if u.GetKind() != "CustomResourceDefinition" || u.GetAnnotations()[AnnotationVersion] != version {
				t.Errorf("%s %s: %v", u.GetKind(), u.GetName(), u.GetAnnotations())
			}
		}
		ds, err := typed(us)
		if err != nil {
			t.Fatal(err)
		}
		if d := ds["configurations.networking.liqo.io"]; len(ds) != len(us) || schemasOf(&d)["v1beta1"].Properties["spec"].Properties == nil {
			t.Errorf("%d of %d CRDs", len(ds), len(us))
		}
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
