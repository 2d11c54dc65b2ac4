package bench

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var nice = flag.Int("nice", 0, "priority of everything that -compare measures, down to -20, on a machine that others use as well")

// others is processor time of what has nothing to do with the measurement: busy
// time of the machine less that of this process, of all below it and of the kernel's
// own threads. A round in which it is much is not worth much.
type others struct {
	used time.Duration
	at   time.Time
}

// kernelThreads is the process ID of kthreadd, the parent of the kernel's threads.
const kernelThreads = 2

func othersNow(t *testing.T) others {
	t.Helper()
	all := processTimes()
	own := func(pid int) bool {
		for range len(all) { // as long as the longest line of parents
			if pid == os.Getpid() || pid == kernelThreads {
				return true
			}
			pid = all[pid].parent
		}
		return false
	}
	o := others{used: machineCPU(t), at: time.Now()}
	for pid, p := range all {
		if own(pid) {
			o.used -= p.used
		}
	}
	return o
}

// share is the part of all processors that others used since an earlier time, in
// percent.
func (o others) share(earlier others, processors int) float64 {
	used := max(0, o.used-earlier.used)
	return 100 * used.Seconds() / (o.at.Sub(earlier.at).Seconds() * float64(processors))
}

// processTime is what a process used, with its ended children, and who started it.
type processTime struct {
	parent int
	used   time.Duration
}

func processTimes() map[int]processTime {
	out := map[int]processTime{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		// The second field is the program's name in parentheses and may hold spaces.
		_, rest, _ := strings.Cut(string(b), ") ")
		var state string
		var parent, group, session, tty, ttyGroup int
		var flags, minor, childMinor, major, childMajor, user, system, childUser, childSystem uint64
		if _, err := fmt.Sscan(rest, &state, &parent, &group, &session, &tty, &ttyGroup, &flags, &minor, &childMinor, &major, &childMajor,
			&user, &system, &childUser, &childSystem); err == nil {
			out[pid] = processTime{parent, time.Duration(user+system+childUser+childSystem) * 10 * time.Millisecond}
		}
	}
	return out
}

// prioritize gives this process, and all that it will start, precedence on the
// machine.
func prioritize(t *testing.T) {
	t.Helper()
	if *nice == 0 {
		return
	}
	// Threads have their own: those to come inherit it from one that has it.
	threads, err := filepath.Glob("/proc/self/task/*")
	for _, path := range threads {
		id, _ := strconv.Atoi(filepath.Base(path))
		err = errors.Join(err, syscall.Setpriority(syscall.PRIO_PROCESS, id, *nice))
	}
	// Where the kernel shares processors among sessions first, it is the session's
	// priority that counts.
	if autogroup := "/proc/self/autogroup"; err == nil {
		if _, missing := os.Stat(autogroup); missing == nil {
			err = os.WriteFile(autogroup, []byte(strconv.Itoa(*nice)), 0)
		}
	}
	if err != nil {
		t.Fatalf("-nice %d: %v; run without it", *nice, err)
	}
}
