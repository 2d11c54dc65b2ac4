package control

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzBuild feeds one file to Build, by way of the decoder.
func FuzzBuild(f *testing.F) {
	var all []byte
	for _, name := range []string{"gateway.yaml", "network.yaml", "nodes.yml"} {
		data, err := os.ReadFile(filepath.Join("testdata/server", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		all = append(append(all, data...), "---\n"...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "f.yaml"), string(data))
		if d, err := load(dir); err == nil && d.Gateway.Name == "" {
			t.Fatal("no gateway and no error")
		}
	})
}
