package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
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

func TestAge(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1500 * time.Millisecond: "1s", 59 * time.Second: "59s",
		90 * time.Second: "1m30s", time.Hour + time.Second: "1h0m", 47 * time.Hour: "47h0m", 48 * time.Hour: "2 days",
	} {
		if got := age(now.Add(-d), now); got != want {
			t.Errorf("age of %v is %q, want %q", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 1<<64 - 1: "16.0 EiB",
	} {
		if got := size(n); got != want {
			t.Errorf("size(%d) is %q, want %q", n, got, want)
		}
	}
}
