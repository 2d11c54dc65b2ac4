package images

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// entry is what matters of a file in a layer.
type entry struct {
	Name string
	Mode int64
	UID  int
	Time string
}

// testFiles looks at everything that is in the images.
func testFiles(t *testing.T, root string, index v1.ImageIndex) {
	at := release.Format("15:04:05")
	want := []entry{
		{"etc/", 0o755, 0, at}, {"etc/group", 0o644, 0, at}, {"etc/passwd", 0o644, 0, at},
		{"usr/", 0o755, 0, at}, {"usr/local/", 0o755, 0, at}, {"usr/local/bin/", 0o755, 0, at}, {"usr/local/bin/hello", 0o755, 0, at},
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	eachImage(t, index, func(t *testing.T, image v1.Image, architecture string) {
		got, contents := listFiles(t, image)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		if !strings.Contains(string(contents["etc/passwd"]), ":65532:65532:") {
			t.Errorf("passwd does not know the user:\n%s", contents["etc/passwd"])
		}
		program := contents["usr/local/bin/hello"]
		e, err := elf.NewFile(bytes.NewReader(program))
		if err != nil {
			t.Fatal(err)
		}
		if e.Machine != machines[architecture] {
			t.Errorf("the program is for %v", e.Machine)
		}
		for _, p := range e.Progs {
			if p.Type == elf.PT_INTERP {
				t.Error("the program is linked dynamically: there is nothing to link with")
			}
		}
		for _, what := range []string{root, goEnv(t, "GOROOT"), goEnv(t, "GOMODCACHE"), goEnv(t, "GOCACHE")} {
			if bytes.Contains(program, []byte(what)) {
				t.Errorf("the program tells a path of the machine that built it: %s", what)
			}
		}
	})
}

// listFiles reads the layers of an image, in their order.
func listFiles(t *testing.T, image v1.Image) ([]entry, map[string][]byte) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var all []entry
	contents := map[string][]byte{}
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for archive := tar.NewReader(r); ; {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, entry{h.Name, h.Mode, h.Uid, h.ModTime.UTC().Format("15:04:05")})
			if contents[h.Name], err = io.ReadAll(archive); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all, contents
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(fmt.Errorf("go env: %w", err))
	}
	return strings.TrimSpace(string(out))
}
