package release_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/release"
	"github.com/sluice-net/sluice/deploy/images/gobuild"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/source"
)

// playAgent and playGateway as first argument make the test binary the program of
// the node agents' pods, or of gateways. It leaves the machine's network alone.
const (
	playAgent   = "play-agent"
	playGateway = "play-gateway"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case playAgent:
			os.Exit(play(os.Args[2], "8091", os.Args[3:]))
		case playGateway:
			os.Exit(play(os.Args[2], "8083", os.Args[3:]))
		}
	}
	flag.Parse()
	// The long tests wait for pods and namespaces most of the time, each on an API server of its own: they need not take turns by
	// the number of processors.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("4"); err != nil {
			panic(err)
		}
	}
	klog.LogToStderr(false) // client-go tells of kinds that go away
	klog.SetOutput(io.Discard)
	ctrl.SetLogger(logr.Discard())
	release.LeftWithin(3 * time.Second)
	os.Exit(m.Run())
}

// play answers probes, or has cleaned up, or told its version, at once.
func play(address, port string, args []string) int {
	if slices.Contains(args, "cleanup") || slices.Contains(args, "--version") {
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", net.JoinHostPort(address, port))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s := http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() {
		<-ctx.Done()
		s.Close()
	}()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return 1
	}
	return 0
}

// site is a cluster with nodes, and what is done to it.
type site struct {
	*controlplanetest.Cluster
	access *access.Cluster
}

// buildController builds the controller, where pods with other users find it.
func buildController(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "images-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // pods run as other users
		t.Fatal(err)
	}
	if err := source.DependOn("./cmd/controller"); err != nil {
		t.Fatal(err)
	}
	build := gobuild.Build{
		Args: []string{"./cmd/controller"}, Dir: source.Root(), Env: append(os.Environ(), "CGO_ENABLED=0"),
		File: filepath.Join(dir, "controller"), Cache: gobuild.UserCache(),
	}
	if err := build.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return build.File
}

func startSite(t *testing.T) *site {
	t.Helper()
	c := controlplanetest.StartBare(t)
	controller := buildController(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	controlplanetest.StartKubelet(t, c, controlplanetest.KubeletOptions{Images: map[string]controlplanetest.Image{
		"sluice.local/controller:unknown": {Program: controller, Args: []string{"--kubeconfig=$(KUBECONFIG)"}},
		"sluice/controller:latest":        {Program: controller, Args: []string{"--kubeconfig=$(KUBECONFIG)"}},
		"sluice.local/gateway:unknown":    {}, // it does nothing
		"sluice.local/clusterdns:unknown": {},
		"sluice/gateway:latest":           {}, // of the version before
		"sluice.local/fabric:unknown":     {Program: self, Args: []string{playAgent, "$(LOOPBACK)"}},
		"sluice/fabric:latest":            {Program: self, Args: []string{playAgent, "$(LOOPBACK)"}},
	}})
	c.Elect(t)
	a, err := access.New(c.Config, access.Options{Origin: "kubeconfig of the test"})
	if err != nil {
		t.Fatal(err)
	}
	return &site{Cluster: c, access: a}
}

// log is a progress.Func that writes to the test's log, and keeps the lines.
func (s *site) log(t *testing.T, lines *[]string) progress.Func {
	return func(e progress.Event) {
		t.Logf("%d %s", e.Kind, e.Text)
		if lines != nil && e.Kind == progress.Done {
			*lines = append(*lines, e.Text)
		}
	}
}

func rome() release.Options {
	return release.Options{ClusterID: "rome", PodCIDRs: prefixes("10.243.0.0/16")}
}

// prepare plans an installation.
func (s *site) prepare(t *testing.T, version string, o release.Options) (*release.Plan, error) {
	t.Helper()
	chart, err := release.Embedded(release.Build{})
	if err != nil {
		t.Fatal(err)
	}
	return release.Prepare(t.Context(), s.access, chart, version, o)
}

// install installs, and must succeed.
func (s *site) install(t *testing.T, o release.Options) release.Result {
	t.Helper()
	p, err := s.prepare(t, "", o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), controlplanetest.Patience)
	defer cancel()
	r, err := p.Apply(ctx, s.log(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// uninstall uninstalls, and must succeed.
func (s *site) uninstall(t *testing.T, o release.UninstallOptions) release.Removed {
	t.Helper()
	r, err := s.prepareUninstall(t, o)
	if err != nil {
		t.Fatal(err)
	}
	removed, err := r.Run(t.Context(), s.log(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	return removed
}

func (s *site) prepareUninstall(t *testing.T, o release.UninstallOptions) (*release.Removal, error) {
	t.Helper()
	chart, err := release.Embedded(release.Build{})
	if err != nil {
		t.Fatal(err)
	}
	o.Timeout = controlplanetest.Patience
	return release.PrepareUninstall(t.Context(), s.access, chart, o)
}

// objects are all objects of the cluster with their resource versions, but those
// that change by themselves.
func (s *site) objects(t *testing.T) map[string]string {
	t.Helper()
	_, lists, err := s.Clientset.Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, l := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.APIResources {
			if slices.Contains([]string{"Event", "Lease", "Node", "ComponentStatus", "APIService"}, r.Kind) {
				continue
			}
			list := new(unstructured.UnstructuredList)
			list.SetGroupVersionKind(gv.WithKind(r.Kind + "List"))
			if err := s.Client.List(t.Context(), list); meta.IsNoMatchError(err) || client.IgnoreNotFound(err) == nil && err != nil {
				continue // it went away meanwhile
			} else if err != nil {
				t.Fatalf("list %s: %v", r.Kind, err)
			}
			for _, o := range list.Items {
				found[r.Kind+" "+client.ObjectKeyFromObject(&o).String()] = o.GetResourceVersion()
			}
		}
	}
	return found
}

// same fails when objects are there that were not, or the other way round.
func same(t *testing.T, what string, want, got map[string]string) {
	t.Helper()
	for _, m := range []map[string]string{want, got} {
		for k := range m {
			m[k] = "" // what is there may change
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-before +after)\n%s", what, diff)
	}
}

func prefixes(texts ...string) (ps []netip.Prefix) {
	for _, s := range texts {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}
