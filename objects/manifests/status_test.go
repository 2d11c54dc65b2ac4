package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// statusNode is an InternalNode with an address.
func statusNode(ip string) *networkingv1beta1.InternalNode {
	n := &networkingv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	n.Status.NodeIP.Remote = networkingv1beta1.Address(ip)
	return n
}

func TestStatus(t *testing.T) {
	const name = "internalnode.yaml"
	dir := t.TempDir()
	path := filepath.Join(dir, StatusDir, name)
	var read networkingv1beta1.InternalNode
	if err := ReadStatus(dir, name, &read); !os.IsNotExist(err) {
		t.Errorf("before the first write: %v", err)
	}
	update := func(what, ip string, want bool) {
		t.Helper()
		if wrote, err := UpdateStatus(dir, name, statusNode(ip)); err != nil || wrote != want {
			t.Errorf("%s: wrote is %v, %v", what, wrote, err)
		}
		read = networkingv1beta1.InternalNode{}
		if err := ReadStatus(dir, name, &read); err != nil || string(read.Status.NodeIP.Remote) != ip {
			t.Errorf("%s: read %q, %v", what, read.Status.NodeIP.Remote, err)
		}
	}
	update("the first", "192.0.2.1", true)
	update("the same", "192.0.2.1", false)
	update("another", "192.0.2.2", true)
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadStatus(dir, name, &read); err == nil || !strings.Contains(err.Error(), "decode internalnode.yaml") {
		t.Errorf("damaged: %v", err)
	}
	update("what somebody damaged", "192.0.2.2", true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	update("what somebody removed", "192.0.2.2", true)

	// WriteStatus writes in any case: its time says that the writer lives.
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	if err := WriteStatus(dir, name, statusNode("192.0.2.2")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.ModTime().Equal(long) {
		t.Errorf("not written: %v, %v", info, err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v (%v), want the status alone", entries, err)
	}
	// What is written is no manifest.
	if files, err := ReadFiles(dir); err != nil || len(files.files) > 0 || len(files.ignored) > 0 {
		t.Errorf("the status is read as a manifest: %+v, %v", files, err)
	}
}

// Who reads while it is written sees one state or the other.
func TestStatusIsNeverHalf(t *testing.T) {
	dir := t.TempDir()
	done := make(chan error, 1)
	go func() {
		for i := range 500 {
			if err := WriteStatus(dir, "n.yaml", statusNode(strings.Repeat("1", 1+i%2*5000))); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
		var n networkingv1beta1.InternalNode
		err := ReadStatus(dir, "n.yaml", &n)
		if l := len(n.Status.NodeIP.Remote); !os.IsNotExist(err) && (err != nil || l != 1 && l != 5001) {
			t.Fatalf("read %d bytes of an address, %v", l, err)
		}
	}
}

// A manifests directory that was removed does not come back empty.
func TestStatusMakesNoManifestsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if _, err := UpdateStatus(dir, "n.yaml", statusNode("")); err == nil || !strings.Contains(err.Error(), "the manifests directory "+dir+" is gone") {
		t.Errorf("error: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
}
