package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNaming: a cluster is named to others as the user named it, without secrets.
func TestNaming(t *testing.T) {
	f := new(app).newClusterFlags("remote-")
	if err := f.flags.Parse([]string{"--remote-context", "milan", "--remote-kubeconfig=m.yaml", "--remote-namespace=x", "--remote-token=secret"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"--kubeconfig=m.yaml", "--context=milan"}, f.naming()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestKubeconfigs: what is wrong with a kubeconfig is said in one line, before
// anything is asked of a cluster or after a few seconds.
func TestKubeconfigs(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const clusters = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: x}}]
`
	good := file("good", clusters+"contexts: [{name: rome, context: {cluster: c, user: u}}, {name: milan, context: {cluster: c, user: u}}]\n")
	gone := file("gone", clusters+"contexts: [{name: rome, context: {cluster: d, user: u}}]\ncurrent-context: rome\n")
	for _, tt := range []struct {
		name string
		env  string // KUBECONFIG
		args []string
		want string
	}{
		{"no such file", "", []string{"--kubeconfig", dir + "/nope"}, "kubeconfig DIR/nope cannot be read: stat DIR/nope: no such file or directory; name another with --kubeconfig"},
		{"not YAML", "", []string{"--kubeconfig", file("bad", "a: [")}, `kubeconfig DIR/bad cannot be read: error loading config file "DIR/bad": yaml: line 1: did not find expected node content; name another with --kubeconfig`},
		{"empty", "", []string{"--kubeconfig", file("empty", "")}, "there is no cluster in the kubeconfig DIR/empty: name a kubeconfig with --kubeconfig or the variable KUBECONFIG"},
		{"by the variable", dir + "/a:" + dir + "/b", nil, "there is no cluster in the kubeconfig DIR/a:DIR/b: name a kubeconfig with --kubeconfig or the variable KUBECONFIG"},
		{"no current context", good, nil, "kubeconfig DIR/good has no current context: choose one of milan, rome with --context"},
		{"no such context", good, []string{"--context", "turin"}, `kubeconfig DIR/good has no context "turin": it has milan, rome`},
		{"a context without its cluster", gone, nil, `kubeconfig DIR/gone, context rome refers to the cluster "d", which is not in it`},
		{"a flag with another cluster", good, []string{"--context", "rome", "--cluster", "e"}, `kubeconfig DIR/good, context rome refers to the cluster "e", which is not in it`},
		{"a flag with another user", good, []string{"--context", "rome", "--user", "v"}, `kubeconfig DIR/good, context rome refers to the user "v", which is not in it`},
		{"nobody listens", good, []string{"--context", "rome"}, "reach the cluster: the API server http://127.0.0.1:1 cannot be reached: check that the cluster runs and that --kubeconfig is right (kubeconfig DIR/good, context rome): Post \"http://127.0.0.1:1/apis/authentication.k8s.io/v1/selfsubjectreviews\": dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tt.env)
			got := liqoctl(t.Context(), append(tt.args, "generate", "configuration")...)
			got.stderr = strings.ReplaceAll(got.stderr, dir, "DIR")
			got.want(t, tt.name, "", " ERRO   "+tt.want+"\n")
		})
	}
}
