package document

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const example = "# Title\n" +
	"```bash\nliqoctl info <ID> \\\n  --wait\n```\n" +
	"text\n\n" +
	"  ```yaml\n  kind: A\n  ```\n" +
	"````{note}\n``` bash\nliqoctl other\n```\n````\n" +
	"```{figure} a.svg\n---\n```\n" +
	"```bash\nliqoctl other\n```\n\n```text\nNAME  <ID>\n```\n"

func TestBlocks(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "example.md"), []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLUICE_SPEC", dir)
	d := Read(t, "example.md")
	for _, tt := range []struct {
		name  string
		words []string
		want  []string
	}{
		{"all", nil, []string{"liqoctl info <ID> \\\n  --wait\n", "  kind: A\n", "liqoctl other\n", "liqoctl other\n", "NAME  <ID>\n"}},
		{"one word", []string{"liqoctl"}, []string{"liqoctl info <ID> \\\n  --wait\n", "liqoctl other\n", "liqoctl other\n"}},
		{"two words", []string{"liqoctl", "wait"}, []string{"liqoctl info <ID> \\\n  --wait\n"}},
		{"none", []string{"figure"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, d.Blocks(tt.words...)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff([]string{"NAME  <ID>\n"}, d.Outputs("liqoctl other")); diff != "" {
		t.Errorf("outputs (-want +got)\n%s", diff)
	}
	if got := d.Outputs("liqoctl info"); got != nil {
		t.Errorf("outputs of a command that has none: %q", got)
	}
	if got, want := d.Block(t, []string{"info"}, "ID", "milan"), "liqoctl info milan \\\n  --wait\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestIsWait(t *testing.T) {
	for line, want := range map[string]bool{
		" INFO   (remote) Deleting gateway server (10s)":              true,
		"INFO   Waiting for Deployment liqo/liqo-controller (1m10s)":  true,
		" INFO   (remote) Gateway server correctly deleted":           false,
		" WARN   the clocks of the clusters are apart (12s)":          false,
		" INFO   (local) Connection is established":                   false,
		" INFO   (local) Gateway client runs on rome (k3s)":           false,
		"liqo-tenant-cl02   gw-cl02   Client   Connected   12s (20s)": false,
	} {
		if got := IsWait(line); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}
