package images

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// describe fills in version, revision and time from the work tree.
func (o *Options) describe(ctx context.Context) error {
	if o.Version == "" {
		// As the Makefile does.
		v, err := command(ctx, o.Root, "git", "describe", "--tags", "--always", "--dirty")
		if err != nil {
			v = noVersion
		}
		o.Version = v
	}
	if o.Revision == "" {
		// A source archive has no commit.
		o.Revision, _ = command(ctx, o.Root, "git", "rev-parse", "HEAD")
	}
	if !o.Time.IsZero() {
		o.Time = o.Time.UTC()
		return nil
	}
	seconds, what := os.Getenv("SOURCE_DATE_EPOCH"), "SOURCE_DATE_EPOCH"
	if seconds == "" {
		seconds, what = "0", "time of the commit"
		if s, err := command(ctx, o.Root, "git", "log", "-1", "--format=%ct"); err == nil && s != "" {
			seconds = s
		}
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("%s: %q is no number of seconds since 1970", what, seconds)
	}
	o.Time = time.Unix(n, 0).UTC()
	return nil
}

// noVersion is the version where there is no work tree of git to take it from. The
// chart's default is the same.
const noVersion = "unknown"

// command runs a program and returns what it printed.
func command(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args[:2], " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
