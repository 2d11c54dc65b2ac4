package main

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/node/fabric"
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
		{"status-unseen.txt", unseenReport(), false},
	} {
		var out bytes.Buffer
		if err := writeStatus(&out, tt.report, tt.all); err != nil {
			t.Fatal(err)
		}
		daemontest.Golden(t, tt.golden, out.String())
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
	for _, want := range []report{standaloneReport(), clusterReport(), startingReport()} {
		daemontest.Status(t, program, run, want, writeStatus, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(fabric.State{}))
	}
}
