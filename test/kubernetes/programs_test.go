package kubernetes

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/deploy/images"
	"github.com/sluice-net/sluice/deploy/images/gobuild"
	"github.com/sluice-net/sluice/test/lab"
)

// webProgram is the server that runs in pods.
var webProgram = images.Program{Name: "web", Package: "./test/kubelab/web", User: images.Nobody, Description: "The pods of tests"}

// tarProgram is what kubectl cp needs in a container.
var tarProgram = images.Program{Name: "tar", Package: "./test/kubelab/tar", User: images.Nobody, Description: "Files in the pods of tests"}

// built is the images of this test run, which TestMain removes.
var built struct {
	once     sync.Once
	dir      string
	archives []string
	took     time.Duration
	err      error
}

// programs builds the images and liqoctl, once for all tests, and returns the
// archives of the images and the path of the program.
func programs(t *testing.T) (archives []string, liqoctl string) {
	t.Helper()
	built.once.Do(func() {
		start := time.Now()
		built.err = buildImages()
		built.took = time.Since(start)
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	liqoctl = lab.Build(t, "github.com/sluice-net/sluice/cmd/liqoctl", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+tag)
	t.Logf("the images are built after %v", built.took.Round(100*time.Millisecond))
	return built.archives, liqoctl
}

// buildImages makes the images for this machine only. All of them have the tag
// of the test, so that a change of the code alone changes them.
func buildImages() (err error) {
	if built.dir, err = os.MkdirTemp("", "sluice-images-"); err != nil {
		return err
	}
	made, err := images.Build(context.Background(), images.Options{
		Out: built.dir, Version: tag, Platforms: images.Host(), Programs: append(images.Programs(), webProgram, tarProgram), Cache: gobuild.UserCache(),
	})
	for _, i := range made {
		built.archives = append(built.archives, i.Archive)
	}
	return err
}
