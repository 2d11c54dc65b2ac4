package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/cmd/daemon"
	"github.com/sluice-net/sluice/controlplane/fabric"
)

func TestWriteStatus(t *testing.T) {
	for _, tt := range []struct {
		golden string
		report report
		all    bool
	}{
		{"status-standalone.txt", standaloneReport(), false},
		{"status-standalone-all.txt", standaloneReport(), true},
		{"status-cluster.txt", clusterReport(), false},
		{"status-starting.txt", startingReport(), false},
		{"status-left.txt", leftReport(), false},
	} {
		var out bytes.Buffer
		if err := writeStatus(&out, tt.report, tt.all); err != nil {
			t.Fatal(err)
		}
		// Editors and reviewers drop blanks at the end of lines.
		var lines []string
		for line := range strings.Lines(out.String()) {
			lines = append(lines, strings.TrimRight(line, " \n"))
		}
		golden(t, tt.golden, strings.Join(lines, "\n")+"\n")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestWriteStatusReportsErrors(t *testing.T) {
	if err := writeStatus(brokenWriter{}, standaloneReport(), false); err == nil {
		t.Error("a failed write goes unnoticed")
	}
}

// What the agent says survives its way to the status command.
func TestStatusCommand(t *testing.T) {
	dir, err := os.MkdirTemp("", "fabric") // shorter than t.TempDir: a socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	for name, want := range map[string]report{"standalone": standaloneReport(), "cluster": clusterReport(), "starting": startingReport()} {
		l, err := program.ListenAdmin(path)
		if err != nil {
			t.Fatal(err)
		}
		server := http.Server{Handler: daemon.AdminHandler(func() any { return want })}
		go server.Serve(l)
		var text, jsonText, direct bytes.Buffer
		for _, args := range []struct {
			out  io.Writer
			more []string
		}{{&text, nil}, {&jsonText, []string{"-o", "json"}}} {
			if code := run(t.Context(), append([]string{"status", "--admin-socket", path}, args.more...), args.out, &text); code != 0 {
				t.Fatalf("%s: exit code %d: %s", name, code, &text)
			}
		}
		server.Close()
		if err := writeStatus(&direct, want, false); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(direct.String(), text.String()); diff != "" {
			t.Errorf("%s: what comes over the socket differs (-want +got):\n%s", name, diff)
		}
		var got report
		if err := json.Unmarshal(jsonText.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}), cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(fabric.State{})); diff != "" {
			t.Errorf("%s: report (-want +got):\n%s", name, diff)
		}
	}
}
