package kubelab

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/process"
)

//go:embed node.tmpl
var nodeFiles string

// disk are the folders of a node that are its own and outlive a boot.
var disk = []string{
	"/etc/cni/net.d", "/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/containers", "/var/log/pods", "/usr/libexec/kubernetes",
}

// Node is a machine that runs pods.
type Node struct {
	Name string
	// Host is its network, and after boot the whole machine: a command there sees
	// its processes and mounts.
	Host *lab.Host
	// Addr is its address on the LAN.
	Addr netip.Addr

	cluster *Cluster
	index   int
	dir     string
	pause   string // the program that runs first
	init    *lab.Process
	agents  map[string]*lab.Process
	boots   atomic.Int64 // how often its network was made
}

func (l *Lab) newNode(c *Cluster, index int, pause string) *Node {
	name := fmt.Sprintf("%s-%d", c.Name, index+1)
	return &Node{
		Name: name, Host: l.Host(name), Addr: c.nodeAddr(index), cluster: c, index: index,
		dir: filepath.Join(c.dir, name), pause: pause, agents: map[string]*lab.Process{},
	}
}

// boot makes the node a machine on the LAN and starts what runs containers.
func (n *Node) boot() error {
	if err := n.writeFiles(); err != nil {
		return err
	}
	if err := n.join(); err != nil {
		return err
	}
	n.boots.Add(1)
	if err := makeCgroups(n.cgroup()); err != nil {
		return err
	}
	var err error
	n.init, err = n.Host.Boot(lab.Program{Name: "init", Args: []string{n.pause}, Log: n.file("init.log"), Worthless: true}, n.mount)
	if err != nil {
		return err
	}
	if err := n.startContainerd(); err != nil {
		return err
	}
	for _, archive := range n.cluster.lab.archives {
		if err := n.importImages(archive); err != nil {
			return err
		}
	}
	return nil
}

// file is the path of a file of the node, on both sides of its mounts.
func (n *Node) file(name string) string { return filepath.Join(n.dir, name) }

// writeFiles writes the configuration of the node's programs: node.tmpl holds
// them one after another.
func (n *Node) writeFiles() error {
	for _, d := range disk {
		if err := os.MkdirAll(n.file(d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(n.file("resolv.conf"), nil, 0o644); err != nil {
		return err
	}
	c := n.cluster
	serving, err := c.authority.server(n.Name, []netip.Addr{n.Addr}, n.Name)
	if err != nil {
		return err
	}
	if err := serving.write(n.dir, "kubelet"); err != nil {
		return err
	}
	t, err := template.New("node").Parse(nodeFiles)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	dns := ""
	if c.lab.options.DNS {
		dns = DNSAddress.String()
	}
	err = t.Execute(&out, map[string]any{
		"DNS":  dns,
		"Name": n.Name, "Dir": n.dir, "Cluster": c.dir, "PodCIDR": c.lab.options.families(PodCIDR, PodCIDR6), "PodNets": c.lab.options.podNets(n.index), "Cgroup": n.cgroup(), "Pause": pauseImage,
		"CNI": cniPlugins, "Silence": max(4, int(c.lab.options.NodeMonitorGracePeriod.Seconds())), "Proxy": c.insideKubeconfig("system:kube-proxy"),
	})
	if err != nil {
		return err
	}
	for _, section := range strings.Split(out.String(), "=== ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		if err := os.WriteFile(n.file(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// mount gives the machine a /run and a disk of its own. It runs on a thread
// inside the machine.
func (n *Node) mount() error {
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	for _, d := range disk {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(n.file(d), d, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", d, err)
		}
	}
	// What the kubelet mounts has to show in containers that ask for it.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// startAgents starts what the API server talks to.
func (n *Node) startAgents() error {
	return errors.Join(n.startKubelet(), n.launch("kube-proxy", n.cluster.lab.Tool("kube-proxy"), "--config="+n.file("kube-proxy.yaml")))
}

func (n *Node) startKubelet() error {
	err := n.launch("kubelet", n.cluster.lab.Tool("kubelet"), "--config="+n.file("kubelet.yaml"), "--root-dir=/var/lib/kubelet",
		"--kubeconfig="+n.cluster.insideKubeconfig("system:node:"+n.Name), "--hostname-override="+n.Name, "--node-ip="+n.cluster.lab.options.families(n.Addr.String(), n.cluster.nodeAddr6(n.index).String()))
	if err != nil {
		return err
	}
	return n.waitFor("kubelet", "curl", "-sf", "http://127.0.0.1:10248/healthz")
}

func (n *Node) startContainerd() error {
	if err := n.launch("containerd", "containerd", "--config", n.file("containerd.toml")); err != nil {
		return err
	}
	return n.waitFor("containerd", "ctr", "version")
}

// launch starts a program of the node with its output in a file of its name.
func (n *Node) launch(name string, args ...string) error {
	p, err := n.Host.Launch(lab.Program{Name: name, Args: args, Env: process.RareCollection, Log: n.file(name + ".log"), Worthless: true})
	n.agents[name] = p
	return err
}

// waitFor waits until a program answers a command.
func (n *Node) waitFor(program string, command ...string) error {
	return eventually(startLimit, n.Name+": "+program, func() error {
		if p := n.agents[program]; !p.Running() {
			return &finalError{fmt.Errorf("it has ended: %s", lastLines(n.file(program+".log"), 3))}
		}
		out, err := n.Host.Try(command...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// waitReady waits until the node is ready and said so after a point in time.
func (n *Node) waitReady(since time.Time) error {
	return eventually(startLimit, n.Name+" is ready", func() error {
		var node corev1.Node
		if err := n.cluster.client.Get(context.Background(), client.ObjectKey{Name: n.Name}, &node); err != nil {
			return err
		}
		ready := condition(&node, corev1.NodeReady)
		switch {
		case ready == nil:
			return errors.New("it has said nothing yet")
		case ready.Status != corev1.ConditionTrue:
			return errors.New(ready.Message)
		case ready.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)):
			return fmt.Errorf("it was heard last at %v", ready.LastHeartbeatTime)
		}
		return nil
	})
}

// waitHeard waits until the kubelet has renewed its lease after a point in time, and the
// node counts as ready. One that was lost says so again only when it reports its status.
func (n *Node) waitHeard(since time.Time) error {
	err := eventually(startLimit, n.Name+" renews its lease", func() error {
		var lease coordinationv1.Lease
		if err := n.cluster.client.Get(context.Background(), client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: n.Name}, &lease); err != nil {
			return err
		}
		if at := lease.Spec.RenewTime; at == nil || at.Time.Before(since) {
			return fmt.Errorf("it was renewed last at %v", at)
		}
		return nil
	})
	return errors.Join(err, n.waitReady(time.Time{}))
}

// importImages imports an archive into the node's containerd.
func (n *Node) importImages(archive string) error {
	if out, err := n.Host.Try("ctr", "-n", "k8s.io", "images", "import", archive); err != nil {
		return fmt.Errorf("%s: import %s: %w: %s", n.Name, archive, err, out)
	}
	return nil
}

// RestartKubelet ends the kubelet and starts it again. Pods run on meanwhile.
func (n *Node) RestartKubelet() {
	n.cluster.lab.t.Helper()
	n.restart("kubelet", n.startKubelet)
}

// RestartContainerd ends containerd and starts it again. Containers run on
// meanwhile.
func (n *Node) RestartContainerd() {
	n.cluster.lab.t.Helper()
	n.restart("containerd", n.startContainerd)
}

func (n *Node) restart(program string, start func() error) {
	t := n.cluster.lab.t
	t.Helper()
	_, _ = n.agents[program].Stop(10 * time.Second)
	if err := start(); err != nil {
		t.Fatalf("restart %s: %v", program, err)
	}
}

// Kill takes the node's power: its link is down and all its processes are gone
// at once, in the middle of whatever they were doing. If the router led node ports
// to it, they lead to another node.
func (n *Node) Kill() {
	n.cluster.lab.t.Helper()
	if err := errors.Join(ip(n.cluster.Router, "link del "+n.port()), n.init.Kill(), removeCgroups(n.cgroup()), n.cluster.leadPortsAway(n)); err != nil {
		n.cluster.lab.t.Fatalf("kill %s: %v", n.Name, err)
	}
}

// Start boots a killed node with the disk that it had, and returns when it is
// ready.
func (n *Node) Start() {
	t := n.cluster.lab.t
	t.Helper()
	start := time.Now()
	if err := n.Host.Replace(); err != nil {
		t.Fatalf("start %s: %v", n.Name, err)
	}
	for _, step := range []func() error{n.boot, n.startAgents, func() error { return n.waitReady(start) }} {
		if err := step(); err != nil {
			t.Fatalf("start %s: %v", n.Name, err)
		}
	}
}

// lastLines returns the end of a file in one line, for messages.
func lastLines(path string, n int) string {
	out, err := exec.Command("tail", "-n", fmt.Sprint(n), path).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Split(strings.TrimSpace(string(out)), "\n"), "; ")
}
