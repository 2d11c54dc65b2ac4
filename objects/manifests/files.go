package manifests

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxFileSize keeps a mistaken path (a disk image, a log) from being read into
// memory. Ten thousand pod routes are two megabytes.
const maxFileSize = 16 << 20

// Digest identifies the bytes that a state was read from, so that an event
// without a change costs nothing.
type Digest [sha256.Size]byte

// Files is the content of a manifests directory at one time.
type Files struct {
	Digest  Digest
	files   []file
	ignored []string // look like manifests, but for the name
}

// file is one manifest, read or not.
type file struct {
	name   string
	data   []byte
	public bool  // readable by everybody, which we could change
	err    error // why data is missing
}

// ReadFiles reads every *.yaml and *.yml file of dir. A file that cannot be read
// is reported by Decode, together with everything else that is wrong.
func ReadFiles(dir string) (Files, error) {
	names, ignored, err := manifestNames(dir)
	if err != nil {
		return Files{}, Problems{{File: dir, Reason: "cannot read the manifests: " + reason(err)}}
	}
	out := Files{ignored: ignored}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q\n", ignored)
	for _, name := range names {
		f := file{name: name}
		f.data, f.public, f.err = readFile(filepath.Join(dir, name))
		out.files = append(out.files, f)
		fmt.Fprintf(sum, "%q %d %v %v\n", f.name, len(f.data), f.public, f.err)
		sum.Write(f.data)
	}
	sum.Sum(out.Digest[:0])
	return out, nil
}

// size is the length of all files together.
func (f Files) size() (n int) {
	for _, one := range f.files {
		n += len(one.data)
	}
	return n
}

// manifestNames lists the files to read, and those whose authors may think that
// they are read. Names with a leading dot belong to editors and to the kubelet
// (..data).
func manifestNames(dir string) (names, ignored []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		switch {
		case isManifest(e.Name()):
			names = append(names, e.Name())
		case resemblesManifest(e.Name()):
			ignored = append(ignored, e.Name())
		}
	}
	return names, ignored, nil
}

func isManifest(name string) bool {
	ext := filepath.Ext(name)
	return (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(name, ".")
}

func resemblesManifest(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return (ext == ".yaml" || ext == ".yml" || ext == ".json") && !strings.HasPrefix(name, ".")
}

var errNotRegular = errors.New("is not a regular file")

// readFile returns the content and whether users other than the owner and its
// group may read it, though we could forbid it: not in the file of another user
// or on a mount that is read-only, as that of a Secret.
func readFile(path string) (data []byte, public bool, err error) {
	// To open a pipe waits for its other end, and to open a device may do
	// something: look first. O_NONBLOCK is for what is replaced in between.
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, false, errNotRegular
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if _, linkErr := os.Lstat(path); linkErr != nil {
			return nil, false, nil // removed since the directory was listed
		}
		return nil, false, errors.New("is a link that leads nowhere")
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, false, err
	}
	if !info.Mode().IsRegular() {
		return nil, false, errNotRegular
	}
	data, err = io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		return nil, false, fmt.Errorf("is larger than %d MiB", maxFileSize>>20)
	}
	return data, info.Mode().Perm()&0o004 != 0 && changeable(path, info), err
}

// changeable tells whether the mode of a file is ours to change.
func changeable(path string, info fs.FileInfo) bool {
	const write = 2 // W_OK
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid() && !errors.Is(syscall.Access(path, write), syscall.EROFS)
}

// reason drops the operation and the path, which the problem names already.
func reason(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}
