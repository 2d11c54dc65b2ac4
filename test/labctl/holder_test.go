package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	if pid, err := holder(path); pid != 0 || err != nil {
		t.Errorf("without a lab: %d, %v", pid, err)
	}
	lock, err := claim(path)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := holder(path); pid != os.Getpid() || err != nil {
		t.Errorf("with a lab: got %d, %v, want %d", pid, err, os.Getpid())
	}
	if _, err := claim(path); err == nil || !strings.Contains(err.Error(), "labctl down") {
		t.Errorf("a second one: %v", err)
	}
	lock.Close() // as the end of the process does
	if pid, err := holder(path); pid != 0 || err != nil {
		t.Errorf("after its end: %d, %v", pid, err)
	}
	if lock, err = claim(path); err != nil {
		t.Error(err)
	}
	lock.Close()
}

// TestShowAgain: who asks for a lab that is up learns how to look around in it.
func TestShowAgain(t *testing.T) {
	help := filepath.Join(t.TempDir(), "help")
	var out bytes.Buffer
	if err := showAgain(7, help, &out); err == nil || !strings.Contains(err.Error(), "still coming up (process 7): labctl down") || out.Len() > 0 {
		t.Errorf("one that comes up: %v, %q", err, out.String())
	}
	if err := os.WriteFile(help, []byte("look\naround\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := showAgain(7, help, &out); err != nil || out.String() != "A lab is up already.\n\nlook\naround\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}

func TestRelay(t *testing.T) {
	tests := []struct {
		name, said       string
		progress, result string
		fails            bool
	}{
		{"ready", "one\ntwo\n" + ready + "look\naround\n", "one\ntwo\n", "look\naround\n", false},
		{"ended early", "one\nbroken\n", "one\nbroken\n", "", true},
		{"ended at once", "", "", "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var progress, result bytes.Buffer
			err := relay(strings.NewReader(tt.said), &progress, &result)
			if (err != nil) != tt.fails {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff([]string{tt.progress, tt.result}, []string{progress.String(), result.String()}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSession(t *testing.T) {
	var said []string
	s := &session{log: func(text string) { said = append(said, text) }}
	err := s.run(func() error {
		s.Cleanup(func() { s.Logf("first, failed: %v", s.Failed()) })
		s.Cleanup(func() { s.Logf("second") })
		s.Fatalf("no %s", "disk")
		return errors.New("unreachable")
	})
	if err == nil || err.Error() != "no disk" {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"second", "first, failed: true"}, said); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
