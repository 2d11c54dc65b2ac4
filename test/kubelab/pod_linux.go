package kubelab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/lab"
)

// tryLimit bounds Try.
const tryLimit = 3 * time.Minute

// Pod is a running pod. When it is replaced, so must be this.
type Pod struct {
	Namespace, Name string
	Addr            netip.Addr
	// Addrs are the addresses of all families, Addr the first.
	Addrs []netip.Addr
	Node  *Node

	uid string
}

// Pod returns a pod that runs.
func (c *Cluster) Pod(ctx context.Context, namespace, name string) (*Pod, error) {
	var pod corev1.Pod
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
		return nil, err
	}
	return c.pod(&pod)
}

// Pods returns the running pods with these labels, sorted by name.
func (c *Cluster) Pods(ctx context.Context, namespace string, labels map[string]string) ([]*Pod, error) {
	var list corev1.PodList
	if err := c.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels(labels)); err != nil {
		return nil, err
	}
	var out []*Pod
	for i := range list.Items {
		if list.Items[i].Status.Phase != corev1.PodRunning || list.Items[i].DeletionTimestamp != nil {
			continue
		}
		p, err := c.pod(&list.Items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (c *Cluster) pod(pod *corev1.Pod) (*Pod, error) {
	name := pod.Namespace + "/" + pod.Name
	if pod.Status.Phase != corev1.PodRunning {
		return nil, fmt.Errorf("pod %s of cluster %s does not run: it is %s", name, c.Name, pod.Status.Phase)
	}
	var addrs []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return nil, fmt.Errorf("address of pod %s of cluster %s: %w", name, c.Name, err)
		}
		addrs = append(addrs, addr)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("pod %s of cluster %s has no address yet", name, c.Name)
	}
	for _, n := range c.Nodes {
		if n.Name == pod.Spec.NodeName {
			return &Pod{Namespace: pod.Namespace, Name: pod.Name, Addr: addrs[0], Addrs: addrs, Node: n, uid: string(pod.UID)}, nil
		}
	}
	return nil, fmt.Errorf("pod %s of cluster %s runs on the unknown node %q", name, c.Name, pod.Spec.NodeName)
}

// cgroup returns the pod's cgroup in a hierarchy.
func (p *Pod) cgroup(root string) (string, error) {
	top := filepath.Join(root, p.Node.cgroup(), "kubepods")
	for _, class := range []string{"", "burstable", "besteffort"} {
		dir := filepath.Join(top, class, "pod"+p.uid)
		if _, err := os.Stat(dir); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("pod %s/%s has no cgroup on %s: it has ended", p.Namespace, p.Name, p.Node.Name)
}

// PIDs returns the processes of the pod's containers, as this process sees them.
func (p *Pod) PIDs() ([]int, error) {
	all, err := p.processes()
	if err != nil {
		return nil, err
	}
	var out []int
	for _, pid := range all {
		if name := commandName(pid); name != "" && name != sandbox {
			out = append(out, pid)
		}
	}
	return out, nil
}

// sandbox is the name of the process that lives as long as the pod. Others end, and some, as those
// of kubectl exec, soon.
const sandbox = "pause"

// commandName is empty for a process that has ended.
func commandName(pid int) string {
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(comm))
}

// processes is PIDs with the sandbox's.
func (p *Pod) processes() ([]int, error) {
	dir, err := p.cgroup(processHierarchy())
	if err != nil {
		return nil, err
	}
	var out []int
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			out = append(out, pids(path)...)
		}
		return nil
	})
	return out, err
}

// processHierarchy is one in which every container has a cgroup.
func processHierarchy() string {
	if root := cgroups + "/pids"; isHierarchy(root) {
		return root
	}
	return cgroups
}

// Do runs fn on a thread in the pod's network namespace. Sockets opened there
// stay there.
func (p *Pod) Do(fn func() error) error {
	all, err := p.processes()
	if err != nil {
		return err
	}
	for _, pid := range all {
		if commandName(pid) == sandbox {
			return lab.InNamespace(fmt.Sprintf("/proc/%d/ns/net", pid), fn)
		}
	}
	return fmt.Errorf("pod %s/%s has no sandbox: it has ended", p.Namespace, p.Name)
}

// DialContext connects from the pod.
func (p *Pod) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = p.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen accepts connections in the pod.
func (p *Pod) Listen(network, address string) (l net.Listener, err error) {
	err = p.Do(func() error {
		l, err = net.Listen(network, address)
		return err
	})
	return l, err
}

// ListenPacket receives datagrams in the pod.
func (p *Pod) ListenPacket(network, address string) (l net.PacketConn, err error) {
	err = p.Do(func() error {
		l, err = net.ListenPacket(network, address)
		return err
	})
	return l, err
}

// Try runs a program of this machine in the pod's network namespace to its end
// and returns its output, standard error included.
func (p *Pod) Try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tryLimit)
	defer cancel()
	return p.TryContext(ctx, args...)
}

// TryContext is Try with a limit of the caller's.
func (p *Pod) TryContext(ctx context.Context, args ...string) (string, error) {
	var out strings.Builder
	err := p.Do(func() error {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.Stdout, cmd.Stderr = &out, &out
		return errors.Join(cmd.Run(), ctx.Err())
	})
	return out.String(), err
}

// Usage returns the processor time that the pod's containers have used, and
// their resident memory in bytes.
func (p *Pod) Usage() (cpu time.Duration, rss int64, err error) {
	dir, err := p.cgroup(cgroups + "/cpuacct")
	if err != nil {
		return 0, 0, err
	}
	ns, err := counter(filepath.Join(dir, "cpuacct.usage"))
	if err != nil {
		return 0, 0, err
	}
	all, err := p.PIDs()
	if err != nil {
		return 0, 0, err
	}
	for _, pid := range all {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			continue // it has just ended
		}
		if fields := strings.Fields(string(b)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			rss += pages * int64(os.Getpagesize())
		}
	}
	return time.Duration(ns), rss, nil
}
