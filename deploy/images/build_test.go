package images

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// release is the time of the images in the tests.
var release = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// hello is a program of which images are made.
const hello = `package main

import (
	"fmt"
	"os"

	"example.com/copied"
	"golang.org/x/sys/unix"
)

var version string

func main() { fmt.Println(copied.Hello, version, unix.Getuid(), unix.Getgid(), os.Getenv("PATH"), os.Args[0]) }
`

// copied is a module that a folder of the source tree replaces.
const copied = "\nrequire example.com/copied v1.0.0\n\nreplace example.com/copied => ./third_party/copied\n"

// sourceTree is a module with the program and the requirements of ours.
func sourceTree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join("..", "..", f))
		if err != nil {
			t.Fatal(err)
		}
		if f == "go.mod" {
			b = append(b, copied...)
		}
		write(t, filepath.Join(root, f), b)
	}
	write(t, filepath.Join(root, "third_party", "copied", "go.mod"), []byte("module example.com/copied\n"))
	write(t, filepath.Join(root, "third_party", "copied", "hello.go"), []byte("package copied\n\nvar Hello = \"hello\"\n"))
	write(t, filepath.Join(root, "cmd", "hello", "main.go"), []byte(hello))
	return root
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// options are those of the tests: nothing is taken from the surroundings.
func options(t *testing.T, root string) Options {
	return Options{
		Root: root, Out: filepath.Join(t.TempDir(), "out"), Registry: "registry.example/sluice", Platforms: Platforms(), Version: "v1.2.3", Revision: "c0ffee", Time: release,
		Programs: []Program{{"hello", "./cmd/hello", Nobody, "Says hello"}},
	}
}

// build makes the one image that options ask for.
func build(t *testing.T, o Options) Image {
	t.Helper()
	made, err := Build(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != 1 {
		t.Fatalf("%d images were made, want 1", len(made))
	}
	return made[0]
}

func TestBuild(t *testing.T) {
	root := sourceTree(t)
	made := build(t, options(t, root))
	index, err := readLayout(made)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Index", func(t *testing.T) { testIndex(t, made, index) })
	t.Run("Config", func(t *testing.T) { testConfig(t, index) })
	t.Run("Files", func(t *testing.T) { testFiles(t, root, index) })
	t.Run("Archive", func(t *testing.T) { testArchive(t, made, index) })
	t.Run("Push", func(t *testing.T) { testPush(t, made) })
	t.Run("SBOM", func(t *testing.T) { testSBOM(t, made, index) })
	t.Run("Containerd", func(t *testing.T) { testContainerd(t, made) })
	t.Run("Reproducible", func(t *testing.T) { testReproducible(t, made) })
}

// testReproducible builds the same source in another place.
func testReproducible(t *testing.T, first Image) {
	second := build(t, options(t, sourceTree(t)))
	if diff := cmp.Diff(first.Digest, second.Digest); diff != "" {
		t.Errorf("digest of the second build (-first +second):\n%s", diff)
	}
	for what, files := range map[string][2]string{"archive": {first.Archive, second.Archive}, "SBOM": {first.SBOM, second.SBOM}} {
		if a, b := read(t, files[0]), read(t, files[1]); !bytes.Equal(a, b) {
			t.Errorf("%s: %s and %s differ", what, files[0], files[1])
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRebuild replaces what is there, and only that: an archive must not carry what
// another build has left.
func TestRebuild(t *testing.T) {
	o := options(t, sourceTree(t))
	o.Platforms = Host()
	build(t, o)
	o.Version = "v2"
	second := build(t, o)
	o.Out = filepath.Join(t.TempDir(), "fresh")
	if !bytes.Equal(read(t, second.Archive), read(t, build(t, o).Archive)) {
		t.Error("the archive of a second build differs from that of a first one")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(second.Archive), ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestBuildRefuses is about messages that tell what to do.
func TestBuildRefuses(t *testing.T) {
	root := sourceTree(t)
	occupied := t.TempDir()
	write(t, filepath.Join(occupied, "hello", "letter.txt"), nil)
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no directory": {func(o *Options) { o.Out = "" }, "no directory"},
		"occupied":     {func(o *Options) { o.Out = occupied }, "choose another directory"},
		"version":      {func(o *Options) { o.Version = "a tag" }, "reference of the image"},
		"platform":     {func(o *Options) { o.Platforms = []string{"windows/amd64"} }, "such as linux/arm64"},
		"package":      {func(o *Options) { o.Programs[0].Package = "./cmd/absent" }, "go build ./cmd/absent"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, root)
			o.Platforms = Host()
			c.change(&o)
			_, err := Build(context.Background(), o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error: %v, want one with %q", err, c.want)
			}
		})
	}
}

func testIndex(t *testing.T, made Image, index v1.ImageIndex) {
	if made.Reference != "registry.example/sluice/hello:v1.2.3" {
		t.Errorf("reference: %s", made.Reference)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("index: %v", err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range m.Manifests {
		platforms = append(platforms, d.Platform.String())
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantLabels, m.Annotations); diff != "" {
		t.Errorf("annotations of the index (-want +got):\n%s", diff)
	}
}

// wantLabels are those of the image, and the annotations of its manifests.
var wantLabels = map[string]string{
	"org.opencontainers.image.title":       "hello",
	"org.opencontainers.image.description": "Says hello",
	"org.opencontainers.image.version":     "v1.2.3",
	"org.opencontainers.image.revision":    "c0ffee",
	"org.opencontainers.image.created":     "2026-01-02T03:04:05Z",
	"org.opencontainers.image.source":      "https://github.com/sluice-net/sluice",
	"org.opencontainers.image.licenses":    "Apache-2.0",
}

// eachImage runs a test on the image of every platform.
func eachImage(t *testing.T, index v1.ImageIndex, test func(*testing.T, v1.Image, string)) {
	t.Helper()
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.Manifests {
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(d.Platform.Architecture, func(t *testing.T) { test(t, image, d.Platform.Architecture) })
	}
}

func testConfig(t *testing.T, index v1.ImageIndex) {
	eachImage(t, index, func(t *testing.T, image v1.Image, architecture string) {
		got, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if got.OS != "linux" || got.Architecture != architecture || !got.Created.Equal(release) {
			t.Errorf("is for %s/%s of %v, want linux/%s of %v", got.OS, got.Architecture, got.Created, architecture, release)
		}
		want := v1.Config{
			Entrypoint: []string{"/usr/local/bin/hello"},
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			User:       "65532:65532",
			WorkingDir: "/",
			Labels:     wantLabels,
		}
		if diff := cmp.Diff(want, got.Config); diff != "" {
			t.Errorf("config (-want +got):\n%s", diff)
		}
		if m, err := image.Manifest(); err != nil || !cmp.Equal(wantLabels, m.Annotations) {
			t.Errorf("annotations of the manifest: %v (%v), want the labels", m.Annotations, err)
		}
	})
}

// TestPrograms compares the programs with what the chart calls.
func TestPrograms(t *testing.T) {
	var templates string
	files, err := filepath.Glob("../chart/templates/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		templates += string(read(t, f))
	}
	for _, p := range Programs() {
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(p.Package), "main.go")); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		// The prober's name is derived from the controller's.
		if p.Name != "prober" && !strings.Contains(templates, `"program" "`+p.Name+`" "image"`) {
			t.Errorf("%s: no image of the chart has this name", p.Name)
		}
	}
	if want := []string{"linux/" + runtime.GOARCH}; !cmp.Equal(want, Host()) {
		t.Errorf("host: %v, want %v", Host(), want)
	}
}
