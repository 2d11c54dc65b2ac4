package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is what a layer has beside the directories above it.
type file struct {
	name    string // without a slash in front
	mode    int64
	content []byte
}

// layer is compressed once and kept: images ask for it many times.
type layer struct {
	digest, diffID v1.Hash
	compressed     []byte
}

var _ v1.Layer = (*layer)(nil)

// newLayer packs files of root. Their order does not matter.
func newLayer(files []file, at time.Time) (*layer, error) {
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for _, e := range entries(files) {
		h := &tar.Header{Name: e.name, Mode: e.mode, ModTime: at, Format: tar.FormatPAX, Typeflag: tar.TypeReg, Size: int64(len(e.content))}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	diffID, _, err := v1.SHA256(bytes.NewReader(plain.Bytes()))
	if err != nil {
		return nil, err
	}
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	if _, err := z.Write(plain.Bytes()); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	digest, _, err := v1.SHA256(bytes.NewReader(compressed.Bytes()))
	if err != nil {
		return nil, err
	}
	return &layer{digest: digest, diffID: diffID, compressed: compressed.Bytes()}, nil
}

// entries are files and the directories that they lie in, in order.
func entries(files []file) []file {
	all := slices.Clone(files)
	dirs := map[string]bool{}
	for _, f := range files {
		for d := path.Dir(f.name); d != "." && !dirs[d]; d = path.Dir(d) {
			dirs[d] = true
			all = append(all, file{name: d + "/", mode: 0o755})
		}
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return all
}

// Digest is of the compressed layer.
func (l *layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID is the digest of what is compressed.
func (l *layer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// Compressed reads the layer as registries have it.
func (l *layer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l.compressed)), nil
}

// Uncompressed reads the layer as a tar archive.
func (l *layer) Uncompressed() (io.ReadCloser, error) {
	return gzip.NewReader(bytes.NewReader(l.compressed))
}

// Size is that of the compressed layer.
func (l *layer) Size() (int64, error) { return int64(len(l.compressed)), nil }

// MediaType tells how the layer is packed.
func (l *layer) MediaType() (types.MediaType, error) { return types.OCILayer, nil }
