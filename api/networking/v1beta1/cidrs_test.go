package v1beta1_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestCIDRs(t *testing.T) {
	for _, tt := range []struct {
		name string
		json string
		want v1beta1.CIDRs
	}{
		{"one string", `"10.243.0.0/16"`, v1beta1.CIDRs{List: []v1beta1.CIDR{"10.243.0.0/16"}, Scalar: true}},
		{"one IPv6 string", `"fd00::/48"`, v1beta1.CIDRs{List: []v1beta1.CIDR{"fd00::/48"}, Scalar: true}},
		{"a list of one", `["10.243.0.0/16"]`, v1beta1.CIDRs{List: []v1beta1.CIDR{"10.243.0.0/16"}}},
		{"a list of both families", `["10.243.0.0/16","fd00::/48"]`, v1beta1.CIDRs{List: []v1beta1.CIDR{"10.243.0.0/16", "fd00::/48"}}},
		{"an empty list", `[]`, v1beta1.CIDRs{List: []v1beta1.CIDR{}}},
		{"an empty string", `""`, v1beta1.CIDRs{List: []v1beta1.CIDR{""}, Scalar: true}},
		{"text that is no prefix is kept", `"ten"`, v1beta1.CIDRs{List: []v1beta1.CIDR{"ten"}, Scalar: true}},
		{"null", `null`, v1beta1.CIDRs{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// A used value: nothing of it may be left.
			got := v1beta1.CIDRs{List: []v1beta1.CIDR{"192.0.2.0/24", "198.51.100.0/24"}, Scalar: true}
			if err := json.Unmarshal([]byte(tt.json), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
			b, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.json, string(b)); diff != "" {
				t.Errorf("encoded (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(got, *got.DeepCopy()); diff != "" {
				t.Errorf("copied (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCIDRsRefused(t *testing.T) {
	for _, in := range []string{`7`, `1.5`, `true`, `{}`, `{"a":"b"}`} {
		t.Run(in, func(t *testing.T) {
			got := v1beta1.CIDRs{List: []v1beta1.CIDR{"192.0.2.0/24"}}
			if err := json.Unmarshal([]byte(in), &got); err == nil {
				t.Errorf("decoded as %v", got)
			}
		})
	}
	// encoding/json never hands over such input, other callers may.
	for _, in := range []string{"", " ", "x", `"`, `["`} {
		if err := new(v1beta1.CIDRs).UnmarshalJSON([]byte(in)); err == nil {
			t.Errorf("%q was decoded", in)
		}
	}
}

// TestCIDRsKept: a list may hold anything in an API server. It must be read all the same, and be found wrong.
func TestCIDRsKept(t *testing.T) {
	for _, tt := range []struct {
		json string
		want []v1beta1.CIDR
	}{
		{`[7]`, []v1beta1.CIDR{"7"}},
		{`["10.0.0.0/8",null]`, []v1beta1.CIDR{"10.0.0.0/8", "null"}},
		{`[["10.0.0.0/8"]]`, []v1beta1.CIDR{`["10.0.0.0/8"]`}},
		{`[{}, true]`, []v1beta1.CIDR{"{}", "true"}},
	} {
		t.Run(tt.json, func(t *testing.T) {
			var got v1beta1.CIDRs
			if err := json.Unmarshal([]byte(tt.json), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(v1beta1.CIDRs{List: tt.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if ps, err := got.Prefixes(); err == nil {
				t.Errorf("found right: %v", ps)
			}
		})
	}
}

// TestCIDRsInConfiguration looks at the field where it stands: absent stays absent, and each of the four shapes
// survives a round trip through YAML, as a user's editor and the gateway's manifests make it.
func TestCIDRsInConfiguration(t *testing.T) {
	for _, tt := range []struct{ name, cidr string }{
		{"both strings", "{external: 10.70.0.0/16, pod: 10.243.0.0/16}"},
		{"both lists", "{external: [10.70.0.0/16], pod: [10.243.0.0/16, 'fd00::/48']}"},
		{"one of each", "{external: 10.70.0.0/16, pod: [10.243.0.0/16]}"},
		{"one absent", "{pod: 10.243.0.0/16}"},
		{"an empty list", "{external: [], pod: 10.243.0.0/16}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := "spec: {remote: {cidr: " + tt.cidr + "}}"
			var c v1beta1.Configuration
			if err := yaml.UnmarshalStrict([]byte(in), &c); err != nil {
				t.Fatal(err)
			}
			out, err := yaml.Marshal(map[string]any{"spec": c.Spec})
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			if err := yaml.Unmarshal([]byte(in), &want); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCIDRsPrefixes(t *testing.T) {
	got, err := v1beta1.CIDRs{List: []v1beta1.CIDR{"10.243.0.0/16", "fd00::/48"}}.Prefixes()
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.243.0.0/16"), netip.MustParsePrefix("fd00::/48")}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err := (v1beta1.CIDRs{List: []v1beta1.CIDR{"10.243.0.0/16", "ten"}}).Prefixes(); err == nil {
		t.Errorf("got %v, want an error about element 1", got)
	}
	if got, err := (v1beta1.CIDRs{}).Prefixes(); err != nil || len(got) != 0 {
		t.Errorf("zero value: got %v, %v", got, err)
	}
}

func FuzzCIDRs(f *testing.F) {
	for _, s := range []string{`"10.243.0.0/16"`, `["10.243.0.0/16","fd00::/48"]`, `[]`, `null`, `[null]`, `7`, `{"a":[]}`, `"\ud800"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var first v1beta1.CIDRs
		if json.Unmarshal(in, &first) != nil {
			return
		}
		b, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		second := v1beta1.CIDRs{List: []v1beta1.CIDR{"dirty"}, Scalar: true}
		if err := json.Unmarshal(b, &second); err != nil {
			t.Fatalf("%s, written as %s: %v", in, b, err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%s, written as %s (-first +second):\n%s", in, b, diff)
		}
	})
}

func TestAsLists(t *testing.T) {
	one := v1beta1.CIDRs{List: []v1beta1.CIDR{"10.243.0.0/16"}}
	text := v1beta1.CIDRs{List: one.List, Scalar: true}
	of := func(pod, external v1beta1.CIDRs) v1beta1.ClusterConfig {
		return v1beta1.ClusterConfig{CIDR: v1beta1.ClusterCIDR{Pod: pod, External: external}}
	}
	lists, strings, mixed := of(one, one), of(text, text), of(one, text)
	for _, tt := range []struct {
		name string
		spec v1beta1.ConfigurationSpec
		had  bool
	}{
		{"lists", v1beta1.ConfigurationSpec{Local: &lists, Remote: lists}, false},
		{"no local CIDRs", v1beta1.ConfigurationSpec{Remote: lists}, false},
		{"strings", v1beta1.ConfigurationSpec{Remote: strings}, true},
		{"a string of the remote cluster", v1beta1.ConfigurationSpec{Local: &lists, Remote: mixed}, true},
		{"strings of both", v1beta1.ConfigurationSpec{Local: &strings, Remote: strings}, true},
		{"a string of the local cluster", v1beta1.ConfigurationSpec{Local: &mixed, Remote: lists}, true},
	} {
		got := tt.spec.DeepCopy()
		if had := got.AsLists(); had != tt.had || got.AsLists() {
			t.Errorf("%s: %v, then %+v", tt.name, had, got)
		}
		if diff := cmp.Diff(lists, got.Remote); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
