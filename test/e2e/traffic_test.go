package e2e

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

// trafficChecks are about many packets.
var trafficChecks = []check{
	{"TCP", testTCP, true},
	{"UDP", testUDP, true},
	{"HTTP", testHTTP, true},
	{"a file arrives unchanged", testFile, true},
	{"1000 short connections", testShortConnections, true},
}

// wantTransfer sends an amount by TCP to a host that runs iperf3, or from it. That it
// arrives within lab.Patience is all that is asked; how fast is asked in bench.
func wantTransfer(t *testing.T, from *lab.Host, m lab.Iperf) {
	t.Helper()
	r, err := from.Iperf(m)
	t.Logf("%s to %s: %d streams, reverse %-5v: %.2f Gbit/s, %d retransmits", from.Name, m.To, max(m.Streams, 1), m.Reverse, r.BitsPerSecond/1e9, r.Retransmits)
	if err != nil || r.BitsPerSecond == 0 {
		t.Errorf("%s to %s: %d streams, reverse %v: %.0f bit/s, %v", from.Name, m.To, max(m.Streams, 1), m.Reverse, r.BitsPerSecond, err)
	}
}

func testTCP(t *testing.T, w *world) {
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	for _, n := range []*lab.Node{w.A1, w.A2} {
		for _, streams := range []int{1, 4} {
			for _, reverse := range []bool{false, true} {
				wantTransfer(t, n.Pod, lab.Iperf{To: w.fromA(w.B1.PodAddr), Streams: streams, Reverse: reverse, Amount: "64M"})
			}
		}
	}
}

// testUDP sends datagrams at rates that an idle machine carries without loss. A
// scheduling pause of a busy one overruns a socket buffer now and then, so one
// clean run of several is enough: loss by rule would show in all of them.
func testUDP(t *testing.T, w *world) {
	server := w.B1.Pod.StartIperf()
	defer server.Stop(lab.Patience)
	for _, n := range []*lab.Node{w.A1, w.A2} {
		// 1400 and 4000 bytes are above the MTU: fragmented on the way, whole at the end.
		for length, rate := range map[int]string{64: "2M", 512: "10M", 1300: "40M", 1400: "20M", 4000: "20M"} {
			for _, reverse := range []bool{false, true} {
				m := lab.Iperf{To: w.fromA(w.B1.PodAddr), UDPLength: length, Bitrate: rate, Reverse: reverse, Amount: "500"}
				if err := losslessly(n.Pod, w.B1.Pod, m); err != nil {
					t.Errorf("%s: %d bytes at %s, reverse %v: %v", n.Pod.Name, length, rate, reverse, err)
				}
			}
		}
	}
}

// losslessly repeats a measurement until nothing is lost on the way, four times at most. What
// the ends themselves have no room for is not lost on the way.
func losslessly(client, server *lab.Host, m lab.Iperf) (err error) {
	for range 4 {
		before := client.UDPOverruns() + server.UDPOverruns()
		r, measureErr := client.Iperf(m)
		overruns := client.UDPOverruns() + server.UDPOverruns() - before
		switch {
		case measureErr != nil:
			err = measureErr
		case r.Packets == 0 || uint64(max(r.Lost, 0)) > overruns:
			err = fmt.Errorf("%d of %d datagrams lost", r.Lost, r.Packets)
		default:
			return nil
		}
	}
	return err
}

// serve runs an HTTP server with the files of dir on a host, until the end of
// the test, and returns its port.
func serve(t *testing.T, h *lab.Host, dir string) uint16 {
	t.Helper()
	var listener net.Listener
	err := h.Do(func() (err error) {
		listener, err = net.Listen("tcp", ":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(dir)), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return netip.MustParseAddrPort(listener.Addr().String()).Port()
}

func testHTTP(t *testing.T, w *world) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page"), []byte("from the other cluster"), 0o600); err != nil {
		t.Fatal(err)
	}
	port := serve(t, w.B1.Pod, dir)
	for _, n := range []*lab.Node{w.A1, w.A2} {
		out, err := n.Pod.Try("curl", "-sS", "--max-time", "30", fmt.Sprintf("http://%s:%d/page", w.fromA(w.B1.PodAddr), port))
		if err != nil || out != "from the other cluster" {
			t.Errorf("%s: curl: %q, %v", n.Pod.Name, out, err)
		}
	}
}

func testFile(t *testing.T, w *world) {
	dir := t.TempDir()
	data := make([]byte, 32<<20)
	_, _ = rand.Read(data)
	if err := os.WriteFile(filepath.Join(dir, "file"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	want := hex.EncodeToString(sum[:])
	for _, dir := range []struct {
		from   *lab.Node
		to     *lab.Node
		server netip.Addr
		port   uint16
	}{
		{w.A1, w.B1, w.fromA(w.B1.PodAddr), serve(t, w.B1.Pod, dir)},
		{w.A2, w.B1, w.fromA(w.B1.PodAddr), serve(t, w.B1.Pod, dir)},
		{w.B1, w.A2, w.fromB(w.A2.PodAddr), serve(t, w.A2.Pod, dir)},
	} {
		url := fmt.Sprintf("http://%s:%d/file", dir.server, dir.port)
		out, err := dir.from.Pod.Try("sh", "-c", "curl -sS --max-time 60 "+url+" | sha256sum")
		if err != nil || !strings.HasPrefix(out, want) {
			t.Errorf("%s from %s: sum %q, want %s, %v", dir.from.Pod.Name, dir.to.Pod.Name, out, want, err)
		}
	}
}

// testShortConnections opens connections one after the other, several at a
// time. None may fail or wait for a retransmitted SYN.
func testShortConnections(t *testing.T, w *world) {
	const workers, each = 8, 125
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(w.fromA(w.B1.PodAddr), serve(t, w.B1.Pod, dir))
	results := make(chan error, workers)
	for range workers {
		go func() {
			for i := range each {
				if err := shortConnection(w.A1.Pod, to); err != nil {
					results <- fmt.Errorf("connection %d: %w", i, err)
					return
				}
			}
			results <- nil
		}()
	}
	for range workers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func shortConnection(h *lab.Host, to netip.AddrPort) error {
	var conn net.Conn
	dialer := net.Dialer{Timeout: lab.Patience}
	if err := h.Do(func() (err error) {
		conn, err = dialer.Dial("tcp", to.String())
		return err
	}); err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(lab.Patience))
	if _, err := fmt.Fprint(conn, "GET /page HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	total := 0
	for {
		n, err := conn.Read(buf[total:])
		total += n
		if err != nil || total == len(buf) {
			break
		}
	}
	if !strings.HasSuffix(string(buf[:total]), "x") {
		return fmt.Errorf("got %q", buf[:total])
	}
	return nil
}
