package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// daemon is what a Gateway and a Fabric have in common: a process that a directory
// configures, and that can be asked how it fares.
type daemon struct {
	*Process
	// Manifests is the directory it is configured from.
	Manifests string
	// AdminSocket is where its command status asks it.
	AdminSocket string
	// Started is when the process was started.
	Started time.Time

	host                    *Host
	binary                  string
	healthPort, metricsPort int
	// private says that a Secret is among the manifests: only UnprivilegedID reads them.
	private bool
}

// Write replaces the manifests, each file atomically.
func (d *daemon) Write(m *Manifests) {
	d.host.lab.t.Helper()
	for name, text := range m.Files() {
		d.WriteFile(name, text)
	}
}

// WriteFile replaces one file of the manifests atomically, as an editor or a
// configuration tool does.
func (d *daemon) WriteFile(name, text string) {
	t := d.host.lab.t
	t.Helper()
	mode := os.FileMode(0o644)
	if d.private {
		mode = 0o600
	}
	// A name without .yaml is none of the program's business.
	temporary := filepath.Join(d.Manifests, "."+name+".new")
	if err := os.WriteFile(temporary, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if d.private {
		if err := os.Chown(temporary, UnprivilegedID, UnprivilegedID); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(temporary, filepath.Join(d.Manifests, name)); err != nil {
		t.Fatal(err)
	}
}

// Remove removes one file of the manifests.
func (d *daemon) Remove(name string) {
	t := d.host.lab.t
	t.Helper()
	if err := os.Remove(filepath.Join(d.Manifests, name)); err != nil {
		t.Fatal(err)
	}
}

// Ready waits until /readyz says so and returns how long that took since the
// start.
func (d *daemon) Ready(limit time.Duration) time.Duration {
	t := d.host.lab.t
	t.Helper()
	Eventually(t, limit, d.host.Name+": /readyz of the "+d.Name, func() error {
		if !d.Running() {
			t.Fatalf("%s: the %s has ended:\n%s", d.host.Name, d.Name, d.Log())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		out, err := d.host.TryContext(ctx, "curl", "-s", "--fail-with-body", fmt.Sprintf("http://127.0.0.1:%d/readyz", d.healthPort))
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	return time.Since(d.Started)
}

// Metrics returns the Prometheus text.
func (d *daemon) Metrics() string {
	d.host.lab.t.Helper()
	return d.host.Run("curl", "-sf", fmt.Sprintf("http://127.0.0.1:%d/metrics", d.metricsPort))
}

// status fills in what the command status says as JSON.
func (d *daemon) status(into any) error {
	out, err := d.host.Try(d.binary, "status", "--admin-socket", d.AdminSocket, "-o", "json")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return fmt.Errorf("%s status -o json: %w: %s", d.Name, err, out)
	}
	return nil
}

// StatusText returns what the command status shows, or why it does not.
func (d *daemon) StatusText() string {
	out, err := d.host.Try(d.binary, "status", "--admin-socket", d.AdminSocket)
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return out
}
