package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// archive is what has been gathered: files by their paths, and what is missing.
type archive struct {
	max int // bytes of all files

	mu    sync.Mutex
	files map[string][]byte
	size  int
	gaps  []Gap
	// public and secrets are what the texts are searched for at the end.
	public  []string
	secrets [][]byte
}

// Gap is something that could not be packed, or only in part.
type Gap struct {
	// Cluster is the name of the cluster, empty where there is only one.
	Cluster string `json:"cluster,omitempty"`
	// What is a noun phrase: "Secrets of namespace a".
	What string `json:"what"`
	// Why is one line.
	Why string `json:"why"`
}

func newArchive(max int) *archive {
	return &archive{max: max, files: make(map[string][]byte)}
}

// add puts a file into the archive, unless it is full.
func (a *archive) add(cluster, name string, content []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.size+len(content) > a.max {
		a.gaps = append(a.gaps, Gap{cluster, name, fmt.Sprintf("the archive is full: it holds %d MiB at most", a.max>>20)})
		return
	}
	a.size += len(content)
	a.files[name] = content
}

// addData puts any data into the archive, as JSON and cleaned as objects are.
func (a *archive) addData(cluster, name string, data any) {
	var generic any
	raw, err := json.Marshal(data)
	if err == nil {
		err = json.Unmarshal(raw, &generic)
	}
	if err != nil {
		a.miss(cluster, name, err)
		return
	}
	var c cleaner
	c.value(generic)
	if raw, err = json.MarshalIndent(generic, "", "  "); err != nil {
		a.miss(cluster, name, err)
		return
	}
	a.add(cluster, name, append(raw, '\n'))
	a.learn(nil, c.secrets)
}

// miss notes what could not be packed. A nil error is none.
func (a *archive) miss(cluster, what string, err error) {
	if err == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	why := strings.Join(strings.Fields(err.Error()), " ")
	a.gaps = append(a.gaps, Gap{cluster, what, strings.TrimPrefix(why, "("+cluster+") ")})
}

// learn remembers public keys, and secrets that must not be in any text.
func (a *archive) learn(public []string, secrets [][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.public = append(a.public, public...)
	a.secrets = append(a.secrets, secrets...)
}

// sortGaps has them in an order that does not depend on who was faster.
func (a *archive) sortGaps() {
	slices.SortFunc(a.gaps, func(x, y Gap) int {
		return strings.Compare(x.Cluster+"\x00"+x.What+"\x00"+x.Why, y.Cluster+"\x00"+y.What+"\x00"+y.Why)
	})
	a.gaps = slices.Compact(a.gaps)
}

// scrub removes secrets from all texts, and forgets what it removed.
func (a *archive) scrub() {
	s := newScrubber(a.public, a.secrets)
	for name, content := range a.files {
		a.files[name] = s.text(content)
	}
	for i := range a.gaps {
		a.gaps[i].Why = string(s.text([]byte(a.gaps[i].Why)))
	}
	for _, v := range a.secrets {
		clear(v)
	}
	for _, v := range s.secrets {
		clear(v)
	}
	a.secrets = nil
}

// writeTo writes the files below a folder, in the order of their names. Nothing
// in it tells when or by whom it was written.
func (a *archive) writeTo(w io.Writer, folder string, at time.Time) error {
	zip := gzip.NewWriter(w)
	t := tar.NewWriter(zip)
	made := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(a.files)) {
		full := path.Join(folder, name)
		if err := folders(t, path.Dir(full), at, made); err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: full, Mode: 0o600, Size: int64(len(a.files[name])), ModTime: at, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s: %w", full, err)
		}
		if _, err := io.Copy(t, bytes.NewReader(a.files[name])); err != nil {
			return fmt.Errorf("write %s: %w", full, err)
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if err := zip.Close(); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

// folders writes the folders above a file.
func folders(t *tar.Writer, dir string, at time.Time, made map[string]bool) error {
	if dir == "." || made[dir] {
		return nil
	}
	if err := folders(t, path.Dir(dir), at, made); err != nil {
		return err
	}
	made[dir] = true
	h := &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o700, ModTime: at, Format: tar.FormatPAX}
	if err := t.WriteHeader(h); err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	return nil
}

// fileName is a path that every system can unpack, made of names of a cluster's
// objects.
func fileName(parts ...string) string {
	for i, p := range parts {
		p = strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
				return r
			}
			return '_'
		}, p)
		if strings.Trim(p, ".") == "" {
			p = "_"
		}
		parts[i] = p
	}
	return path.Join(parts...)
}
