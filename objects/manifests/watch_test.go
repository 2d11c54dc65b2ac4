package manifests

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// applied is how soon a change must be seen. The promise is a second; a loaded
// machine gets more before the test calls it broken.
const applied = 5 * time.Second

// watched runs a watch and returns a function that waits for the directory to
// have the wanted content.
func watched(t *testing.T, dir string, period time.Duration) func(what string, want Digest) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	seen := make(chan Digest, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		watch(ctx, dir, period, func() {
			f, err := ReadFiles(dir)
			if err == nil {
				seen <- f.Digest
			}
		}, func(err error) { t.Errorf("no events: %v", err) })
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	<-seen // the watch stands
	return func(what string, want Digest) {
		t.Helper()
		timeout := time.After(applied)
		for {
			select {
			case got := <-seen:
				if got == want {
					return
				}
			case <-timeout:
				t.Fatalf("%s was not seen", what)
			}
		}
	}
}

func digest(t *testing.T, dir string) Digest {
	t.Helper()
	f, err := ReadFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f.Digest
}

func TestWatch(t *testing.T) {
	must := func(t *testing.T, errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name    string
		prepare func(t *testing.T, dir string)
		change  func(t *testing.T, dir string)
	}{
		{"a file written in place", nil, func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "a.yaml"), "# changed")
		}},
		{"a new file", nil, func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "b.yml"), "# new")
		}},
		{"a removed file", nil, func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "a.yaml")))
		}},
		{"a file replaced by rename, as editors do", nil, func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, ".a.yaml.swp"), "# renamed")
			must(t, os.Rename(filepath.Join(dir, ".a.yaml.swp"), filepath.Join(dir, "a.yaml")))
		}},
		{"a file renamed away", nil, func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "a.yaml.bak")))
		}},
		{"a link swapped, as the kubelet does", func(t *testing.T, dir string) {
			must(t, os.Mkdir(filepath.Join(dir, "..1"), 0o700), os.Mkdir(filepath.Join(dir, "..2"), 0o700))
			write(t, filepath.Join(dir, "..1", "k.yaml"), "# one")
			write(t, filepath.Join(dir, "..2", "k.yaml"), "# two")
			must(t, os.Symlink("..1", filepath.Join(dir, "..data")), os.Symlink("..data/k.yaml", filepath.Join(dir, "k.yaml")))
		}, func(t *testing.T, dir string) {
			must(t, os.Symlink("..2", filepath.Join(dir, "..data_tmp")), os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		}},
		{"many changes at once", nil, func(t *testing.T, dir string) {
			for range 50 {
				write(t, filepath.Join(dir, "a.yaml"), "# many")
				write(t, filepath.Join(dir, "c.yaml"), "# many")
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "a.yaml"), "# first")
			if tt.prepare != nil {
				tt.prepare(t, dir)
			}
			wait := watched(t, dir, time.Hour) // events alone
			before := digest(t, dir)
			tt.change(t, dir)
			after := digest(t, dir)
			if before == after {
				t.Fatal("the change changes nothing")
			}
			wait(tt.name, after)
		})
	}
}

// What no event tells is found by looking.
func TestWatchFindsAReplacedDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "manifests")
	for _, d := range []string{dir, dir + ".new"} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(d, "a.yaml"), "# "+d)
	}
	wait := watched(t, dir, time.Hour)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".new", dir); err != nil {
		t.Fatal(err)
	}
	wait("the other directory", digest(t, dir))
	write(t, filepath.Join(dir, "b.yaml"), "# later")
	wait("a change in it", digest(t, dir))
}

func TestWatchFindsASwappedLinkToTheDirectory(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	link := filepath.Join(top, "current")
	for _, name := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(top, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(top, name, "a.yaml"), "# "+name)
		if err := os.Symlink(name, filepath.Join(top, "next."+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(top, "next.1"), link); err != nil {
		t.Fatal(err)
	}
	wait := watched(t, link, time.Hour)
	if err := os.Rename(filepath.Join(top, "next.2"), link); err != nil {
		t.Fatal(err)
	}
	wait("the other directory", digest(t, link))
	write(t, filepath.Join(link, "b.yaml"), "# later")
	wait("a change in it", digest(t, link))
}

func TestWatchWithoutEvents(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	told := make(chan error, 1)
	looked := make(chan struct{}, 10)
	var wg sync.WaitGroup
	wg.Go(func() {
		watch(ctx, filepath.Join(t.TempDir(), "missing"), time.Hour, func() { looked <- struct{}{} }, func(err error) { told <- err })
	})
	if err := <-told; err == nil {
		t.Error("no reason given")
	}
	<-looked // at the start
	<-looked // and again
	cancel()
	wg.Wait()
}

// A directory that is made later is watched from then on.
func TestWatchFindsAMissingDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "status")
	ctx, cancel := context.WithCancel(context.Background())
	told, events := make(chan error, 1), make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		watchNames(ctx, dir, time.Hour, func(fsnotify.Event) bool {
			select {
			case events <- struct{}{}:
			default:
			}
			return true
		}, func() {}, func(err error) { told <- err })
	})
	defer wg.Wait()
	defer cancel()
	if err := <-told; err == nil {
		t.Fatal("no reason given")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(poll)
	defer again.Stop()
	for limit := time.After(time.Minute); ; {
		write(t, filepath.Join(dir, "a.yaml"), "# changed")
		select {
		case <-events:
			return
		case <-again.C:
		case <-limit:
			t.Fatal("no events")
		}
	}
}

func TestDebounce(t *testing.T) {
	// A fake clock would need a fake timer; the arithmetic is what can be wrong.
	d := debounce{quiet: time.NewTimer(time.Hour)}
	defer d.quiet.Stop()
	start := time.Now()
	d.event(start)
	d.event(start.Add(patience + time.Hour)) // due long ago
	select {
	case <-d.quiet.C:
	case <-time.After(applied):
		t.Error("events without an end put off the change for ever")
	}
}
