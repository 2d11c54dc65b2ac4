package controllers

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// TestPauses: what fails is tried again soon, and after any number of failures within half a minute.
func TestPauses(t *testing.T) {
	p, r := pauses[ctrl.Request](), ctrl.Request{}
	if got := p.When(r); got > 10*time.Millisecond {
		t.Errorf("after one failure: %v", got)
	}
	var last time.Duration
	for range 100 {
		last = p.When(r)
	}
	if last != 30*time.Second {
		t.Errorf("after a hundred failures: %v", last)
	}
	p.Forget(r)
	if got := p.When(r); got > 10*time.Millisecond {
		t.Errorf("after a success: %v", got)
	}
}

// TestAllBeginHere: a controller that begins elsewhere would pause for up to 17 minutes.
func TestAllBeginHere(t *testing.T) {
	found := 0
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(filepath.Join("..", path))
		if strings.Contains(string(code), "controllers.New") {
			found++
		}
		if strings.Contains(string(code), "ControllerManagedBy") && path != "controllers/controllers.go" {
			t.Errorf("controlplane/%s begins a controller by itself", path)
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d files begin controllers, %v", found, err)
	}
}
