package images

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// writeLayout writes an image as an OCI image layout. What was there is replaced if it
// is a layout, too.
func writeLayout(dir string, tag name.Tag, index v1.ImageIndex) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "oci-layout")); len(entries) > 0 && err != nil {
		return fmt.Errorf("%s: has something else in it than an image: choose another directory", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return l.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag.TagStr(),
		"io.containerd.image.name":          reference(tag), // the other name alone is that of a tag
	}))
}

// dockerImage is an entry of manifest.json, by which Docker found images in an archive
// before it knew image layouts, and still does without containerd's image store.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// writeArchive packs a layout for container engines. One that knows no image layouts takes
// the first platform.
func writeArchive(file, dir string, tag name.Tag, index v1.ImageIndex) error {
	manifest, err := dockerManifest(tag, index)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	w := tar.NewWriter(f)
	// In the order of names, whatever the order in which they were written.
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return addFile(w, filepath.ToSlash(rel), path)
	})
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: "manifest.json", Mode: 0o644, Size: int64(len(manifest))}); err != nil {
		return err
	}
	if _, err := w.Write(manifest); err != nil {
		return err
	}
	if err := errors.Join(w.Close(), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// dockerManifest is manifest.json.
func dockerManifest(tag name.Tag, index v1.ImageIndex) ([]byte, error) {
	m, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	image, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		return nil, err
	}
	first, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	entry := dockerImage{Config: blob(first.Config.Digest), RepoTags: []string{strings.TrimPrefix(reference(tag), "docker.io/")}}
	for _, l := range first.Layers {
		entry.Layers = append(entry.Layers, blob(l.Digest))
	}
	return json.Marshal([]dockerImage{entry})
}

// blob is where something lies in a layout.
func blob(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// addFile copies a file into an archive, without what is told about it outside.
func addFile(w *tar.Writer, name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: st.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
