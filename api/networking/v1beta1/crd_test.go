package v1beta1_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const crdDir = "../../../deploy/crds"

// crd is the part of a CustomResourceDefinition that these tests look at. The real type would bring the whole of
// apiextensions-apiserver into the module.
type crd struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Kind       string   `json:"kind"`
			ListKind   string   `json:"listKind"`
			Plural     string   `json:"plural"`
			Singular   string   `json:"singular"`
			ShortNames []string `json:"shortNames"`
			Categories []string `json:"categories"`
		} `json:"names"`
		Versions []struct {
			Name    string `json:"name"`
			Served  bool   `json:"served"`
			Storage bool   `json:"storage"`
			Schema  struct {
				OpenAPIV3Schema schema `json:"openAPIV3Schema"`
			} `json:"schema"`
			Subresources map[string]any `json:"subresources"`
			Columns      []struct {
				Name     string `json:"name"`
				Type     string `json:"type"`
				JSONPath string `json:"jsonPath"`
				Priority int    `json:"priority"`
			} `json:"additionalPrinterColumns"`
		} `json:"versions"`
	} `json:"spec"`
}

// schema has every keyword that may occur in our schemas; the strict decoder finds any other.
type schema struct {
	Description   string            `json:"description"`
	Type          string            `json:"type"`
	Format        string            `json:"format"`
	Pattern       string            `json:"pattern"`
	Default       any               `json:"default"`
	Enum          []any             `json:"enum"`
	Minimum       *float64          `json:"minimum"`
	Maximum       *float64          `json:"maximum"`
	MaxLength     *int64            `json:"maxLength"`
	MinLength     *int64            `json:"minLength"`
	MaxItems      *int64            `json:"maxItems"`
	MaxProperties *int64            `json:"maxProperties"`
	MinItems      *int64            `json:"minItems"`
	Required      []string          `json:"required"`
	Properties    map[string]schema `json:"properties"`
	Items         *schema           `json:"items"`
	Additional    *schema           `json:"additionalProperties"`
	AnyOf         []schema          `json:"anyOf"`
	Preserve      bool              `json:"x-kubernetes-preserve-unknown-fields"`
	IntOrString   bool              `json:"x-kubernetes-int-or-string"`
	MapType       string            `json:"x-kubernetes-map-type"`
	ListType      string            `json:"x-kubernetes-list-type"`
	ListMapKeys   []string          `json:"x-kubernetes-list-map-keys"`
	Rules         []struct {
		Rule    string `json:"rule"`
		Message string `json:"message"`
		// OptionalOldSelf lets a rule judge new objects only.
		OptionalOldSelf bool `json:"optionalOldSelf"`
	} `json:"x-kubernetes-validations"`
}

func readCRD(t *testing.T, kind string) crd {
	t.Helper()
	for _, c := range readCRDs(t) {
		if c.Spec.Names.Kind == kind {
			return c
		}
	}
	t.Fatalf("no CRD of kind %s", kind)
	return crd{}
}

func readCRDs(t *testing.T) []crd {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(crdDir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs in %s: %v", crdDir, err)
	}
	crds := make([]crd, len(files))
	for i, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		// The annotation with the generator's version is the only thing left out of crd.
		b = regexp.MustCompile(`(?m)^  annotations:\n(    .*\n)+`).ReplaceAll(b, nil)
		if err := yaml.UnmarshalStrict(b, &crds[i]); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
	}
	return crds
}

func schemaAt(t *testing.T, c crd, path ...string) schema {
	t.Helper()
	s := c.Spec.Versions[0].Schema.OpenAPIV3Schema
	for i, p := range path {
		next, ok := s.Properties[p]
		if p == "[]" && s.Items != nil {
			next, ok = *s.Items, true
		}
		if !ok {
			t.Fatalf("%s has no %s", c.Spec.Names.Kind, strings.Join(path[:i+1], "."))
		}
		s = next
	}
	return s
}

// TestCRDNames compares everything that a user of kubectl sees with what scripts and habits expect.
func TestCRDNames(t *testing.T) {
	const age = "Age date .metadata.creationTimestamp"
	gateway := func(side string, endpoint string) []string {
		return []string{
			"Template Kind string .spec." + side + "TemplateRef.kind wide",
			"Template Name string .spec." + side + "TemplateRef.name",
			"Template Namespace string .spec." + side + "TemplateRef.namespace wide",
			"IP string ." + endpoint + ".endpoint.addresses[*]",
			"Port string ." + endpoint + ".endpoint['port','ports']",
			"Protocol string ." + endpoint + ".endpoint.protocol wide",
			"MTU integer .spec.mtu wide",
			age,
		}
	}
	type names struct {
		Scope, Plural string
		ShortNames    []string
		Status        bool
		Columns       []string
		Labels        map[string]string
	}
	template := map[string]string{"networking.liqo.io/gatewaytemplate": "true"}
	want := map[string]names{
		"Configuration": {"Namespaced", "configurations", []string{"conf"}, true, []string{
			"Desired Pod CIDR string .spec.remote.cidr.pod",
			"Remapped Pod CIDR string .status.remote.cidr.pod[*]",
			age,
			"Desired External CIDR string .spec.remote.cidr.external wide",
			"Remapped External CIDR string .status.remote.cidr.external[*] wide",
			`ClusterID string .metadata.labels.liqo\.io/remote-cluster-id wide`,
		}, nil},
		"GatewayServer":           {"Namespaced", "gatewayservers", []string{"gws", "gwserver"}, true, gateway("server", "status"), nil},
		"GatewayClient":           {"Namespaced", "gatewayclients", []string{"gwc", "gwclient"}, true, gateway("client", "spec"), nil},
		"WgGatewayServer":         {"Namespaced", "wggatewayservers", []string{"wgs", "wggs"}, true, nil, nil},
		"WgGatewayClient":         {"Namespaced", "wggatewayclients", []string{"wgc", "wggc"}, true, nil, nil},
		"WgGatewayServerTemplate": {"Namespaced", "wggatewayservertemplates", []string{"wggst", "wgst"}, false, nil, template},
		"WgGatewayClientTemplate": {"Namespaced", "wggatewayclienttemplates", []string{"wggct", "wgct"}, false, nil, template},
		"PublicKey":               {"Namespaced", "publickeies", []string{"pk", "pkies", "pkey"}, false, nil, nil},
		"Connection": {"Namespaced", "connections", []string{"conn"}, true, []string{
			"Type string .spec.type", "Status string .status.value", age, "Latency string .status.latency.value wide",
		}, nil},
		"InternalNode": {"Cluster", "internalnodes", []string{"in", "inode"}, true, []string{
			"Node IP Local string .status.nodeIP.local", "Node IP Remote string .status.nodeIP.remote", age,
		}, nil},
		"InternalFabric": {"Namespaced", "internalfabrics", []string{"if", "ifabric"}, false, []string{
			"Gateway IP string .spec.gatewayIP", age,
		}, nil},
		"GeneveTunnel":          {"Namespaced", "genevetunnels", []string{"gvtn"}, false, nil, nil},
		"RouteConfiguration":    {"Namespaced", "routeconfigurations", []string{"rcnf", "rcnfg", "rcfg", "routecfg"}, true, []string{age}, nil},
		"FirewallConfiguration": {"Namespaced", "firewallconfigurations", []string{"fw", "fwconfig", "fwcfg"}, true, []string{age}, nil},
		"ExportedService": {"Namespaced", "exportedservices", []string{"exsvc"}, false, []string{
			"Service Namespace string .spec.namespace", "Service string .spec.name", "Type string .spec.type", age,
		}, nil},
		"ImportedService": {"Namespaced", "importedservices", []string{"imsvc"}, true, []string{
			"Service Namespace string .spec.namespace", "Service string .spec.name", "Type string .spec.type",
			`Accepted string .status.conditions[?(@.type=="Accepted")].status`, age,
		}, nil},
		"Network": {"Namespaced", "networks", []string{"net"}, true, []string{
			"Desired CIDR string .spec.cidr", "Remapped CIDR string .status.cidr", age,
		}, nil},
		"IP": {"Namespaced", "ips", nil, true, []string{
			"Local IP string .spec.ip", "Remapped IP string .status.ip", "Remapped IP CIDR string .status.cidr", age,
		}, nil},
		"Tenant": {"Namespaced", "tenants", []string{"tn"}, true, []string{"Condition string .spec.tenantCondition", age}, nil},
		"Identity": {"Namespaced", "identities", []string{"id"}, true, []string{
			"Type string .spec.type", "KubeconfigSecret string .status.kubeconfigSecretRef.name wide", age,
		}, nil},
		"ResourceSlice": {"Namespaced", "resourceslices", []string{"rslice"}, true, []string{
			`Authentication string .status.conditions[?(@.type=="Authentication")].status`,
			`Resources string .status.conditions[?(@.type=="Resources")].status`, age,
		}, nil},
		"Renew": {"Namespaced", "renews", nil, true, []string{age}, nil},
		"ForeignCluster": {"Cluster", "foreignclusters", []string{"fc"}, true, []string{
			"Role string .status.role", "ClusterID string .spec.clusterID wide", age,
		}, nil},
		"NamespaceOffloading": {"Namespaced", "namespaceoffloadings", []string{"nso", "nsof", "nsoff", "nsoffloading"}, true, []string{
			"NamespaceMappingStrategy string .spec.namespaceMappingStrategy", "PodOffloadingStrategy string .spec.podOffloadingStrategy",
			"OffloadingPhase string .status.offloadingPhase", "RemoteNamespaceName string .status.remoteNamespaceName wide", age,
		}, nil},
		"NamespaceMap": {"Namespaced", "namespacemaps", []string{"nm", "nsmap"}, true, []string{`Local string .metadata.labels.liqo\.io/replication`, age}, nil},
		"VirtualNode": {"Namespaced", "virtualnodes", []string{"vn", "vnode", "virno", "vno"}, true, []string{
			"ClusterID string .spec.clusterID", "Create Node boolean .spec.createNode", age,
			`Node string .status.conditions[?(@.type=="Node")].status wide`,
			`VirtualKubelet string .status.conditions[?(@.type=="VirtualKubelet")].status wide`,
		}, nil},
		"VkOptionsTemplate": {"Namespaced", "vkoptionstemplates", []string{"vkot", "vkopt"}, false, nil, nil},
		"Quota": {"Namespaced", "quotas", []string{"qt"}, false, []string{
			"Enforcement string .spec.limitsEnforcement", "Cordoned boolean .spec.cordoned", age, "User string .spec.user wide",
		}, nil},
		"ShadowPod":           {"Namespaced", "shadowpods", []string{"shp", "shpod"}, true, []string{"Status string .status.phase", age}, nil},
		"ShadowEndpointSlice": {"Namespaced", "shadowendpointslices", []string{"shes", "sheps", "seps"}, false, nil, nil},
	}
	got := map[string]names{}
	for _, c := range readCRDs(t) {
		kind := c.Spec.Names.Kind
		group, version := "networking.liqo.io", "v1beta1"
		switch kind {
		case "Network", "IP":
			group, version = "ipam.liqo.io", "v1alpha1"
		case "Tenant", "Identity", "ResourceSlice", "Renew":
			group = "authentication.liqo.io"
		case "ForeignCluster":
			group = "core.liqo.io"
		case "NamespaceOffloading", "NamespaceMap", "VirtualNode", "VkOptionsTemplate", "Quota", "ShadowPod", "ShadowEndpointSlice":
			group = "offloading.liqo.io"
		}
		if c.Spec.Group != group || c.Metadata.Name != c.Spec.Names.Plural+"."+group {
			t.Errorf("%s: group %s, name %s", kind, c.Spec.Group, c.Metadata.Name)
		}
		if c.Spec.Names.ListKind != kind+"List" || c.Spec.Names.Singular != strings.ToLower(kind) {
			t.Errorf("%s: list kind %s, singular %s", kind, c.Spec.Names.ListKind, c.Spec.Names.Singular)
		}
		if diff := cmp.Diff([]string{"liqo"}, c.Spec.Names.Categories); diff != "" {
			t.Errorf("%s: categories (-want +got):\n%s", kind, diff)
		}
		if len(c.Spec.Versions) != 1 {
			t.Fatalf("%s: %d versions", kind, len(c.Spec.Versions))
		}
		v := c.Spec.Versions[0]
		if v.Name != version || !v.Served || !v.Storage {
			t.Errorf("%s: version %s, served %v, stored %v", kind, v.Name, v.Served, v.Storage)
		}
		n := names{Scope: c.Spec.Scope, Plural: c.Spec.Names.Plural, ShortNames: c.Spec.Names.ShortNames, Labels: c.Metadata.Labels}
		_, n.Status = v.Subresources["status"]
		for _, col := range v.Columns {
			text := col.Name + " " + col.Type + " " + col.JSONPath
			if col.Priority > 0 {
				text += " wide"
			}
			n.Columns = append(n.Columns, text)
		}
		got[kind] = n
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCRDRules: the rules that other implementations have are there as well, word for word, and every rule says in its
// message what is wrong. What the rules do is tested by TestAdmission.
func TestCRDRules(t *testing.T) {
	const (
		portOrPorts   = "!(has(self.port) && has(self.ports))"
		nodePorts     = "!(has(self.nodePort) && has(self.nodePorts))"
		portSet       = "has(self.port) || (has(self.ports) && size(self.ports) > 0)"
		portsUnique   = "!(has(self.ports)) || self.ports.all(p, self.ports.filter(q, q == p).size() == 1)"
		nodePortsUniq = "!(has(self.nodePorts)) || self.nodePorts.all(p, self.nodePorts.filter(q, q == p).size() == 1)"
		immutable     = "self == oldSelf"
	)
	endpoint := []string{portOrPorts, portSet, portsUnique}
	want := map[string][]string{
		"ForeignCluster.spec.clusterID":   {immutable},
		"GatewayServer.spec.endpoint":     {portOrPorts, nodePorts, portSet, portsUnique, nodePortsUniq},
		"GatewayServer.status.endpoint":   endpoint,
		"GatewayClient.spec.endpoint":     endpoint,
		"WgGatewayServer.status.endpoint": endpoint,
		"Network.spec.cidr":               {immutable},
		"IP.spec.ip":                      {immutable},
		"IP.status.ip":                    {immutable},
		"IP.status.cidr":                  {immutable},
	}
	got := map[string][]string{}
	for _, c := range readCRDs(t) {
		walk(c.Spec.Names.Kind, c.Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, s schema) {
			for _, r := range s.Rules {
				got[path] = append(got[path], r.Rule)
				if r.Message == "" {
					t.Errorf("%s: rule %s has no message", path, r.Rule)
				}
			}
		})
	}
	for path, rules := range want {
		for _, r := range rules {
			if !slices.Contains(got[path], r) {
				t.Errorf("%s: no rule %s", path, r)
			}
		}
	}
}

// TestCRDStructural checks what an API server demands of a schema before it takes the CRD ("structural schema").
func TestCRDStructural(t *testing.T) {
	formats := []string{"", "byte", "cidr", "date-time", "int32", "int64"}
	for _, c := range readCRDs(t) {
		root := c.Spec.Versions[0].Schema.OpenAPIV3Schema
		if c.APIVersion != "apiextensions.k8s.io/v1" || c.Kind != "CustomResourceDefinition" || root.Type != "object" {
			t.Errorf("%s: %s %s, root type %q", c.Metadata.Name, c.APIVersion, c.Kind, root.Type)
		}
		walk(c.Spec.Names.Kind, root, func(path string, s schema) {
			if s.Type == "" && !s.Preserve && !s.IntOrString {
				t.Errorf("%s: no type", path)
			}
			if s.Type == "array" != (s.Items != nil) {
				t.Errorf("%s: type %q, items %v", path, s.Type, s.Items != nil)
			}
			if (s.Properties != nil || s.Additional != nil) && s.Type != "object" || s.Properties != nil && s.Additional != nil {
				t.Errorf("%s: properties or additionalProperties with type %q", path, s.Type)
			}
			for _, r := range s.Required {
				if _, ok := s.Properties[r]; !ok {
					t.Errorf("%s: %s is required and does not exist", path, r)
				}
			}
			if _, err := regexp.Compile(s.Pattern); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if !slices.Contains(formats, s.Format) {
				t.Errorf("%s: format %q: unknown, or of one address family only", path, s.Format)
			}
			for _, a := range s.AnyOf {
				// The one exception to "no type below anyOf".
				if a.Type != "" && !s.IntOrString {
					t.Errorf("%s: type below anyOf", path)
				}
			}
			for _, k := range s.ListMapKeys {
				key, ok := s.Items.Properties[k]
				if !ok || !slices.Contains(s.Items.Required, k) && key.Default == nil {
					t.Errorf("%s: list key %s is neither required nor has it a default", path, k)
				}
			}
		})
	}
}

// TestCRDSpec: no object of the network is accepted without a spec.
func TestCRDSpec(t *testing.T) {
	for _, c := range readCRDs(t) {
		if group := c.Spec.Group; group != "networking.liqo.io" && group != "ipam.liqo.io" {
			continue
		}
		if required := c.Spec.Versions[0].Schema.OpenAPIV3Schema.Required; !slices.Contains(required, "spec") {
			t.Errorf("%s: only %q are required", c.Spec.Names.Kind, required)
		}
	}
}

// TestCRDSize guards the limit that kubectl apply runs into: the whole object in one annotation, and annotations of
// 256 KiB altogether.
func TestCRDSize(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(crdDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		j, err := yaml.YAMLToJSON(b)
		if err != nil {
			t.Fatal(err)
		}
		if len(j) > 250<<10 {
			t.Errorf("%s: %d bytes", f, len(j))
		}
	}
}

// walk visits every node of a schema with its path; list elements are [], map values {}.
func walk(path string, s schema, visit func(path string, s schema)) {
	visit(path, s)
	for k, p := range s.Properties {
		walk(path+"."+k, p, visit)
	}
	if s.Items != nil {
		walk(path+"[]", *s.Items, visit)
	}
	if s.Additional != nil {
		walk(path+"{}", *s.Additional, visit)
	}
}
