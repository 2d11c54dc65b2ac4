// Package gobuild runs go build without linking again what has not changed: the go command keeps packages that it has
// compiled, but programs only where it has put them.
package gobuild

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Build is one run of go build.
type Build struct {
	Args []string // but for -o; the last one is the package
	Dir  string   // where it runs; empty: the working directory
	Env  []string // the whole environment; nil: that of this process
	File string   // the program
	// Cache is a directory in which a copy of the program stays, for the next build with the same arguments and name;
	// empty: none does. Processes that share it take turns.
	Cache string
}

// UserCache is a Cache that all clones of this user share; empty: there is no place for it.
func UserCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "sluice", "programs")
}

// Run builds the program. An error has the output of go build.
func (b Build) Run(ctx context.Context) error {
	if b.Cache == "" {
		return b.build(ctx, b.File)
	}
	sum := sha256.Sum256([]byte(strings.Join(b.Args, "\x00")))
	dir := filepath.Join(b.Cache, fmt.Sprintf("%s-%x", filepath.Base(b.File), sum[:8]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // which lets it go
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	// The go command takes a program for one of its own by its beginning, even if somebody was interrupted writing the rest.
	kept, whole := filepath.Join(dir, "program"), filepath.Join(dir, "whole")
	if os.Remove(whole) != nil {
		_ = os.Remove(kept)
	}
	if err := b.build(ctx, kept); err != nil {
		return err
	}
	if err := os.WriteFile(whole, nil, 0o600); err != nil {
		return err
	}
	return copyProgram(kept, b.File)
}

func (b Build) build(ctx context.Context, file string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", file}, b.Args...)...)
	cmd.Dir, cmd.Env = b.Dir, b.Env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", b.Args[len(b.Args)-1], err, bytes.TrimSpace(out))
	}
	return nil
}

// copyProgram copies: what runs must not change when somebody builds it again.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
