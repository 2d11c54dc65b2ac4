package hostnet

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// Everything somebody can do to ours is seen and put right.
func TestTamperingIsSeenAndPutRight(t *testing.T) {
	for _, command := range []string{
		"link set liqo.tunnel1 down",
		"link set liqo.tunnel1 mtu 1290",
		"link set liqo.tunnel1 alias x",
		"link del liqo.tunnel1",
		"addr del 10.80.0.5/32 dev liqo.tunnel1",
		"addr add 10.80.0.77/24 dev liqo.tunnel1",
		"route del 10.1.0.0/16 table 6091",
		"route replace 10.1.0.0/16 dev lo table 6091 proto 92",
		"route replace 10.1.0.0/16 table 6091 proto 92 nexthop dev lo nexthop dev liqo.tunnel1",
		"route append 10.1.0.0/16 dev lo table 6091 proto 92",
		"route append blackhole 10.1.0.0/16 table 6091 proto 92",
		"route add 10.55.0.0/16 dev lo table 6091 proto 92",
		"route flush table 6091",
		"-6 route del fd00:0:0:1::/64 table 6091",
		"-6 route flush table 6091",
		"-6 route add unreachable fd55::/64 table 6091 proto 92",
		"rule del pref 600",
		"-6 rule del pref 600",
		"rule add pref 99 lookup 6091 proto 92",
		"rule add pref 99 from 10.9.0.0/16 iif lo lookup 6091 proto 92",
		"rule add pref 600 not to 10.9.0.0/16 lookup 6091 proto 92",
	} {
		t.Run(command, func(t *testing.T) {
			kinds(t, func(t *testing.T, kind Kind) {
				c := reopen(t)
				want := desired(tunnel(kind, 1), tunnel(kind, 2))
				settle(t, c, want)
				events := watch(t, c)
				if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
					t.Skipf("SKIPPED: this kernel cannot be tampered with like that: %v: %s", err, out)
				}
				events.wait(t, Event{Ours: true})
				settle(t, c, want)
			})
		})
	}
}

// Kernel links have attributes of their own to be tampered with.
func TestTamperingWithKernelLinks(t *testing.T) {
	for _, command := range []string{
		"link set liqo.tunnel1 address 02:00:00:00:00:01",
		"link set liqo.tunnel1 type KIND id 101 remote 192.0.2.99",
	} {
		t.Run(command, func(t *testing.T) {
			kinds(t, func(t *testing.T, kind Kind) {
				if kind == KindTUN {
					t.Skip("not a kernel link")
				}
				command := strings.ReplaceAll(command, "KIND", string(kind))
				c := reopen(t)
				settle(t, c, desired(tunnel(kind, 1)))
				events := watch(t, c)
				ip(t, command)
				events.wait(t, Event{Ours: true})
				settle(t, c, desired(tunnel(kind, 1)))
			})
		})
	}
}

// watched collects events.
type watched chan Event

// watch begins to watch, and has seen the first event when it returns.
func watch(t *testing.T, c *Conn) watched {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events := make(watched, 1000)
	done := make(chan error)
	go func() { done <- c.Watch(ctx, func(e Event) { events <- e }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watch: %v", err)
		}
	})
	if e := <-events; e != (Event{Ours: true, Paths: true}) {
		t.Errorf("first event %+v, want everything", e)
	}
	return events
}

// wait waits for an event that includes want.
func (w watched) wait(t *testing.T, want Event) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e := <-w:
			if e.Ours == want.Ours && e.Paths == want.Paths {
				return
			}
		case <-timeout:
			t.Fatalf("no event %+v", want)
		}
	}
}

func TestWatchTellsOursFromOthers(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	c := openHere(t)
	settle(t, c, desired(tunnel(KindTUN, 1)))
	events := watch(t, c)
	for _, tt := range []struct {
		command string
		want    Event
	}{
		{"link add other type veth peer name other2", Event{Paths: true}},
		{"link set other up", Event{Paths: true}},
		{"addr add 198.51.100.1/24 dev other", Event{Paths: true}},
		{"route add 203.0.113.0/24 dev other", Event{Paths: true}},
		{"-6 route add 2001:db8:5::/64 dev other", Event{Paths: true}},
		{"rule add pref 77 lookup 77", Event{Paths: true}},
		{"link set other2 name liqo.mine", Event{Ours: true}},
		{"route add 203.0.113.0/24 dev other table 6091", Event{Ours: true}},
		{"addr add 198.51.100.2/32 dev liqo.tunnel1", Event{Ours: true}},
		{"link del liqo.tunnel1", Event{Ours: true}},
	} {
		ip(t, tt.command)
		events.wait(t, tt.want)
	}
}

// A link is known to be ours as soon as it is made.
func TestWatchKnowsNewLinks(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		c := reopen(t)
		events := watch(t, c)
		if err := c.Apply(Diff(desired(tunnel(kind, 1)), read(t, c))); err != nil {
			t.Fatal(err)
		}
		ip(t, "rule add pref 77 lookup 77")
		events.wait(t, Event{Paths: true}) // Whatever was raised before is over.
		ip(t, "addr del 10.80.0.5/32 dev liqo.tunnel1")
		events.wait(t, Event{Ours: true})
		settle(t, c, desired(tunnel(kind, 1)))
	})
}

// Where notifications got lost, everything may have changed.
func TestWatchOverflow(t *testing.T) {
	enterNamespace(t)
	nl, err := join(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_RULE)
	if err != nil {
		t.Fatal(err)
	}
	if err := nl.SetReadBuffer(1); err != nil { // The kernel's minimum.
		t.Fatal(err)
	}
	for range 20 {
		ip(t, "rule add pref 77 lookup 77")
		ip(t, "rule del pref 77")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var events []Event
	err = receive(ctx, nl, func(e Event) {
		events = append(events, e)
		cancel()
	}, func(netlink.Message) Event { return Event{} })
	if d := cmp.Diff([]Event{{Ours: true, Paths: true}}, events); d != "" || err != nil {
		t.Errorf("error %v, events (-want +got):\n%s", err, d)
	}
}
