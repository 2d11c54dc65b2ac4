package main

import (
	"bytes"
	"errors"
	"testing"

	"github.com/sluice-net/sluice/cmd/internal/daemontest"
)

func TestWriteStatus(t *testing.T) {
	for _, tt := range []struct {
		golden string
		report report
		all    bool
	}{
		{"status-busy.txt", busyReport(), false},
		{"status-busy-all.txt", busyReport(), true},
		{"status-idle.txt", idleReport(), false},
		{"status-standby.txt", standByReport(), false},
		{"status-tunnels.txt", tunnelsReport(), false},
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
	if err := writeStatus(brokenWriter{}, busyReport(), false); err == nil {
		t.Error("a failed write goes unnoticed")
	}
}
