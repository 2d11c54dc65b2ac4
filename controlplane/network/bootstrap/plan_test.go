package bootstrap

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
)

func prefixes(text ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, t := range text {
		ps = append(ps, netip.MustParsePrefix(t))
	}
	return ps
}

func defaults() Options {
	return Options{
		LiqoNamespace: "liqo",
		ClusterID:     "rome",
		PodCIDRs:      prefixes("10.243.0.0/16"),
		ServiceCIDRs:  prefixes("10.96.0.0/16"),
		ExternalCIDR:  Range{Prefix: netip.MustParsePrefix("10.70.0.0/16")},
		InternalCIDR:  Range{Prefix: netip.MustParsePrefix("10.80.0.0/16")},
	}
}

func configMap(id string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ClusterIDConfigMap, Namespace: "liqo"}, Data: map[string]string{ClusterIDKey: id}}
}

func network(name, kind, cidr string) ipamv1alpha1.Network {
	n := ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "liqo"}, Spec: ipamv1alpha1.NetworkSpec{CIDR: ipamv1alpha1.CIDR(cidr)}}
	if kind != "" {
		n.Labels = map[string]string{ipamv1alpha1.LabelNetworkType: kind}
	}
	return n
}

// all is a complete installation.
func all() Facts {
	return Facts{ConfigMap: configMap("rome"), Networks: []ipamv1alpha1.Network{
		network("pod-cidr", "pod-cidr", "10.243.0.0/16"), network("service-cidr", "service-cidr", "10.96.0.0/16"),
		network("external-cidr", "external-cidr", "10.70.0.0/16"), network("internal-cidr", "internal-cidr", "10.80.0.0/16"),
	}}
}

// line is an object in one line: what a test has to tell apart.
func line(o client.Object) string {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		return o.Name + " " + o.Data[ClusterIDKey]
	case *ipamv1alpha1.Network:
		s := fmt.Sprintf("%s %s %s", o.Name, o.Labels[ipamv1alpha1.LabelNetworkType], o.Spec.CIDR)
		if o.Labels[ipamv1alpha1.LabelNetworkNotRemapped] == "true" {
			s += " not-remapped"
		}
		if o.Labels[ipamv1alpha1.LabelNetworkShared] == "true" {
			s += " shared"
		}
		if o.Spec.PreAllocated != 0 {
			s += fmt.Sprintf(" preAllocated=%d", o.Spec.PreAllocated)
		}
		return s
	}
	return fmt.Sprintf("%T", o)
}

func TestBuild(t *testing.T) {
	const (
		pod      = "pod-cidr pod-cidr 10.243.0.0/16 not-remapped"
		service  = "service-cidr service-cidr 10.96.0.0/16 not-remapped"
		external = "external-cidr external-cidr 10.70.0.0/16 preAllocated=1"
		internal = "internal-cidr internal-cidr 10.80.0.0/16"
		ipv6     = "external-cidr-ipv6 external-cidr fd50:52ea:70::/112 preAllocated=1"
		id       = ClusterIDConfigMap + " rome"
	)
	tests := []struct {
		name     string
		options  func(*Options)
		facts    func(*Facts)
		create   []string
		problems []string // fragments
		notes    []string
	}{
		{name: "an empty namespace gets everything", facts: func(f *Facts) { *f = Facts{} },
			create: []string{id, pod, service, external, internal}},
		{name: "what is complete stays"},
		{name: "a deleted one comes back", facts: func(f *Facts) { f.Networks = f.Networks[1:] }, create: []string{pod}},

		{name: "no cluster ID and no ConfigMap", options: func(o *Options) { o.ClusterID = "" }, facts: func(f *Facts) { f.ConfigMap = nil },
			problems: []string{"set --cluster-id"}},
		{name: "no cluster ID, but a ConfigMap", options: func(o *Options) { o.ClusterID = "" }},
		{name: "a ConfigMap that says otherwise stays", facts: func(f *Facts) { f.ConfigMap = configMap("milan") },
			notes: []string{"--cluster-id rome is not used: this cluster is milan"}},
		{name: "a ConfigMap without an ID", facts: func(f *Facts) { f.ConfigMap.Data = nil },
			problems: []string{`liqo/liqo-clusterid-configmap has no valid ID of this cluster: CLUSTER_ID is ""`}},
		{name: "a ConfigMap with an ID that names cannot hold", facts: func(f *Facts) { f.ConfigMap = configMap("Rome!") },
			problems: []string{`CLUSTER_ID is "Rome!"`}},

		{name: "no pod CIDR", options: func(o *Options) { o.PodCIDRs = nil }, facts: func(f *Facts) { f.Networks = f.Networks[1:] },
			problems: []string{"the pod CIDR of this cluster is not known: set --pod-cidr"}},
		{name: "no pod CIDR, but a Network", options: func(o *Options) { o.PodCIDRs = nil }},
		{name: "a Network of the name whose label is lost counts", options: func(o *Options) { o.PodCIDRs = nil },
			facts: func(f *Facts) { f.Networks[0].Labels = nil }},
		{name: "another pod CIDR than the Network's", options: func(o *Options) { o.PodCIDRs = prefixes("10.1.0.0/16") },
			notes: []string{"--pod-cidr 10.1.0.0/16 is not used: Network liqo/pod-cidr is 10.243.0.0/16"}},
		{name: "several pod CIDRs", options: func(o *Options) { o.PodCIDRs = prefixes("10.1.0.0/16", "fd00:1::/64") },
			facts: func(f *Facts) { f.Networks = f.Networks[1:] },
			create: []string{"pod-cidr-10-1-0-0-16 pod-cidr 10.1.0.0/16 not-remapped",
				"pod-cidr-fd00-1---64 pod-cidr fd00:1::/64 not-remapped", ipv6}},
		{name: "a pod CIDR that is added later", options: func(o *Options) { o.PodCIDRs = prefixes("10.243.0.0/16", "10.1.0.0/16") },
			create: []string{"pod-cidr-10-1-0-0-16 pod-cidr 10.1.0.0/16 not-remapped"}},
		{name: "Networks of a chart with other names", facts: func(f *Facts) {
			f.Networks[0] = network("pod-cidr-10-243-0-0-16", "pod-cidr", "10.243.0.0/16")
		}},

		{name: "the API server tells the Service CIDRs", options: func(o *Options) { o.ServiceCIDRs = nil },
			facts: func(f *Facts) {
				f.Networks = append(f.Networks[:1], f.Networks[2:]...)
				f.ServiceCIDRs = prefixes("10.96.0.0/16")
			},
			create: []string{service}},
		{name: "it tells two", options: func(o *Options) { o.ServiceCIDRs = nil },
			facts: func(f *Facts) {
				f.Networks = append(f.Networks[:1], f.Networks[2:]...)
				f.ServiceCIDRs = prefixes("10.96.0.0/16", "fd00:96::/112")
			},
			create: []string{"service-cidr-10-96-0-0-16 service-cidr 10.96.0.0/16 not-remapped",
				"service-cidr-fd00-96---112 service-cidr fd00:96::/112 not-remapped"}},
		{name: "it does not tell", options: func(o *Options) { o.ServiceCIDRs = nil },
			facts:    func(f *Facts) { f.Networks = append(f.Networks[:1], f.Networks[2:]...) },
			problems: []string{"the Service CIDR of this cluster is not known: set --service-cidr"}},
		{name: "what it tells does not matter when a Network is there", options: func(o *Options) { o.ServiceCIDRs = nil },
			facts: func(f *Facts) { f.ServiceCIDRs = prefixes("10.97.0.0/16") }},

		{name: "external and internal CIDR that the user insists on", options: func(o *Options) { o.ExternalCIDR.Fixed, o.InternalCIDR.Fixed = true, true },
			facts: func(f *Facts) { f.Networks = f.Networks[:2] },
			create: []string{"external-cidr external-cidr 10.70.0.0/16 not-remapped preAllocated=1",
				"internal-cidr internal-cidr 10.80.0.0/16 not-remapped"}},
		{name: "another external CIDR than the Network's, insisted on", options: func(o *Options) { o.ExternalCIDR = Range{netip.MustParsePrefix("10.71.0.0/16"), true} },
			notes: []string{"--external-cidr 10.71.0.0/16 is not used: Network liqo/external-cidr is 10.70.0.0/16"}},
		{name: "an external CIDR of IPv6 for pods of IPv6", facts: func(f *Facts) { f.Networks = append(f.Networks, network("pods", "pod-cidr", "fd00:1::/64")) },
			create: []string{ipv6}},
		{name: "there is one of somebody else's", facts: func(f *Facts) {
			f.Networks = append(f.Networks, network("pods", "pod-cidr", "fd00:1::/64"), network("outside", "external-cidr", "fd00:2::/64"))
		}},
		{name: "the user insists on one", options: func(o *Options) { o.ExternalCIDR = Range{netip.MustParsePrefix("fd00:2::/64"), true} },
			facts: func(f *Facts) {
				f.Networks = []ipamv1alpha1.Network{network("pod-cidr", "pod-cidr", "fd00:1::/64"), f.Networks[1], f.Networks[3]}
			},
			create: []string{"external-cidr external-cidr fd00:2::/64 not-remapped preAllocated=1"},
			notes:  []string{"--pod-cidr 10.243.0.0/16 is not used"}},
		{name: "that of IPv4 is missing", facts: func(f *Facts) {
			f.Networks = append([]ipamv1alpha1.Network{network("external-cidr-ipv6", "external-cidr", "fd50:52ea:70::/112"), f.Networks[3]}, f.Networks[:2]...)
		}, create: []string{external}},
		{name: "another default than the Network's is not worth a word", options: func(o *Options) { o.ExternalCIDR.Prefix = netip.MustParsePrefix("10.71.0.0/16") }},

		{name: "reserved prefixes", options: func(o *Options) { o.ReservedCIDRs = prefixes("192.168.0.0/16", "fd00:9::/48") },
			create: []string{"reserved-192-168-0-0-16 reserved 192.168.0.0/16 not-remapped shared",
				"reserved-fd00-9---48 reserved fd00:9::/48 not-remapped shared"}},
		{name: "a reserved prefix under another name", options: func(o *Options) { o.ReservedCIDRs = prefixes("192.168.0.0/16") },
			facts: func(f *Facts) { f.Networks = append(f.Networks, network("reserved-lab", "reserved", "192.168.0.0/16")) }},
		{name: "a name that is taken", options: func(o *Options) { o.ReservedCIDRs = prefixes("192.168.0.0/16") },
			facts: func(f *Facts) { f.Networks = append(f.Networks, network("reserved-192-168-0-0-16", "", "10.9.0.0/16")) },
			notes: []string{"--reserved-cidr 192.168.0.0/16 is not used: Network liqo/reserved-192-168-0-0-16 is 10.9.0.0/16"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, f := defaults(), all()
			if tt.options != nil {
				tt.options(&o)
			}
			if tt.facts != nil {
				tt.facts(&f)
			}
			plan := Build(o, f)
			var got []string
			for _, c := range plan.Create {
				got = append(got, line(c))
			}
			if diff := cmp.Diff(tt.create, got, cmpopts.SortSlices(strings.Compare), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("create (-want +got):\n%s", diff)
			}
			fragments(t, "problems", tt.problems, plan.Problems)
			fragments(t, "notes", tt.notes, plan.Notes)
		})
	}
}

func fragments(t *testing.T, what string, want, got []string) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%s: got %q, want %q", what, got, want)
		return
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("%s: got %q, want %q in it", what, got[i], want[i])
		}
	}
}

// TestBuildConverges: whatever is there and whatever is asked for, a second look
// after the first plan creates nothing.
func TestBuildConverges(t *testing.T) {
	some := prefixes("10.1.0.0/16", "10.2.0.0/16", "10.0.0.0/8", "fd00:1::/64", "192.168.0.0/16")
	kinds := []string{"pod-cidr", "service-cidr", "external-cidr", "internal-cidr", "reserved", ""}
	rapid.Check(t, func(t *rapid.T) {
		o := defaults()
		draw := func(name string) []netip.Prefix {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(some), 0, 3, rapid.ID).Draw(t, name)
		}
		o.PodCIDRs, o.ServiceCIDRs, o.ReservedCIDRs = draw("pods"), draw("services"), draw("reserved")
		o.ExternalCIDR.Fixed = rapid.Bool().Draw(t, "fixed")
		f := Facts{ServiceCIDRs: draw("detected")}
		for i, k := range rapid.SliceOf(rapid.SampledFrom(kinds)).Draw(t, "kinds") {
			name := rapid.SampledFrom([]string{fmt.Sprintf("n%d", i), k + "-10-1-0-0-16", k}).Draw(t, "name")
			f.Networks = append(f.Networks, network(name, k, rapid.SampledFrom(some).Draw(t, "cidr").String()))
		}
		names := map[string]bool{}
		for _, n := range f.Networks {
			names[n.Name] = true
		}
		for _, c := range Build(o, f).Create {
			if names[c.GetName()] {
				t.Fatalf("%s exists already", c.GetName())
			}
			names[c.GetName()] = true
			switch c := c.(type) {
			case *corev1.ConfigMap:
				f.ConfigMap = c
			case *ipamv1alpha1.Network:
				f.Networks = append(f.Networks, *c)
			}
		}
		if again := Build(o, f).Create; len(again) > 0 {
			t.Fatalf("again: %v", again)
		}
	})
}

// TestTell: a note is a warning, once, until it holds no longer.
func TestTell(t *testing.T) {
	var b strings.Builder
	logger := logr.FromSlogHandler(slog.NewTextHandler(&b, nil)).WithValues("controller", "bootstrap")
	var r Reconciler
	for _, step := range []struct {
		notes []string
		want  int
	}{{[]string{"a"}, 1}, {[]string{"a"}, 0}, {[]string{"a", "b"}, 1}, {nil, 0}, {[]string{"a", "b"}, 2}} {
		b.Reset()
		r.logNotes(logger, step.notes)
		if got := strings.Count(b.String(), "level=WARN msg=\"an option is not used\" controller=bootstrap reason="); got != step.want {
			t.Errorf("%q: %d warnings, want %d: %s", step.notes, got, step.want, b.String())
		}
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Options)
		want   string // "": valid
	}{
		{"as it is", func(*Options) {}, ""},
		{"no ID", func(o *Options) { o.ClusterID = "" }, ""},
		{"an ID of 63 characters", func(o *Options) { o.ClusterID = strings.Repeat("a", 63) }, ""},
		{"an ID of 64 characters", func(o *Options) { o.ClusterID = strings.Repeat("a", 64) }, "at most 63"},
		{"an ID with a dot", func(o *Options) { o.ClusterID = "a.b" }, `--cluster-id: "a.b" must be`},
		{"an ID that ends with a dash", func(o *Options) { o.ClusterID = "a-" }, "at both ends"},
		{"pods and Services overlap", func(o *Options) { o.ServiceCIDRs = prefixes("10.243.128.0/20") },
			"--service-cidr 10.243.128.0/20 overlaps --pod-cidr 10.243.0.0/16"},
		{"a default gives way", func(o *Options) { o.PodCIDRs = prefixes("10.64.0.0/12") }, ""},
		{"what the user insists on does not", func(o *Options) { o.PodCIDRs, o.ExternalCIDR.Fixed = prefixes("10.64.0.0/12"), true },
			"--external-cidr 10.70.0.0/16 overlaps --pod-cidr 10.64.0.0/12"},
		{"the same twice", func(o *Options) { o.PodCIDRs = prefixes("10.1.0.0/16", "10.1.0.0/16") }, "--pod-cidr 10.1.0.0/16 overlaps --pod-cidr 10.1.0.0/16"},
		{"reserved is what others use, perhaps we too", func(o *Options) { o.ReservedCIDRs = prefixes("10.0.0.0/8") }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := defaults()
			tt.change(&o)
			switch err := o.Validate(); {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}
