// Command demo shows the main job on one machine, without root and without a
// cluster: two gateway processes on loopback addresses join two clusters that
// use the same pod CIDR. The nodes are simulated and speak real Geneve and
// VXLAN; their pods are TCP/IP stacks in memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

func main() {
	// The gateways are to end with the demo however it ends (Pdeathsig), and the
	// kernel takes the end of the thread that started them for it.
	runtime.LockOSThread()
	gateway := flag.String("gateway", "bin/gateway", "`path` of the gateway command")
	keep := flag.Bool("keep", false, "leave everything running at the end")
	megabytes := flag.Int("megabytes", 100, "size of the transfer, in `MB`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *gateway, *megabytes, *keep); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run is the demo from the first line to the last.
func run(ctx context.Context, gateway string, megabytes int, keep bool) error {
	dir, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return err
	}
	if gateway, err = filepath.Abs(gateway); err != nil {
		return err
	}
	d, err := newDemo(dir, gateway)
	if err != nil {
		return err
	}
	defer d.close(keep)
	d.topology()

	for _, s := range []step{
		{"two gateways start, as two ordinary processes", d.startGateways},
		{"the nodes find their gateways (ARP through the tunnels)", d.connectNodes},
		{"the gateways find each other: Connected on both sides", d.waitConnected},
		{"ping, pod to pod, at an address that exists only as a mapping", d.ping},
		{"route from pod to pod", d.trace},
		{"a page over HTTP, pod to pod", d.fetch},
		{fmt.Sprintf("%d MB over TCP, pod to pod", megabytes), func(ctx context.Context) (string, error) { return d.transfer(ctx, int64(megabytes)*1e6) }},
		{"what the gateways counted", d.counters},
	} {
		if err := s.run(ctx); err != nil {
			return errors.Join(err, d.explain())
		}
	}
	d.lookAround(keep)
	if keep {
		<-ctx.Done()
		fmt.Println("\nstopping")
	}
	return nil
}

// step is one thing that the demo shows.
type step struct {
	title string
	do    func(context.Context) (detail string, err error)
}

// stepTimeout bounds a step: nothing here takes long.
const stepTimeout = 30 * time.Second

func (s step) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	start := time.Now()
	detail, err := s.do(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", s.title, err)
	}
	fmt.Printf("  ok  %s (%s)\n%s", s.title, time.Since(start).Round(time.Millisecond), indent(detail))
	return nil
}
