package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/deploy/images/gobuild"
	"github.com/sluice-net/sluice/test/source"
)

// The programs that Build can make.
const (
	GatewayPackage   = "github.com/sluice-net/sluice/cmd/gateway"
	WireGuardPackage = "golang.zx2c4.com/wireguard"
)

var (
	buildMu sync.Mutex // guards what follows
	built   = map[string]string{}
)

// Build compiles a command of this module or of one it depends on, once per
// test run, and returns the path of the program. The gateway is not built when
// SLUICE_GATEWAY names one, nor the node agent when SLUICE_FABRIC does: a released
// program, or an earlier one to compare with.
func Build(t T, pkg string, flags ...string) string {
	t.Helper()
	path := os.Getenv(map[string]string{GatewayPackage: "SLUICE_GATEWAY", FabricPackage: "SLUICE_FABRIC"}[pkg])
	if path != "" && !slices.Contains(flags, "-overlay") { // of what is changed, no other program serves
		return path
	}
	buildMu.Lock()
	defer buildMu.Unlock()
	key := strings.Join(append(flags, pkg), " ")
	if path, ok := built[key]; ok {
		return path
	}
	// Not in the directory of a lab, which ends earlier than the test run.
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s-%d-bin-", prefix, os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, filepath.Base(pkg))
	build := gobuild.Build{Args: append(slices.Clone(flags), pkg), Env: append(os.Environ(), "CGO_ENABLED=0"), File: path, Cache: gobuild.UserCache()}
	if slices.Contains(flags, "-overlay") { // a file of this process alone
		build.Cache = ""
	}
	if err := build.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := source.DependOn(pkg); err != nil {
		t.Fatal(err)
	}
	built[key] = path
	return path
}

// Main is m.Run followed by the removal of what was built. It returns the exit
// code. A package without it leaves the removal to the next run.
func Main(m interface{ Run() int }) int {
	code := m.Run()
	RemoveBuilt()
	return code
}

// RemoveBuilt removes what Build has built.
func RemoveBuilt() {
	buildMu.Lock()
	defer buildMu.Unlock()
	for _, path := range built {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	changed, _ := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("%s-%d-bin-changed-*", prefix, os.Getpid())))
	for _, dir := range changed {
		_ = os.RemoveAll(dir)
	}
	clear(built)
}

// Gateway is a running gateway of this repository.
type Gateway struct {
	daemon
	cluster *Cluster
}

// GatewayOptions are what tests vary.
type GatewayOptions struct {
	// Manifests configures the gateway. The zero value is made by
	// Cluster.Manifests.
	Manifests *Manifests
	// Args are further arguments.
	Args []string
	// Env is added to the environment.
	Env []string
}

// StartGateway writes the cluster's manifests and starts a gateway in its
// gateway host. binary is the gateway, as Build returns it. It does not wait.
func (c *Cluster) StartGateway(binary string, opts GatewayOptions) *Gateway {
	t := c.lab.t
	t.Helper()
	dir, err := os.MkdirTemp(c.lab.Dir, "gateway-"+c.Name+"-")
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{cluster: c, daemon: daemon{
		Manifests:   filepath.Join(dir, "manifests"),
		AdminSocket: filepath.Join(dir, "admin.sock"),
		host:        c.Gateway, binary: binary, healthPort: 8083, metricsPort: 8082, private: true,
	}}
	if opts.Manifests == nil {
		opts.Manifests = c.Manifests()
	}
	if err := os.Mkdir(g.Manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	g.Write(opts.Manifests)
	// The gateway keeps its Connection and its socket there.
	for _, d := range []string{dir, g.Manifests} {
		if err := os.Chown(d, UnprivilegedID, UnprivilegedID); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.forgetGateway()
	g.Started = time.Now()
	g.Process = c.Gateway.Start(Program{
		Name: "gateway",
		Args: append([]string{
			binary, "--manifests", g.Manifests, "--admin-socket", g.AdminSocket,
			"--geneve-port", fmt.Sprint(GatewayPort), "--log-level", "info",
		}, opts.Args...),
		Env:          opts.Env,
		Unprivileged: true,
	})
	return g
}

// Connection returns the text of the Connection that the gateway keeps.
func (g *Gateway) Connection() (string, error) {
	b, err := os.ReadFile(filepath.Join(g.Manifests, "status", "connection.yaml"))
	return string(b), err
}

// WaitConnected waits until the gateway's Connection says Connected.
func (g *Gateway) WaitConnected(limit time.Duration) {
	t := g.cluster.lab.t
	t.Helper()
	Eventually(t, limit, "the gateway of cluster "+g.cluster.Name+" being Connected", func() error {
		if !g.Running() {
			t.Fatalf("the gateway has ended:\n%s", g.Log())
		}
		text, err := g.Connection()
		if err == nil && !strings.Contains(text, "value: Connected") {
			err = fmt.Errorf("the Connection is:\n%s", text)
		}
		return err
	})
}

// Status is the part of `gateway status -o json` that tests look at. It is kept
// apart from the gateway's own types: the output is an interface to users.
type Status struct {
	DataPlane DataPlaneStatus `json:"dataPlane"`
	Memory    struct {
		Heap       uint64 `json:"heapBytes"`
		Resident   uint64 `json:"residentBytes"`
		Goroutines int    `json:"goroutines"`
	} `json:"memory"`
}

// DataPlaneStatus is what the data plane of a Status says.
type DataPlaneStatus struct {
	// PathMTU is the largest packet that leaves for the peer.
	PathMTU int `json:"pathMTU"`
	// Tunnel holds the counters of the tunnel, by the names they have there.
	Tunnel  map[string]any  `json:"tunnel"`
	Egress  DirectionStatus `json:"egress"`
	Ingress DirectionStatus `json:"ingress"`
	Sockets map[string]struct {
		ReadDatagrams uint64 `json:"readDatagrams"`
		Overruns      uint64 `json:"overruns"`
		WriteErrors   uint64 `json:"writeErrors"`
		GRO           bool   `json:"gro"`
		GSO           bool   `json:"gso"`
	} `json:"sockets"`
}

// TunnelCounter returns one counter of the tunnel, whatever the case of its
// name.
func (s DataPlaneStatus) TunnelCounter(name string) uint64 {
	for key, value := range s.Tunnel {
		if n, ok := value.(float64); ok && strings.EqualFold(key, name) {
			return uint64(n)
		}
	}
	return 0
}

// FurtherTunnels are those besides the first one, each as if it were the only one.
func (s DataPlaneStatus) FurtherTunnels() (further []DataPlaneStatus) {
	all, _ := s.Tunnel["further"].([]any)
	for _, t := range all {
		if fields, ok := t.(map[string]any); ok {
			further = append(further, DataPlaneStatus{Tunnel: fields})
		}
	}
	return further
}

// TunnelText is TunnelCounter for fields that are no numbers.
func (s DataPlaneStatus) TunnelText(name string) string {
	for key, value := range s.Tunnel {
		if text, ok := value.(string); ok && strings.EqualFold(key, name) {
			return text
		}
	}
	return ""
}

// DirectionStatus is one direction of Status.
type DirectionStatus struct {
	Packets  uint64            `json:"packets"`
	Bytes    uint64            `json:"bytes"`
	Verdicts map[string]uint64 `json:"verdicts"`
}

// Drops sums the verdicts that are drops.
func (d DirectionStatus) Drops() (sum uint64) {
	for name, n := range d.Verdicts {
		if strings.HasPrefix(name, "Drop") {
			sum += n
		}
	}
	return sum
}

// Status asks the gateway what it is doing.
func (g *Gateway) Status() Status {
	t := g.cluster.lab.t
	t.Helper()
	var status Status
	if err := g.status(&status); err != nil {
		t.Fatal(err)
	}
	return status
}
