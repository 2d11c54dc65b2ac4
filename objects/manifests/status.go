package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// StatusDir is the folder below the manifests where our programs tell how things
// are, each in files of its own: who writes one never reads it as input.
const StatusDir = "status"

// What a gateway outside clusters writes into the StatusDir: its Connection, and the Services of its peer for the DNS server.
const (
	ConnectionFile = "connection.yaml"
	ServicesFile   = "services.yaml"
)

// WriteStatus puts an object in place of the file name of the StatusDir of dir.
// Readers see either the old or the new content.
func WriteStatus(dir, name string, object any) error {
	text, err := yaml.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return replaceFile(dir, name, text)
}

// UpdateStatus is WriteStatus unless the file says the same already. It reports
// whether it wrote.
func UpdateStatus(dir, name string, object any) (wrote bool, err error) {
	text, err := yaml.Marshal(object)
	if err != nil {
		return false, fmt.Errorf("encode %s: %w", name, err)
	}
	if old, err := os.ReadFile(filepath.Join(dir, StatusDir, name)); err == nil && bytes.Equal(old, text) {
		return false, nil
	}
	if err := replaceFile(dir, name, text); err != nil {
		return false, err
	}
	return true, nil
}

// ReadStatus reads what was written, maybe by an earlier run, into object.
func ReadStatus(dir, name string, object any) error {
	text, err := os.ReadFile(filepath.Join(dir, StatusDir, name))
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, object); err != nil {
		return fmt.Errorf("decode %s: %w", name, err)
	}
	return nil
}

// replaceFile makes readers see either the old or the new content. The name of
// the intermediate file is fixed so that a crash leaves at most one behind.
func replaceFile(dir, name string, content []byte) error {
	folder := filepath.Join(dir, StatusDir)
	// Not MkdirAll: a manifests directory that was removed must not come back
	// empty.
	err := os.Mkdir(folder, 0o755)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the manifests directory %s is gone", dir)
	case err != nil && !errors.Is(err, fs.ErrExist):
		return err
	}
	next := filepath.Join(folder, "."+name+".next")
	if err := os.WriteFile(next, content, 0o644); err != nil {
		return errors.Join(err, removeIfThere(next))
	}
	return os.Rename(next, filepath.Join(folder, name))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
