package images

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// testArchive reads an archive in both ways: as an image layout, and by the manifest.json
// of Docker.
func testArchive(t *testing.T, made Image, index v1.ImageIndex) {
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xf", made.Archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(all); err != nil {
		t.Errorf("image layout in the archive: %v", err)
	}
	m, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Manifests[0]; got.Digest.String() != made.Digest || got.Annotations["io.containerd.image.name"] != made.Reference {
		t.Errorf("the archive has %s %v, want %s %s", got.Digest, got.Annotations, made.Digest, made.Reference)
	}

	tag, err := name.NewTag(made.Reference)
	if err != nil {
		t.Fatal(err)
	}
	docker, err := tarball.ImageFromPath(made.Archive, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(docker); err != nil {
		t.Errorf("image of manifest.json: %v", err)
	}
	m, err = index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	first, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := first.ConfigName()
	if got, err := docker.ConfigName(); err != nil || got != want {
		t.Errorf("image of manifest.json: config %v (%v), want %v of the first platform", got, err, want)
	}
}

// testPush sends the image to a registry and fetches it from there.
func testPush(t *testing.T, made Image) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	made.Reference = strings.TrimPrefix(server.URL, "http://") + "/sluice/hello:v1.2.3"
	if err := Push(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(made.Reference)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := got.Digest(); err != nil || d.String() != made.Digest {
		t.Errorf("the registry has %v (%v), want %s", d, err, made.Digest)
	}
	if err := validate.Index(got); err != nil {
		t.Errorf("image from the registry: %v", err)
	}
	server.Close()
	if err := Push(t.Context(), made); err == nil || !strings.Contains(err.Error(), "push "+made.Reference) {
		t.Errorf("without a registry: %v, want an error that names the image", err)
	}
}

// TestPack makes images of a program that somebody has compiled.
func TestPack(t *testing.T) {
	root := sourceTree(t)
	program := filepath.Join(t.TempDir(), "sayer")
	compile := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/hello")
	compile.Dir, compile.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for reference, want := range map[string]string{
		"localhost/pause:1": "localhost/pause:1",
		"pause:1":           "docker.io/library/pause:1",
	} {
		archive := filepath.Join(t.TempDir(), "pause.tar")
		if err := Pack(reference, program, Root, archive); err != nil {
			t.Fatal(err)
		}
		image, err := tarball.ImageFromPath(archive, nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := c.Config.Entrypoint[0], "/usr/local/bin/sayer"; got != want || c.Config.User != Root {
			t.Errorf("%s runs %s as %s, want %s as %s", reference, got, c.Config.User, want, Root)
		}
		out, err := exec.Command("tar", "-xOf", archive, "index.json").Output()
		if err != nil || !strings.Contains(string(out), `"`+want+`"`) {
			t.Errorf("%s: not named %s in the archive (%v):\n%s", reference, want, err, out)
		}
	}
}

// TestPackRefuses is about programs that could not run in an image.
func TestPackRefuses(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	write(t, script, []byte("#!/bin/sh\n"))
	dynamic, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{script: "script", dynamic: "CGO_ENABLED=0"} {
		if err := Pack("x:1", program, Root, filepath.Join(t.TempDir(), "x.tar")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", program, err, want)
		}
	}
}
