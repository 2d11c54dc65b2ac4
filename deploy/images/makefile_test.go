package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestMakefile guards that the programs and the images of one build know each other: the
// Makefile builds both as the same version and with the same registry, in a release, in a
// clone without tags and in an archive of the sources. What liqoctl makes of it is tested
// in admin/release.
func TestMakefile(t *testing.T) {
	makefile, err := filepath.Abs("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(makefile); err != nil { // make reads it, which go test does not see
		t.Fatal(err)
	}
	tagged := workTree(t)
	untagged := filepath.Join(t.TempDir(), "clone")
	if out, err := exec.Command("git", "clone", "-q", "--no-tags", tagged, untagged).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v\n%s", err, out)
	}
	for _, tt := range []struct {
		name, dir, version, registry string // regular expressions
		args                         []string
	}{
		{"release", tagged, "v1\\.4\\.0", "sluice\\.local", nil},
		{"clone without tags", untagged, "[0-9a-f]{7,}", "sluice\\.local", nil},
		{"archive", t.TempDir(), "unknown", "sluice\\.local", nil},
		{"as the user says", tagged, "v9", "r\\.example/x", []string{"VERSION=v9", "REGISTRY=r.example/x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("make", append([]string{"-n", "-f", makefile, "build", "images-load", "TO=k3s"}, tt.args...)...)
			cmd.Dir = tt.dir
			// The folders for tests may lie in somebody's work tree.
			cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(tt.dir), "MAKEFLAGS=")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("make: %v\n%s", err, out)
			}
			for _, want := range []string{
				`-X main\.version=` + tt.version + ` -X main\.registry=` + tt.registry + `"`,
				`mkimages --version ` + tt.version + ` --registry ` + tt.registry + ` +--load k3s\n`,
			} {
				if !regexp.MustCompile(want).Match(out) {
					t.Errorf("no %s in\n%s", want, out)
				}
			}
		})
	}
}

// TestDefaultRegistry guards that images have the names that the chart's values say.
func TestDefaultRegistry(t *testing.T) {
	b, err := os.ReadFile("../chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct{ Registry string }
	if err := yaml.Unmarshal(b, &values); err != nil {
		t.Fatal(err)
	}
	if values.Registry != DefaultRegistry {
		t.Errorf("the chart has images of %s, and they are built as those of %s", values.Registry, DefaultRegistry)
	}
}
