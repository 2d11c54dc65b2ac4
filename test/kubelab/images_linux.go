package kubelab

import (
	"os/exec"
	"path/filepath"

	"github.com/sluice-net/sluice/deploy/images"
	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/source"
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
	l.archives = append(l.archives, l.pack(reference, program))
	return program
}

// BuildModule makes a program of a module of its own, which is in a folder of the source, and returns an archive of its image.
func (l *Lab) BuildModule(reference string, folder ...string) (archive string) {
	l.t.Helper()
	program := filepath.Join(l.Dir, folder[len(folder)-1])
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	cmd.Dir = source.Path(folder...)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("build %s: %v\n%s", reference, err, out)
	}
	return l.pack(reference, program)
}

// pack makes an archive of the image of a program.
func (l *Lab) pack(reference, program string) (archive string) {
	l.t.Helper()
	archive = filepath.Join(l.Dir, filepath.Base(program)+".tar")
	if err := images.Pack(reference, program, images.Nobody, archive); err != nil {
		l.t.Fatalf("image %s: %v", reference, err)
	}
	return archive
}
