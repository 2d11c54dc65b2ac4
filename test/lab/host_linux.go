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
	"sync/atomic"
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

	mu        sync.Mutex // guards what follows
	inside    *thread
	processes []*Process
}

// thread is a thread inside a namespace. It must outlive the host's processes,
// because they are told to die with the thread that started them.
type thread struct {
	jobs chan func()
	quit chan struct{}
	end  func()

	machine atomic.Bool // see Host.Boot
}

// Host adds a host without links. IPv4 and IPv6 forwarding are off.
func (l *Lab) Host(name string) *Host {
	l.t.Helper()
	h := &Host{Name: name, lab: l, ns: l.name + "-" + name}
	l.mu.Lock()
	l.hosts = append(l.hosts, h)
	l.mu.Unlock()
	if err := h.create(); err != nil {
		l.t.Fatal(err)
	}
	return h
}

// create makes the namespace and the thread in it.
func (h *Host) create() error {
	if out, err := exec.Command("ip", "netns", "add", h.ns).CombinedOutput(); err != nil {
		return fmt.Errorf("add the namespace %s: %w: %s", h.ns, err, out)
	}
	quit := make(chan struct{})
	inside := &thread{jobs: make(chan func()), quit: quit, end: sync.OnceFunc(func() { close(quit) })}
	entered := make(chan error)
	go inside.run("/run/netns/"+h.ns, entered)
	if err := <-entered; err != nil {
		return err
	}
	h.mu.Lock()
	h.inside = inside
	h.mu.Unlock()
	// Addresses are ours alone: no duplicate detection, whose second of waiting
	// would make every first IPv6 packet fail.
	for _, key := range []string{"all", "default"} {
		if err := h.TrySysctl("net.ipv6.conf."+key+".accept_dad", "0"); err != nil {
			return err
		}
	}
	if out, err := h.Try("ip", "link", "set", "lo", "up"); err != nil {
		return fmt.Errorf("%s: loopback: %w: %s", h.Name, err, out)
	}
	return nil
}

func (h *Host) thread() *thread {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inside
}

// Namespace is the host's name for `ip netns exec`.
func (h *Host) Namespace() string { return h.ns }

// run does the jobs. It never unlocks its thread: with the goroutine ends the
// thread, and nothing else of the process ever runs in the namespace.
func (t *thread) run(namespace string, entered chan<- error) {
	runtime.LockOSThread()
	err := enter(namespace, unix.CLONE_NEWNET)
	entered <- err
	if err != nil {
		return
	}
	for {
		select {
		case job := <-t.jobs:
			job()
		case <-t.quit:
			return
		}
	}
}

// Do runs fn on a thread inside the namespace. Sockets opened there stay there;
// fn must not wait for anything that needs another Do of the same host.
func (h *Host) Do(fn func() error) error {
	t := h.thread()
	done := make(chan error, 1)
	select {
	case t.jobs <- func() { done <- fn() }:
		return <-done
	case <-t.quit:
		return fmt.Errorf("host %s is gone", h.Name)
	}
}

// close removes the namespace.
func (h *Host) close() {
	if t := h.thread(); t != nil {
		t.end()
	}
	_ = exec.Command("ip", "netns", "del", h.ns).Run()
}

// command returns a command that dies when the test process does.
func (h *Host) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: h.deathSignal()}
	cmd.WaitDelay = 2 * time.Second // grandchildren may keep the pipes open
	return cmd
}

// deathSignal is what processes get when the test dies. On a machine they end
// with its first process, and cannot have one: they do not see their parent, and
// os/exec takes that for its death.
func (h *Host) deathSignal() syscall.Signal {
	if h.thread().machine.Load() {
		return 0
	}
	return syscall.SIGKILL
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
	if err := h.TryNft(script); err != nil {
		h.lab.t.Fatal(err)
	}
}

// TryNft is Nft that returns its error.
func (h *Host) TryNft(script string) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	if out, err := h.tryInput(ctx, script, []string{"nft", "-f", "-"}); err != nil {
		return fmt.Errorf("%s: nft: %w\n%s%s", h.Name, err, out, script)
	}
	return nil
}

// Sysctl sets one value below /proc/sys/net, which shows the namespace of the
// thread that opens it.
func (h *Host) Sysctl(key, value string) {
	h.lab.t.Helper()
	if err := h.TrySysctl(key, value); err != nil {
		h.lab.t.Fatal(err)
	}
}

// TrySysctl is Sysctl that returns its error.
func (h *Host) TrySysctl(key, value string) error {
	path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
	if err := h.Do(func() error { return os.WriteFile(path, []byte(value), 0) }); err != nil {
		return fmt.Errorf("%s: sysctl %s=%s: %w", h.Name, key, value, err)
	}
	return nil
}

// Forward makes the host a router that accepts any source address on any link.
func (h *Host) Forward() {
	h.lab.t.Helper()
	h.Sysctl("net.ipv4.ip_forward", "1")
	h.Sysctl("net.ipv6.conf.all.forwarding", "1")
	h.Sysctl("net.ipv4.conf.all.rp_filter", "0")
	h.Sysctl("net.ipv4.conf.default.rp_filter", "0")
}

// stopForwarding makes the host no router again.
func (h *Host) stopForwarding() {
	h.lab.t.Helper()
	h.Sysctl("net.ipv4.ip_forward", "0")
	h.Sysctl("net.ipv6.conf.all.forwarding", "0")
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
