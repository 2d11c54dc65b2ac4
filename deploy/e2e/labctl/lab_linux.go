package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/deploy/e2e/lab"
)

const (
	// pidFile names the process that holds the lab.
	pidFile = "/run/sluice-lab.pid"
	// upTime bounds the building, compilation of the gateway included.
	upTime = 3 * time.Minute
	// downTime bounds the removal.
	downTime = 20 * time.Second
)

// holder returns the process that holds the lab, 0 when there is none.
func holder() int {
	b, err := os.ReadFile(pidFile)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	// The process ID may have been given to another program since.
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.HasSuffix(string(cmdline), "labctl\x00hold\x00") {
		return 0
	}
	return pid
}

// up starts a process that holds the lab and passes on what it says until the
// lab is ready.
func up() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	if pid := holder(); pid != 0 {
		return fmt.Errorf("a lab is up already (process %d): labctl down removes it", pid)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ready, holderEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "hold")
	cmd.Args[0] = "labctl"
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{holderEnd} // 3: closed when the lab is ready
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	holderEnd.Close()
	_ = ready.SetReadDeadline(time.Now().Add(upTime))
	answer := make([]byte, 1)
	if n, err := ready.Read(answer); n == 0 {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return fmt.Errorf("the lab did not come up: %w", err)
	}
	return cmd.Process.Release()
}

// down ends the process that holds the lab, which removes it.
func down() error {
	pid := holder()
	if pid == 0 {
		return errors.New("no lab is up")
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	for end := time.Now().Add(downTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return nil
		}
	}
	return fmt.Errorf("the lab (process %d) did not end within %v", pid, downTime)
}

// hold builds the lab, says so, and keeps it until a signal comes.
func hold() (err error) {
	t := &session{}
	defer t.end()
	defer func() {
		if r := recover(); r != nil {
			if _, ours := r.(failure); !ours {
				panic(r)
			}
			err = errors.New("the lab could not be built")
		}
	}()
	stop := make(chan os.Signal, 1)
	l := lab.New(t, "iperf3", "curl", "traceroute")
	topo := l.NewTopology(
		[]lab.NodeSpec{{Agent: true}, {Agent: true}},
		[]lab.NodeSpec{{Agent: true}},
	)
	t.Cleanup(lab.RemoveBuilt)
	gateway, fabric := lab.Build(t, lab.GatewayPackage), lab.Build(t, lab.FabricPackage)
	a, b := topo.A.StartGateway(gateway, lab.GatewayOptions{}), topo.B.StartGateway(gateway, lab.GatewayOptions{})
	agents := []*lab.Fabric{
		topo.A.Nodes[0].StartFabric(fabric, lab.FabricOptions{}),
		topo.A.Nodes[1].StartFabric(fabric, lab.FabricOptions{Link: "tun"}),
		topo.B.Nodes[0].StartFabric(fabric, lab.FabricOptions{}),
	}
	for _, f := range agents {
		f.Ready(30 * time.Second)
	}
	a.WaitConnected(30 * time.Second)
	b.WaitConnected(30 * time.Second)
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
		return err
	}
	defer os.Remove(pidFile)
	explain(topo, gateway, fabric, a, b, agents)

	// The lab itself would end the process on a signal, without the rest.
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	if _, err := os.NewFile(3, "ready").Write([]byte{1}); err != nil {
		return err
	}
	<-stop
	return nil
}

// explain says what there is and how to look at it.
func explain(topo *lab.Topology, gateway, fabric string, a, b *lab.Gateway, agents []*lab.Fabric) {
	in := func(h *lab.Host) string { return "ip netns exec " + h.Namespace() }
	fmt.Printf(`Two clusters, both %s, are joined:

  a: pods %s (its node's link is what the kernel has) and %s (a TUN device); sees b as %s
  b: pod  %s (what the kernel has); sees a as %s

  %s ping %s
  %s traceroute -n %s
  %s %s status --admin-socket %s
  %s %s status --admin-socket %s
`,
		lab.PodCIDR,
		topo.A.Nodes[0].PodAddr, topo.A.Nodes[1].PodAddr, topo.A.RemotePod,
		topo.B.Nodes[0].PodAddr, topo.B.RemotePod,
		in(topo.A.Nodes[0].Pod), topo.A.Remote(topo.B.Nodes[0].PodAddr),
		in(topo.B.Nodes[0].Pod), topo.B.Remote(topo.A.Nodes[1].PodAddr),
		in(topo.A.Gateway), gateway, a.AdminSocket,
		in(topo.B.Gateway), gateway, b.AdminSocket)
	for _, f := range agents {
		fmt.Printf("  %s %s status --admin-socket %s\n", in(f.Node.Host), fabric, f.AdminSocket)
	}
	fmt.Printf("\nConfiguration of the gateways: %s\n                               %s\n", a.Manifests, b.Manifests)
}
