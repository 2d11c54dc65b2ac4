package gobuild_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/deploy/images/gobuild"
)

// TestRun: a program is linked again when its source or its arguments have changed, and only then, and is that of the source
// for whoever builds it at the same time.
func TestRun(t *testing.T) {
	source, cache := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	say := func(what string) {
		write("main.go", "package main\n\nvar version string\n\nfunc main() { println(\""+what+"\", version) }\n")
	}
	build := func(version string) (says string) {
		b := gobuild.Build{Args: []string{"-ldflags", "-X main.version=" + version, "."}, Dir: source, File: filepath.Join(t.TempDir(), "hello"), Cache: cache}
		if err := b.Run(t.Context()); err != nil {
			t.Error(err)
			return ""
		}
		out, err := exec.Command(b.File).CombinedOutput()
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(out))
	}
	kept := func() (programs []os.FileInfo) {
		all, err := filepath.Glob(filepath.Join(cache, "*", "program"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range all {
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			programs = append(programs, info)
		}
		return programs
	}
	write("go.mod", "module example.org/hello\n\ngo 1.24\n")
	say("hello")
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			if got := build("1"); got != "hello 1" {
				t.Errorf("it says %q", got)
			}
		})
	}
	work.Wait()
	before := kept()
	if len(before) != 1 {
		t.Fatalf("%d programs are kept", len(before))
	}
	// The linker makes another file.
	if got := build("1"); got != "hello 1" || !os.SameFile(kept()[0], before[0]) {
		t.Errorf("without a change it says %q, and may have been linked again", got)
	}
	say("good bye")
	if got := build("1"); got != "good bye 1" || os.SameFile(kept()[0], before[0]) {
		t.Errorf("after a change it says %q, and may not have been linked again", got)
	}
	if got := build("2"); got != "good bye 2" || len(kept()) != 2 {
		t.Errorf("with other arguments it says %q; %d programs are kept", got, len(kept()))
	}
	half, err := filepath.Glob(filepath.Join(cache, "*", "program"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range half {
		if err := errors.Join(os.Truncate(file, 100_000), os.Remove(filepath.Join(filepath.Dir(file), "whole"))); err != nil {
			t.Fatal(err)
		}
	}
	if got := build("1"); got != "good bye 1" {
		t.Errorf("after an interrupt while it was written it says %q", got)
	}
	write("main.go", "package main\n")
	err = gobuild.Build{Args: []string{"."}, Dir: source, File: filepath.Join(t.TempDir(), "hello"), Cache: cache}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "function main is undeclared") {
		t.Errorf("of a program that cannot be built: %v", err)
	}
}
