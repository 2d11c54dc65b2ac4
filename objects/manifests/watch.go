package manifests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long the directory must rest before it is read: an editor or
	// a copy of several files makes a burst of events.
	quiet = 100 * time.Millisecond
	// patience bounds the wait when the events do not stop, so that a change is
	// applied within a second even then.
	patience = 500 * time.Millisecond
	// rescan finds what no event tells: network file systems, targets of links
	// that point elsewhere.
	rescan = 5 * time.Second
	// poll replaces events where the system gives none: for the files, or for
	// the directory itself, which a rename or the swap of a link may replace.
	poll = 500 * time.Millisecond
)

// Watch calls changed after the files of dir may have changed. Spurious calls
// are normal: the caller compares what it reads. It returns when ctx ends.
// Without events from the system, which degraded is told, it polls.
func Watch(ctx context.Context, dir string, changed func(), degraded func(error)) {
	watch(ctx, dir, rescan, changed, degraded)
}

// WatchAll is Watch for a folder in which every name counts.
func WatchAll(ctx context.Context, dir string, changed func(), degraded func(error)) {
	watchNames(ctx, dir, rescan, func(fsnotify.Event) bool { return true }, changed, degraded)
}

func watch(ctx context.Context, dir string, period time.Duration, changed func(), degraded func(error)) {
	watchNames(ctx, dir, period, relevant, changed, degraded)
}

func watchNames(ctx context.Context, dir string, period time.Duration, relevant func(fsnotify.Event) bool, changed func(), degraded func(error)) {
	w, err := newWatcher(dir)
	tick := time.NewTicker(period)
	defer tick.Stop()
	if err != nil {
		degraded(err)
		tick.Reset(poll)
	}
	defer func() {
		if err == nil {
			w.Close()
		}
	}()
	d := debounce{quiet: time.NewTimer(0)}
	defer d.quiet.Stop()
	pollTick := time.NewTicker(poll)
	defer pollTick.Stop()
	was, _ := os.Stat(dir)
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.Events:
			if relevant(e) {
				d.event(time.Now())
			}
		case <-w.Errors:
			d.event(time.Now()) // an overflow: events were lost, so look at everything
		case <-d.quiet.C: // also once at the start, for what changed before the watch
			d.first = time.Time{}
			changed()
		case <-tick.C:
			changed()
		case <-pollTick.C:
			is, _ := os.Stat(dir) // nil: missing
			if err != nil {
				if w, err = newWatcher(dir); err == nil { // it is there now
					was = is
					tick.Reset(period)
					d.event(time.Now())
				}
				continue
			}
			if os.SameFile(was, is) || was == is {
				continue
			}
			was = is
			// Drop the watch of the other directory. Neither needs to be there.
			_ = w.Remove(dir)
			_ = w.Add(dir)
			d.event(time.Now())
		}
	}
}

// newWatcher returns, with an error, a watcher without events.
func newWatcher(dir string) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return &fsnotify.Watcher{}, fmt.Errorf("watch %s: %w", dir, err)
	}
	if err := w.Add(dir); err != nil {
		w.Close()
		return &fsnotify.Watcher{}, fmt.Errorf("watch %s: %w", dir, err)
	}
	return w, nil
}

// relevant tells whether an event can change what ReadFiles returns. The kubelet
// swaps the link ..data, so its names count; the gateway's own status does not.
func relevant(e fsnotify.Event) bool {
	name := filepath.Base(e.Name)
	return resemblesManifest(name) || strings.HasPrefix(name, "..") || name != StatusDir && isLink(e.Name)
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}

// debounce turns a burst of events into one expiry of quiet.
type debounce struct {
	quiet *time.Timer
	first time.Time // of the burst; zero between bursts
}

func (d *debounce) event(now time.Time) {
	if d.first.IsZero() {
		d.first = now
	}
	d.quiet.Reset(max(0, min(quiet, d.first.Add(patience).Sub(now))))
}
