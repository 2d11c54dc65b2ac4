package kubelab

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSysctls has two labs and a kubelet change what the machine has.
func TestSysctls(t *testing.T) {
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "before")
	set := func(value string) {
		for _, name := range nodeSysctls {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := func(value string) {
		t.Helper()
		for _, name := range nodeSysctls {
			if b, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(b) != value {
				t.Errorf("%s: %q, %v, want %q", name, b, err, value)
			}
		}
	}
	remember := func() sysctls {
		t.Helper()
		s, err := rememberSysctls(root, file)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	restore := func(s sysctls) {
		t.Helper()
		if err := s.restore(root, file); err != nil {
			t.Error(err)
		}
	}
	set("0")
	first := remember()
	set("1")
	second := remember() // what the first one found, not what its kubelets made of it
	restore(first)
	want("0")
	set("1") // a kubelet of the second starts once more
	restore(second)
	want("0")
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the note stays: %v", err)
	}
	// A lab is killed; whoever cleans up knows only the file.
	set("2")
	remember()
	set("1")
	restore(remember())
	want("2")
}

// TestRaiseInotify: a limit is raised, and never lowered.
func TestRaiseInotify(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, inotifyInstances)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	for before, want := range map[string]string{"128\n": "2048\n", "8192\n": "8192\n"} {
		if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := raiseInotify(root); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q becomes %q (%v), want %q", before, got, err, want)
		}
	}
}
