package images

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// workTree is a commit of a known time with a tag.
func workTree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q"}, {"commit", "-q", "--allow-empty", "-m", "first"}, {"tag", "-a", "v1.4.0", "-m", "v1.4.0"},
	} {
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-C", root}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z", "GIT_AUTHOR_DATE=2020-01-01T00:00:00Z")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git: %v\n%s", err, out)
		}
	}
	return root
}

func TestDescribe(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "")
	root := workTree(t)
	o := Options{Root: root}
	if err := o.describe(context.Background()); err != nil {
		t.Fatal(err)
	}
	if o.Version != "v1.4.0" || len(o.Revision) != 40 || !o.Time.Equal(release) {
		t.Errorf("version %s, revision %s, time %v", o.Version, o.Revision, o.Time)
	}

	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	o = Options{Root: root, Version: "mine"}
	if err := o.describe(context.Background()); err != nil {
		t.Fatal(err)
	}
	if want := time.Unix(86400, 0); o.Version != "mine" || !o.Time.Equal(want) {
		t.Errorf("version %s, time %v, want mine of %v", o.Version, o.Time, want)
	}

	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	o = Options{Root: root}
	if err := o.describe(context.Background()); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("error: %v, want one about SOURCE_DATE_EPOCH", err)
	}
}

// TestDescribeArchive is about sources without a repository: they have no
// version of their own, and no commit.
func TestDescribeArchive(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "")
	root := t.TempDir()
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(root)) // it may lie in somebody's work tree
	for said, want := range map[string]string{"v1": "v1", "": "unknown"} {
		o := Options{Root: root, Version: said}
		if err := o.describe(context.Background()); err != nil {
			t.Fatal(err)
		}
		if o.Version != want || o.Revision != "" || o.Time.Unix() != 0 {
			t.Errorf("version %q, revision %q of %v, want %s, and none of 1970", o.Version, o.Revision, o.Time, want)
		}
	}
}
