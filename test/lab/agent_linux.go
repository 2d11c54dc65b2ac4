package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// FabricPackage is the node agent, for Build.
const FabricPackage = "github.com/sluice-net/sluice/cmd/fabric"

// Fabric is a running node agent of this repository.
type Fabric struct {
	*Process
	Node *Node
	// Manifests is the directory it is configured from.
	Manifests string
	// AdminSocket is where `fabric status` asks it.
	AdminSocket string
	// Started is when the process was started.
	Started time.Time

	binary string
}

// FabricOptions are what tests vary.
type FabricOptions struct {
	// Link is the kind of the tunnel links; empty means auto.
	Link string
	// Manifests configures the agent. Nil keeps those of the node's agent before
	// it; for the first they are the gateway's, made by Cluster.Manifests.
	Manifests *Manifests
	// Args are further arguments, after which those above lose.
	Args []string
	// Cluster has the agent configured by an API server, by way of Args.
	Cluster bool
	// Unprivileged takes the capability away.
	Unprivileged bool
}

// StartFabric starts the agent of a node, by the privileges of its DaemonSet.
// binary is the agent, as Build returns it. It does not wait.
func (n *Node) StartFabric(binary string, opts FabricOptions) *Fabric {
	t := n.cluster.lab.t
	t.Helper()
	f := n.fabric(binary)
	if !opts.Cluster {
		if opts.Manifests == nil && !n.configured() {
			opts.Manifests = n.cluster.Manifests()
		}
		if opts.Manifests != nil {
			f.Write(opts.Manifests)
		}
	}
	if opts.Link == "" {
		opts.Link = "auto"
	}
	args := []string{binary, "--node-name", n.Name, "--link", opts.Link, "--geneve-port", fmt.Sprint(GatewayPort),
		"--admin-socket", f.AdminSocket, "--log-level", "info"}
	if !opts.Cluster {
		args = append(args, "--manifests", f.Manifests)
	}
	f.Started = time.Now()
	f.Process = n.Host.Start(Program{
		Name: "fabric", Args: append(args, opts.Args...), NetAdmin: !opts.Unprivileged, Unprivileged: opts.Unprivileged,
	})
	return f
}

// fabric returns the node's agent without a process, and makes its files.
func (n *Node) fabric(binary string) *Fabric {
	t := n.cluster.lab.t
	t.Helper()
	if n.agentDir == "" {
		dir, err := os.MkdirTemp(n.cluster.lab.Dir, "fabric-"+n.Host.Name+"-")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{dir, filepath.Join(dir, "manifests")} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(d, 0o755); err != nil { // for an agent without privilege
				t.Fatal(err)
			}
		}
		n.agentDir = dir
	}
	return &Fabric{
		Node: n, binary: binary,
		Manifests:   filepath.Join(n.agentDir, "manifests"),
		AdminSocket: filepath.Join(n.agentDir, "admin.sock"),
	}
}

// configured tells whether the node's agent has manifests.
func (n *Node) configured() bool {
	files, _ := filepath.Glob(filepath.Join(n.agentDir, "manifests", "*.yaml"))
	return n.agentDir != "" && len(files) > 0
}

// Write replaces the agent's manifests, each file atomically.
func (f *Fabric) Write(m *Manifests) {
	f.Node.cluster.lab.t.Helper()
	for name, text := range m.Files() {
		f.WriteFile(name, text)
	}
}

// WriteFile replaces one file of the manifests atomically.
func (f *Fabric) WriteFile(name, text string) {
	t := f.Node.cluster.lab.t
	t.Helper()
	temporary := filepath.Join(f.Manifests, "."+name+".new")
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(f.Manifests, name)); err != nil {
		t.Fatal(err)
	}
}

// Remove removes one file of the manifests.
func (f *Fabric) Remove(name string) {
	t := f.Node.cluster.lab.t
	t.Helper()
	if err := os.Remove(filepath.Join(f.Manifests, name)); err != nil {
		t.Fatal(err)
	}
}

// Ready waits until /readyz says so and returns how long that took since the
// start.
func (f *Fabric) Ready(limit time.Duration) time.Duration {
	t := f.Node.cluster.lab.t
	t.Helper()
	Eventually(t, limit, f.Node.Host.Name+": /readyz of the agent", func() error {
		if !f.Running() {
			t.Fatalf("%s: the agent has ended:\n%s", f.Node.Host.Name, f.Log())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		out, err := f.Node.Host.TryContext(ctx, "curl", "-s", "--fail-with-body", "http://127.0.0.1:8091/readyz")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	return time.Since(f.Started)
}

// Metrics returns the Prometheus text of the agent.
func (f *Fabric) Metrics() string {
	f.Node.cluster.lab.t.Helper()
	return f.Node.Host.Run("curl", "-sf", "http://127.0.0.1:8092/metrics")
}

// FabricStatus is the part of `fabric status -o json` that tests look at. It is
// kept apart from the agent's own types: the output is an interface to users.
type FabricStatus struct {
	Link struct {
		Kind   string `json:"kind"`
		Reason string `json:"reason"`
	} `json:"link"`
	Tunnels []struct {
		Name      string    `json:"name"`
		Kind      string    `json:"kind"`
		Status    string    `json:"status"`
		VNI       int       `json:"vni"`
		MTU       int       `json:"mtu"`
		Routes    []string  `json:"routes"`
		RxPackets uint64    `json:"rxPackets"`
		TxPackets uint64    `json:"txPackets"`
		LastSeen  time.Time `json:"lastSeen"`
	} `json:"tunnels"`
	Rules      []string `json:"rules"`
	Drift      []string `json:"drift"`
	Conditions []struct {
		Type    string `json:"type"`
		Status  string `json:"status"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"conditions"`
	NodeIP struct {
		Local  string `json:"local"`
		Remote string `json:"remote"`
	} `json:"nodeIP"`
}

// Status asks the agent what there is.
func (f *Fabric) Status() (s FabricStatus, err error) {
	out, err := f.Node.Host.Try(f.binary, "status", "--admin-socket", f.AdminSocket, "-o", "json")
	if err != nil {
		return s, fmt.Errorf("%w: %s", err, out)
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return s, fmt.Errorf("fabric status -o json: %w: %s", err, out)
	}
	return s, nil
}

// StatusText returns what `fabric status` shows, or why it does not.
func (f *Fabric) StatusText() string {
	out, err := f.Node.Host.Try(f.binary, "status", "--admin-socket", f.AdminSocket)
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return out
}

// Cleanup runs `fabric cleanup` on the node and returns what it says.
func (n *Node) Cleanup(binary string) (string, error) {
	p := n.Host.Start(Program{Name: "fabric cleanup", Args: []string{binary, "cleanup"}, NetAdmin: true})
	select {
	case <-p.Done():
	case <-time.After(Patience):
		_ = p.Kill()
	}
	if code := p.ExitCode(); code != 0 {
		return p.Log(), fmt.Errorf("exit code %d: %s", code, strings.TrimSpace(p.Log()))
	}
	return p.Log(), nil
}
