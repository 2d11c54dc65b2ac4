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
