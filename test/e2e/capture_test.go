package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/source"
)

// captureChecks capture in a gateway between real kernels, and compare what it says
// passed with what tcpdump sees on the gateway's interfaces.
var captureChecks = []check{
	{"capture of pings at every point", testCapturePings, false},
	{"capture of what is dropped", testCaptureDrops, false},
	{"capture of a stream", testCaptureStream, false},
}

// capture starts a capture in the gateway of A. The returned function ends it and
// returns the file.
func (w *world) capture(t *testing.T, args ...string) (end func() (file string)) {
	t.Helper()
	source.NeedPrograms(t, "tshark")
	file := filepath.Join(t.TempDir(), "capture.pcapng")
	p := w.A.Gateway.Start(lab.Program{Name: "gateway capture", Args: append([]string{
		lab.Build(t, lab.GatewayPackage), "capture", "--admin-socket", w.gatewayA.AdminSocket, "-w", file,
	}, args...)})
	lab.Eventually(t, lab.Patience, "the capture", func() error {
		if !strings.Contains(w.gatewayA.StatusText(), "1 under way") {
			return fmt.Errorf("not yet: %s", p.Log())
		}
		return nil
	})
	return func() string {
		t.Helper()
		if _, err := p.Stop(lab.Patience); err != nil || !strings.Contains(p.Log(), " 0 lost") {
			t.Errorf("gateway capture: %v: %s", err, p.Log())
		}
		t.Logf("gateway capture: %s", strings.TrimSpace(p.Log()))
		return file
	}
}

// tcpdump writes what passes a gateway's interface to a file.
func tcpdump(t *testing.T, h *lab.Host, device string) (end func() (file string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), device+".pcap")
	p := h.Start(lab.Program{Name: "tcpdump", Args: []string{"tcpdump", "-i", device, "--immediate-mode", "-U", "-w", file, "-Z", "root", "udp"}})
	lab.Eventually(t, lab.Patience, "tcpdump", func() error {
		if !strings.Contains(p.Log(), "listening on") {
			return fmt.Errorf("it said %s", p.Log())
		}
		return nil
	})
	return func() string {
		t.Helper()
		if _, err := p.Stop(lab.Patience); err != nil {
			t.Errorf("tcpdump: %v: %s", err, p.Log())
		}
		return file
	}
}

// fields are fields of the packets of a file that a display filter chooses, by
// packet and sorted.
func fields(t *testing.T, file, filter, names string, more ...string) (packets []string) {
	t.Helper()
	args := []string{"tshark", "-n", "-r", file, "-Y", filter, "-T", "fields", "-E", "separator= "}
	for name := range strings.FieldsSeq(names) {
		args = append(args, "-e", name)
	}
	cmd := exec.Command(args[0], append(args[1:], more...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, &errs)
	}
	packets = slices.Collect(strings.Lines(string(out)))
	slices.Sort(packets)
	return packets
}

// pingSize is the payload of the pings here: nothing else is as long. pingLen is the
// length of their IP packets, pingMessage that of a UDP datagram with one in WireGuard:
// padded to a multiple of 16, with a header and a tag of 16 bytes.
const (
	pingSize    = 321
	pingLen     = 20 + 8 + pingSize
	pingMessage = 8 + 16 + (pingLen+15)/16*16 + 16
)

func testCapturePings(t *testing.T, w *world) {
	end := w.capture(t, "--point", "all", "-s", "0")
	wan, eth := tcpdump(t, w.A.Gateway, "wan0"), tcpdump(t, w.A.Gateway, "eth0")
	const n = 10
	to, to6 := w.fromA(w.B1.PodAddr), w.fromA(w.B1.PodAddr6)
	for _, node := range []*lab.Node{w.A1, w.A2} {
		wantAnswers(t, node.Pod, to, n, fmt.Sprintf("-s %d", pingSize))
	}
	wantAnswers(t, w.A1.Pod, to6, n, fmt.Sprintf("-s %d", pingSize))
	file := end()
	onWAN, onLAN := wan(), eth()

	pod, real := w.A2.PodAddr.String(), w.B1.PodAddr.String() // A1 and B1 have the same
	for _, tt := range []struct {
		at, out, in string // what goes to the peer and what comes from it
	}{
		{"node:node2", "eth:ethertype:ip:icmp:data " + pod + " " + to.String(), "eth:ethertype:ip:icmp:data " + to.String() + " " + pod},
		{"translated", "raw:ip:icmp:data " + pod + " " + real, "raw:ip:icmp:data " + to.String() + " " + pod},
		{"tunnel", "raw:ip:icmp:data " + pod + " " + real, "raw:ip:icmp:data " + real + " " + pod},
	} {
		where := fmt.Sprintf(`frame.interface_name == %q && icmp && ip.len == %d && ip.addr == %s`, tt.at, pingLen, pod)
		got := fields(t, file, where, "frame.packet_flags_direction frame.protocols ip.src ip.dst")
		want := append(repeated(n, "0x00000001 "+tt.in+"\n"), repeated(n, "0x00000002 "+tt.out+"\n")...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.at, diff)
		}
	}
	if got := fields(t, file, fmt.Sprintf("frame.interface_name == \"tunnel\" && icmpv6.type == 128 && ipv6.src == %s", w.A1.PodAddr6), "ipv6.dst"); len(got) != n {
		t.Errorf("%d pings over IPv6 in the tunnel", len(got))
	}

	// On the wire: the same datagrams between the same sockets as tcpdump sees.
	names := "ip.src ip.dst udp.srcport udp.dstport udp.length wg.type wg.receiver wg.counter"
	wire := fmt.Sprintf("udp.length == %d && wg", pingMessage)
	got, want := fields(t, file, `frame.interface_name == "wire" && `+wire, names), fields(t, onWAN, wire, names)
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 4*n {
		t.Errorf("%d datagrams on the wire; -tcpdump +captured:\n%s", len(got), diff)
	}
	// Its checksums are right, although nobody but we made them.
	bad := fields(t, file, `udp.checksum.status == "Bad" || ip.checksum.status == "Bad"`, "frame.number frame.interface_name",
		"-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE")
	if len(bad) > 0 {
		t.Errorf("bad checksums: %v", bad)
	}
	// At the nodes: the same frames as within what tcpdump sees.
	names = "eth.src eth.dst ip.src ip.dst icmp.ident icmp.seq"
	for node, decode := range map[*lab.Node]string{w.A1: "vxlan", w.A2: "geneve"} {
		inner := fields(t, file, fmt.Sprintf(`frame.interface_name == "node:%s" && icmp && ip.len == %d`, node.Name, pingLen), names, "-E", "occurrence=l")
		outer := fields(t, onLAN, fmt.Sprintf("ip.addr == %s && icmp && ip.len == %d", node.Underlay, pingLen), names,
			"-E", "occurrence=l", "-d", "udp.port==6091,"+decode)
		if diff := cmp.Diff(outer, inner); diff != "" || len(inner) != 2*n {
			t.Errorf("%d frames of %s; -tcpdump +captured:\n%s", len(inner), node.Name, diff)
		}
	}
}

func repeated(n int, s string) []string { return slices.Repeat([]string{s}, n) }

// testCaptureDrops: the reason is in the comment.
func testCaptureDrops(t *testing.T, w *world) {
	end := w.capture(t, "--point", "dropped", "-s", "0")
	w.A1.Pod.Ping(w.fromA(w.B1.PodAddr), "-c 2 -i 0.1 -W 1 -t 2") // the node takes one hop, the gateway has none left
	file := end()
	got := fields(t, file, "icmp.type == 8", "frame.interface_name frame.comment ip.src")
	want := repeated(2, "dropped:node1 DropHopLimit "+w.A1.PodAddr.String()+"\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// testCaptureStream: a stream at full speed is well-formed at every point, and of
// nothing that is in the file is anything wrong.
func testCaptureStream(t *testing.T, w *world) {
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	end := w.capture(t, "--point", "node,translated,tunnel,wire", "--max-size", "500MB")
	const sent = 12 << 20
	if _, err := w.A2.Pod.Iperf(lab.Iperf{To: w.fromA(w.B1.PodAddr), Amount: "12M", Bitrate: "200M"}); err != nil {
		t.Fatal(err)
	}
	file := end()
	first := uint64(0)
	for _, at := range []string{"node:node2", "translated", "tunnel"} {
		lines := fields(t, file, fmt.Sprintf("frame.interface_name == %q && tcp.dstport == 5201 && tcp.len > 1000", at), "tcp.len")
		total := uint64(0)
		for _, l := range lines {
			n, err := strconv.ParseUint(strings.TrimSpace(l), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			total += n
		}
		// Small segments are not counted, and TCP may send some again. At its end iperf3 may
		// throw away what still waits in its socket.
		if total < sent/2 || total > sent*12/10 {
			t.Errorf("%s: %d bytes in %d packets, iperf3 was to send %d", at, total, len(lines), sent)
		}
		if first == 0 {
			first = total
		}
		if total < first*9/10 || total > first*11/10 {
			t.Errorf("%s: %d bytes in %d packets, %d at the node", at, total, len(lines), first)
		}
		t.Logf("%s: %d bytes in %d packets", at, total, len(lines))
	}
	if bad := fields(t, file, `_ws.malformed && frame.cap_len == frame.len`, "frame.number frame.interface_name"); len(bad) > 0 {
		t.Errorf("malformed: %v", bad)
	}
}
