package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
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
	if err := writeStatus(brokenWriter{}, busyReport(), false); err == nil {
		t.Error("a failed write goes unnoticed")
	}
}
