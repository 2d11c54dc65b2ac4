package scale

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/authentication/resourceslice"
	"github.com/sluice-net/sluice/controlplane/cidr"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
	"github.com/sluice-net/sluice/controlplane/network/internalnetwork"
	"github.com/sluice-net/sluice/controlplane/services"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// kubeconfigEnv makes this binary the controllers, so that what is measured of
// their memory is theirs and not that of the measurement.
const kubeconfigEnv = "SLUICE_SCALE_KUBECONFIG"

// onlyEnv leaves out all controllers but those of the internal network, so that
// nothing overwrites what the measurement says in place of the others.
const onlyEnv = "SLUICE_SCALE_INTERNAL_NETWORK_ONLY"

// authenticationEnv adds the controllers of identities and ResourceSlices.
const (
	authenticationEnv  = "SLUICE_SCALE_AUTHENTICATION"
	withAuthentication = authenticationEnv + "=true"
)

// servicesOnly leaves out all controllers but those of Services.
const (
	servicesEnv  = "SLUICE_SCALE_SERVICES_ONLY"
	servicesOnly = servicesEnv + "=true"
)

// concurrency is the controller's default.
const concurrency = 4

// clusterID is the ID of the cluster.
const clusterID = "rome"

// offloadingEnv leaves out all controllers but those of identities and of offloading.
const (
	offloadingEnv  = "SLUICE_SCALE_OFFLOADING"
	withOffloading = offloadingEnv + "=true"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(kubeconfigEnv); path != "" {
		run := runControllers
		if os.Getenv(virtualKubeletEnv) != "" {
			run = runVirtualKubelet
		}
		if err := run(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// figures are what the controllers tell about themselves.
type figures struct {
	// Writes counts requests that change something, by verb and resource.
	Writes map[string]int `json:"writes"`
	// Reads counts the others, watches included.
	Reads map[string]int `json:"reads"`
	// HeapMiB is what the heap holds after a collection.
	HeapMiB float64 `json:"heap"`
	// RSSMiB is what is resident now, PeakMiB the most that ever was.
	RSSMiB  float64 `json:"rss"`
	PeakMiB float64 `json:"peak"`
	// CPU is the time spent.
	CPU time.Duration `json:"cpu"`
	// Reconciled counts, for each controller, how often it looked at something.
	Reconciled map[string]int `json:"reconciled"`
	// Resting means that nothing is left to look at.
	Resting bool `json:"resting"`
}

// writes sums up writes, without events unless wanted.
func (f figures) writes() (n int) {
	for what, count := range f.Writes {
		if !strings.HasSuffix(what, " events") {
			n += count
		}
	}
	return n
}

// since returns what happened after an earlier look.
func (f figures) since(earlier figures) figures {
	minus := func(x, y map[string]int) map[string]int {
		x = maps.Clone(x)
		for k, n := range y {
			if x[k] -= n; x[k] == 0 {
				delete(x, k)
			}
		}
		return x
	}
	f.Writes, f.Reads, f.CPU = minus(f.Writes, earlier.Writes), minus(f.Reads, earlier.Reads), f.CPU-earlier.CPU
	return f
}

// counter counts requests on their way.
type counter struct {
	http.RoundTripper
	mu            *sync.Mutex
	writes, reads map[string]int
}

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	if what := r.Method + " " + resource(r.URL.Path); r.Method == http.MethodGet {
		c.reads[what]++
	} else {
		c.writes[what]++
	}
	c.mu.Unlock()
	return c.RoundTripper.RoundTrip(r)
}

// resource returns the resource, with its subresource, of a path of the API.
func resource(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) > 0 && parts[0] == "api" {
		parts = append([]string{"apis", ""}, parts[1:]...)
	}
	if len(parts) < 4 {
		return path
	}
	parts = parts[3:] // after group and version
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}

// What the measurement says to the controllers.
const (
	quick   = ""     // tell your figures
	collect = "heap" // and collect garbage before, to tell the heap
	// and anything else: the same, and write a heap profile there
)

// runControllers is the process that is measured.
func runControllers(kubeconfig string) error {
	cfg, requests, err := counted(kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1 // API servers have fair queues
	if os.Getenv(offloadingEnv) != "" {
		cfg.QPS, cfg.Burst = 200, 4000 // as the program has by default
	}
	mgr, err := newManager(cfg)
	if err != nil {
		return err
	}
	answer(requests, (*figures).work)
	return mgr.Start(ctrl.SetupSignalHandler())
}

// counted reads a kubeconfig, and counts the requests of those who use it.
func counted(kubeconfig string) (*rest.Config, counter, error) {
	requests := counter{mu: new(sync.Mutex), writes: map[string]int{}, reads: map[string]int{}}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, requests, err
	}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		c := requests
		c.RoundTripper = rt
		return c
	})
	return cfg, requests, nil
}

// answer answers each line on the standard input with the figures of this process, of which work says what it has done.
func answer(requests counter, work func(*figures) error) {
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			said := lines.Text()
			if said != quick && said != collect {
				if err := writeHeapProfile(said); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
			f, err := measured(requests, said != quick, work)
			if err == nil {
				err = json.NewEncoder(os.Stdout).Encode(f)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		os.Exit(0) // the measurement is over
	}()
}

func newManager(cfg *rest.Config) (ctrl.Manager, error) {
	log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	ctrl.SetLogger(log)
	if os.Getenv(onlyEnv) == "" && os.Getenv(servicesEnv) == "" && os.Getenv(offloadingEnv) == "" {
		var identities *authentication.Options
		if os.Getenv(authenticationEnv) != "" {
			identities = &authentication.Options{APIServer: issue.APIServer{URL: cfg.Host, CA: cfg.CAData}, Slices: resourceslice.Options{DefaultClass: true}}
		}
		return manager.New(cfg, manager.Options{
			LiqoNamespace: controlplanetest.LiqoNamespace, Pools: cidr.DefaultPools(), Authentication: identities, Logger: log,
			Bootstrap: bootstrap.Options{
				ClusterID: clusterID, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
				ExternalCIDR: bootstrap.Range{Prefix: netip.MustParsePrefix("10.70.0.0/16")}, InternalCIDR: bootstrap.Range{Prefix: netip.MustParsePrefix(internalCIDR)},
			},
		})
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: kinds.Scheme(), Cache: kinds.Cache(), Metrics: metricsserver.Options{BindAddress: "0"}, Logger: log,
		Controller: config.Controller{MaxConcurrentReconciles: concurrency},
	})
	if err != nil {
		return nil, err
	}
	if os.Getenv(servicesEnv) != "" {
		return mgr, services.SetupWithManager(mgr, services.Options{LiqoNamespace: controlplanetest.LiqoNamespace})
	}
	if os.Getenv(offloadingEnv) != "" {
		return mgr, setUpOffloading(mgr, cfg)
	}
	return mgr, internalnetwork.SetupWithManager(mgr, internalnetwork.Options{LiqoNamespace: controlplanetest.LiqoNamespace})
}

func writeHeapProfile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	runtime.GC() // a profile speaks of the last collection
	return pprof.Lookup("heap").WriteTo(f, 0)
}

func measured(c counter, heap bool, work func(*figures) error) (figures, error) {
	var f figures
	// Before the collection, which would return memory.
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return f, err
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch {
		case err != nil:
		case key == "VmRSS":
			f.RSSMiB = float64(kib) / 1024
		case key == "VmHWM":
			f.PeakMiB = float64(kib) / 1024
		}
	}
	if heap {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		f.HeapMiB = float64(m.HeapAlloc) / (1 << 20)
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return f, err
	}
	f.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	if err := work(&f); err != nil {
		return f, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.Writes, f.Reads = maps.Clone(c.writes), maps.Clone(c.reads)
	return f, nil
}

// work reads what the controllers do from their metrics.
func (f *figures) work() error {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return err
	}
	f.Reconciled, f.Resting = map[string]int{}, true
	for _, family := range families {
		for _, m := range family.GetMetric() {
			switch family.GetName() {
			case "controller_runtime_reconcile_total":
				for _, l := range m.GetLabel() {
					if l.GetName() == "controller" {
						f.Reconciled[l.GetValue()] += int(m.GetCounter().GetValue())
					}
				}
			case "controller_runtime_active_workers", "workqueue_depth":
				f.Resting = f.Resting && m.GetGauge().GetValue() == 0
			}
		}
	}
	return nil
}

// process is what is measured, as the measurement sees it.
type process struct {
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stop   func()
	// kill ends it without a chance to do anything.
	kill func()
}

func startControllers(t *testing.T, c *controlplanetest.Cluster, env ...string) *process {
	t.Helper()
	kubeconfig, err := c.WriteKubeconfig("controllers", c.ServiceAccount(controlplanetest.LiqoNamespace, controlplanetest.Controller))
	if err != nil {
		t.Fatal(err)
	}
	return startProcess(t, "controllers", kubeconfig, env...)
}

// startProcess runs this binary as what is measured. Its log is beside the kubeconfig.
func startProcess(t *testing.T, what, kubeconfig string, env ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	// Garbage is collected as often as by default, whatever the test is given.
	cmd.Env = append(append(os.Environ(), env...), kubeconfigEnv+"="+kubeconfig, "GOGC=100")
	log, err := os.Create(kubeconfig + ".log")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = log
	p := &process{}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	p.stop = sync.OnceFunc(func() {
		p.stdin.Close()
		err := cmd.Wait()
		text, _ := os.ReadFile(log.Name()) // for a message only
		if n := strings.Count(string(text), "level=ERROR"); !killed && (n > 0 || err != nil) || t.Failed() {
			t.Logf("the %s (%v) logged %d errors; the end of it:\n%s", what, err, n, text[max(0, len(text)-3000):])
		}
		log.Close()
	})
	p.kill = func() {
		killed = true
		_ = cmd.Process.Kill() // or it has ended
		p.stop()
	}
	t.Cleanup(p.stop)
	return p
}

// figures asks the controllers for theirs.
func (p *process) figures(t *testing.T, say string) figures {
	t.Helper()
	if _, err := fmt.Fprintln(p.stdin, say); err != nil {
		t.Fatalf("ask the controllers: %v", err)
	}
	line, err := p.stdout.ReadBytes('\n')
	if err != nil {
		t.Fatalf("hear the controllers: %v", err)
	}
	var f figures
	if err := json.Unmarshal(line, &f); err != nil {
		t.Fatalf("hear the controllers: %v", err)
	}
	return f
}

// restFor is how long controllers do nothing before they count as done: longer
// than anything that they put off.
const restFor = 3 * time.Second

// rest waits until the controllers have done enough and have nothing left to do,
// and returns their figures then.
func (p *process) rest(t *testing.T, enough func(figures) bool, say string) figures {
	t.Helper()
	var before figures
	since := time.Now()
	until(t, "the controllers rest", func() error {
		f := p.figures(t, quick)
		if !f.Resting || !enough(f) || !maps.Equal(f.Reconciled, before.Reconciled) {
			since, before = time.Now(), f
			return fmt.Errorf("after %v", f.Reconciled)
		}
		if time.Since(since) < restFor {
			return fmt.Errorf("at rest for %v", time.Since(since))
		}
		return nil
	})
	if say == quick {
		return before
	}
	return p.figures(t, say)
}
