// Package docs_test keeps the documents true: what they name exists. That their
// command lines parse is tested beside liqoctl.
package docs_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/admin/release"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/docs"
)

const (
	operations      = "operations.md"
	troubleshooting = "troubleshooting.md"
)

// document is one of them, as it stands.
type document struct {
	path, text string
}

// documents are those of this folder and below, and the others that are not generated.
func documents(t *testing.T) []document {
	t.Helper()
	paths := []string{"../README.md", "../ARCHITECTURE.md", "../bench/README.md", "../bench/scale/README.md", "../test/README.md"}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []document
	for _, path := range paths {
		all = append(all, document{path, read(t, path)})
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// TestYAML: every block of YAML is objects of kinds that there are, without an
// unknown field, or values that the chart takes.
func TestYAML(t *testing.T) {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, networkingv1beta1.AddToScheme, ipamv1alpha1.AddToScheme, authv1beta1.AddToScheme, offloadingv1beta1.AddToScheme, mcsv1beta1.Install} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, kinds, kinds, json.SerializerOptions{Yaml: true, Strict: true})
	for _, d := range documents(t) {
		for _, block := range fence.FindAllStringSubmatch(d.text, -1) {
			if block[1] != "yaml" {
				continue
			}
			for part := range strings.SplitSeq(block[2], "\n---\n") {
				if !strings.Contains(part, "apiVersion:") {
					checkValues(t, d.path, part)
				} else if _, _, err := decoder.Decode([]byte(part), nil, nil); err != nil {
					t.Errorf("%s: %v in:\n%s", d.path, err, part)
				}
			}
		}
	}
}

// checkValues tells whether the chart takes them.
func checkValues(t *testing.T, where, text string) {
	t.Helper()
	chart, err := release.Embedded(release.Build{})
	if err != nil {
		t.Fatal(err)
	}
	values := release.Values{}
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Errorf("%s: %v in:\n%s", where, err, text)
		return
	}
	if err := chart.Check(values); err != nil {
		t.Errorf("%s: %v in:\n%s", where, err, text)
	}
}

// valuePath is a path of values in a sentence or behind --set.
var valuePath = regexp.MustCompile(`(?:^|[\x60 ])((?:ipam|peering|networking|metrics|controllerManager|networkPolicies|podDisruptionBudgets|openshiftConfig|discovery|common)(?:\.[A-Za-z0-9]+)+)`)

// TestValues: every value of the chart that is named exists.
func TestValues(t *testing.T) {
	var defaults map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "../deploy/chart/values.yaml")), &defaults); err != nil {
		t.Fatal(err)
	}
	for _, d := range documents(t) {
		for _, m := range valuePath.FindAllStringSubmatch(d.text, -1) {
			if strings.HasSuffix(m[1], ".io") {
				continue // a group of the API
			}
			at := any(defaults)
			for name := range strings.SplitSeq(m[1], ".") {
				values, _ := at.(map[string]any)
				next, there := values[name]
				if !there {
					t.Errorf("%s names the value %s, which the chart does not have", d.path, m[1])
					break
				}
				at = next
			}
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noSlug  = regexp.MustCompile(`[^a-z0-9 -]`)
)

// TestLinks: every link within the repository leads somewhere.
func TestLinks(t *testing.T) {
	for _, d := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(d.text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := d.path
			if target != "" {
				path = filepath.Join(filepath.Dir(d.path), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", d.path, err)
			} else if anchor != "" && !slices.Contains(slugs(read(t, path)), anchor) {
				t.Errorf("%s: the link %s leads to no heading", d.path, m[1])
			}
		}
	}
}

// slugs are the names by which headings are linked to.
func slugs(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// sources is the code of the programs, without tests.
func sources(t *testing.T) string {
	t.Helper()
	var all bytes.Buffer
	for _, root := range []string{"../cmd", "../admin", "../controlplane", "../dataplane", "../gateway", "../node", "../objects", "../tunnel", "../underlay", "../api"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			all.Write(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// found are the different first groups of what a pattern matches.
func found(pattern, text string) []string {
	set := make(map[string]bool)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		set[m[1]] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// TestMetrics: the operations page lists all metrics, and no document names
// another.
func TestMetrics(t *testing.T) {
	exist := found(`"((?:liqo_peer|liqo_wireguard|sluice)_[a-z0-9_]+)"`, sources(t))
	for _, d := range documents(t) {
		for _, name := range found("`((?:liqo_peer|liqo_wireguard|sluice)_[a-z0-9_]+)`", d.text) {
			if !slices.Contains(exist, name) {
				t.Errorf("%s names the metric %s, which does not exist", d.path, name)
			}
		}
	}
	listed := found("`((?:liqo|sluice)_[a-z0-9_]+)`", read(t, operations))
	for _, name := range exist {
		if !slices.Contains(listed, name) {
			t.Errorf("%s does not list the metric %s", operations, name)
		}
	}
}

// TestAlerts: the operations page tells what to do at every alert.
func TestAlerts(t *testing.T) {
	want := found(`- alert: (\w+)`, read(t, "../deploy/chart/files/alerts.yaml"))
	if diff := cmp.Diff(want, found(`\b(Sluice[A-Z]\w+)`, read(t, operations))); diff != "" {
		t.Errorf("alerts in %s (-want +got):\n%s", operations, diff)
	}
}

// TestDrops: the troubleshooting page explains all drops, and no document names
// another.
func TestDrops(t *testing.T) {
	if !strings.HasSuffix(drops.Page, "docs/"+troubleshooting) || !strings.Contains(docs.Troubleshooting(drops.Section), "| DropNoMapping |") {
		t.Errorf("there is no %s", drops.Page)
	}
	exist := slices.Sorted(slices.Values(drops.Reasons()))
	if diff := cmp.Diff(exist, found(`(?m)^\|.*?\b(Drop[A-Z][A-Za-z]+)`, strings.ReplaceAll(read(t, troubleshooting), ", Drop", "\n| Drop"))); diff != "" {
		t.Errorf("the table of drops in %s (-want +got):\n%s", troubleshooting, diff)
	}
	for _, d := range documents(t) {
		for _, name := range found(`\b(Drop[A-Z][A-Za-z]+)`, d.text) {
			if !slices.Contains(exist, name) && name != "DropTunnel" { // how some begin
				t.Errorf("%s names the drop %s, which does not exist", d.path, name)
			}
		}
	}
}

// TestChecks: the table of the doctor's checks has all of them, in their order.
func TestChecks(t *testing.T) {
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(read(t, troubleshooting), -1) {
		listed = append(listed, m[1])
	}
	if diff := cmp.Diff(doctor.Checks(), listed); diff != "" {
		t.Errorf("%s (-want +got):\n%s", troubleshooting, diff)
	}
}

// TestConditions: the table of conditions names those that there are, with all
// reasons that are a problem.
func TestConditions(t *testing.T) {
	table, ok := section(read(t, troubleshooting), "## Conditions")
	if !ok {
		t.Fatal("there is no section about conditions")
	}
	code := sources(t)
	types := found(`(?m)^\tCondition\w+ ConditionType = "(\w+)"`, code)
	reasons := found(`(?m)^\tReason\w+ ConditionReason = "(\w+)"`, code)
	for _, name := range types {
		if !strings.Contains(table, "| "+name+" |") {
			t.Errorf("the table does not have the condition %s", name)
		}
	}
	for _, row := range regexp.MustCompile(`(?m)^\|[^|]*\| (\w+) \| ([^|]*) \|$`).FindAllStringSubmatch(table, -1) {
		if row[1] == "condition" {
			continue
		}
		if !slices.Contains(types, row[1]) {
			t.Errorf("there is no condition %s", row[1])
		}
		for _, name := range found(`\b([A-Z][a-z]+[A-Z]\w+)`, row[2]) {
			if !slices.Contains(reasons, name) {
				t.Errorf("condition %s: there is no reason %s", row[1], name)
			}
		}
	}
	for _, name := range found(`(?m)^\t//   - (\w+)$`, falseReasons(code)) {
		if !strings.Contains(table, name) {
			t.Errorf("the table does not have the reason %s", name)
		}
	}
}

// TestLiqoLimits: the numbers in the table of what Liqo accepts are those of the CRDs.
func TestLiqoLimits(t *testing.T) {
	table, ok := section(read(t, "liqo.md"), "## What Liqo accepts and Sluice's controllers refuse")
	if !ok {
		t.Fatal("there is no such section")
	}
	mtu, port := field(t, "gatewayservers", "spec.mtu"), field(t, "gatewayservers", "spec.endpoint.port")
	chains := field(t, "firewallconfigurations", "spec.table.chains")
	filters := field(t, "firewallconfigurations", "spec.table.chains.rules.filterRules")
	for _, says := range []string{
		fmt.Sprintf("`mtu` below %.0f or above %.0f;", *mtu.Minimum, *mtu.Maximum),
		fmt.Sprintf("ports outside %.0f to %.0f;", *port.Minimum, *port.Maximum),
		fmt.Sprintf("a GeneveTunnel `id` of more than %d bits", bits.Len64(uint64(*field(t, "genevetunnels", "spec.id").Maximum))),
		fmt.Sprintf("more than %d chains, %d rules of a kind in one, %d matches in a rule;", *chains.MaxItems, *filters.MaxItems, *filters.Items.Schema.Properties["match"].MaxItems),
		fmt.Sprintf("more than %d `endpoint.addresses`", *field(t, "gatewayclients", "spec.endpoint.addresses").MaxItems),
	} {
		if !strings.Contains(table, says) {
			t.Errorf("the table does not say %q", says)
		}
	}
	for kind, names := range map[string][]string{"natRules": {"match"}, "routeRules": nil} {
		rules := field(t, "firewallconfigurations", "spec.table.chains.rules."+kind)
		if *rules.MaxItems != *filters.MaxItems {
			t.Errorf("%d %s, and not %d", *rules.MaxItems, kind, *filters.MaxItems)
		}
		for _, name := range names {
			if got, want := rules.Items.Schema.Properties[name].MaxItems, filters.Items.Schema.Properties[name].MaxItems; *got != *want {
				t.Errorf("%s: %d times %s, and not %d", kind, *got, name, *want)
			}
		}
	}
	for _, of := range [][2]string{{"gatewayclients", "mtu"}, {"internalfabrics", "mtu"}, {"gatewayclients", "endpoint.port"}, {"gatewayservers", "endpoint.nodePort"}} {
		got, want := field(t, of[0], "spec."+of[1]), port
		if of[1] == "mtu" {
			want = mtu
		}
		if *got.Minimum != *want.Minimum || *got.Maximum != *want.Maximum {
			t.Errorf("%s, %s: from %.0f to %.0f", of[0], of[1], *got.Minimum, *got.Maximum)
		}
	}
}

// field is a field of a kind of the network, or of an item of it, as its CRD has it.
func field(t *testing.T, kind, path string) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal([]byte(read(t, "../deploy/crds/networking.liqo.io_"+kind+".yaml")), &crd); err != nil {
		t.Fatal(err)
	}
	at := *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	for name := range strings.SplitSeq(path, ".") {
		if at.Items != nil {
			at = *at.Items.Schema
		}
		next, ok := at.Properties[name]
		if !ok {
			t.Fatalf("%s have no field %s", kind, path)
		}
		at = next
	}
	return at
}

// falseReasons is what comments list as reasons for a condition to be False.
func falseReasons(code string) string {
	return strings.Join(found(`(?m)to be False:\n((?:\t//   - \w+\n)+)`, code), "")
}

// section is the text below a heading, up to the next of its kind.
func section(text, title string) (string, bool) {
	_, after, ok := strings.Cut(text, title+"\n")
	body, _, _ := strings.Cut(after, "\n## ")
	return body, ok
}

// TestLogLines: the lines of logs that are explained are written somewhere.
func TestLogLines(t *testing.T) {
	table, _ := section(read(t, troubleshooting), "## Logs")
	rows := found("(?m)^\\| (`.*?) \\|", table)
	if len(rows) == 0 {
		t.Fatal("there is no table of log lines")
	}
	code := sources(t)
	for _, line := range found("`([^`]+)`", strings.Join(rows, "\n")) {
		if !strings.Contains(code, `"`+line+`"`) {
			t.Errorf("nothing logs %q", line)
		}
	}
}

// TestMakeTargets: what one is told to make can be made.
func TestMakeTargets(t *testing.T) {
	targets := found(`(?m)^([a-z0-9-]+):.*##`, read(t, "../Makefile"))
	for _, d := range documents(t) {
		for _, name := range found("(?m)(?:^|`)make ([a-z0-9-]+)", d.text) {
			if !slices.Contains(targets, name) {
				t.Errorf("%s: there is no target %s", d.path, name)
			}
		}
	}
}

// TestResourceSliceNames: to kubectl the plain name means the kind of resource.k8s.io, where the cluster has that.
func TestResourceSliceNames(t *testing.T) {
	plain := `(kubectl (?:-\S+ \S+ )*[a-z]+ (?:-\S+ \S+ )*(?:[a-z.]+,)*resourceslices?)(?:[^.a-z]|$)`
	for _, d := range append(documents(t), document{"the code", sources(t)}) {
		for _, command := range found(plain, d.text) {
			t.Errorf("%s: %q: use rslice or resourceslices.authentication.liqo.io", d.path, command)
		}
	}
}

// TestCRDsAreTakenOver: Helm, liqoctl or an older manifest may have applied CRDs before,
// and kubectl refuses to change what another one wrote.
func TestCRDsAreTakenOver(t *testing.T) {
	command := regexp.MustCompile(`kubectl apply [^` + "`" + `\n]*crds`)
	const want = "kubectl apply --server-side --force-conflicts -f "
	found := 0
	chart := []string{"../deploy/chart/README.md", "../deploy/chart/templates/NOTES.txt"}
	all := documents(t)
	for _, path := range chart {
		all = append(all, document{path, read(t, path)})
	}
	for _, d := range all {
		for _, c := range command.FindAllString(d.text, -1) {
			if found++; !strings.HasPrefix(c, want) {
				t.Errorf("%s: %s: want %s...", d.path, c, want)
			}
		}
	}
	if found <= len(chart) {
		t.Errorf("only %d commands apply CRDs", found)
	}
}

// TestRightsAreTested: each row of a table of rights, and of what is refused, names its tests, who has rights is in a
// table, and there is each test that is named.
func TestRightsAreTested(t *testing.T) {
	for _, path := range []string{operations, "liqo.md", "services.md"} {
		areTested(t, read(t, path))
	}
}

func areTested(t *testing.T, text string) {
	t.Helper()
	named := regexp.MustCompile("(Test[\\w/]+(?:,\\sTest[\\w/]+)*)\\sin\\s`([\\w./-]+)`")
	rows := 0
	for table := range strings.SplitSeq(text, "\n\n") {
		lines := strings.Split(table, "\n")
		if !strings.HasSuffix(lines[0], "| tested by |") {
			if strings.Contains(table, "(Tested by") {
				t.Errorf("what this says is for a table: %s", table)
			}
			continue
		}
		for _, row := range lines[2:] {
			rows++
			cells := strings.Split(strings.Trim(row, "| "), " | ")
			for part := range strings.SplitSeq(cells[len(cells)-1], "; ") {
				if m := named.FindString(part); m != part {
					t.Errorf("no test backs %s", row)
				}
			}
		}
	}
	if rows == 0 {
		t.Error("there is no table that names tests")
	}
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		code := tests(t, filepath.Join("..", m[2]))
		for name := range strings.SplitSeq(m[1], ",") {
			function, sub, _ := strings.Cut(strings.TrimSpace(name), "/")
			if !strings.Contains(code, "func "+function+"(t *testing.T)") || !strings.Contains(code, `"`+strings.ReplaceAll(sub, "_", " ")+`"`) && sub != "" {
				t.Errorf("%s has no test %s", m[2], strings.TrimSpace(name))
			}
		}
	}
}

// tests is the text of the tests of a package.
func tests(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		all.WriteString(read(t, file))
	}
	return all.String()
}

// TestTemplatesSuitLiqo reads every template of gateways that is shipped or printed
// by the rules of Liqo's renderer, which are stricter than ours: a key is optional,
// with a leading ?, only before a string, and its controllers panic at another.
func TestTemplatesSuitLiqo(t *testing.T) {
	texts := []document{{"../deploy/manifests/gateway-templates.yaml", read(t, "../deploy/manifests/gateway-templates.yaml")}}
	for _, d := range documents(t) {
		for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(d.text, -1) {
			texts = append(texts, document{d.path, m[1]})
		}
	}
	seen := map[string]int{}
	for _, d := range texts {
		for text := range strings.SplitSeq(d.text, "\n---\n") {
			var o struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct{ Template map[string]any }
			}
			if yaml.Unmarshal([]byte(text), &o) != nil || !strings.HasSuffix(o.Kind, "Template") {
				continue
			}
			seen[d.path]++
			for _, path := range optionalObjects(o.Spec.Template, "spec.template") {
				t.Errorf("%s, %s %s: %s is optional, but no string", d.path, o.Kind, o.Metadata.Name, path)
			}
		}
	}
	if seen["../deploy/manifests/gateway-templates.yaml"] != 2 || seen["liqo.md"] != 1 {
		t.Errorf("templates by file: %v", seen)
	}
	template := map[string]any{"a": []any{map[string]any{"?b": "{{ .Name }}", "?c": map[string]any{"?d": 1}}}}
	if diff := cmp.Diff([]string{"spec.a[0].?c", "spec.a[0].?c.?d"}, optionalObjects(template, "spec")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestTemplateReplacesLiqos: a living gateway of Liqo 1.2 is replaced in place by the template that liqo.md prints, since
// nothing differs that Kubernetes cannot change, or that clients or pods of the cluster would notice.
func TestTemplateReplacesLiqos(t *testing.T) {
	_, text, found := strings.Cut(read(t, "liqo.md"), "```yaml\napiVersion: networking.liqo.io/v1beta1\nkind: WgGatewayServerTemplate\n")
	text, _, ended := strings.Cut(text, "```\n")
	if !found || !ended {
		t.Fatal("liqo.md prints no template")
	}
	var o struct {
		Spec struct {
			Template struct {
				Spec struct {
					Service    corev1.Service
					Deployment appsv1.Deployment
				}
			}
		}
	}
	// Numbers are texts in a template: they are left out here.
	if err := yaml.Unmarshal([]byte(regexp.MustCompile(`(?m)^.*[pP]ort: "\{\{.*$`).ReplaceAllString(text, "")), &o); err != nil {
		t.Fatal(err)
	}
	service, deployment := o.Spec.Template.Spec.Service.Spec, o.Spec.Template.Spec.Deployment.Spec
	// Of Liqo's chart, release "liqo": helpers liqo.labelsTemplate, and what its gateways are found by.
	selector := map[string]string{
		"app.kubernetes.io/name": "{{ .Name }}", "app.kubernetes.io/instance": "liqo-{{ .Name }}", "app.kubernetes.io/component": "networking",
		"app.kubernetes.io/part-of": "liqo", "app.kubernetes.io/managed-by": "Helm",
		"networking.liqo.io/component": "gateway", "networking.liqo.io/gateway-name": "{{ .Name }}", "networking.liqo.io/gateway-namespace": "{{ .Namespace }}",
	}
	if diff := cmp.Diff(selector, deployment.Selector.MatchLabels); diff != "" {
		t.Errorf("the selector of a Deployment cannot be changed (-Liqo +ours)\n%s", diff)
	}
	for name, labels := range map[string]map[string]string{"Deployment": deployment.Selector.MatchLabels, "Service": service.Selector} {
		for key, value := range labels {
			if deployment.Template.Labels[key] != value {
				t.Errorf("the %s does not find the pods: label %s is %q, not %q", name, key, deployment.Template.Labels[key], value)
			}
		}
	}
	if len(service.Ports) != 1 || service.Ports[0].Name != "" || service.Ports[0].Protocol != corev1.ProtocolUDP {
		t.Errorf("a port with another name gets another node port: %+v", service.Ports)
	}
	if !service.PublishNotReadyAddresses {
		t.Error("the peer must reach a gateway that is not ready: it becomes ready by it")
	}
	for _, c := range deployment.Template.Spec.Containers {
		if c.ReadinessProbe == nil || c.ReadinessProbe.PeriodSeconds != 2 {
			t.Errorf("readiness is seen late: %+v", c.ReadinessProbe)
		}
	}
	if *deployment.Replicas != 1 || deployment.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("%d replicas, %q: two gateways would take the session from each other", *deployment.Replicas, deployment.Strategy.Type)
	}
}

// optionalObjects lists the optional keys below value that do not stand before a string.
func optionalObjects(value any, path string) (paths []string) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := path + "." + key
			if _, text := v[key].(string); !text && strings.HasPrefix(key, "?") {
				paths = append(paths, at)
			}
			paths = append(paths, optionalObjects(v[key], at)...)
		}
	case []any:
		for i := range v {
			paths = append(paths, optionalObjects(v[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return paths
}
