package v1alpha1_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api/ipam/v1alpha1"
)

// strictDecoder refuses unknown and repeated fields, and fields in the wrong case, as an API server does.
func strictDecoder(t *testing.T) runtime.Decoder {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
}

// TestManifests decodes manifests that set every field, in both address families, and writes them again: nothing may
// be unknown, lost or invented.
func TestManifests(t *testing.T) {
	b, err := os.ReadFile("testdata/ipam.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoder := strictDecoder(t)
	for _, doc := range strings.Split(string(b), "\n---\n") {
		obj, _, err := decoder.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if diff := cmp.Diff(obj, obj.DeepCopyObject()); diff != "" {
			t.Errorf("copied (-want +got):\n%s", diff)
		}
		out, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		var want, got any
		if err := yaml.Unmarshal([]byte(doc), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("written again (-want +got):\n%s", diff)
		}
	}
}

func TestStrictness(t *testing.T) {
	decoder := strictDecoder(t)
	for _, doc := range []string{
		"{apiVersion: ipam.liqo.io/v1alpha1, kind: Network, spec: {cidrs: 10.0.0.0/8}}",
		"{apiVersion: ipam.liqo.io/v1alpha1, kind: Network, spec: {cidr: [10.0.0.0/8]}}",
		"{apiVersion: ipam.liqo.io/v1alpha1, kind: IP, spec: {IP: 10.0.0.1}}",
	} {
		if obj, _, err := decoder.Decode([]byte(doc), nil, nil); err == nil {
			t.Errorf("%s was decoded: %v", doc, obj)
		}
	}
}

func TestAddress(t *testing.T) {
	for in, want := range map[v1alpha1.Address]bool{
		"10.0.0.1": true, "fd00::1": true, "64:ff9b::192.0.2.1": true,
		"": false, "10.0.0.0/8": false, "fe80::1%eth0": false, "::ffff:10.0.0.1": false, "010.0.0.1": false,
	} {
		if addr, err := in.Addr(); (err == nil) != want || addr.IsValid() != want {
			t.Errorf("%q: got %v, %v, want success: %v", in, addr, err, want)
		}
	}
}

func TestCIDR(t *testing.T) {
	for in, want := range map[v1alpha1.CIDR]bool{
		"10.0.0.0/8": true, "10.0.0.1/8": true, "fd00::/48": true,
		"": false, "10.0.0.0": false, "10.0.0.0/33": false, "::ffff:10.0.0.0/104": false, "010.0.0.0/8": false,
	} {
		if p, err := in.Prefix(); (err == nil) != want || p.IsValid() != want {
			t.Errorf("%q: got %v, %v, want success: %v", in, p, err, want)
		}
	}
}
