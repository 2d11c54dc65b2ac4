package kubelab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/source"
)

// The networks of every cluster.
const (
	PodCIDR     = "10.243.0.0/16"
	ServiceCIDR = "10.96.0.0/16"
	// PodCIDR6 and ServiceCIDR6 are those beside them with Options.DualStack.
	PodCIDR6     = "fd00:243::/48"
	ServiceCIDR6 = "fd00:96::/112"
)

// tools are the programs of the distribution that a node needs, and cniPlugins
// where the plugins of its CNI are.
var tools = []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "mount"}

const cniPlugins = "/usr/lib/cni"

// Options say what clusters there shall be.
type Options struct {
	// Clusters are their names, up to four; none means a and b.
	Clusters []string
	// Nodes is how many each cluster has; zero means two.
	Nodes int
	// Images are archives that every node imports, as docker save or an OCI layout
	// in a tar.
	Images []string
	// NodeMonitorGracePeriod is how long a node may be silent until it is not
	// ready; zero means 10 s. Kubernetes' default is 50 s.
	NodeMonitorGracePeriod time.Duration
	// NetworkPolicies has the nodes enforce them.
	NetworkPolicies bool
	// DNS has CoreDNS answer pods as the DNS of their cluster.
	DNS bool
	// Routed gives each cluster a LAN of its own, between which the routers do not
	// translate: nodes of one cluster reach those of another by their addresses, as in one
	// company's network.
	Routed bool
	// DualStack gives nodes, pods and Services an IPv6 address beside their IPv4 one. Between the clusters there is
	// IPv4 only.
	DualStack bool
	// Progress is told what is being done; nil means the test's log.
	Progress func(string)
}

func (o Options) withDefaults(t lab.T) Options {
	if len(o.Clusters) == 0 {
		o.Clusters = []string{"a", "b"}
	}
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	if o.NodeMonitorGracePeriod == 0 {
		o.NodeMonitorGracePeriod = 10 * time.Second
	}
	if o.Progress == nil {
		o.Progress = func(text string) { t.Logf("%s", text) }
	}
	return o
}

// Lab is a number of clusters on one WAN.
type Lab struct {
	*lab.Lab
	// WAN is what joins the clusters' routers, and where the administrator sits:
	// kubectl and liqoctl run there.
	WAN *lab.Host
	// Clusters are in the order of Options.Clusters.
	Clusters []*Cluster

	t        lab.T
	options  Options
	bin      string   // of the Kubernetes programs
	archives []string // of the images that every node has
}

// New builds the clusters and returns when all nodes are ready. Everything is
// removed with t.
func New(t lab.T, o Options) *Lab {
	t.Helper()
	o = o.withDefaults(t)
	Require(t)
	Sweep(t)
	l := &Lab{t: t, options: o, bin: source.KubernetesFor(t)}
	l.Lab = lab.New(t, tools...)
	l.AtEnd(l.removeCgroups)
	before, err := rememberSysctls(procSys, sysctlsBefore)
	if err == nil {
		err = raiseInotify(procSys)
	}
	if err != nil {
		t.Fatalf("sysctls of the machine: %v", err)
	}
	l.AtEnd(func() {
		if err := before.restore(procSys, sysctlsBefore); err != nil {
			t.Logf("restore what kubelets have changed of the machine: %v", err)
		}
	})
	t.Cleanup(l.explainFailure)
	start := time.Now()
	pause, web := l.buildImages()
	if o.DNS {
		l.archives = append(l.archives, l.BuildModule(dnsImage, "test", "coredns"))
	}
	l.WAN = l.Host("wan")
	l.buildWAN(web)
	for i, name := range o.Clusters {
		l.Clusters = append(l.Clusters, l.newCluster(i, name, pause))
	}
	o.Progress(fmt.Sprintf("starting %d clusters of %d nodes: %s", len(o.Clusters), o.Nodes, strings.Join(o.Clusters, ", ")))
	if err := each(l.Clusters, (*Cluster).start); err != nil {
		t.Fatalf("start the clusters: %v", err)
	}
	o.Progress(fmt.Sprintf("all nodes are ready after %v", time.Since(start).Round(100*time.Millisecond)))
	return l
}

// Cluster returns the cluster of that name, nil when there is none.
func (l *Lab) Cluster(name string) *Cluster {
	for _, c := range l.Clusters {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Tool is the path of a program that was built for the clusters, such as
// kubectl.
func (l *Lab) Tool(name string) string { return filepath.Join(l.bin, name) }

// Require ends the test, loudly, when the machine cannot run a node or lacks one of
// the further programs that the caller names: it is skipped, or fails; see package
// source.
func Require(t lab.T, programs ...string) {
	t.Helper()
	source.KubernetesFor(t)
	lab.Require(t, slices.Concat(tools, programs)...)
	for _, plugin := range []string{"bridge", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(cniPlugins, plugin)); err != nil {
			source.Lacks(t, "nodes need the CNI plugins (containernetworking-plugins): %v", err)
		}
	}
	// Root in a container may do neither.
	if err := tryCgroups(); err != nil {
		source.Lacks(t, "nodes need cgroups of their own, which this machine does not allow: %v", err)
	}
	if out, err := exec.Command("unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt").CombinedOutput(); err != nil {
		source.Lacks(t, "nodes need mounts of their own, which this machine does not allow: %v: %s", err, out)
	}
}

// each calls fn for all of them at once and returns what went wrong.
func each[E any](of []E, fn func(E) error) error {
	errs := make([]error, len(of))
	var all sync.WaitGroup
	for i, e := range of {
		all.Go(func() { errs[i] = fn(e) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// eventually calls try until it returns nil, and returns its last error when
// that has not happened within the limit. What is waited for lies in other
// processes and gives no signal, so it is polled.
func eventually(limit time.Duration, what string, try func() error) error {
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = try(); err == nil {
			return nil
		}
		var final *finalError
		if errors.As(err, &final) {
			break
		}
	}
	return fmt.Errorf("%s: not within %v: %w", what, limit, err)
}

// finalError ends eventually: waiting longer cannot help.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }
