package images

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLoad runs the commands, with programs in the place of the engines that write down
// how they were called.
func TestLoad(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"ctr", "k3s", "kind"} {
		script := "#!/bin/sh\necho \"$(basename $0) $*\" >> " + bin + "/calls\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	i := Image{Archive: "out/gateway.tar"}
	for _, to := range []string{"containerd", "k3s", "kind", "kind:rome"} {
		if err := Load(t.Context(), i, to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	calls, err := os.ReadFile(filepath.Join(bin, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	want := `ctr -n k8s.io images import out/gateway.tar
k3s ctr images import out/gateway.tar
kind load image-archive out/gateway.tar
kind load image-archive out/gateway.tar --name rome
`
	if string(calls) != want {
		t.Errorf("got\n%swant\n%s", calls, want)
	}
	for _, to := range []string{"", "docker", "kind:", "k3s:rome"} {
		if err := Load(t.Context(), i, to); err == nil || !strings.Contains(err.Error(), "containerd, k3s, kind or kind:CLUSTER") {
			t.Errorf("%q: %v", to, err)
		}
	}
	i.Archive = "-"
	if err := os.WriteFile(filepath.Join(bin, "kind"), []byte("#!/bin/sh\necho no such cluster >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Load(t.Context(), i, "kind:none"); err == nil || !strings.Contains(err.Error(), "no such cluster") {
		t.Errorf("%v", err)
	}
}
