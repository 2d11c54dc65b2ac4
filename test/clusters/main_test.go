package clusters

import (
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/source"
)

var long = flag.Bool("clusters.long", false, "also run the tests that take minutes")

func TestMain(m *testing.M) {
	flag.Parse()
	// client-go tells here of every connection that an API server on purpose
	// out of order refuses.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestClusters runs everything on one pair of clusters, which takes seconds to
// start. Each part has namespaces of its own and leaves none of them behind.
func TestClusters(t *testing.T) {
	p := startPair(t)
	for _, part := range []struct {
		name string
		long bool
		run  func(*testing.T, *pair)
	}{
		{"manual", false, testManual},
		{"declarative", false, testDeclarative},
		{"services", false, testServices},
		{"rotation", false, testRotation},
		{"firewall", false, testFirewall},
		{"disconnect", false, testDisconnect},
		{"hands", false, testHands},
		{"account", false, testAccount},
		{"liqoctl", false, testLiqoctl},
		{"info", false, testInfo},
		{"doctor", false, testDoctor},
		{"capture", false, testCapture},
		{"network test", false, testNetwork},
		{"replicas", true, testReplicas},
		{"outage", true, testOutage},
		{"any order", true, testAnyOrder},
		{"churn", true, testChurn},
	} {
		t.Run(part.name, func(t *testing.T) {
			if part.long && !*long {
				t.Skip("takes minutes: -clusters.long")
			}
			part.run(t, p)
		})
	}
}

// programs builds the images, gateway and controller, and liqoctl.
func programs(tb testing.TB) (images map[string]controlplanetest.Image, liqoctl program) {
	tb.Helper()
	dir, err := os.MkdirTemp("", "images-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // pods run as other users
		tb.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/gateway", "./cmd/controller", "./cmd/liqoctl")
	build.Dir = source.Root()
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build the programs: %v\n%s", err, out)
	}
	return map[string]controlplanetest.Image{
		"sluice/gateway:latest": {Program: filepath.Join(dir, "gateway"),
			Args: []string{"--kubeconfig=$(KUBECONFIG)", "--bind-address=$(LOOPBACK)"}},
		"sluice/controller:latest": {Program: filepath.Join(dir, "controller"), Args: []string{"--kubeconfig=$(KUBECONFIG)"}},
		podImage:                   {},
	}, program(filepath.Join(dir, "liqoctl"))
}
