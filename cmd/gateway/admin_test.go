package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-net/sluice/cmd/internal/daemontest"
)

func TestStatusCommand(t *testing.T) { daemontest.Status(t, program, run, busyReport(), writeStatus) }

func TestStatusCommandWithoutGateway(t *testing.T) {
	path := filepath.Join(daemontest.SocketDir(t), "s")
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
