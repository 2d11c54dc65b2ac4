package release

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/source"
)

func TestRefusedValues(t *testing.T) {
	for _, tt := range []struct{ name, values, want string }{
		{"a misspelt value", "networking: {genevePorts: 6092}", "the chart has no value networking.genevePorts: did you mean networking.genevePort?\n" + valuesList},
		{"a misspelt value of another section", "networking: {mtuu: 1400}", "the chart has no value networking.mtuu: did you mean peering.networking.gateway.mtu?\n"},
		{"a misspelt section", "network: {}", "the chart has no value network: did you mean networking?\n"},
		{"capitals", "ipam: {podCidr: 10.1.0.0/16}", "the chart has no value ipam.podCidr: did you mean ipam.podCIDR"},
		{"a value at another place", "genevePort: 6092", "the chart has no value genevePort: did you mean networking.genevePort?\n"},
		{"a value of several places", "replicas: 2", "did you mean clusterDNS.replicas or controllerManager.replicas or networking.gatewayTemplates.replicas?\n"},
		{"a value like no other", "quality: high", "the chart has no value quality\n"},
		{"two mistakes", "{tags: v1, networking: {genevePort: none}}", "did you mean tag?\n" + valuesList + "\nthe values are not valid:\n- at '/networking/genevePort': got string, want integer"},
		{"text for a number", "controllerManager: {replicas: two}", "at '/controllerManager/replicas': got string, want integer"},
		{"no gateway at all", "networking: {gatewayTemplates: {replicas: 0}}", "at '/networking/gatewayTemplates/replicas': minimum: got 0, want 1"},
		{"no CIDR", "ipam: {reservedSubnets: [10.0.0.0]}", "at '/ipam/reservedSubnets/0': '10.0.0.0' does not match pattern"},
		{"a type of Service", "peering: {networking: {gateway: {server: {service: {type: ExternalName}}}}}", "at '/peering/networking/gateway/server/service/type': value must be one of 'LoadBalancer', 'NodePort', 'ClusterIP'"},
		{"an image of Liqo", "controllerManager: {image: {name: ghcr.io/liqotech/liqo-controller-manager}}", "at '/controllerManager/image/name': 'not' failed"},
		{"images that could be any", "{tag: latest, networking: {fabric: {image: {version: latest}}}}",
			"tag, networking.fabric.image.version: the tag latest does not identify an image, and nodes may have different images under it: set the tag of your images as 'make images' prints it, such as --set tag=unknown"},
		{"a registry with a tag", "registry: 'sluice.local/x:v1'", "at '/registry': 'sluice.local/x:v1' does not match pattern"},
		{"an image with a tag", "controllerManager: {image: {name: 'sluice/controller:v1'}}", "does not match pattern"},
		{"an address book elsewhere", "ipam: {external: {enabled: true}}", "at '/ipam/external/enabled': value must be false"},
		{"no network", "networking: {enabled: false}", "at '/networking/enabled': value must be true"},
		{"no pod CIDR", "ipam: {podCIDR: ''}", "ipam.podCIDR: what the pods of this cluster have addresses of"},
		{"no cluster ID", "discovery: {config: {clusterID: ''}}", "discovery.config.clusterID: the name of this cluster among its peers"},
		{"an authority that is no base64", "{authentication: {enabled: true}, apiServer: {ca: '-----BEGIN CERTIFICATE-----'}}", "at '/apiServer/ca': '-----BEGIN CERTIFICATE-----' does not match pattern"},
		{"an authority that is no PEM", "{authentication: {enabled: true}, apiServer: {ca: aGVsbG8=}}", "apiServer.ca: certificates in PEM, encoded in base64"},
		{"two authorities", "{authentication: {enabled: true}, apiServer: {ca: aGVsbG8=, trustedCA: true}}", "apiServer.ca and apiServer.trustedCA contradict each other: drop one of them"},
		{"PodMonitors without metrics", "metrics: {podMonitor: {enabled: true}}", "metrics.podMonitor.enabled needs metrics.enabled"},
		{"alerts without metrics", "metrics: {prometheusRule: {enabled: true}}", "metrics.prometheusRule.enabled needs metrics.enabled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			values := merge(parse(t, minimal), parse(t, tt.values))
			err := embedded(t).Check(values)
			if err == nil {
				_, err = embedded(t).render(values, "liqo")
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			} else if strings.Contains(err.Error(), "templates/") || strings.Contains(err.Error(), "execution error") {
				t.Errorf("the place in the chart is told: %v", err)
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
controllerManager: {metrics: {podMonitor: {enabled: true}}}
metrics: {enabled: true, prometheusOperator: {enabled: true}}
networking:
  enabled: true
  fabric: {config: {nftablesMonitor: true, healthProbeBindAddressPort: "8081"}}
  gateway: {mssclamp: {enabled: true, value: 0}}
  gatewayTemplates: {wireguard: {implementation: kernel}}
offloading: {enabled: true, defaultNodeResources: {cpu: 4}}
`))
	if err := c.Check(v); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"the value controllerManager.metrics has no effect: metrics.podMonitor is for all programs, and the Service liqo-controller-metrics is always there",
		"the value networking.enabled has no effect: it is what is installed",
		"the value networking.fabric.config.nftablesMonitor has no effect: changes by others are always noticed",
		"the value networking.gateway.mssclamp.enabled has no effect: the TCP clamping is always on: without it, connections hang where ICMP gets lost",
		"the value networking.gateway.mssclamp.value has no effect: gateways clamp the MSS to what their MTU leaves: set peering.networking.gateway.mtu",
		"the value networking.gatewayTemplates.wireguard has no effect: WireGuard is in the gateway's process",
		"the value offloading.defaultNodeResources has no effect: a ResourceSlice says what it asks for",
	}
	if diff := cmp.Diff(want, c.ignored(v)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestValuesAreDocumented guards that values.yaml and the schema know the same
// values, with the same words and defaults.
func TestValuesAreDocumented(t *testing.T) {
	b, err := os.ReadFile(chartFolder + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := embedded(t)
	s, err := c.schema()
	if err != nil {
		t.Fatal(err)
	}
	defaults, documented, leaf := parse(t, string(b)), documentedValues(string(b)), leavesOf(s, "")
	leaves(defaults, "", func(path string, _ any) {
		for p := path; documented[p] == ""; p = p[:strings.LastIndex(p, ".")] { // a default that is a table is one value
			if !strings.Contains(p, ".") {
				t.Errorf("%s has no comment that begins with '# -- '", path)
				break
			}
		}
	})
	for _, path := range slices.Sorted(maps.Keys(documented)) {
		if _, ok := leaf[path]; !ok {
			t.Errorf("the schema does not know %s", path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(leaf)) {
		n := leaf[path]
		switch {
		case n.Description == "":
			t.Errorf("the schema does not describe %s", path)
		case n.Ignored != "":
		case n.Description != documented[path]:
			t.Errorf("%s: the schema says %q, values.yaml %q", path, n.Description, documented[path])
		case fmt.Sprint(n.Default) != fmt.Sprint(at(defaults, path)):
			t.Errorf("%s: the default is %v in the schema, %v in values.yaml", path, n.Default, at(defaults, path))
		case n.Type == nil && n.Ref == "":
			t.Errorf("the schema does not tell the type of %s", path)
		case len(n.Examples) == 0:
			t.Errorf("the schema has no example of %s", path)
		}
	}
	for i := range 3 { // the first examples together, and so on
		all := parse(t, minimal)
		for path, n := range leaf {
			if i < len(n.Examples) {
				all = merge(all, value(n.Examples[i], path))
			}
		}
		if err := c.Check(all); err != nil {
			t.Errorf("an example: %v", err)
		}
	}
}

// namedValue finds the names of values in messages and documents: "(chart: a.b)", "--set a.b=".
var namedValue = regexp.MustCompile(`\(chart: ([A-Za-z.]+)\)|--set(?:-string)? '?([A-Za-z.]+)`)

// TestNamedValues guards that the chart has the values that programs and documents tell users to set.
func TestNamedValues(t *testing.T) {
	s, err := embedded(t).schema()
	if err != nil {
		t.Fatal(err)
	}
	leaf := leavesOf(s, "")
	known := func(path string) bool {
		for ; path != ""; path = path[:max(0, strings.LastIndex(path, "."))] { // what is below a leaf is the user's
			if _, ok := leaf[path]; ok {
				return true
			}
		}
		return false
	}
	found := 0
	err = filepath.WalkDir(source.Path(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if ext := filepath.Ext(path); d.IsDir() || ext != ".go" && ext != ".md" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range namedValue.FindAllStringSubmatch(string(text), -1) {
			found++
			if name := strings.Trim(m[1]+m[2], "."); !known(name) {
				t.Errorf("%s: the chart has no value %s", path, name)
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d values are named, %v", found, err)
	}
}

// leavesOf are the values of a schema that have no others below them.
func leavesOf(s schemaNode, prefix string) map[string]schemaNode {
	found := map[string]schemaNode{}
	for k, below := range s.Properties {
		if below.Properties == nil || below.Ignored != "" {
			found[prefix+k] = below
		} else {
			maps.Copy(found, leavesOf(below, prefix+k+"."))
		}
	}
	return found
}

var valueLine = regexp.MustCompile(`^( *)([A-Za-z]+):`)

// documentedValues are the values below a comment that begins with "# -- ", and
// what it says.
func documentedValues(text string) map[string]string {
	found := map[string]string{}
	var path, comment []string
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch m := valueLine.FindStringSubmatch(line); {
		case strings.HasPrefix(trimmed, "# -- "):
			comment = []string{strings.TrimPrefix(trimmed, "# -- ")}
		case strings.HasPrefix(trimmed, "#") && comment != nil:
			comment = append(comment, strings.TrimSpace(trimmed[1:]))
		case m != nil:
			path = append(path[:min(len(m[1])/2, len(path))], m[2])
			if comment != nil {
				found[strings.Join(path, ".")] = strings.Join(comment, " ")
			}
			comment = nil
		default:
			comment = nil
		}
	}
	return found
}
