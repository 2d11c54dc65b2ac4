package e2e

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/bench/record"
	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/source"
)

// clockSteps are added to the gateway of TestClockSteps: signals set its clock by an hour.
const clockSteps = `package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

func init() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range c {
			if s == syscall.SIGUSR1 {
				time.ClockStep.Add(3600)
			} else {
				time.ClockStep.Add(-3600)
			}
		}
	}()
}
`

// buildWithSteps builds a gateway whose clock can be set apart from that of the machine, which
// is everybody's. The program is what is shipped, but for package time, which adds to the
// seconds since 1970 and leaves the monotonic clock alone, as when an administrator sets a clock.
func buildWithSteps(t *testing.T) (program string) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return lab.BuildChanged(t, lab.GatewayPackage, lab.Change{
		File: filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go"),
		Edits: [][2]string{
			{"import (\n", "import (\n\t\"sync/atomic\"\n"},
			{"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "var ClockStep atomic.Int64\n\nfunc Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += ClockStep.Load()\n"},
		},
	}, lab.Change{File: source.Path("cmd", "gateway", "clocksteps.go"), Text: clockSteps})
}

// TestClockSteps sets the clock of either gateway by an hour, there and back and both ways, while
// traffic goes on, and waits each time until WireGuard has made another session, which it does
// every two minutes.
func TestClockSteps(t *testing.T) {
	wantStrain(t)
	program := buildWithSteps(t)
	m := table{
		title: "Steps of the clock",
		about: "The clock of one gateway set by an hour, and the next session waited for, with a UDP flow and a TCP connection of 2 Mbit/s each under way. " +
			"The monotonic clock goes on, as where an administrator or a time server sets a clock.",
		head: []string{"gateway", "from", "to", "session after", "longest silence of UDP", "of TCP", "datagrams lost", "lost by gateways"},
	}
	for _, side := range []string{"server", "client"} {
		t.Run(side, func(t *testing.T) {
			w := smallWorld(t)
			w.gatewayA = w.A.StartGateway(program, lab.GatewayOptions{})
			w.gatewayB = w.B.StartGateway(program, lab.GatewayOptions{})
			w.gatewayA.WaitConnected(lab.Patience)
			w.gatewayB.WaitConnected(lab.Patience)
			defer w.report(t)
			set, other := w.gatewayA, w.gatewayB
			if side == "client" {
				set, other = other, set
			}
			serveEcho(t, w.B1.Pod)
			l := startLoad(t)
			to := netip.AddrPortFrom(w.fromA(w.B1.PodAddr), echoPort)
			l.add(t, "udp", w.A1.Pod, to)
			l.add(t, "tcp", w.A1.Pod, to)
			l.recovered(t)
			clock := time.Duration(0)
			for _, step := range []time.Duration{time.Hour, -time.Hour, -time.Hour, time.Hour} {
				before, counted, begun := [2]string{handshake(set), handshake(other)}, statuses(w), time.Now()
				signal := syscall.SIGUSR1
				if step < 0 {
					signal = syscall.SIGUSR2
				}
				if err := syscall.Kill(set.PID(), signal); err != nil {
					t.Fatal(err)
				}
				from := clock
				clock += step
				// Longer than a session lives: where none could be made, the flows are silent then.
				lab.Eventually(t, 200*time.Second, "another session", func() error {
					if now := [2]string{handshake(set), handshake(other)}; now[0] == before[0] || now[1] == before[1] {
						return fmt.Errorf("the last handshakes are of %v", now)
					}
					return nil
				})
				took := time.Since(begun)
				made, err := time.Parse(time.RFC3339Nano, handshake(set))
				if off := time.Until(made) - clock; err != nil || off.Abs() > 10*time.Minute {
					t.Fatalf("the clock was not set: the session is of %v, %v", made, err)
				}
				l.recovered(t)
				seen := l.since(begun, underWay)
				if len(seen.broken) > 0 || seen.gap > 5*time.Second {
					t.Errorf("%s, from %v to %v: %v", side, from, clock, seen)
				}
				m.add(side, hours(from), hours(clock), seconds(took.Seconds()), seconds(seen.gap.Seconds()), seconds(seen.gapTCP.Seconds()),
					fmt.Sprintf("%d of %d", seen.lost, seen.sent), losses(counted, statuses(w)))
			}
			l.end()
		})
	}
	m.publish(t)
}

func hours(clock time.Duration) string {
	if clock == 0 {
		return "right"
	}
	return fmt.Sprintf("%+.0f h", clock.Hours())
}

// TestSessionsInAFlood has gateways begin sessions while 50 000 forged handshakes come to the
// server each second: with new keys, and after a restart.
func TestSessionsInAFlood(t *testing.T) {
	wantStrain(t)
	const perSecond, rounds = 50_000, 5
	w := smallWorld(t)
	w.startGateways(t)
	defer w.report(t)
	routeForged(w)
	serveEcho(t, w.B1.Pod)
	binary := lab.Build(t, lab.GatewayPackage)
	restart := func(c *lab.Cluster, g **lab.Gateway) {
		if _, err := (*g).Stop(lab.Patience); err != nil {
			t.Fatal(err)
		}
		*g = c.StartGateway(binary, lab.GatewayOptions{})
	}
	events := []struct {
		name string
		do   func()
	}{
		{"nothing", func() {}},
		{"the client has a new key", func() { rotate(t, w, w.B) }},
		{"the server has a new key", func() { rotate(t, w, w.A) }},
		{"the client restarts", func() { restart(w.B, &w.gatewayB) }},
		{"the server restarts", func() { restart(w.A, &w.gatewayA) }},
	}
	m := table{
		title: "Sessions in a flood",
		about: fmt.Sprintf("What makes another session necessary, without and beside %d forged handshake initiations a second at the server, with a UDP flow of 2 Mbit/s under way. "+
			"How long nothing arrives: median (least to most) of %d, a restart included.", perSecond, rounds),
		head: []string{"", "silence of UDP without a flood, s", "beside the flood, s"},
	}
	l := startLoad(t)
	l.add(t, "udp", w.A1.Pod, netip.AddrPortFrom(w.fromA(w.B1.PodAddr), echoPort))
	for _, e := range events {
		row := []string{e.name}
		for _, flooded := range []bool{false, true} {
			var silences []float64
			for range rounds {
				l.recovered(t)
				stop := func() {}
				if flooded {
					ended := startHandshakes(t, w, lab.WireGuardPort, perSecond)
					stop = func() { ended() }
					time.Sleep(time.Second) // until the server is under it
				}
				begun := time.Now()
				e.do()
				time.Sleep(time.Second)
				lab.Eventually(t, 2*time.Minute, "answers after "+e.name, func() error {
					if p := w.A1.Pod.Ping(w.fromA(w.B1.PodAddr), "-c1 -W1"); p.Received == 0 {
						return fmt.Errorf("none")
					}
					return nil
				})
				l.recovered(t)
				silences = append(silences, l.since(begun, underWay).gap.Seconds())
				stop()
			}
			row = append(row, record.Spread(silences))
		}
		m.add(row...)
	}
	m.publish(t)
}
