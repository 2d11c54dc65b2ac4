package lab

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sluice-net/sluice/test/source"
)

// prefix begins the name of every namespace and directory of a lab. The process
// ID follows, which is how a later run knows whose leftovers it sees.
const prefix = "sluice"

// Tools are the programs that every lab needs on the machine.
var Tools = []string{"ip", "nft", "ethtool", "setpriv", "ping"}

// Lab is a set of hosts and of what runs on them. It ends with the test that
// made it. Its methods may be used from the test's goroutine only.
type Lab struct {
	// Dir holds the files of the lab. Everybody may read it, for the gateway runs
	// as an unprivileged user.
	Dir string

	t    T
	name string

	mu     sync.Mutex // guards what follows: a signal cleans up as well
	hosts  []*Host
	atEnd  []func()
	closed bool
}

var (
	sequence atomic.Int32 // makes the names of several labs of one process differ

	liveMu sync.Mutex
	live   = map[*Lab]bool{}

	watchSignals = sync.OnceFunc(cleanUpOnSignal)
)

// New returns an empty lab. The test ends when the machine lacks root or one of Tools
// or of the further programs that the caller names; see Require.
func New(t T, tools ...string) *Lab {
	t.Helper()
	Require(t, tools...)
	watchSignals()
	Sweep(t)

	l := &Lab{t: t, name: fmt.Sprintf("%s-%d-%d", prefix, os.Getpid(), sequence.Add(1))}
	dir, err := os.MkdirTemp("", l.name+"-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l.Dir = dir

	liveMu.Lock()
	live[l] = true
	liveMu.Unlock()
	t.Cleanup(l.close)
	return l
}

// Require ends the test, loudly, unless a lab with these tools can be built: it is
// skipped, or fails; see package source. go test keeps the results of tests that call it
// as long as $SLUICE_INPUTS is the same: what labs run, and the machine; see .ci/test.
func Require(t T, tools ...string) {
	t.Helper()
	_ = os.Getenv("SLUICE_INPUTS")
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, tool := range append(Tools[:len(Tools):len(Tools)], tools...) {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		missing = append(missing, "/dev/net/tun")
	}
	if len(missing) > 0 {
		source.Lacks(t, "it builds a network of namespaces, which takes %s", strings.Join(missing, ", "))
	}
}

// close ends all processes and removes the namespaces and files. It may run
// twice: at the end of the test and on a signal.
func (l *Lab) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	// All processes first: one host's process may hold on to another's file.
	for _, h := range l.hosts {
		h.stopAll()
	}
	for _, h := range l.hosts {
		h.close()
	}
	for _, fn := range l.atEnd {
		fn()
	}
	os.RemoveAll(l.Dir)
	liveMu.Lock()
	delete(live, l)
	liveMu.Unlock()
}

// AtEnd has fn called when the processes of the lab have ended, after a signal
// as well.
func (l *Lab) AtEnd(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.atEnd = append(l.atEnd, fn)
}

// cleanUpOnSignal removes all labs when the test run is interrupted. Test
// clean-ups do not run then.
func cleanUpOnSignal() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		sig := <-c
		signal.Stop(c) // a second signal ends the process at once
		liveMu.Lock()
		labs := make([]*Lab, 0, len(live))
		for l := range live {
			labs = append(labs, l)
		}
		liveMu.Unlock()
		for _, l := range labs {
			l.close()
		}
		_ = syscall.Kill(os.Getpid(), sig.(syscall.Signal))
	}()
}

// Sweep removes namespaces and directories of runs whose process is gone. The
// processes of such a run are gone already: they die with their parent.
func Sweep(t T) {
	t.Helper()
	namespaces, _ := filepath.Glob("/run/netns/" + prefix + "-*")
	for _, path := range namespaces {
		if name := filepath.Base(path); OwnerIsDead(name) {
			t.Logf("removing the leftover namespace %s", name)
			_ = exec.Command("ip", "netns", "del", name).Run()
		}
	}
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"-*"))
	for _, dir := range dirs {
		if OwnerIsDead(filepath.Base(dir)) {
			_ = os.RemoveAll(dir)
		}
	}
}

// OwnerIsDead tells whether name was made by a lab whose process has ended.
func OwnerIsDead(name string) bool {
	fields := strings.SplitN(name, "-", 3)
	if len(fields) < 3 || fields[0] != prefix {
		return false
	}
	pid, err := strconv.Atoi(fields[1])
	if err != nil {
		return false
	}
	return syscall.Kill(pid, 0) == syscall.ESRCH
}
