package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// socketDir is shorter than t.TempDir, whose paths may exceed a socket's.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestListenAdmin(t *testing.T) {
	path := filepath.Join(socketDir(t), "new", "admin.sock")
	l, err := listenAdmin(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want only the owner", info.Mode())
	}
	if _, err := listenAdmin(path); err == nil || !strings.Contains(err.Error(), "another gateway serves it") {
		t.Errorf("a socket in use: %v", err)
	}

	// What a crash leaves behind is in nobody's way.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	if l, err = listenAdmin(path); err != nil {
		t.Fatalf("a socket that nobody serves: %v", err)
	}
	l.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stays after the end: %v", err)
	}
}

func TestListenAdminRefuses(t *testing.T) {
	dir := socketDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, path, want string }{
		{"a file", file, "there is a file of that name, which is no socket"},
		{"below a file", filepath.Join(file, "x"), "not a directory"},
		{"a long path", filepath.Join(dir, strings.Repeat("x", 120)), "a socket's may have 107"},
	} {
		_, err := listenAdmin(tt.path)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.path) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "precious" {
		t.Errorf("the file is now %q (%v)", data, err)
	}
}

func TestStatusCommand(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	l, err := listenAdmin(path)
	if err != nil {
		t.Fatal(err)
	}
	want := busyReport()
	server := http.Server{Handler: adminHandler(func() report { return want })}
	go server.Serve(l)
	defer server.Close()

	var text, jsonText bytes.Buffer
	if code := run(context.Background(), []string{"status", "--admin-socket", path}, &text, &text); code != 0 {
		t.Fatalf("exit code %d: %s", code, &text)
	}
	var direct bytes.Buffer
	if err := writeStatus(&direct, want, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(direct.String(), text.String()); diff != "" {
		t.Errorf("what comes over the socket differs (-want +got):\n%s", diff)
	}
	if code := run(context.Background(), []string{"status", "--admin-socket", path, "-o", "json"}, &jsonText, &jsonText); code != 0 {
		t.Fatalf("exit code %d: %s", code, &jsonText)
	}
	var got report
	if err := json.Unmarshal(jsonText.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, netip.AddrPort{})); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestStatusCommandWithoutGateway(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	for _, p := range []string{path, path + "-missing"} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), []string{"status", "--admin-socket", p}, &out, &errs); code != 1 {
			t.Errorf("exit code %d", code)
		}
		if want := "gateway: no gateway answers on " + p + ": is it running, and with this --admin-socket?\n"; errs.String() != want {
			t.Errorf("got %q, want %q", errs.String(), want)
		}
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("status, which only asks, removed the socket: %v", err)
	}
}
