package kubelab

import (
	"path/filepath"

	"github.com/sluice-net/sluice/deploy/images"
	"github.com/sluice-net/sluice/test/lab"
)

const (
	pausePackage = "github.com/sluice-net/sluice/test/kubelab/pause"
	pauseImage   = "localhost/pause:test"
	webPackage   = "github.com/sluice-net/sluice/test/kubelab/web"

	// WebImage is on every node: an HTTP server at port 8080 that says who it is,
	// see kubelab/web.
	WebImage = "localhost/web:test"
)

// buildImages makes the archives of the lab's own images and returns the
// programs in them.
func (l *Lab) buildImages() (pause, web string) {
	l.t.Helper()
	pause, web = l.build(pausePackage, pauseImage), l.build(webPackage, WebImage)
	l.archives = append(l.archives, l.options.Images...)
	return pause, web
}

// build makes a program and its image.
func (l *Lab) build(pkg, reference string) (program string) {
	l.t.Helper()
	program = lab.Build(l.t, pkg, "-trimpath", "-ldflags=-s -w")
	archive := filepath.Join(l.Dir, filepath.Base(pkg)+".tar")
	if err := images.Pack(reference, program, images.Nobody, archive); err != nil {
		l.t.Fatalf("image %s: %v", reference, err)
	}
	l.archives = append(l.archives, archive)
	return program
}
