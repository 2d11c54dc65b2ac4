package document

import (
	"os"
	"path/filepath"
	"strings"
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
	d := Read(t, Name{liqo: "example.md"})
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

// TestSameBlocks: both sets hold what tests look for, and where they show what a
// command prints they show the same columns and the same steps.
func TestSameBlocks(t *testing.T) {
	names := strings.NewReplacer("cl01", "rome", "cl02", "milan")
	for _, d := range []*Document{Ours(t, Network), Read(t, Network)} {
		for _, words := range [][]string{
			{"liqoctl network connect", "--wait"}, {"liqoctl info --get clusterid"}, {"kubectl get configmaps -n liqo liqo-clusterid-configmap"},
			{"liqoctl generate configuration > conf-client.yaml"}, {"liqoctl create gatewayserver server", "$CLUSTER_ID_CLIENT"},
			{"liqoctl create gatewayclient client", "$CLUSTER_ID_SERVER"}, {"--gateway-type server", "--gateway-name server > publickey-server.yaml"},
			{"kind: Configuration"}, {"kind: GatewayServer"}, {"kind: GatewayClient"}, {"kind: PublicKey", "CLIENT_CLUSTER_ID"}, {"kind: PublicKey", "SERVER_CLUSTER_ID"},
		} {
			if len(d.Blocks(words...)) == 0 {
				t.Errorf("%s has no block with %q", d.Name, words)
			}
		}
		lines := func(text string) string {
			var kept []string
			for line := range strings.Lines(names.Replace(text)) {
				kept = append(kept, strings.TrimSpace(line))
			}
			return strings.Join(kept, "\n")
		}
		want := lines(Ours(t, Network).Blocks("(local) Connection is established")[0])
		if diff := cmp.Diff(want, lines(d.Blocks("(local) Connection is established")[0])); diff != "" {
			t.Errorf("%s: the steps of connect (-ours +its)\n%s", d.Name, diff)
		}
		for _, command := range []string{"liqoctl network disconnect", "liqoctl network reset"} {
			if diff := cmp.Diff(lines(Ours(t, Network).Outputs(command)[0]), lines(d.Outputs(command)[0])); diff != "" {
				t.Errorf("%s: the steps of %s (-ours +its)\n%s", d.Name, command, diff)
			}
		}
	}
	for _, d := range []*Document{Ours(t, Declarative), Read(t, Declarative)} {
		for _, kind := range []string{"Namespace", "Configuration", "Secret", "PublicKey", "GatewayServer", "GatewayClient", "RoleBinding", "Tenant", "ResourceSlice"} {
			if len(d.Blocks("kind: "+kind)) == 0 {
				t.Errorf("%s has no %s", d.Name, kind)
			}
		}
	}
	if text := Script(t); !strings.HasPrefix(text, "#!/bin/bash\n") || !strings.Contains(text, "ADDRESS_SERVER=") {
		t.Errorf("the script is\n%s", text)
	}
}
