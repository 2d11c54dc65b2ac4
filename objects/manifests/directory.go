package manifests

import "context"

// Directory is a manifests directory as one program reads it.
type Directory struct {
	Path   string
	Reader Reader
	// Degraded is told why changes are found by polling.
	Degraded func(error)
}

// Reading is one state of the objects, wherever they come from.
type Reading struct {
	// Digest identifies the state. Zero: the same call may give another result.
	Digest   Digest
	Objects  Objects
	Warnings Problems
	// Heavy says that reading left so much garbage behind that it is worth a
	// collection: the next cycle of an idle program may be minutes away.
	Heavy bool
}

// muchText is how much YAML is Heavy: it takes some thirty times its length
// while it is decoded.
const muchText = 256 << 10

// Read returns the objects as they are now. When their digest is known, the
// digest alone. An error is of type Problems; the digest is that of what it
// speaks of.
func (d Directory) Read(known Digest) (Reading, error) {
	files, err := ReadFiles(d.Path)
	r := Reading{Digest: files.Digest, Heavy: files.size() > muchText}
	if err != nil || r.Digest == known {
		return r, err
	}
	r.Objects, r.Warnings, err = files.Decode(d.Reader)
	return r, err
}

// Watch calls changed whenever Read may return something else, until ctx ends.
// Spurious calls are normal.
func (d Directory) Watch(ctx context.Context, changed func()) {
	Watch(ctx, d.Path, changed, d.Degraded)
}
