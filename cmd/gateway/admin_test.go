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
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/cmd/daemon"
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

func TestStatusCommand(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	l, err := program.ListenAdmin(path)
	if err != nil {
		t.Fatal(err)
	}
	want := busyReport()
	server := http.Server{Handler: daemon.AdminHandler(func() any { return want })}
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
