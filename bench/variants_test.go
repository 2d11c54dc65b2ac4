package bench

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/source"
)

var (
	variantNames = flag.String("variants", "stock,sluice", "what -compare compares, with commas; bench/README.md lists them")
	beforePath   = flag.String("before", "", "program of the variant before: the gateway of an earlier commit")
	gatewayArgs  = flag.String("gateway.args", "", "further arguments of our gateways")
)

// variant is one way to join two clusters.
type variant struct {
	name string
	// start brings it up and returns the processes that are its gateways, and what
	// ends it. It need not wait for the first packet to pass.
	start func(t *testing.T, topo *lab.Topology) (gateways []*lab.Process, stop func())
}

// variants are all that -variants can name. README.md says what each is for.
var variants = []variant{
	{"bare", startBare},
	{"wireguard", startWireGuard},
	{stockName, startStock},
	{"stock-1420", startStock1420},
	{limitName, startLimit},
	{"sluice", func(t *testing.T, topo *lab.Topology) ([]*lab.Process, func()) {
		return startSluice(t, topo, lab.Build(t, lab.GatewayPackage), nil)
	}},
	{"sluice-large", func(t *testing.T, topo *lab.Topology) ([]*lab.Process, func()) {
		return startSluice(t, topo, lab.Build(t, lab.GatewayPackage), large)
	}},
	{"sluice-tun", startSluiceTUN},
	{"sluice-share", startShares(1)},
	{"sluice-shares", startShares(2)},
	{"sluice-no-yield", changedUnderlay("poller_linux.go", [2]string{"if !w.slept {", "if false {"})},
	{"sluice-one-poller", changedUnderlay("poller_linux.go", [2]string{"func wakePoller() {\n\tgo nothing()\n\tgo nothing()\n}", "func wakePoller() {}"})},
	{"sluice-told", changedUnderlay("mmsg_linux.go", told...)},
	{"before", func(t *testing.T, topo *lab.Topology) ([]*lab.Process, func()) {
		if *beforePath == "" {
			t.Fatal("the variant before needs -before PROGRAM")
		}
		return startSluice(t, topo, *beforePath, nil)
	}},
}

// What the others are compared with.
const (
	stockName = "stock" // what a user would run instead
	limitName = "limit" // what the machine could do
)

// told makes the sockets of a gateway tell the scheduler of their system calls.
var told = [][2]string{
	{"unix.RawSyscall6(unix.SYS_RECVMMSG,", "unix.Syscall6(unix.SYS_RECVMMSG,"},
	{"unix.RawSyscall6(unix.SYS_SENDMMSG,", "unix.Syscall6(unix.SYS_SENDMMSG,"},
}

// chosen returns what a flag names of all, in its order.
func chosen[T any](t *testing.T, names string, all []T, name func(T) string) (out []T) {
	t.Helper()
	for n := range strings.SplitSeq(names, ",") {
		before := len(out)
		var known []string
		for _, a := range all {
			known = append(known, name(a))
			if name(a) == n {
				out = append(out, a)
			}
		}
		if len(out) == before {
			t.Fatalf("%q is none of %s", n, strings.Join(known, ", "))
		}
	}
	return out
}

// startBare has kernels route, without any gateway.
func startBare(_ *testing.T, topo *lab.Topology) ([]*lab.Process, func()) {
	return nil, topo.Route()
}

func startWireGuard(t *testing.T, topo *lab.Topology) ([]*lab.Process, func()) {
	binary := lab.Build(t, lab.WireGuardPackage)
	a, b := topo.A.StartWireGuard(binary), topo.B.StartWireGuard(binary)
	return []*lab.Process{a.Process, b.Process}, func() { a.Stop(); b.Stop() }
}

func startStock(t *testing.T, topo *lab.Topology) ([]*lab.Process, func()) {
	binary := lab.Build(t, lab.WireGuardPackage)
	a, b := topo.A.StartStock(binary), topo.B.StartStock(binary)
	return []*lab.Process{a.Process, b.Process}, func() { a.Stop(); b.Stop() }
}

// startStock1420 leaves the TUN device the MTU that wireguard-go gives it.
func startStock1420(t *testing.T, topo *lab.Topology) ([]*lab.Process, func()) {
	mtu := topo.A.MTU
	setMTU(topo, 1420)
	defer setMTU(topo, mtu)
	return startStock(t, topo)
}

// startSluice starts the gateways of this repository, or of an earlier commit.
// change may alter what they are configured from, args are further arguments.
func startSluice(t *testing.T, topo *lab.Topology, binary string, change func(*lab.Manifests), args ...string) ([]*lab.Process, func()) {
	t.Helper()
	if *links != 0 {
		args = append(args, "--path-mtu-discovery")
	}
	args = slices.Concat(args, strings.Fields(*gatewayArgs), profilerArgs())
	var gateways []*lab.Gateway
	var processes []*lab.Process
	for _, c := range []*lab.Cluster{topo.A, topo.B} {
		manifests := c.Manifests()
		if change != nil {
			change(manifests)
		}
		g := c.StartGateway(binary, lab.GatewayOptions{Manifests: manifests, Args: args})
		gateways, processes = append(gateways, g), append(processes, g.Process)
	}
	for _, g := range gateways {
		g.WaitConnected(lab.Patience)
		if *links != 0 {
			lab.Eventually(t, lab.Patience, "packets as large as the path carries", func() error {
				if got := g.Status().DataPlane.PathMTU; got != topo.A.MTU {
					return fmt.Errorf("they have up to %d bytes", got)
				}
				return nil
			})
		}
	}
	return processes, func() { stopAll(t, processes) }
}

// changedUnderlay starts gateways with another file of package underlay, each without one of the things that it does for
// speed.
func changedUnderlay(file string, edits ...[2]string) func(*testing.T, *lab.Topology) ([]*lab.Process, func()) {
	return func(t *testing.T, topo *lab.Topology) ([]*lab.Process, func()) {
		return startSluice(t, topo, buildUnderlay(t, file, edits...), nil)
	}
}

func buildUnderlay(t *testing.T, file string, edits ...[2]string) (gateway string) {
	t.Helper()
	return lab.BuildChanged(t, lab.GatewayPackage, lab.Change{File: source.Path("underlay", file), Edits: edits})
}

// startSluiceTUN has nodes without kernel tunnels: their agents carry the packets.
func startSluiceTUN(t *testing.T, topo *lab.Topology) ([]*lab.Process, func()) {
	t.Helper()
	fabric := lab.Build(t, lab.FabricPackage)
	nodes := []*lab.Node{topo.A.Nodes[0], topo.B.Nodes[0]}
	var agents []*lab.Process
	for _, n := range nodes {
		n.RemoveTunnel()
		agent := n.StartFabric(fabric, lab.FabricOptions{Link: "tun", Args: profilerArgs()})
		agent.Ready(lab.Patience)
		agents = append(agents, agent.Process)
	}
	gateways, stop := startSluice(t, topo, lab.Build(t, lab.GatewayPackage), nil)
	return gateways, func() {
		stop()
		stopAll(t, agents)
		for _, n := range nodes {
			if out, err := n.Cleanup(fabric); err != nil {
				t.Errorf("fabric cleanup: %v: %s", err, out)
			}
			n.RestoreTunnel()
		}
	}
}

func stopAll(t *testing.T, processes []*lab.Process) {
	t.Helper()
	for _, p := range processes {
		if _, err := p.Stop(lab.Patience); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}
