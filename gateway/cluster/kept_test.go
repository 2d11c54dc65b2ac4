package cluster

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
)

// keptFor is a file in a directory, for the gateway gw of a peering.
func keptFor(dir, peer string) (*keptFile, kept) {
	return newKeptFile(Options{Name: "gw", Namespace: "tenant", Type: networkingv1beta1.ConnectionServer, ClusterID: peer, CacheDir: dir, Logger: slog.New(slog.DiscardHandler)})
}

// oneOfEach has an object in every list.
func oneOfEach() (o manifests.Objects) {
	lists := reflect.ValueOf(&o).Elem()
	for i := range lists.NumField() {
		list := lists.Field(i)
		item := reflect.New(list.Type().Elem()).Elem()
		object := reflect.New(item.FieldByName("Object").Type().Elem())
		object.MethodByName("SetName").Call([]reflect.Value{reflect.ValueOf(strings.ToLower(lists.Type().Field(i).Name))})
		item.FieldByName("Object").Set(object)
		list.Set(reflect.Append(list, item))
	}
	return o
}

// TestKeptObjects: what a gateway works by is read back as it was, but for Secrets, of
// which nothing is in the file.
func TestKeptObjects(t *testing.T) {
	dir := t.TempDir()
	file, before := keptFor(dir, "milan")
	if !before.At.IsZero() {
		t.Fatalf("there is something at first: %+v", before)
	}
	objects := oneOfEach()
	objects.Secrets[0].Object.Data = map[string][]byte{"privateKey": []byte("not for the disk")}
	objects.Secrets = append(objects.Secrets, manifests.Sourced[corev1.Secret]{Object: objects.Secrets[0].Object})
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "lease", ResourceVersion: "7"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a")}}
	now := time.Now()
	file.keep(objects, now)
	file.keepLease(lease)
	if err := file.write(); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(dir, KeptFile)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("the mode is %v", info.Mode())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "Secret") || strings.Contains(string(text), "privateKey") {
		t.Errorf("a Secret is in the file:\n%s", text)
	}

	_, after := keptFor(dir, "milan")
	// A gateway reads no Network, and ExportedServices apart: see Services.
	objects.Secrets, objects.Networks, objects.ExportedServices = nil, nil, nil
	if !reflect.DeepEqual(after.Objects, objects) || !reflect.DeepEqual(after.Lease, lease) || !after.At.Equal(now) {
		t.Errorf("kept was\n%s", text)
	}
	if _, other := keptFor(dir, "turin"); !other.At.IsZero() {
		t.Error("a gateway takes what another one has kept")
	}
}

// TestKeptObjectsThatCannotBeRead: half of them would look as if the rest had been deleted.
func TestKeptObjectsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	file, _ := keptFor(dir, "milan")
	file.keep(oneOfEach(), time.Now())
	if err := file.write(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, KeptFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(bytes.TrimSpace(text), []byte("\n"))
	for name, content := range map[string][]byte{
		"without its end":     bytes.Join(lines[:len(lines)-1], nil),
		"cut in a line":       text[:len(text)/2],
		"empty":               nil,
		"of another version":  bytes.Replace(text, []byte(`{"Format":1,`), []byte(`{"Format":2,`), 1),
		"with another object": bytes.Replace(text, []byte(`{"Kind":"IP",`), []byte(`{"Kind":"Ip",`), 1),
		"with a wrong type":   bytes.Replace(text, []byte(`"name":"ips"`), []byte(`"name":1`), 1),
	} {
		if bytes.Equal(content, text) {
			t.Errorf("%s: nothing was changed", name)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, got := keptFor(dir, "milan"); !got.At.IsZero() || got.Lease != nil || got.Objects.IPs != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, got := keptFor(dir, "milan"); got.At.IsZero() {
		t.Error("unchanged, it is not read")
	}
}

// TestSlowWriteOfKeptObjects: what changes during a write that waits, for the disk or for a processor, is kept soon after
// it. A hundred times as long would be half a minute.
func TestSlowWriteOfKeptObjects(t *testing.T) {
	dir := t.TempDir()
	file, _ := keptFor(dir, "milan")
	pipe := filepath.Join(dir, KeptFile+".new")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go file.run(t.Context())
	file.keep(oneOfEach(), time.Now())
	time.Sleep(300 * time.Millisecond)
	slow, err := os.Open(pipe) // from here on the write goes on
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if _, err := io.Copy(io.Discard, slow); err != nil {
		t.Fatal(err)
	}
	ended := time.Now()
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a")}}
	file.keepLease(lease)
	for {
		info, err := os.Stat(filepath.Join(dir, KeptFile))
		if err == nil && info.Mode().IsRegular() {
			break
		}
		if time.Since(ended) > 20*time.Second {
			t.Fatal("the lease is not kept")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, got := keptFor(dir, "milan"); !reflect.DeepEqual(got.Lease, lease) {
		t.Errorf("kept is %+v", got.Lease)
	}
}

// TestKeptObjectsThatCannotBeWritten: what was kept before stays.
func TestKeptObjectsThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	file, _ := keptFor(dir, "milan")
	file.keep(oneOfEach(), time.Now())
	if err := file.write(); err != nil {
		t.Fatal(err)
	}
	large := oneOfEach()
	large.PublicKeys[0].Object.Spec.PublicKey = make([]byte, maxKept)
	file.keep(large, time.Now())
	if err := file.write(); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("error %v", err)
	}
	if _, got := keptFor(dir, "milan"); len(got.Objects.PublicKeys) != 1 || got.Objects.PublicKeys[0].Object.Spec.PublicKey != nil {
		t.Error("what was kept before is gone")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}
