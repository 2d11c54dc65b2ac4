package images

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/source"
)

// testContainerd gives the archive to a containerd of its own, and runs the image there.
func testContainerd(t *testing.T, made Image) {
	source.NeedRoot(t, "containerd", "ctr", "runc")
	ctr := startContainerd(t)
	ctr("--namespace=k8s.io", "images", "import", "--snapshotter=native", made.Archive)
	if got := ctr("--namespace=k8s.io", "images", "ls", "name=="+made.Reference); !strings.Contains(got, made.Digest) {
		t.Errorf("after the import there is no %s with %s:\n%s", made.Reference, made.Digest, got)
	}
	run := func(args ...string) string {
		return strings.TrimSpace(ctr(append([]string{"--namespace=k8s.io", "run", "--rm", "--snapshotter=native", "--read-only", made.Reference}, args...)...))
	}
	const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if got, want := run("by-entrypoint"), "hello v1.2.3 65532 65532 "+path+" /usr/local/bin/hello"; got != want {
		t.Errorf("by its entry point it says %q, want %q", got, want)
	}
	// As `kubectl exec` calls a program: by its name.
	if got, want := run("by-name", "hello"), "hello v1.2.3 65532 65532 "+path+" hello"; got != want {
		t.Errorf("by its name it says %q, want %q", got, want)
	}
}

// startContainerd runs a containerd that shares nothing with another one. What it
// returns calls ctr.
func startContainerd(t *testing.T) func(args ...string) string {
	t.Helper()
	// The paths of sockets are short.
	dir, err := os.MkdirTemp("", "images-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "config.toml")
	write(t, config, fmt.Appendf(nil, "version = 2\ndisabled_plugins = [%q]\n", "io.containerd.grpc.v1.cri"))
	socket := filepath.Join(dir, "s")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	server := exec.Command("containerd", "--config", config, "--root", filepath.Join(dir, "root"), "--state", filepath.Join(dir, "state"), "--address", socket)
	server.Stdout, server.Stderr = log, log
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait()
	})
	call := func(args ...string) ([]byte, error) {
		return exec.Command("ctr", append([]string{"--address", socket, "--connect-timeout=2s"}, args...)...).CombinedOutput()
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		out, err := call("version")
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("containerd does not answer: %v\n%s\n%s", err, out, read(t, log.Name()))
		}
	}
	return func(args ...string) string {
		t.Helper()
		out, err := call(args...)
		if err != nil {
			t.Fatalf("ctr %s: %v\n%s\n%s", strings.Join(args, " "), err, out, read(t, log.Name()))
		}
		return string(out)
	}
}
