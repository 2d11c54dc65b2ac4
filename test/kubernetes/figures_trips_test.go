package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/kubelab"
)

const (
	tripCount   = 2000
	tripBytes   = 64
	tripsWithin = 30 * time.Second
)

// roundTrips sends small requests over one TCP connection, each when the one before is
// answered, and returns how long they took.
func roundTrips(t *testing.T, from, to *kubelab.Pod, at netip.Addr) series {
	t.Helper()
	l, err := to.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go echo(l)
	ctx, cancel := context.WithTimeout(t.Context(), tripsWithin)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp", netip.AddrPortFrom(at, l.Addr().(*net.TCPAddr).AddrPort().Port()).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(tripsWithin))
	var trips series
	request, response := make([]byte, tripBytes), make([]byte, tripBytes)
	for range tripCount {
		start := time.Now()
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, response); err != nil {
			t.Fatal(err)
		}
		trips = append(trips, time.Since(start))
	}
	slices.Sort(trips)
	return trips
}

// echo answers one connection with what it says.
func echo(l net.Listener) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	buffer := make([]byte, tripBytes)
	for {
		n, err := conn.Read(buffer)
		if err == nil {
			_, err = conn.Write(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

// machineTime is the processor time that the machine has worked, the kernel's in
// interrupts included: most of what tunnels between kernels cost is found nowhere else.
func machineTime() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	// In hundredths of a second.
	var user, nice, system, idle, iowait, irq, softirq int64
	if _, err := fmt.Sscanf(first, "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq); err != nil {
		return 0, errors.Join(errors.New("/proc/stat: "+first), err)
	}
	return time.Duration(user+nice+system+irq+softirq) * 10 * time.Millisecond, nil
}
