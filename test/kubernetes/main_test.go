package kubernetes

import (
	"flag"
	"io"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

var (
	long      = flag.Bool("kubernetes.long", false, "also run what takes many minutes")
	timelines = flag.Bool("kubernetes.timeline", false, "log what happens where while faults do")
	cycles    = flag.Int("kubernetes.cycles", 0, "how `often` to connect and disconnect (default 5, and 100 with -kubernetes.long)")
	figures   = flag.String("kubernetes.figures", "", "`FILE` to write figures to, as Markdown")
)

func TestMain(m *testing.M) {
	flag.Parse()
	// client-go tells here of every connection that an API server on purpose out of
	// order refuses.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctrl.SetLogger(logr.Discard())
	code := lab.Main(m)
	os.RemoveAll(built.dir)
	os.Exit(code)
}

// TestClusters runs everything that two clusters are enough for. The clusters and
// the installation are there once.
func TestClusters(t *testing.T) {
	w := newWorld(t, kubelab.Options{Clusters: []string{"rome", "milan"}})
	w.install(t)
	for _, part := range []struct {
		name string
		long bool
		run  func(*testing.T, *world)
	}{
		{"connect", false, testConnect},
		{"namespaces", false, testNamespaces},
		{"manual", false, testManual},
		{"declarative", false, testDeclarative},
		{"templates", false, testTemplates},
		{"architecture", false, testArchitecture},
		{"geneve", true, testGeneve},
		{"network test", false, testNetwork},
		{"doctor", false, testDoctor},
		{"restricted", false, testRestricted},
		{"documents", true, testDocuments},
		{"faults", false, testFaults},
		{"cycles", false, testCycles},
		{"upgrade", true, testUpgrade},
	} {
		t.Run(part.name, func(t *testing.T) {
			if part.long && !*long {
				t.Skip("SKIPPED: this takes many minutes: -kubernetes.long")
			}
			defer w.explain(t) // before clean-ups change everything
			part.run(t, w)
		})
	}
	t.Run("uninstall", func(t *testing.T) { testUninstall(t, w) })
}
