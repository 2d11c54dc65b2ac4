package manifests

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

const networking = "apiVersion: networking.liqo.io/v1beta1\n"

// Two programs read one directory: what is for the other one is no reason for a
// warning, but for a typo.
func TestDecodeByReader(t *testing.T) {
	tests := []struct {
		name, yaml string
		warning    string // of both, with %s for the name of the reader
		problem    string // for both
	}{
		{"a kind of both", networking + "kind: InternalFabric\nmetadata: {name: a}\n", "", ""},
		{"a kind of the gateway alone", networking + "kind: RouteConfiguration\nmetadata: {name: a}\n", "", ""},
		{"its first edition", "apiVersion: networking.liqo.io/v1alpha1\nkind: InternalNode\nmetadata: {name: a}\n",
			"f.yaml:1: InternalNode a: apiVersion: networking.liqo.io/v1alpha1 is an old version, read as networking.liqo.io/v1beta1", ""},
		{"a Secret", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", "", ""},
		{"a kind of neither", networking + "kind: Connection\nmetadata: {name: a}\n", "f.yaml:1: Connection a: %s does not use objects of kind Connection", ""},
		{"a foreign kind", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n", "f.yaml:1: Namespace a: v1 Namespace is not used by %s and ignored", ""},
		{"a typo in a kind of the gateway", networking + "kind: PublicKey\nmetadata: {name: a}\nspec: {publickey: AA==}\n", "",
			`f.yaml:4: PublicKey a: spec.publickey: unknown field; did you mean "publicKey"?`},
		{"an object twice", strings.Repeat(networking+"kind: PublicKey\nmetadata: {name: a}\n---\n", 2), "",
			"f.yaml:5: PublicKey a: is already defined in f.yaml:1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "f.yaml"), tt.yaml)
			files, err := ReadFiles(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, by := range []Reader{gateway, node} {
				_, warnings, err := files.Decode(by)
				if got := ProblemsOf(err).Error(); got != tt.problem {
					t.Errorf("%s: problems %s, want %s", by.Name, got, tt.problem)
				}
				want := strings.ReplaceAll(tt.warning, "%s", by.Name)
				if diff := cmp.Diff(want, warnings.Error()); diff != "" {
					t.Errorf("%s: warnings (-want +got):\n%s", by.Name, diff)
				}
			}
		})
	}
}

// A reader gets what it names, and no key that it has no use for.
func TestReaderGetsItsKindsAlone(t *testing.T) {
	files, err := ReadFiles("../../gateway/control/testdata/server")
	if err != nil {
		t.Fatal(err)
	}
	counts := func(by Reader) map[string]int {
		o, _, err := files.Decode(by)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]int{
			"GatewayServer": len(o.GatewayServers), "GatewayClient": len(o.GatewayClients), "Secret": len(o.Secrets), "PublicKey": len(o.PublicKeys),
			"Configuration": len(o.Configurations), "InternalFabric": len(o.InternalFabrics), "InternalNode": len(o.InternalNodes),
			"GeneveTunnel": len(o.GeneveTunnels), "RouteConfiguration": len(o.RouteConfigurations), "IP": len(o.IPs), "Network": len(o.Networks),
			"FirewallConfiguration": len(o.FirewallConfigurations),
		}
		for kind, n := range all {
			if n == 0 {
				delete(all, kind)
			}
		}
		return all
	}
	want := counts(gateway)
	if want["Secret"] == 0 || want["PublicKey"] == 0 || want["InternalNode"] == 0 {
		t.Fatalf("the example lacks something: %v", want)
	}
	for _, kind := range []string{"Secret", "PublicKey", "RouteConfiguration", "FirewallConfiguration"} {
		delete(want, kind)
	}
	if diff := cmp.Diff(want, counts(node)); diff != "" {
		t.Errorf("objects of the node agent (-want +got):\n%s", diff)
	}
}

func TestReaderOfAnUnknownKind(t *testing.T) {
	for _, kind := range []string{"InternalNodes", "Connection"} { // a typo, and one that nobody uses
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", kind)
				}
			}()
			_, _, _ = Files{}.Decode(Reader{Name: "a test", Kinds: []string{kind}})
		}()
	}
}

// No message about a Secret that is skipped may hold any part of it either.
func TestSkippedSecretsAreNotShown(t *testing.T) {
	secret := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("S3cr3t!", 5)))
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f.yaml"), "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndat: {privateKey: "+secret+"}\n---\n"+
		"apiVersion: v1\nkind: Secret\nmetadata: {name: b}\ndata: {privateKey: *"+secret+"}\n")
	files, err := ReadFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	objects, warnings, err := files.Decode(node)
	if got := fmt.Sprintf("%+v %v %v", objects, warnings, err); strings.Contains(got, secret[:8]) || err == nil {
		t.Errorf("got %s", got)
	}
}

func TestDirectory(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "f.yaml")
	write(t, path, networking+"kind: InternalNode\nmetadata: {name: a}\n")
	d := Directory{Path: dir, Reader: node, Degraded: func(err error) { t.Errorf("no events: %v", err) }}
	first, err := d.Read(Digest{})
	if err != nil || len(first.Objects.InternalNodes) != 1 || first.Heavy {
		t.Fatalf("first: %+v, %v", first, err)
	}
	again, err := d.Read(first.Digest)
	if err != nil || again.Digest != first.Digest || again.Objects.InternalNodes != nil {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	changed, done := make(chan struct{}, 100), make(chan struct{})
	go func() { d.Watch(ctx, func() { changed <- struct{}{} }); close(done) }()
	<-changed // the watch stands
	write(t, path, networking+"kind: InternalNode\nmetadata: {nam: a}\n"+strings.Repeat("# much text\n", muchText/10))
	for timeout := time.After(applied); ; {
		select {
		case <-changed:
		case <-timeout:
			t.Fatal("the change was not seen")
		}
		// What is refused has a digest, too: to read it again would tell the same.
		next, err := d.Read(first.Digest)
		if err == nil && next.Digest == first.Digest {
			continue
		}
		const want = "f.yaml:1: InternalNode: metadata.name: is required\nf.yaml:3: InternalNode: metadata.nam: unknown field"
		if err == nil || err.Error() != want || !next.Heavy || next.Digest == (Digest{}) {
			t.Errorf("digest %x, heavy is %v, error:\n%v", next.Digest, next.Heavy, err)
		}
		break
	}
	cancel()
	<-done
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Read(first.Digest); err == nil || r.Digest != (Digest{}) {
		t.Errorf("without the directory: digest %x, %v", r.Digest, err)
	}
}
