package lab

import (
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
	daemon
	Node *Node
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
	return &Fabric{Node: n, daemon: daemon{
		Manifests:   filepath.Join(n.agentDir, "manifests"),
		AdminSocket: filepath.Join(n.agentDir, "admin.sock"),
		host:        n.Host, binary: binary, healthPort: 8091, metricsPort: 8092,
	}}
}

// configured tells whether the node's agent has manifests.
func (n *Node) configured() bool {
	files, _ := filepath.Glob(filepath.Join(n.agentDir, "manifests", "*.yaml"))
	return n.agentDir != "" && len(files) > 0
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
	err = f.status(&s)
	return s, err
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
