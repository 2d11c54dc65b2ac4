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
	hours     = flag.Bool("kubernetes.hours", false, "with -kubernetes.long: also run what waits for an hour")
	realLiqo  = flag.Bool("kubernetes.liqo", false, "also run what needs Liqo, which test/liqo/build.sh builds")
	timelines = flag.Bool("kubernetes.timeline", false, "log what happens where while faults do")
	pictures  = flag.String("kubernetes.screenshots", "", "`FOLDER` for pictures of the page of liqoctl console")
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

// part is what is tested on clusters that others have used before.
type part struct {
	name string
	long bool // it takes many minutes
	run  func(*testing.T, *world)
}

// TestClusters runs everything about the network that two clusters are enough for. The
// clusters, the installation and a connection are there once: parts that need one find
// it, those that need the clusters apart end it.
func TestClusters(t *testing.T) {
	w := newWorld(t, kubelab.Options{Clusters: []string{"rome", "milan"}, DNS: true})
	w.parts(t, false, []part{
		{"upgrade", false, testUpgrade}, // installs, and leaves a connection
		{"rotate-keys", false, testRotateKeys},
		{"faults", false, testFaults},
		{"page", false, testPage},
		// Those above, on one connection, ask for what a machine that does nothing else keeps to. From here on .ci/test
		// has other tests run beside them. These are on one connection, too.
		{"install again", false, testInstallAgain},
		{"expose", false, testExpose},
		{"restricted", false, testRestricted},
		{"architecture", false, testArchitecture},
		{"network test", false, testNetwork},
		{"info", false, testInfo},
		{"capture", false, testCapture},
		{"support bundle", false, testSupportBundle},
		{"firewall", false, testFirewall},
		{"doctor", false, testDoctor},
		{"hands", false, testHands},
		{"namespaces", false, testNamespaces},
		// Of their own.
		{"refusals", false, testRefusals},
		{"inventory", false, testInventory},
		{"connect", false, testConnect},
		{"interruptions", false, testInterruptions},
		{"manual", false, testManual},
		{"script", false, testScript},
		{"declarative", false, testDeclarative},
		{"templates", false, testTemplates},
		{"nothing grows", false, testNothingGrows},
		{"metrics", true, testMetrics},
		{"time is up", true, testTimeIsUp},
		{"an API server goes away", true, testAPIServerAway},
		{"geneve", true, testGeneve},
		{"documents", true, testDocuments},
		{"cycles", true, testCycles},
		{"churn", true, testChurn},
		{"failed upgrades", true, testFailedUpgrades},
		{"uninstall", true, testUninstall}, // of what all these leave; TestPeerings does it after others
	})
}

// TestPeerings runs everything that two clusters share beside the network. Each part
// adds to the installation, and the last one removes all of it.
func TestPeerings(t *testing.T) {
	w := newWorld(t, kubelab.Options{Clusters: []string{"rome", "milan"}, DNS: true})
	w.parts(t, true, []part{
		{"authentication", false, testAuthentication},
		{"services", false, testServices},
		{"offloading", false, testOffloading},
		{"uninstall", false, testUninstall},
	})
}

// parts runs parts in order. Each finds what is under test installed, with the options of
// the test or, if any will do, with those of the parts before.
func (w *world) parts(t *testing.T, anyOptions bool, parts []part) {
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			if p.long && !*long {
				t.Skip("SKIPPED: this takes many minutes: -kubernetes.long")
			}
			defer func() {
				w.explain(t) // before clean-ups change everything
				if t.Failed() && w.joined {
					w.reset(t) // what follows is to begin anew
				}
			}()
			if p.name != "upgrade" {
				w.ready(t, anyOptions)
			}
			p.run(t, w)
		})
	}
}
