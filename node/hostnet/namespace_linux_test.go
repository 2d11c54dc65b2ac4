package hostnet

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/test/source"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// enterNamespace puts the test's goroutine into a network namespace of its own,
// whose loopback is up. The thread ends with the goroutine.
func enterNamespace(t *testing.T) {
	t.Helper()
	source.NeedRoot(t, "ip")
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		source.Lacks(t, "it needs the right to make a network namespace: %v", err)
	}
	// Duplicate address detection would change what everything sees a second or two later.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	ip(t, "link set lo up")
}

// openHere is Open in a namespace of the test's own.
func openHere(t *testing.T) *Conn {
	t.Helper()
	enterNamespace(t)
	return reopen(t)
}

func reopen(t *testing.T) *Conn {
	t.Helper()
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ip calls ip(8) in the namespace of the thread.
func ip(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v\n%s", command, err, out)
	}
	return string(out)
}

// settle applies what leads to want, and demands that nothing is left to do.
func settle(t *testing.T, c *Conn, want Desired) Actual {
	t.Helper()
	if err := c.Apply(Diff(want, read(t, c))); err != nil {
		t.Fatalf("apply: %v", err)
	}
	a := read(t, c)
	if d := cmp.Diff([]string(nil), Diff(want, a).Lines(), cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("plan after apply (-want +got):\n%s", d)
	}
	return a
}

func read(t *testing.T, c *Conn) Actual {
	t.Helper()
	a, err := c.Read()
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return a
}

// supports is what this kernel has: asked once, as links that come and go cost time.
var supports = sync.OnceValues(func() ([]KindSupport, error) {
	c, err := Open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Probe(), nil
})

// kinds calls f for each kind that this kernel has.
func kinds(t *testing.T, f func(t *testing.T, kind Kind)) {
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			enterNamespace(t)
			all, err := supports()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				if s.Kind == kind && !s.OK {
					t.Skipf("SKIPPED: %s", s.Reason)
				}
			}
			f(t, kind)
		})
	}
}

// tunnel is the n-th link of a kind, with IPv4 and IPv6 behind it.
func tunnel(kind Kind, n int) Link {
	return Link{
		Name: fmt.Sprintf("%stunnel%d", LinkPrefix, n), Owner: fmt.Sprintf("InternalFabric tenant/%d", n),
		Kind: kind, VNI: uint32(100 + n), Port: 6091, MTU: 1340,
		Gateway:        netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}),
		Address:        netip.MustParseAddr("10.80.0.5"),
		GatewayAddress: netip.AddrFrom4([4]byte{10, 80, 1, byte(n)}),
		Routes: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 0, 0}), 16),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 15: 0, 7: byte(n)}), 64),
		},
	}
}

func indexOf(t *testing.T, a Actual, name string) int {
	t.Helper()
	i := slices.IndexFunc(a.Links, func(l ActualLink) bool { return l.Name == name })
	if i < 0 {
		t.Fatalf("no link %s in %+v", name, a.Links)
	}
	return a.Links[i].Index
}

// everything is all of the namespace that a step could touch, as ip(8) sees it.
func everything(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, what := range []string{"-d link show", "addr show", "route show table all", "-6 route show table all", "rule", "-6 rule"} {
		all.WriteString(ip(t, what))
	}
	return all.String()
}

// removedRoutes returns what stops counting and returns how many of our routes
// were removed meanwhile.
func removedRoutes(t *testing.T) (stop func() int) {
	t.Helper()
	nl, err := join(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	return func() int {
		defer nl.Close()
		// What happened before is reported before.
		end := prefix("203.0.113.113/32")
		ip(t, fmt.Sprintf("route add %v dev lo", end))
		removed := 0
		for {
			ms, err := nl.Receive()
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range ms {
				r, table, err := decodeRoute(m.Data)
				switch {
				case err != nil:
					t.Fatal(err)
				case r.Dst == end:
					return removed
				case table == Table && m.Header.Type == unix.RTM_DELROUTE:
					removed++
				}
			}
		}
	}
}
