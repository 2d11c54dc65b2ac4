// Package standalone_test keeps the example true.
package standalone_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/gateway/control"
)

// load reads one end of the peering as the gateway does.
func load(t *testing.T, name string) dataplane.Config {
	t.Helper()
	// A clone does not keep the mode of a file, and a gateway warns of a key that everybody may read.
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(name)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "status")); err != nil {
		t.Fatal(err)
	}
	if err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chmod(filepath.Join(dir, path), 0o600)
	}); err != nil {
		t.Fatal(err)
	}
	d, err := control.New(control.Options{Dir: dir}).Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Warnings) > 0 {
		t.Errorf("%s: warnings:\n%s", name, d.Warnings.Error())
	}
	return d.DataPlane
}

func TestEnds(t *testing.T) {
	rome, milan := load(t, "rome"), load(t, "milan")
	for name, c := range map[string]dataplane.Config{"rome": rome, "milan": milan} {
		if len(c.Nodes) != 1 || len(c.Routes) != 1 || len(c.Remote) != 2 {
			t.Errorf("%s is incomplete: %+v", name, c)
		}
	}
	if rome.Tunnel.PrivateKey.Public() != milan.Tunnel.PeerKey || milan.Tunnel.PrivateKey.Public() != rome.Tunnel.PeerKey {
		t.Error("the ends do not have each other's public keys")
	}
	if rome.MTU != milan.MTU {
		t.Errorf("MTU %d and %d", rome.MTU, milan.MTU)
	}
	for _, pair := range [][2]dataplane.Config{{rome, milan}, {milan, rome}} {
		own, mappings := append(slices.Clone(pair[0].LocalPods), pair[0].LocalExternal...), pair[1].Remote
		for i, m := range mappings {
			if m.Outside != own[i] {
				t.Errorf("one end has %s, the other takes it for %s", own[i], m)
			}
		}
	}
}
