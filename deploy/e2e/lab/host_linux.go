package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// commandTimeout bounds every command that is waited for. The longest are
// measurements, which have their own, shorter limits.
const commandTimeout = 3 * time.Minute

// Host is one network namespace.
type Host struct {
	// Name is the host's short name, for example "a-gw".
	Name string

	lab *Lab
	ns  string // the namespace's name as `ip netns` shows it

	// jobs are run by one thread that lives inside the namespace. It must outlive
	// the host's processes, because they are told to die with the thread that
	// started them.
	jobs chan func()

	mu        sync.Mutex
	processes []*Process
}

// Host adds a host without links. IPv4 and IPv6 forwarding are off.
func (l *Lab) Host(name string) *Host {
	l.t.Helper()
	h := &Host{Name: name, lab: l, ns: l.name + "-" + name, jobs: make(chan func())}
	if out, err := exec.Command("ip", "netns", "add", h.ns).CombinedOutput(); err != nil {
		l.t.Fatalf("add the namespace %s: %v: %s", h.ns, err, out)
	}
	l.mu.Lock()
	l.hosts = append(l.hosts, h)
	l.mu.Unlock()

	entered := make(chan error)
	go h.thread(entered)
	if err := <-entered; err != nil {
		l.t.Fatalf("enter the namespace %s: %v", h.ns, err)
	}
	// Addresses are ours alone: no duplicate detection, whose second of waiting
	// would make every first IPv6 packet fail.
	h.Sysctl("net.ipv6.conf.all.accept_dad", "0")
	h.Sysctl("net.ipv6.conf.default.accept_dad", "0")
	h.IP("link set lo up")
	return h
}

// Namespace is the host's name for `ip netns exec`.
func (h *Host) Namespace() string { return h.ns }

// thread runs the host's jobs. It never unlocks its thread: with the goroutine
// ends the thread, and nothing else of the process ever runs in the namespace.
func (h *Host) thread(entered chan<- error) {
	runtime.LockOSThread()
	f, err := os.Open("/run/netns/" + h.ns)
	if err == nil {
		err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		f.Close()
	}
	entered <- err
	if err != nil {
		return
	}
	for job := range h.jobs {
		job()
	}
}

// Do runs fn on a thread inside the namespace. Sockets opened there stay there;
// fn must not wait for anything that needs another Do of the same host.
func (h *Host) Do(fn func() error) error {
	done := make(chan error, 1)
	h.jobs <- func() { done <- fn() }
	return <-done
}

// close removes the namespace.
func (h *Host) close() {
	close(h.jobs)
	_ = exec.Command("ip", "netns", "del", h.ns).Run()
}

// command returns a command that dies when the test process does.
func (h *Host) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 2 * time.Second // grandchildren may keep the pipes open
	return cmd
}

// Try runs a command to its end and returns its output, standard error
// included.
func (h *Host) Try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	return h.TryContext(ctx, args...)
}

// TryContext is Try with a limit of the caller's.
func (h *Host) TryContext(ctx context.Context, args ...string) (string, error) {
	return h.tryInput(ctx, "", args)
}

func (h *Host) tryInput(ctx context.Context, input string, args []string) (string, error) {
	var out strings.Builder
	cmd := h.command(ctx, args)
	cmd.Stdin = strings.NewReader(input)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := h.Do(cmd.Start); err != nil {
		return "", err
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return out.String(), err
}

// Run is Try that ends the test on failure.
func (h *Host) Run(args ...string) string {
	h.lab.t.Helper()
	out, err := h.Try(args...)
	if err != nil {
		h.lab.t.Fatalf("%s: %s: %v\n%s", h.Name, strings.Join(args, " "), err, out)
	}
	return out
}

// IP runs iproute2 with arguments in one string: h.IP("link set lo up").
func (h *Host) IP(format string, args ...any) string {
	h.lab.t.Helper()
	return h.Run(append([]string{"ip"}, strings.Fields(fmt.Sprintf(format, args...))...)...)
}

// Nft loads an nftables script.
func (h *Host) Nft(script string) {
	h.lab.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	if out, err := h.tryInput(ctx, script, []string{"nft", "-f", "-"}); err != nil {
		h.lab.t.Fatalf("%s: nft: %v\n%s%s", h.Name, err, out, script)
	}
}

// Sysctl sets one value below /proc/sys/net, which shows the namespace of the
// thread that opens it.
func (h *Host) Sysctl(key, value string) {
	h.lab.t.Helper()
	path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
	if err := h.Do(func() error { return os.WriteFile(path, []byte(value), 0) }); err != nil {
		h.lab.t.Fatalf("%s: sysctl %s=%s: %v", h.Name, key, value, err)
	}
}

// Forward makes the host a router that accepts any source address on any link.
func (h *Host) Forward() {
	h.lab.t.Helper()
	h.Sysctl("net.ipv4.ip_forward", "1")
	h.Sysctl("net.ipv6.conf.all.forwarding", "1")
	h.Sysctl("net.ipv4.conf.all.rp_filter", "0")
	h.Sysctl("net.ipv4.conf.default.rp_filter", "0")
}

// Link joins two hosts by a veth pair and sets both ends up.
func (l *Lab) Link(a *Host, nameA string, b *Host, nameB string) {
	l.t.Helper()
	a.IP("link add %s type veth peer name %s netns %s", nameA, nameB, b.ns)
	a.IP("link set %s up", nameA)
	b.IP("link set %s up", nameB)
}

// neighbor returns the link-layer address that the host knows for addr.
func (h *Host) neighbor(addr netip.Addr, dev string) (net.HardwareAddr, error) {
	out, err := h.Try("ip", "-json", "neigh", "show", "to", addr.String(), "dev", dev)
	if err != nil {
		return nil, err
	}
	var entries []struct {
		Lladdr string `json:"lladdr"`
	}
	if err := json.Unmarshal([]byte(out), &entries); err != nil {
		return nil, fmt.Errorf("neighbors of %s: %w: %s", h.Name, err, out)
	}
	if len(entries) == 0 || entries[0].Lladdr == "" {
		return nil, fmt.Errorf("%s knows no neighbor %s on %s", h.Name, addr, dev)
	}
	return net.ParseMAC(entries[0].Lladdr)
}
