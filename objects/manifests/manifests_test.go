package manifests

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The readers of one directory.
var (
	gateway = Reader{Name: "the gateway", Kinds: []string{
		"Secret", "GatewayServer", "GatewayClient", "PublicKey", "Configuration", "InternalFabric", "InternalNode", "GeneveTunnel",
		"RouteConfiguration", "FirewallConfiguration", "IP", "Network",
	}}
	node = Reader{Name: "the node agent", Kinds: []string{
		"InternalFabric", "InternalNode", "GeneveTunnel", "Configuration", "GatewayServer", "GatewayClient", "IP", "Network",
	}}
)

// write puts a file that only its owner can read, as a Secret should be, in place
// at once: who watches must not see half of it.
func write(t testing.TB, path, content string) {
	t.Helper()
	whole := path + ".new"
	if err := os.WriteFile(whole, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(whole, path); err != nil {
		t.Fatal(err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	const route = "apiVersion: networking.liqo.io/v1beta1\nkind: RouteConfiguration\nmetadata: {name: a}\n"
	tests := []struct {
		name, yaml string
		want       string // lines, each without the name of the file
	}{
		{"syntax", "a: [\nb: c\n",
			"2: not valid YAML: did not find expected ',' or ']'"},
		{"syntax in a later document", "# one\n---\n\n\"",
			"4: not valid YAML: found unexpected end of stream"},
		{"tab", "a:\n  b: c\n\td: e\n",
			"3: not valid YAML: a tab in the indentation: use spaces"},
		{"tab in front of the first key", "a:\n\tb: c\n",
			"2: not valid YAML: a tab in the indentation: use spaces"},
		{"a scalar", "hello\n",
			"1: must be a Kubernetes object, not text"},
		{"a list", "- a\n",
			"1: must be a Kubernetes object, not a list"},
		{"no kind", "\nmetadata: {name: a}\n",
			"2: apiVersion and kind are required"},
		{"unknown kind of a known group", "apiVersion: networking.liqo.io/v1beta1\nkind: GatewayServe\nmetadata: {name: a}\n",
			`1: GatewayServe a: kind: networking.liqo.io has no kind "GatewayServe"`},
		{"unknown version", "apiVersion: networking.liqo.io/v2\nkind: PublicKey\nmetadata: {name: a}\n",
			`1: PublicKey a: apiVersion: version "v2" of PublicKey is not known: use networking.liqo.io/v1beta1`},
		{"no name", "apiVersion: networking.liqo.io/v1beta1\nkind: PublicKey\nmetadata: {namespace: x}\n",
			"1: PublicKey: metadata.name: is required"},
		{"same object twice", route + "---\n" + route,
			"5: RouteConfiguration a: is already defined in f.yaml:1"},
		{"unknown field", route + "spec:\n  table:\n    nam: x\n",
			"6: RouteConfiguration a: spec.table.nam: unknown field"},
		{"field in other letters", route + "spec:\n  table:\n    Name: x\n",
			`6: RouteConfiguration a: spec.table.Name: unknown field; did you mean "name"?`},
		{"duplicate field", route + "spec:\n  table:\n    name: x\n    name: y\n",
			"7: RouteConfiguration a: spec.table.name: duplicate field, first on line 6"},
		{"map for a string", route + "spec:\n  table:\n    name: {}\n",
			"6: RouteConfiguration a: spec.table.name: must be text (in quotes), not a map"},
		{"boolean for a string", route + "spec:\n  table:\n    name: true\n",
			"6: RouteConfiguration a: spec.table.name: must be text (in quotes), not a boolean"},
		{"string for a list", route + "spec:\n  table:\n    rules: all\n",
			"6: RouteConfiguration a: spec.table.rules: must be a list, not text"},
		{"list for a map", route + "spec: []\n",
			"4: RouteConfiguration a: spec: must be a map, not a list"},
		{"string for an integer", route + "spec: {table: {rules: [{fwmark: one}]}}\n",
			"4: RouteConfiguration a: spec.table.rules[0].fwmark: must be a number, not text"},
		{"fraction for an integer", route + "spec: {table: {rules: [{fwmark: 1.5}]}}\n",
			"4: RouteConfiguration a: spec.table.rules[0].fwmark: must be a number without a fraction"},
		{"integer out of range", "apiVersion: networking.liqo.io/v1beta1\nkind: GeneveTunnel\nmetadata: {name: a}\nspec: {id: 5000000000}\n",
			"4: GeneveTunnel a: spec.id: is out of range for 32 bits"},
		{"integer for a label", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  labels:\n    x: 1\n",
			"6: Secret a: metadata.labels[x]: must be text (in quotes), not a number"},
		{"key that is no string", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  labels:\n    1: x\n",
			"6: Secret a: metadata.labels: a key must be text, not a number: quote it"},
		{"bad base64", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata:\n  privateKey: '%%%'\n",
			"5: Secret a: data[privateKey]: illegal base64 data at input byte 0"},
		{"placeholder", "apiVersion: networking.liqo.io/v1beta1\nkind: PublicKey\nmetadata:\n  name: a\n  labels:\n    liqo.io/remote-cluster-id: <REMOTE_CLUSTER_ID>\nspec:\n  publicKey: <REMOTE_WIREGUARD_PUBLIC_KEY>\n",
			"6: PublicKey a: metadata.labels[liqo.io/remote-cluster-id]: still holds the placeholder <REMOTE_CLUSTER_ID>: put the real value there\n" +
				"8: PublicKey a: spec.publicKey: still holds the placeholder <REMOTE_WIREGUARD_PUBLIC_KEY>: put the real value there"},
		{"placeholder in a list", "apiVersion: networking.liqo.io/v1beta1\nkind: Configuration\nmetadata: {name: a}\nspec: {remote: {cidr: {pod: [<POD_CIDR>]}}}\n",
			"4: Configuration a: spec.remote.cidr.pod[0]: still holds the placeholder <POD_CIDR>: put the real value there"},
		{"wrong shape of a CIDR", "apiVersion: networking.liqo.io/v1beta1\nkind: Configuration\nmetadata: {name: a}\nspec: {remote: {cidr: {pod: {a: b}}}}\n",
			"4: Configuration a: spec.remote.cidr.pod: must be a CIDR or a list of CIDRs"},
		{"mistakes in a kind that is not used", "apiVersion: networking.liqo.io/v1beta1\nkind: WgGatewayServer\nmetadata: {name: a}\nspec: {servcie: {}}\n",
			"4: WgGatewayServer a: spec.servcie: unknown field"},
		{"type of a Connection that is none", "apiVersion: networking.liqo.io/v1beta1\nkind: Connection\nmetadata: {name: a}\nspec:\n  type: Peer\n",
			`5: Connection a: spec.type: "Peer" is none of Server, Client`},
		{"merge key", "x: &x {a: b}\nkind: Secret\napiVersion: v1\nmetadata: {name: a}\ndata:\n  <<: *x\n",
			"1: Secret a: x: unknown field\n6: Secret a: data: merge keys (<<) are not supported: write the fields out"},
		{"tag", route + "spec: {table: {name: !env NAME}}\n",
			"4: RouteConfiguration a: spec.table.name: the YAML tag !env is not supported"},
		{"alias that contains itself", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nimmutable: &a [*a]\n",
			"4: Secret a: nested deeper than 100 levels"},
		{"aliases that multiply", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n" +
			"a: &a {k: x, l: x}\nb: &b [*a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c]\ndata: {k: [*d, *d, *d, *d, *d, *d]}\n",
			"4: Secret a: a: unknown field\n5: Secret a: b: unknown field\n6: Secret a: c: unknown field\n7: Secret a: d: unknown field\n" +
				"4: Secret a: too complex: aliases repeat too much"},
		{"all mistakes of all documents", route + "specs: {}\n---\nkind: x\n---\n" + strings.Replace(route, "name: a", "name: b", 1) + "spec: 1\n",
			"4: RouteConfiguration a: specs: unknown field\n6: x: apiVersion and kind are required\n11: RouteConfiguration b: spec: must be a map, not a number"},
		{"items of a list", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: a}\n  dat: {}\n- 1\n",
			"7: Secret a: dat: unknown field\n8: must be a Kubernetes object, not a number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "f.yaml"), tt.yaml)
			files, err := ReadFiles(dir)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = files.Decode(gateway)
			if err == nil {
				t.Fatal("accepted")
			}
			want := "f.yaml:" + strings.ReplaceAll(tt.want, "\n", "\nf.yaml:")
			if diff := cmp.Diff(want, err.Error()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeWarns(t *testing.T) {
	tests := []struct{ name, yaml, want string }{
		{"foreign kind", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n",
			"f.yaml:1: Namespace a: v1 Namespace is not used by the gateway and ignored"},
		{"foreign kind of a sister group", "apiVersion: authentication.liqo.io/v1beta1\nkind: Tenant\nmetadata: {name: a}\n",
			"f.yaml:1: Tenant a: authentication.liqo.io/v1beta1 Tenant is not used by the gateway and ignored"},
		{"kind that has no effect", "apiVersion: networking.liqo.io/v1beta1\nkind: Connection\nmetadata: {name: a}\n",
			"f.yaml:1: Connection a: the gateway does not use objects of kind Connection"},
		{"first edition of the API", "apiVersion: networking.liqo.io/v1alpha1\nkind: Configuration\nmetadata: {name: a}\n",
			"f.yaml:1: Configuration a: apiVersion: networking.liqo.io/v1alpha1 is an old version, read as networking.liqo.io/v1beta1"},
		{"nothing at all", "# nothing\n---\n---\n", ""},
		{"anchors", "apiVersion: v1\nkind: &k Secret\nmetadata: {name: *k}\n", ""},
		{"date for a string", "apiVersion: v1\nkind: Secret\nmetadata: {name: a, creationTimestamp: 2024-01-02T03:04:05Z, labels: {day: 2024-01-02}}\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "f.yaml"), tt.yaml)
			files, err := ReadFiles(dir)
			if err != nil {
				t.Fatal(err)
			}
			_, warnings, err := files.Decode(gateway)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, warnings.Error()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadFilesWarnsOfIgnoredNames(t *testing.T) {
	dir := t.TempDir()
	before := digest(t, dir)
	for _, name := range []string{"A.YAML", "b.Yml", "c.json", ".d.json", "e.txt", "f.yaml.bak"} {
		write(t, filepath.Join(dir, name), "[")
	}
	files, err := ReadFiles(dir)
	if err != nil || files.Digest == before {
		t.Fatalf("digest unchanged, or %v", err)
	}
	_, warnings, err := files.Decode(gateway)
	const why = ": is ignored: only names that end in .yaml or .yml are read"
	if want := "A.YAML" + why + "\nb.Yml" + why + "\nc.json" + why; err != nil || warnings.Error() != want {
		t.Errorf("got %v and\n%s\nwant\n%s", err, warnings.Error(), want)
	}
}

func TestReadFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "# a")
	write(t, filepath.Join(dir, "b.yml"), "# b")
	write(t, filepath.Join(dir, ".hidden.yaml"), "[")
	write(t, filepath.Join(dir, "note.txt"), "[")
	if err := os.Mkdir(filepath.Join(dir, StatusDir), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, StatusDir, "connection.yaml"), "[")
	first, err := ReadFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, warnings, err := first.Decode(gateway); err != nil || len(warnings) > 0 {
		t.Errorf("got %v, %v", warnings, err)
	}
	if len(first.files) != 2 {
		t.Errorf("read %d files, want a.yaml and b.yml", len(first.files))
	}
	again, err := ReadFiles(dir)
	if err != nil || again.Digest != first.Digest {
		t.Errorf("the same files have another digest (%v)", err)
	}
	write(t, filepath.Join(dir, "b.yml"), "# c")
	if changed, _ := ReadFiles(dir); changed.Digest == first.Digest {
		t.Error("a changed file does not change the digest")
	}
}

func TestReadFilesReportsWhatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/nowhere", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(dir, "root.yaml")); err != nil {
		t.Fatal(err)
	}
	big, err := os.Create(filepath.Join(dir, "big.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := big.Truncate(maxFileSize + 1); err != nil {
		t.Fatal(err)
	}
	big.Close()
	// To open a pipe that nobody writes to would wait for ever.
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "zero.yaml")); err != nil {
		t.Fatal(err)
	}
	files, err := ReadFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = files.Decode(gateway)
	want := "big.yaml: is larger than 16 MiB\nfolder.yaml: is not a regular file\nlink.yaml: is a link that leads nowhere\n" +
		"pipe.yaml: is not a regular file\nroot.yaml: is not a regular file\nzero.yaml: is not a regular file"
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
	if _, err = ReadFiles(filepath.Join(dir, "missing")); err == nil || !strings.Contains(err.Error(), "missing: cannot read the manifests: no such file or directory") {
		t.Errorf("missing directory: %v", err)
	}
}

func TestDecodeWarnsOfKeysThatEverybodyCanRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gateway.yaml")
	write(t, path, "# keys\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: keys, namespace: tenant}\ndata: {privateKey: AA==}\n")
	const public = "gateway.yaml:3: Secret tenant/keys: holds a private key and is readable by every user: chmod 600 gateway.yaml"
	for _, tt := range []struct {
		name string
		mode os.FileMode
		by   Reader
		want string
	}{
		{"private", 0o600, gateway, ""},
		{"public", 0o644, gateway, public},
		{"public, read by who has no use for it", 0o644, node, ""},
	} {
		if err := os.Chmod(path, tt.mode); err != nil {
			t.Fatal(err)
		}
		files, err := ReadFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, warnings, err := files.Decode(tt.by); err != nil || warnings.Error() != tt.want {
			t.Errorf("%s: warnings %q (%v), want %q", tt.name, warnings.Error(), err, tt.want)
		}
	}
}

// FuzzDecode feeds one file to the decoder.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"gateway.yaml", "network.yaml", "nodes.yml"} {
		data, err := os.ReadFile(filepath.Join("../../gateway/control/testdata/server", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	var all []byte
	for _, name := range []string{"gateway.yaml", "network.yaml", "nodes.yml"} {
		data, _ := os.ReadFile(filepath.Join("../../gateway/control/testdata/server", name))
		all = append(append(all, data...), "---\n"...)
	}
	f.Add(all)
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [&a {apiVersion: v1, kind: List, items: [*a]}]\n"))
	f.Add([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: &d {a: *d, <<: *d, 1: 2, ? [x] : y}\n"))
	f.Add([]byte("apiVersion: networking.liqo.io/v1beta1\nkind: GeneveTunnel\nmetadata: {name: a}\nspec: {id: .nan, internalNodeRef: !!binary aGk=}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := strings.Count(string(data), "\n") + 1
		files := Files{files: []file{{name: "f.yaml", data: data}}}
		_, warnings, err := files.Decode(gateway)
		var problems Problems
		errors.As(err, &problems)
		for _, p := range append(problems, warnings...) {
			// A carriage return ends a line for YAML as well, so the count is a lower bound then.
			if p.File != "f.yaml" || p.Reason == "" || p.Line > lines && !strings.ContainsAny(string(data), "\r\u0085\u2028\u2029") {
				t.Fatalf("problem points to nowhere: %+v in %d lines", p, lines)
			}
		}
	})
}
