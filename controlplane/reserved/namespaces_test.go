package reserved

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/deploy"
)

// TestPolicies: the policies that name namespaces of Kubernetes name the same.
func TestPolicies(t *testing.T) {
	want := "'" + strings.Join(systemNamespaces, "', '") + "'"
	lists := regexp.MustCompile(`\[[^\]]*'kube-[^\]]*\]`)
	found := 0
	err := fs.WalkDir(deploy.Manifests(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(deploy.Manifests(), path)
		for _, list := range lists.FindAllString(string(text), -1) {
			found++
			if others := strings.Replace(list, want, "", 1); others == list || strings.Contains(others, "'kube-") {
				t.Errorf("%s: %s are not %s", path, list, want)
			}
		}
		return err
	})
	if err != nil || found < 2 {
		t.Errorf("%d policies, %v", found, err)
	}
}

func TestFromOffloading(t *testing.T) {
	for _, tt := range []struct {
		name, label, liqo string
		kept              bool
	}{
		{"shop", "", "liqo", false},
		{"default", "", "liqo", false},
		{"default", "", "default", true},
		{"liqo", "", "liqo", true},
		{"liqo-fabric", "", "liqo", true},
		{"liqo-demo", "", "liqo", false},
		{"net", "", "net", true},
		{"net-fabric", "", "net", true},
		{"liqo", "", "net", true},
		{"liqo-tenant-milan", "", "liqo", true},
		{"of-milan", "true", "liqo", true},
		{"of-milan", "false", "liqo", false},
		{"kube-system", "", "liqo", true},
		{"kube-flannel", "", "liqo", true},
		{"openshift-dns", "", "liqo", true},
	} {
		why := FromOffloading(tt.name, map[string]string{"liqo.io/tenant-namespace": tt.label}, tt.liqo)
		if (why != "") != tt.kept || tt.kept && !strings.Contains(why, tt.name) {
			t.Errorf("%+v: %q", tt, why)
		}
	}
}
