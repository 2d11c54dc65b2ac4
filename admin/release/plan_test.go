package release

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// told is a cluster that tells everything.
func told() Facts {
	return Facts{UID: "0c1f7ad7-54d1-4f3f-8bb5-6a1a4a1f4b7e", KubernetesVersion: "v1.36.3", Kubeadm: `{"networking": {"podSubnet": "10.244.0.0/16", "serviceSubnet": "10.96.0.0/12"}}`}
}

// withPod is such a cluster with a pod and a Service.
func withPod(address string) Facts {
	f := told()
	f.Pods = []PodAddress{{types.NamespacedName{Namespace: "app", Name: "web"}, netip.MustParseAddr(address)}}
	f.KubernetesService = netip.MustParseAddr("10.96.0.1")
	return f
}

func TestDecide(t *testing.T) {
	installed := told()
	installed.Installed = Installed{ClusterID: "rome", PodCIDRs: cidrs("10.200.0.0/16"), ServiceCIDRs: cidrs("10.97.0.0/16"),
		ExternalCIDR: netip.MustParsePrefix("10.71.0.0/16"), InternalCIDR: netip.MustParsePrefix("10.80.0.0/16")}
	nearPools := told()
	nearPools.Nodes = []Node{
		{Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.3")}}, {Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.4")}},
		{Addresses: []netip.Addr{netip.MustParseAddr("192.168.9.4")}}, {Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.4")}},
	}
	nearPools6 := told()
	nearPools6.Nodes = []Node{{Addresses: []netip.Addr{netip.MustParseAddr("fd50:52ea:0:7::3"), netip.MustParseAddr("fd00::3")}}}
	ipam := func(v Values) Values { return Values{"ipam": v} }
	for _, tt := range []struct {
		name     string
		options  Options
		facts    Facts
		before   Values
		values   string // YAML, of what the user need not say
		from     string // who says cluster ID, pods, Services
		warnings []string
		notes    []string
		err      string
	}{
		{name: "nothing said", facts: told(), values: `
discovery: {config: {clusterID: steady-ivy}}
ipam: {podCIDR: 10.244.0.0/16, podCIDRs: [], serviceCIDR: 10.96.0.0/12, serviceCIDRs: []}`,
			from: "generated; to choose another, use --cluster-id now: it cannot be changed after the installation|ConfigMap kube-system/kubeadm-config|ConfigMap kube-system/kubeadm-config"},
		{name: "everything said by flags", facts: told(), options: Options{
			Provider: Kind, ClusterID: "rome", ClusterLabels: map[string]string{"liqo.io/region": "eu"}, PodCIDRs: cidrs("10.1.0.0/16", "fd01::/56"), ServiceCIDRs: cidrs("10.2.0.0/16"),
			ReservedSubnets: cidrs("192.168.1.0/24"), Metrics: true, GlobalLabels: map[string]string{"team": "net"},
		}, values: `
common: {globalLabels: {team: net}}
discovery: {config: {clusterID: rome, clusterLabels: {liqo.io/region: eu}}}
ipam: {podCIDR: "", podCIDRs: [10.1.0.0/16, "fd01::/56"], serviceCIDR: 10.2.0.0/16, serviceCIDRs: [], reservedSubnets: [192.168.1.0/24]}
metrics: {enabled: true}
peering: {networking: {gateway: {server: {service: {type: NodePort}}}}}`,
			from:  "as given|as given|as given",
			notes: []string{"gateway servers are reached by NodePort, because kind has no load balancers"}},
		{name: "everything said by values", facts: told(), options: Options{Values: Values{
			"discovery": Values{"config": Values{"clusterID": "rome"}}, "ipam": Values{"podCIDRs": []any{"10.1.0.0/16"}, "serviceCIDR": "10.2.0.0/16"},
		}}, values: `
discovery: {config: {clusterID: rome}}
ipam: {podCIDR: 10.1.0.0/16, podCIDRs: [], serviceCIDR: 10.2.0.0/16, serviceCIDRs: []}`, from: "from the values|from the values|from the values"},
		{name: "installed already", facts: installed, values: `
discovery: {config: {clusterID: rome}}
ipam: {podCIDR: 10.200.0.0/16, podCIDRs: [], serviceCIDR: 10.97.0.0/16, serviceCIDRs: []}`, from: "as before|as before|as before"},
		{name: "the same said again", facts: installed, options: Options{ClusterID: "rome", PodCIDRs: cidrs("10.200.0.0/16")}, values: `
discovery: {config: {clusterID: rome}}
ipam: {podCIDR: 10.200.0.0/16, podCIDRs: [], serviceCIDR: 10.97.0.0/16, serviceCIDRs: []}`, from: "as given|as given|as before"},
		{name: "the release before", facts: installed, before: Values{"tag": "v1", "ipam": Values{"podCIDRs": []any{"10.200.0.0/16"}}}, values: `
discovery: {config: {clusterID: rome}}
ipam: {podCIDR: 10.200.0.0/16, podCIDRs: [], serviceCIDR: 10.97.0.0/16, serviceCIDRs: []}
tag: v1`, from: "as before|as before|as before", notes: []string{"Kept from the installed release (--reset-values drops it): tag=v1"}},
		{name: "more than the release before", facts: installed, options: Options{Values: Values{"tag": "v2"}},
			before: Values{"tag": "v1", "pullPolicy": "Never", "peering": Values{"networking": Values{"gateway": Values{"mtu": 1280}}}, "common": Values{"extraArgs": []any{}}}, values: `
common: {extraArgs: []}
discovery: {config: {clusterID: rome}}
ipam: {podCIDR: 10.200.0.0/16, podCIDRs: [], serviceCIDR: 10.97.0.0/16, serviceCIDRs: []}
peering: {networking: {gateway: {mtu: 1280}}}
pullPolicy: Never
tag: v2`, from: "as before|as before|as before",
			notes: []string{"Kept from the installed release (--reset-values drops it): peering.networking.gateway.mtu=1280, pullPolicy=Never"}},
		{name: "values taken back, and other ones", facts: installed, options: Options{ReservedSubnets: cidrs("192.168.0.0/16"), Values: Values{"tag": nil, "pullPolicy": "Always"}},
			before: Values{"tag": "v1", "pullPolicy": "Never", "ipam": Values{"reservedSubnets": []any{"172.16.0.0/12"}}, "common": Values{"globalLabels": Values{"example.org/team": "net"}}}, values: `
common: {globalLabels: {example.org/team: net}}
discovery: {config: {clusterID: rome}}
ipam: {podCIDR: 10.200.0.0/16, podCIDRs: [], reservedSubnets: [192.168.0.0/16], serviceCIDR: 10.97.0.0/16, serviceCIDRs: []}
pullPolicy: Always
tag: null`, from: "as before|as before|as before",
			notes: []string{"Kept from the installed release (--reset-values drops it): common.globalLabels.example.org/team=net"}},
		{name: "another ID, and other networks", facts: installed, options: Options{ClusterID: "milan", PodCIDRs: cidrs("10.1.0.0/16"), ServiceCIDRs: cidrs("10.2.0.0/16"),
			Values: ipam(Values{"externalCIDR": "10.72.0.0/16", "internalCIDR": "10.80.0.0/16"})}, err: `
this cluster is known to its peers as "rome" and cannot become "milan": leave out --cluster-id, or uninstall first
the pod CIDR is 10.200.0.0/16 in this installation and cannot become 10.1.0.0/16: leave out --pod-cidr, or uninstall first
the Service CIDR is 10.97.0.0/16 in this installation and cannot become 10.2.0.0/16: leave out --service-cidr, or uninstall first
ipam.externalCIDR is 10.71.0.0/16 in this installation and cannot become 10.72.0.0/16: uninstall first`},
		{name: "flags against values", facts: told(), options: Options{ClusterID: "rome", ClusterLabels: map[string]string{"a": "1"}, PodCIDRs: cidrs("10.1.0.0/16"), Values: Values{
			"discovery": Values{"config": Values{"clusterID": "milan", "clusterLabels": Values{"a": "2"}}}, "ipam": Values{"podCIDR": "10.2.0.0/16"},
		}}, err: `
--cluster-id rome contradicts the value discovery.config.clusterID milan: drop one of them
--pod-cidr 10.1.0.0/16 contradicts the value ipam.podCIDR 10.2.0.0/16: drop one of them
--cluster-labels a=1 contradicts the value discovery.config.clusterLabels, which says 2: drop one of them`},
		{name: "an ID that is none", facts: told(), options: Options{ClusterID: "Rome"}, err: `
the cluster ID "Rome" is not valid: use at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends`},
		{name: "nobody knows", facts: Facts{UID: "1"}, err: `
nothing in the cluster shows its pod CIDR: set --pod-cidr
nothing in the cluster shows its Service CIDR: set --service-cidr`},
		{name: "values that are no CIDRs", facts: told(), options: Options{Values: ipam(Values{"podCIDR": "10.1", "serviceCIDR": "10.96.0.1/16", "pools": []any{"x"}})}, err: `
ipam.podCIDR: "10.1" is not a CIDR, such as 10.243.0.0/16
ipam.serviceCIDR: 10.96.0.1/16 has host bits: use 10.96.0.0/16
ipam.pools: "x" is not a CIDR, such as 10.243.0.0/16`},
		{name: "networks that overlap", facts: told(), options: Options{PodCIDRs: cidrs("10.96.0.0/16"), Values: ipam(Values{"internalCIDR": "10.96.1.0/24"})}, err: `
ipam.internalCIDR 10.96.1.0/24 overlaps the Service CIDR 10.96.0.0/12: an address must belong to only one of them
ipam.internalCIDR 10.96.1.0/24 overlaps the pod CIDR 10.96.0.0/16: an address must belong to only one of them
the Service CIDR 10.96.0.0/12 overlaps the pod CIDR 10.96.0.0/16: an address must belong to only one of them`},
		{name: "networks that cannot be", facts: withPod("192.168.3.4"), options: Options{PodCIDRs: cidrs("10.1.0.0/16"), ServiceCIDRs: cidrs("10.2.0.0/16")}, err: `
the pod CIDR is not 10.1.0.0/16, because pod app/web has the address 192.168.3.4: correct --pod-cidr; if you are sure, add --skip-validation
the Service CIDR is not 10.2.0.0/16, because the Service default/kubernetes has the address 10.96.0.1: correct --service-cidr; if you are sure, add --skip-validation`},
		{name: "networks that cannot be, but are", facts: withPod("192.168.3.4"), options: Options{ClusterID: "rome", PodCIDRs: cidrs("10.1.0.0/16"), ServiceCIDRs: cidrs("10.2.0.0/16"), SkipValidation: true}, values: `
discovery: {config: {clusterID: rome}}
ipam: {podCIDR: 10.1.0.0/16, podCIDRs: [], serviceCIDR: 10.2.0.0/16, serviceCIDRs: []}`, from: "as given|as given|as given"},
		{name: "nodes in the pools", facts: nearPools, options: Options{ClusterID: "rome", ReservedSubnets: cidrs("192.168.9.0/24")}, values: `
discovery: {config: {clusterID: rome}}
ipam: {podCIDR: 10.244.0.0/16, podCIDRs: [], serviceCIDR: 10.96.0.0/12, serviceCIDRs: [], reservedSubnets: [192.168.9.0/24]}`,
			from:     "as given|ConfigMap kube-system/kubeadm-config|ConfigMap kube-system/kubeadm-config",
			warnings: []string{"the nodes have addresses in the pools from which prefixes for peers are taken: reserve their networks, for example with --reserved-subnets 192.168.7.0/24"}},
		{name: "nodes in the pool of IPv6", facts: nearPools6, options: Options{ClusterID: "rome"}, values: `
discovery: {config: {clusterID: rome}}
ipam: {podCIDR: 10.244.0.0/16, podCIDRs: [], serviceCIDR: 10.96.0.0/12, serviceCIDRs: []}`,
			from:     "as given|ConfigMap kube-system/kubeadm-config|ConfigMap kube-system/kubeadm-config",
			warnings: []string{"the nodes have addresses in the pools from which prefixes for peers are taken: reserve their networks, for example with --reserved-subnets fd50:52ea:0:7::/64"}},
		{name: "nodes outside of the pools", facts: nearPools, options: Options{ClusterID: "rome", Values: ipam(Values{"pools": []any{"10.0.0.0/8"}})}, values: `
discovery: {config: {clusterID: rome}}
ipam: {podCIDR: 10.244.0.0/16, podCIDRs: [], serviceCIDR: 10.96.0.0/12, serviceCIDRs: [], pools: [10.0.0.0/8]}`,
			from: "as given|ConfigMap kube-system/kubeadm-config|ConfigMap kube-system/kubeadm-config"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := decide(tt.options, tt.facts, tt.before)
			checkError(t, err, strings.TrimSpace(tt.err))
			if err != nil {
				return
			}
			if diff := gocmp.Diff(mustYAML(t, parse(t, tt.values)), mustYAML(t, d.Values)); diff != "" {
				t.Errorf("values (-want +got)\n%s", diff)
			}
			if from := strings.Join([]string{d.ClusterIDFrom, d.Pods.From, d.Services.From}, "|"); from != tt.from {
				t.Errorf("from %s, want %s", from, tt.from)
			}
			if diff := gocmp.Diff(tt.warnings, d.Warnings); diff != "" {
				t.Errorf("warnings (-want +got)\n%s", diff)
			}
			if diff := gocmp.Diff(tt.notes, d.Notes); diff != "" {
				t.Errorf("notes (-want +got)\n%s", diff)
			}
		})
	}
}

// TestSuggestID guards that the suggestion is an ID, and one for each cluster.
func TestSuggestID(t *testing.T) {
	seen := map[string]bool{}
	for i := range 1000 {
		uid := "0c1f7ad7-54d1-4f3f-8bb5-" + strings.Repeat("a", i%7) + string(rune('a'+i%26)) + strings.Repeat("b", i/26)
		id := suggestID(types.UID(uid))
		if len(validation.IsDNS1123Label(id)) > 0 || id != suggestID(types.UID(uid)) {
			t.Errorf("%s: %s", uid, id)
		}
		seen[id] = true
	}
	if len(seen) < 900 {
		t.Errorf("%d names for 1000 clusters", len(seen))
	}
}

func TestPreflight(t *testing.T) {
	good := func(change func(*Facts)) Facts {
		f := told()
		change(&f)
		return f
	}
	// crd is a cluster with one of our CRDs, applied by that version, with these fields.
	crd := func(version string, fields []string, change ...func(*apiextensionsv1.CustomResourceDefinition)) Facts {
		d := networksCRD(fields...)
		if version != "" {
			d.Annotations = map[string]string{AnnotationVersion: version}
		}
		for _, f := range change {
			f(&d)
		}
		return good(func(f *Facts) { f.Installed.CRDs = []apiextensionsv1.CustomResourceDefinition{d} })
	}
	stored := func(versions ...string) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(d *apiextensionsv1.CustomResourceDefinition) { d.Status.StoredVersions = versions }
	}
	more := []string{"cidr", "mask"}
	for _, tt := range []struct {
		name      string
		facts     Facts
		namespace string
		version   string
		err       string
	}{
		{name: "a good cluster", facts: told()},
		{name: "an old cluster", facts: good(func(f *Facts) { f.KubernetesVersion = "v1.30.4" }),
			err: "the cluster runs Kubernetes v1.30.4, which is older than 1.31.0 and does not support features that the CRDs use: upgrade the cluster first"},
		{name: "a vendor's version", facts: good(func(f *Facts) { f.KubernetesVersion = "v1.31.0-gke.1234" })},
		{name: "Liqo itself", facts: good(func(f *Facts) {
			f.Installed.Liqo = []string{"Deployment liqo/liqo-controller-manager"}
		}), err: "this cluster runs Liqo, and both would manage the same objects: to take over its network, hand its peerings to Sluice's gateway with 'liqoctl network adopt', then add --adopt here (docs/liqo.md); otherwise uninstall Liqo with its own liqoctl first (Deployment liqo/liqo-controller-manager)"},
		{name: "another namespace", facts: good(func(f *Facts) { f.Installed.Elsewhere = "network" }),
			err: "there is already an installation in namespace network, and a cluster can have only one: name it with --liqo-namespace network, or uninstall it first"},
		{name: "the agents' namespace", facts: told(), namespace: "liqo-fabric",
			err: "the name of namespace liqo-fabric is reserved for the node agents of an installation: choose another namespace with --liqo-namespace"},
		{name: "CRDs of an older version", facts: crd("v0.9.0", more, stored("v1alpha1")), version: "v1.0.0"},
		{name: "CRDs of a newer version", facts: crd("v1.1.0", nil), version: "v1.0.0",
			err: "CRD networks.ipam.liqo.io comes from v1.1.0, but this liqoctl is v1.0.0, which is older: use liqoctl v1.1.0 or newer"},
		{name: "CRDs of another build, which know no more", facts: crd("34a13d4", nil), version: "c774efa"},
		{name: "CRDs of another build, which know more", facts: crd("34a13d4", more), version: "c774efa",
			err: "CRD networks.ipam.liqo.io comes from 34a13d4 and has fields that this liqoctl c774efa does not know (spec.mask), which objects would lose: use a newer liqoctl; " +
				"if this is intended, first apply the CRDs of this version: kubectl apply --server-side --force-conflicts -f deploy/crds"},
		{name: "a release over a build which knows more", facts: crd("34a13d4", more), version: "v1.0.0",
			err: "CRD networks.ipam.liqo.io comes from 34a13d4 and has fields that this liqoctl v1.0.0 does not know (spec.mask), which objects would lose: use a newer liqoctl; " +
				"if this is intended, first apply the CRDs of this version: kubectl apply --server-side --force-conflicts -f deploy/crds"},
		{name: "CRDs that others applied", facts: crd("", more), version: "c774efa"},
		{name: "objects of a newer version", facts: crd("", nil, stored("v1alpha1", "v1")),
			err: "CRD networks.ipam.liqo.io has objects of version v1, which this liqoctl does not know: use a newer liqoctl"},
		{name: "CRDs that go away", facts: crd("", nil, func(d *apiextensionsv1.CustomResourceDefinition) { d.DeletionTimestamp = new(metav1.Time) }),
			err: "CRD networks.ipam.liqo.io is being deleted: wait until it is gone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ours := networksCRD("cidr")
			err := preflight(tt.facts, cmp.Or(tt.namespace, "liqo"), tt.version, map[string]apiextensionsv1.CustomResourceDefinition{ours.Name: ours})
			checkError(t, err, tt.err)
		})
	}
}

// networksCRD is a CRD whose spec has these fields; none: only cidr.
func networksCRD(fields ...string) (d apiextensionsv1.CustomResourceDefinition) {
	spec := apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"cidr": {Type: "string"}}}
	for _, f := range fields {
		spec.Properties[f] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	}
	d.Name = "networks.ipam.liqo.io"
	d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Schema: &apiextensionsv1.CustomResourceValidation{
		OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}},
	}}}
	return d
}

// TestUnknownFields looks below lists and maps, and into what takes any field.
func TestUnknownFields(t *testing.T) {
	object := func(fields ...string) *apiextensionsv1.JSONSchemaProps {
		s := new(apiextensionsv1.JSONSchemaProps)
		for _, f := range fields {
			if s.Properties == nil {
				s.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
			}
			s.Properties[f] = apiextensionsv1.JSONSchemaProps{}
		}
		return s
	}
	nested := func(of *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
		return &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"list": {Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: of}},
			"map":  {AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: of}},
		}}
	}
	for _, tt := range []struct {
		name       string
		live, ours *apiextensionsv1.JSONSchemaProps
		want       []string
	}{
		{name: "the same", live: object("a", "b"), ours: object("a", "b")},
		{name: "ours has more", live: object("a"), ours: object("a", "b")},
		{name: "ours takes any", live: object("a"), ours: object()},
		{name: "below lists and maps", live: nested(object("a", "b")), ours: nested(object("a")), want: []string{"list[].b", "map{}.b"}},
		{name: "below what ours has not at all", live: nested(object("a")), ours: object("list"), want: []string{"map"}},
		{name: "no schema", live: object("a"), ours: nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := unknownFields(tt.live, tt.ours, "")
			slices.Sort(got)
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func parse(t *testing.T, text string) Values {
	t.Helper()
	var v Values
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func mustYAML(t *testing.T, v Values) string {
	t.Helper()
	s, err := YAML(v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
