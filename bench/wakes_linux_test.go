package bench

import (
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pings is how many pings and wakes a distribution is of.
	pings = 1000
	// pingPause is the time between two of them.
	pingPause = 2 * time.Millisecond
)

// wakes measures how long two threads take that wake each other through pipes, there and back: a part of each round trip,
// as a gateway is a thread to wake as well. Like ping between two such packets, it does not sleep before.
func (p *path) wakes() {
	p.t.Helper()
	var there, back [2]int
	for _, pipe := range [][]int{there[:], back[:]} {
		if err := unix.Pipe2(pipe, unix.O_CLOEXEC); err != nil {
			p.t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var b [1]byte
		for {
			if n, err := unix.Read(there[0], b[:]); n != 1 || err != nil {
				return
			}
			if _, err := unix.Write(back[1], b[:]); err != nil {
				return
			}
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	took := make([]time.Duration, 0, pings)
	var b [1]byte
	for range pings {
		for pause := time.Now(); time.Since(pause) < pingPause; {
		}
		start := time.Now()
		_, err := unix.Write(there[1], b[:])
		if err == nil {
			_, err = unix.Read(back[0], b[:])
		}
		if err != nil {
			p.t.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	unix.Close(there[1])
	<-done
	for _, fd := range []int{there[0], back[0], back[1]} {
		unix.Close(fd)
	}
	slices.Sort(took)
	p.distribution("wakes", took)
}
