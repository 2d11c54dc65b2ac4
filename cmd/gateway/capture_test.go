package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"
	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane/capture"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/pcapng"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/test/testlog"
)

// captureBench is a gateway with one node, which a test plays.
type captureBench struct {
	*workspace
	t    *testing.T
	node *net.UDPConn
	log  testlog.Buffer
	// end ends the gateway and waits for it.
	end func()
}

// newCaptureBench starts a gateway without peer whose node is at 127.0.0.77.
func newCaptureBench(t *testing.T) *captureBench {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	b := &captureBench{workspace: newWorkspace(t), t: t}
	b.edit(t, "nodes.yml", "172.18.0.2", "127.0.0.77")
	var err error
	b.node, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 77)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.node.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int, 1)
	go func() { done <- run(ctx, b.args, io.Discard, &b.log) }()
	ended := false
	b.end = func() {
		if !ended {
			ended = true
			cancel()
			if code := <-done; code != 0 {
				t.Errorf("the gateway's exit code is %d:\n%s", code, b.log.String())
			}
		}
	}
	t.Cleanup(b.end)
	get(t, "http://"+b.health+"/healthz")
	return b
}

// ping sends an echo request to the gateway, as the node does.
func (b *captureBench) ping() {
	b.send(dataplanetest.Build(dataplanetest.Packet{
		Proto: packet.ProtoICMP, ICMPType: 8, Src: netip.MustParseAddrPort("10.80.0.2:1"), Dst: netip.MustParseAddrPort("10.80.0.1:0"), Payload: make([]byte, 500),
	}))
}

// send sends an IP packet in Geneve.
func (b *captureBench) send(ip []byte) {
	b.t.Helper()
	mac := neighbor.MAC{2, 0, 0, 0, 0, 1}
	d := packettest.Geneve(7, packettest.TransparentEthernet, packettest.Ethernet(mac, mac, neighbor.EtherTypeIPv4, ip))
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(b.geneve))
	if _, err := b.node.WriteToUDPAddrPort(d, to); err != nil {
		b.t.Fatal(err)
	}
}

// captureRun is a run of "gateway capture".
type captureRun struct {
	stdout, stderr testlog.Buffer
	cancel         func()
	done           chan error
}

// capture starts to capture to stdout and waits until it is under way. The gateway
// asks a second node for its address all the time; its ARP is left out.
func (b *captureBench) capture(args ...string) *captureRun {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &captureRun{cancel: cancel, done: make(chan error, 1)}
	go func() {
		r.done <- dispatch(ctx, append([]string{"capture", "--admin-socket", b.socket, "-w", "-", "--filter", "ip"}, args...), &r.stdout, &r.stderr)
	}()
	b.t.Cleanup(cancel)
	eventually(b.t, "the capture begins", func() bool { return r.stdout.String() != "" })
	return r
}

// wait waits for the end and returns the packets.
func (r *captureRun) wait(t *testing.T) []capturedPacket {
	t.Helper()
	select {
	case err := <-r.done:
		if err != nil {
			t.Errorf("capture: %v", err)
		}
	case <-time.After(controlplanetest.Patience):
		t.Fatal("it does not end")
	}
	return readCapture(t, []byte(r.stdout.String()))
}

// capturedPacket is a packet of a file, for comparing.
type capturedPacket struct {
	Interface, Direction, Comment string
	Length, Captured              int
}

func readCapture(t *testing.T, file []byte) (out []capturedPacket) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, ci, o, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		i, err := r.Interface(ci.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		p := capturedPacket{Interface: i.Name, Direction: "in", Length: ci.Length, Captured: ci.CaptureLength}
		if o.Flags.Direction == pcapgo.NgEpbFlagDirectionOutbound {
			p.Direction = "out"
		}
		if len(o.Comments) > 0 {
			p.Comment = o.Comments[0]
		}
		if age := time.Since(ci.Timestamp); age < 0 || age > time.Minute {
			t.Errorf("packet of %v", ci.Timestamp)
		}
		out = append(out, p)
	}
}

// eventually waits for something that happens soon.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(controlplanetest.Patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

const echoLen = 14 + 20 + 8 + 500

// TestCapture: what a node sends and gets is in the file, with its interface, and
// what is dropped with the reason.
func TestCapture(t *testing.T) {
	b := newCaptureBench(t)
	r := b.capture("--point", "node", "-c", "3", "-s", "100") // elsewhere the gateway's own pings are seen, too
	b.ping()
	eventually(t, "the answer", func() bool { return b.report(t).Packets >= 2 })
	b.send(dataplanetest.Build(dataplanetest.Packet{Src: netip.MustParseAddrPort("10.243.1.1:1"), Dst: netip.MustParseAddrPort("8.8.8.8:2")}))
	got := r.wait(t)
	want := []capturedPacket{
		{Interface: "node:worker-1", Direction: "out", Length: echoLen, Captured: 100},
		{Interface: "node:worker-1", Direction: "in", Length: echoLen, Captured: 100},
		{Interface: "node:worker-1", Direction: "out", Length: 42, Captured: 42},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if s := r.stderr.String(); !strings.HasPrefix(s, "3 packets captured, 0 lost, ") || !strings.HasSuffix(s, "; 3 packets are captured\n") {
		t.Errorf("it said %q", s)
	}
	r = b.capture("--point", "dropped", "-c", "1")
	b.send(dataplanetest.Build(dataplanetest.Packet{Src: netip.MustParseAddrPort("10.243.1.1:1"), Dst: netip.MustParseAddrPort("8.8.8.8:2")}))
	want = []capturedPacket{{Interface: "dropped:worker-1", Direction: "out", Comment: "DropNoMapping", Length: 42, Captured: 42}}
	if diff := cmp.Diff(want, r.wait(t)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	b.end()
	for _, want := range []string{
		`msg="capture begins" points=node filter=ip snaplen=100 count=3 size=100000000 duration=5m0s`,
		`msg="capture ends" points=node filter=ip why="3 packets are captured" packets=3 `,
	} {
		if !strings.Contains(b.log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, b.log.String())
		}
	}
}

// report is what the gateway tells of captures.
func (b *captureBench) report(t *testing.T) capture.Status {
	t.Helper()
	body, err := program.FetchStatus(t.Context(), b.socket)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	return r.DataPlane.Captures
}

func TestCaptureLimits(t *testing.T) {
	b := newCaptureBench(t)
	t.Run("duration", func(t *testing.T) {
		r := b.capture("--point", "node", "--duration", "100ms")
		b.ping()
		if r.wait(t); !strings.HasSuffix(r.stderr.String(), "; 100ms are over\n") {
			t.Errorf("it said %q", r.stderr.String())
		}
	})
	t.Run("size", func(t *testing.T) {
		r := b.capture("--point", "node", "-s", "0", "--max-size", "20kB")
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 100 {
				b.ping()
				time.Sleep(time.Millisecond)
			}
		})
		n := len(r.wait(t))
		wg.Wait()
		if size := len(r.stdout.String()); size > 20_000 || size < 18_000 || n < 20 {
			t.Errorf("%d packets, %d bytes", n, size)
		}
		if !strings.HasSuffix(r.stderr.String(), "; 19.5 KiB are captured\n") {
			t.Errorf("it said %q", r.stderr.String())
		}
	})
	t.Run("filter", func(t *testing.T) {
		r := b.capture("--point", "node", "--filter", "dst host 10.80.0.2", "-c", "2")
		b.ping()
		b.ping()
		got := r.wait(t)
		if len(got) != 2 || got[0].Direction != "in" || got[1].Direction != "in" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("two at once", func(t *testing.T) {
		one, two := b.capture("--point", "node", "-c", "1"), b.capture("--point", "node", "-c", "1")
		err := dispatch(t.Context(), []string{"capture", "--admin-socket", b.socket, "-w", "-", "--duration", "1s"}, new(bytes.Buffer), io.Discard)
		if err == nil || err.Error() != capture.ErrTooMany.Error() {
			t.Errorf("the third: %v", err)
		}
		b.ping()
		if len(one.wait(t)) != 1 || len(two.wait(t)) != 1 {
			t.Error("not both of them got the packet")
		}
	})
	if n := b.report(t).Running; n != 0 {
		t.Errorf("%d captures are under way", n)
	}
}

// TestCaptureEnds: whoever goes away, what was written is complete and nothing is
// left behind.
func TestCaptureEnds(t *testing.T) {
	b := newCaptureBench(t)
	t.Run("the client is interrupted", func(t *testing.T) {
		r := b.capture("--point", "node")
		b.ping()
		eventually(t, "the packets", func() bool { return b.report(t).Packets == 2 })
		r.cancel() // not all of them may be on their way yet
		if n := len(r.wait(t)); n != 2 {
			t.Errorf("%d packets", n)
		}
		if !strings.HasSuffix(r.stderr.String(), "; interrupted\n") || !strings.Contains(r.stdout.String(), capturedEnough) {
			t.Errorf("it said %q, the file %q", r.stderr.String(), r.stdout.String())
		}
		eventually(t, "the capture ends", func() bool { return b.report(t).Running == 0 })
	})
	t.Run("the client does not read", func(t *testing.T) {
		body, err := program.AdminGet(t.Context(), b.socket, capturePath+"?point=node&snaplen=0&count=0&size=100000000&duration=200ms")
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		for range 3000 {
			b.ping()
		}
		eventually(t, "the capture ends", func() bool { return b.report(t).Running == 0 })
	})
	t.Run("stdin ends", func(t *testing.T) {
		r, w := io.Pipe()
		ctx := daemon.UntilEOF(t.Context(), r)
		if ctx.Err() != nil {
			t.Error("it ends too early")
		}
		w.Close()
		<-ctx.Done()
	})
	t.Run("the gateway ends", func(t *testing.T) {
		// The gateway may still be at the echo requests that nobody read: they are not its own.
		r := b.capture("--point", "node", "--filter", "tcp")
		b.end()
		if n := len(r.wait(t)); n != 0 || !strings.HasSuffix(r.stderr.String(), "; the gateway ends\n") {
			t.Errorf("%d packets; it said %q", n, r.stderr.String())
		}
	})
}

// TestCaptureBreaksOff: a stream without its end is an error, and what was written
// is complete.
func TestCaptureBreaksOff(t *testing.T) {
	begin := pcapng.AppendSection(nil, "x", "")
	var out, errs bytes.Buffer
	err := copyCapture(t.Context(), bytes.NewReader(append(begin, 6, 0, 0, 0)), &out, &errs)
	if err == nil || err.Error() != "0 packets captured, 0 lost, 40 B; then the gateway went away" || !bytes.Equal(out.Bytes(), begin) {
		t.Errorf("%v; %x", err, out.Bytes())
	}
	if err := copyCapture(t.Context(), strings.NewReader("not at all what is expected"), &out, &errs); !errors.Is(err, pcapng.ErrNoCapture) {
		t.Errorf("%v", err)
	}
}

func TestCaptureFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "-w is missing: name a file, or - for stdout"},
		{[]string{"-w", "f", "--point", "nod"}, `--point: there is no point "nod": the points are node, translated, tunnel, wire, dropped, or all`},
		{[]string{"-w", "f", "--filter", "tcp port http"}, "--filter: column 10: port needs a number behind it; names of services are not looked up\n  tcp port http\n           ^"},
		{[]string{"-w", "f", "--max-size", "1XB"}, `--max-size: "1XB" is not a size such as 100MB or 64KiB`},
		{[]string{"-w", "f", "--max-size", "1kB"}, "--max-size: 1000 bytes is not between 10kB and 100GB"},
		{[]string{"-w", "f", "-s", "-1"}, "--snaplen: -1 is not between 0 and 131072"},
		{[]string{"-w", "f", "--duration", "25h"}, "--duration: 25h0m0s is not between 0s and 24h0m0s"},
		{[]string{"-w", "f", "more"}, `unexpected argument "more"`},
	} {
		if _, err := parseCaptureFlags(tt.args, io.Discard); err == nil || err.Error() != tt.want {
			t.Errorf("%q: %v, want %s", tt.args, err, tt.want)
		}
	}
	o, err := parseCaptureFlags([]string{"-w", "f", "--point", "wire,node", "--filter", "icmp", "-s", "64", "-c", "7", "--max-size", "1.5GiB", "--duration", "2s", "--until-eof"}, io.Discard)
	if err != nil || o.file != "f" || !o.untilEOF {
		t.Fatalf("%+v, %v", o, err)
	}
	again, err := parseCaptureRequest(o.request.query())
	if err != nil || again.filterText() != "icmp" {
		t.Fatal(err)
	}
	again.Filter = o.request.Filter
	want := captureRequest{Points: capture.PointSet(capture.Node, capture.Wire), Filter: o.request.Filter, Snaplen: 64, Count: 7, MaxSize: 3 << 29, Duration: 2 * time.Second}
	if o.request != want || again != want {
		t.Errorf("%+v, over the socket %+v", o.request, again)
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "100": 100, "100B": 100, "1k": 1000, "1KB": 1000, "100MB": 100_000_000, "0.5MiB": 1 << 19, "2g": 2_000_000_000, "1Gi": 1 << 30, "64KiB": 64 << 10,
	} {
		if got, err := parseSize(text); got != want || err != nil {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "MB", "-1", "1 MB", "1TB", "NaN", "1e30", "1bk"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// TestCaptureFileMode: nobody else reads it.
func TestCaptureFileMode(t *testing.T) {
	b := newCaptureBench(t)
	path := filepath.Join(t.TempDir(), "x.pcapng")
	var errs bytes.Buffer
	if err := dispatch(t.Context(), []string{"capture", "--admin-socket", b.socket, "-w", path, "--duration", "10ms"}, io.Discard, &errs); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	// What is refused makes no file.
	missing := filepath.Join(t.TempDir(), "y.pcapng")
	if err := dispatch(t.Context(), []string{"capture", "--admin-socket", b.socket + "-", "-w", missing}, io.Discard, &errs); err == nil {
		t.Error("there is no gateway to ask")
	}
	if _, err := os.Stat(missing); !os.IsNotExist(err) {
		t.Errorf("there is a file: %v", err)
	}
	if out, err := exec.Command("tshark", "-r", path).CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
		t.Log("NOT CHECKED with tshark: there is none; apt-get install --no-install-recommends tshark")
	} else if err != nil {
		t.Errorf("tshark: %v: %s", err, out)
	}
}
