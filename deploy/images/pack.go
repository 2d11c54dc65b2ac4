package images

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Pack makes an image of a static program that is compiled already: for the pods of tests.
// The program is found under its file name, in /usr/local/bin and by the entry point.
//
// The reference may be anything, such as localhost/pause:1; user is uid:gid, such as Nobody.
func Pack(reference, binaryPath, user, archivePath string) error {
	tag, err := parseReference(reference)
	if err != nil {
		return err
	}
	b, err := packed(binaryPath)
	if err != nil {
		return err
	}
	p := Program{Name: filepath.Base(binaryPath), User: user}
	index, err := assemble(p, []binary{*b}, nil, time.Unix(0, 0).UTC())
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(archivePath), ".pack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := writeLayout(dir, tag, index); err != nil {
		return err
	}
	return writeArchive(archivePath, dir, tag, index)
}

// packed reads a program in any language.
func packed(path string) (*binary, error) {
	e, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer e.Close()
	architecture := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[e.Machine]
	if architecture == "" {
		return nil, fmt.Errorf("%s: is for %v, which no image is made for", path, e.Machine)
	}
	for _, part := range e.Progs {
		if part.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s: needs shared libraries, and there are none in an image: build it with CGO_ENABLED=0", path)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return &binary{platform: &v1.Platform{OS: "linux", Architecture: architecture}, content: content}, nil
}
