package kubernetes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/admin/trace"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/lab"
)

// testCapture captures the traffic of a peering with `liqoctl network capture`, which
// asks the gateway's pod through the API server.
func testCapture(t *testing.T, w *world) {
	w.connect(t)
	f := newFaults(t, w)
	paths := f.paths(t)
	startStream(t, paths[0])
	c := &capturing{world: w, peering: w.peering(), faults: f, dir: t.TempDir(), at: paths[0].at}

	t.Run("every point", c.everyPoint)
	t.Run("the remote end", c.remoteEnd)
	t.Run("into a pipe", c.pipe)
	t.Run("Ctrl-C", c.interrupt)
	t.Run("a client that is killed", c.kill)
	t.Run("drops", c.drops)
	t.Run("a file of its own", c.ownFile)
	t.Run("refusals", c.refusals)
	lab.Eventually(t, patience, "no capture is left", c.idle)
	t.Run("trace", c.trace) // at last, as it takes packets elsewhere
}

// capturing is a peering with traffic whose packets are captured in a.
type capturing struct {
	*world
	peering
	faults *faults
	dir    string
	at     netip.Addr // of the pod that is talked to
}

// args are a command line for the gateway of a.
func (c *capturing) args(args ...string) []string {
	return append([]string{"network", "capture", "--kubeconfig", c.a.Kubeconfig}, args...)
}

// idle tells whether the gateways capture nothing.
func (c *capturing) idle() error {
	for _, e := range c.ends() {
		out, err := e.Kubectl("-n", e.namespace, "exec", "deployment/gw-"+e.gateway, "--", "gateway", "status")
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Captures" && f[1] != "0" {
				return fmt.Errorf("%s captures in the gateway of %s", f[1], e.Name)
			}
		}
	}
	return nil
}

// tshark returns fields of the packets of a file, one line each.
func tshark(t *testing.T, file string, args ...string) (lines []string) {
	t.Helper()
	cmd := exec.Command("tshark", append([]string{"-r", file}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	switch {
	case err != nil:
		t.Fatalf("tshark: %v: %s", err, &errs)
	case strings.Contains(errs.String(), "cut short"), strings.Contains(errs.String(), "damaged"):
		t.Errorf("tshark: %s", &errs)
	}
	return slices.Collect(strings.Lines(string(out)))
}

// everyPoint looks at one stream at all points: with the addresses and in the wrapping
// of each.
func (c *capturing) everyPoint(t *testing.T) {
	file := filepath.Join(c.dir, "all.pcapng")
	// 400 packets are a quarter of a second: on a busy machine the stream may just wait for something to be sent again.
	lab.Eventually(t, patience, "the stream flows while packets are captured", func() error {
		_, errs := c.liqoctl(t, c.args(c.b.Name, "--point", "all", "-w", file, "--force", "-c", "400", "--duration", "60s")...)
		if want := "INFO   400 packets captured, 0 lost, "; !strings.Contains(errs, want) || !strings.Contains(errs, " in "+file+": 400 packets are captured") {
			t.Errorf("no %q in\n%s", want, errs)
		}
		if len(tshark(t, file, "-Y", "tcp && ip.dst == "+c.at.String())) == 0 {
			return fmt.Errorf("no packet is for %s: %s", c.at, strings.Join(tshark(t, file, "-z", "conv,ip", "-q"), ""))
		}
		return nil
	})
	// To the server: its own address may be the client's too, in the other cluster.
	toServer := `frame.packet_flags_direction == 2 && ip.dst == ` + c.faults.servers[0].Addr.String()
	for _, tt := range []struct{ filter, protocols, name string }{
		{"ip.dst == " + c.at.String(), "eth:ethertype:ip:tcp", "node:"},
		{toServer + ` && frame.interface_name == "translated"`, "raw:ip:tcp", "translated"},
		{toServer + ` && frame.interface_name == "tunnel"`, "raw:ip:tcp", "tunnel"},
		{"wg.type == 4", "raw:ip:udp:wg", "wire"},
	} {
		lines := tshark(t, file, "-Y", "("+tt.filter+") && (tcp || wg)", "-T", "fields", "-E", "separator=|", "-e", "frame.protocols", "-e", "frame.interface_name", "-e", "frame.packet_flags_direction")
		if len(lines) == 0 {
			t.Errorf("no packets for %s", tt.filter)
		}
		for _, line := range lines {
			f := strings.Split(strings.TrimSpace(line), "|")
			if len(f) != 3 || !strings.HasPrefix(f[0], tt.protocols) || !strings.HasPrefix(f[1], tt.name) || tt.name != "wire" && f[2] != "0x00000002" {
				t.Errorf("%s: %s, want %s at %s, outbound", tt.filter, line, tt.protocols, tt.name)
				break
			}
		}
		t.Logf("%d packets for %s", len(lines), tt.filter)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// remoteEnd captures in the gateway of b.
func (c *capturing) remoteEnd(t *testing.T) {
	file := filepath.Join(c.dir, "remote.pcapng")
	c.liqoctl(t, c.both("network", "capture", c.b.Name, "--remote", "--point", "tunnel", "--filter", "tcp", "-w", file, "-c", "20")...)
	src := c.faults.clients[0].Addr.String() // in the tunnel pods have their own addresses
	if n := len(tshark(t, file, "-Y", "tcp && (ip.src == "+src+" || ip.dst == "+src+")")); n != 20 {
		t.Errorf("%d of 20 packets are of pod %s", n, src)
	}
	c.refuses(t, []string{`this cluster is "` + c.b.Name + `", not "naples"`}, c.both("network", "capture", "naples", "--remote")...)
	c.refuses(t, []string{"--remote: name the remote cluster with --remote-kubeconfig"}, c.args(c.b.Name, "--remote")...)
}

// pipe shows packets as they come. The only peer needs no name.
func (c *capturing) pipe(t *testing.T) {
	admin := c.newShell(c.a, c.dir)
	out := admin.ok(t, "liqoctl network capture -w - -c 50 --point node,tunnel | tshark -r - -Y tcp -T fields -e frame.interface_name")
	if n := strings.Count(out, "\n") + 1; n < 40 || !strings.Contains(out, "tunnel") {
		t.Errorf("%d of 50 packets are TCP:\n%s", n, out)
	}
}

// begin starts a capture and waits until packets are in the file.
func (c *capturing) begin(t *testing.T, file string) (cmd *exec.Cmd, errs *bytes.Buffer) {
	t.Helper()
	cmd, errs = c.command(c.args(c.b.Name, "--point", "node", "-w", file)...), new(bytes.Buffer)
	cmd.Stderr = errs
	if err := c.WAN.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, patience, "packets come", func() error {
		if info, err := os.Stat(file); err != nil || info.Size() < 4000 {
			return errors.Join(errors.New("not yet"), err)
		}
		return nil
	})
	return cmd, errs
}

// interrupt ends a capture with Ctrl-C: the file is complete, nothing is left in the
// gateway.
func (c *capturing) interrupt(t *testing.T) {
	file := filepath.Join(c.dir, "interrupted.pcapng")
	cmd, errs := c.begin(t, file)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	n := len(tshark(t, file))
	if want := fmt.Sprintf("INFO   %d packets captured, 0 lost, ", n); err != nil || !strings.Contains(errs.String(), want) || !strings.Contains(errs.String(), ": interrupted") {
		t.Errorf("%v: no %q in\n%s", err, want, errs)
	}
	lab.Eventually(t, patience, "the gateway ends it", c.idle)
}

// kill leaves the gateway with a client that is gone without a word.
func (c *capturing) kill(t *testing.T) {
	file := filepath.Join(c.dir, "killed.pcapng")
	cmd, _ := c.begin(t, file)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	lab.Eventually(t, patience, "the gateway ends it", c.idle)
	t.Logf("%d packets are in the file", len(tshark(t, file)))
}

// drops: who follows what is dropped is told of a packet for an address that nobody has,
// by the gateway that drops it.
func (c *capturing) drops(t *testing.T) {
	var list networkingv1beta1.ConfigurationList
	if err := c.a.Client().List(t.Context(), &list, ofPeer(c.b.Name)); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d Configurations, %v", len(list.Items), err)
	}
	called, err := list.Items[0].Status.Remote.CIDR.External.List[0].Prefix()
	own, err2 := list.Items[0].Spec.Remote.CIDR.External.List[0].Prefix()
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	host := netip.AddrFrom4([4]byte{0, 0, 231, 7})
	client, to := c.faults.clients[0], through(called, host)
	file, err := os.Create(filepath.Join(c.dir, "drops.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := c.command(c.both("network", "drops", "-f", "--reason", "NoAddress")...)
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = file, &errs
	if err := c.WAN.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("(remote) %s  DropNoAddress             from the peer  UDP %s:4242 > %s:4243, 33 bytes", c.a.Name, client.Addr, through(own, host))
	lab.Eventually(t, patience, "the drop is told of", func() error {
		conn, err := client.ListenPacket("udp4", ":4242")
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.WriteTo([]byte("hello"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 4243))); err != nil {
			return err
		}
		told, err := os.ReadFile(file.Name())
		if !strings.Contains(string(told), want) || !strings.Contains(string(told), "What to do: create an IP object for the host") {
			return errors.Join(fmt.Errorf("no %q in %s", want, told), err)
		}
		return nil
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v: %s", err, &errs)
	}
	out, _ := c.liqoctl(t, c.both("network", "drops", "--reason", "NoAddress", "-o", "json")...)
	if want := fmt.Sprintf(`{"cluster":"remote","peer":"%s",`, c.a.Name); !strings.HasPrefix(out, want) || !strings.Contains(out, `"destination":"`+through(own, host).String()+`"`) {
		t.Errorf("got %s", out)
	}
	c.refuses(t, []string{`unknown reason "Naples"`}, c.both("network", "drops", "--reason", "Naples")...)
	c.refuses(t, []string{"pods/exec"}, "network", "drops", c.b.Name, "--kubeconfig", c.looker(t, c.client), "-n", c.client.namespace)
}

// trace shows the path of a packet through both clusters, and where a rule of somebody
// else takes it elsewhere.
func (c *capturing) trace(t *testing.T) {
	client, server := c.faults.clients[0], c.faults.servers[0]
	args := c.both("network", "trace", appNamespace+"/"+client.Name, c.at.String()+":80")
	out, _ := c.liqoctl(t, args...)
	for _, want := range []string{
		"(local) " + appNamespace + "/" + client.Name, "(local) " + client.Node.Name, " > " + c.at.String() + "\n",
		"(remote) " + appNamespace + "/" + server.Name, " > " + server.Addr.String() + "\n", "\nReturn path:\n", "\nNothing stops the packet.\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "unknown: ") {
		t.Errorf("an administrator can see everything:\n%s", out)
	}
	t.Log(out)
	c.watched(t)
	nobody := server.Addr
	for range 90 {
		nobody = nobody.Next()
	}
	c.refuses(t, []string{"the packet stops: no pod in this cluster has the address " + nobody.String()},
		c.both("network", "trace", appNamespace+"/"+client.Name, c.remote(t, c.a, nobody).String())...)
	c.refuses(t, []string{"the packet stops: 192.0.2.1 is not in a CIDR of any peer"}, c.both("network", "trace", appNamespace+"/"+client.Name, "192.0.2.1")...)

	called, err := remoteCIDR(t.Context(), c.a, c.b.Name)
	if err != nil {
		t.Fatal(err)
	}
	rule := []string{"rule", "add", "priority", "500", "to", called.String(), "unreachable"}
	client.Node.Host.Run(append([]string{"ip"}, rule...)...)
	defer func() {
		rule[1] = "del"
		client.Node.Host.Run(append([]string{"ip"}, rule...)...)
	}()
	lab.Eventually(t, patience, "the trace names the rule", func() error {
		out, errs, err := c.run(t.Context(), c.command(args...))
		if err == nil || !strings.Contains(errs, "the packet stops: TrafficDiverted") || !strings.Contains(out, "500: from all to "+called.String()) {
			return fmt.Errorf("%v: %s%s", err, out, errs)
		}
		return nil
	})
}

// watched traces packets that pass now: gateways and nodes see them, until a firewall of
// a node drops them there.
func (c *capturing) watched(t *testing.T) {
	client := c.faults.clients[0]
	startPings(t, c.faults.paths(t)[0])
	follow := func() (way trace.Way, err error) {
		out, _, err := c.run(t.Context(), c.command(c.both("network", "trace", appNamespace+"/"+client.Name, c.at.String(), "--live", "3s", "-o", "json")...))
		return way, cmp.Or(json.Unmarshal([]byte(out), &way), err)
	}
	lab.Eventually(t, patience, "gateways and nodes have seen packets", func() error {
		way, err := follow()
		nodes := 0
		for _, h := range slices.Concat(way.There, way.Back) {
			counts := make(map[string]uint64)
			for _, s := range h.Live {
				counts[s.Point] = s.Packets
			}
			if h.Kind == "gateway" && counts["node"] == 0 || h.Kind == "node" && (counts["pod"] == 0 || counts["link"] == 0) || h.NotCounted != "" {
				return fmt.Errorf("%s %s in the %s cluster: seen %v, not counted: %s", h.Kind, h.Name, h.Cluster, counts, h.NotCounted)
			}
			if h.Kind == "node" {
				nodes++
			}
		}
		if nodes != 4 {
			return fmt.Errorf("%d nodes on the way there and back: %w", nodes, err)
		}
		return err
	})

	client.Node.Host.Run("nft", "add table inet naples; add chain inet naples forward { type filter hook forward priority 0; }; add rule inet naples forward ip daddr "+c.at.String()+" drop")
	lab.Eventually(t, patience, "the trace stops at a firewall of the node", func() error {
		way, _ := follow() // whose exit code is 1
		stop := way.Stop()
		if stop == nil || stop.Kind != "node" || stop.Cluster != "local" || !strings.HasSuffix(stop.Problem.Message, "matching packets were seen at point pod of the local node but none here") {
			return fmt.Errorf("%+v", way.There)
		}
		return nil
	})
	client.Node.Host.Run("nft", "delete table inet naples")
	if left := client.Node.Host.Run("nft", "list", "tables"); strings.Contains(left, "sluice-fabric-count") {
		t.Errorf("left behind on the node: %s", left)
	}
}

// ownFile: without -w the file is named after peer and time.
func (c *capturing) ownFile(t *testing.T) {
	dir := t.TempDir()
	cmd := c.command(c.args(c.b.Name, "-c", "20")...)
	cmd.Dir = dir
	if out, errs, err := c.run(t.Context(), cmd); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	names, err := filepath.Glob(filepath.Join(dir, c.b.Name+"-20??????-??????.pcapng"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%v, %v", names, err)
	}
	if len(tshark(t, names[0])) == 0 {
		t.Error("no packets")
	}
}

// refusals say what is wrong, and leave no file.
func (c *capturing) refusals(t *testing.T) {
	file := filepath.Join(c.dir, "refused.pcapng")
	c.refuses(t, []string{"the gateway refuses: --filter: column 10: port needs a number", "tcp port http\n"}, c.args(c.b.Name, "-w", file, "--filter", "tcp port http")...)
	c.refuses(t, []string{`the gateway refuses: --point: there is no point "pod": the points are node,`}, c.args(c.b.Name, "-w", file, "--point", "pod")...)
	c.refuses(t, []string{`the gateway refuses: --max-size: "many" is not a size`}, c.args(c.b.Name, "-w", file, "--max-size", "many")...)
	c.refuses(t, []string{`there is no peering with "naples": this cluster's are with ` + c.b.Name}, c.args("naples", "-w", file)...)
	c.refuses(t, []string{"pods/exec"}, "network", "capture", c.b.Name, "-w", file, "--kubeconfig", c.looker(t, c.client), "-n", c.client.namespace)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("there is a file: %v", err)
	}
}
