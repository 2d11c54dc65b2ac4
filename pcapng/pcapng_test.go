package pcapng

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/sluice-net/sluice/test/source"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC).UnixNano()

// sample is a file with everything in it.
func sample(packets int) []byte {
	b := AppendSection(nil, "gateway v1", "a comment")
	b = AppendInterface(b, Interface{Name: "node:worker", Description: "node worker, VNI 7", Link: Ethernet, Snaplen: 256, Filter: "tcp port 80"})
	b = AppendInterface(b, Interface{Name: "tunnel", Link: RawIP})
	for i := range packets {
		p := Packet{Interface: uint32(i % 2), Time: start + int64(i), Data: bytes.Repeat([]byte{0x45}, i%7), Length: 100, Direction: Inbound}
		if i%2 == 1 {
			p.Direction, p.Comment = Outbound, "DropNoMapping"
		}
		b = AppendPacket(b, &p)
	}
	b = AppendStatistics(b, Statistics{Interface: 1, Time: start + 1, Start: start, Received: 10, Accepted: 5, Dropped: 2})
	b = AppendStatistics(b, Statistics{Interface: 0, Time: start + 2, Start: start, Stop: start + 2, Received: 10, Accepted: 5, Dropped: 1, Comment: "enough"})
	return AppendStatistics(b, Statistics{Interface: 1, Time: start + 2, Start: start, Stop: start + 2, Dropped: 3, Comment: "enough"})
}

// TestRead: another implementation reads back what was written.
func TestRead(t *testing.T) {
	r, err := pcapgo.NewNgReader(bytes.NewReader(sample(10)), pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	if s := r.SectionInfo(); s.Application != "gateway v1" || s.Comment != "a comment" {
		t.Errorf("section %+v", s)
	}
	for i := range 10 {
		data, ci, o, err := r.ReadPacketDataWithOptions()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, bytes.Repeat([]byte{0x45}, i%7)) || ci.Length != 100 || ci.InterfaceIndex != i%2 || ci.Timestamp.UnixNano() != start+int64(i) {
			t.Errorf("packet %d: %x, %+v", i, data, ci)
		}
		direction, comments := pcapgo.NgEpbFlagDirectionInbound, 0
		if i%2 == 1 {
			direction, comments = pcapgo.NgEpbFlagDirectionOutbound, 1
		}
		if o.Flags == nil || o.Flags.Direction != direction || len(o.Comments) != comments || comments == 1 && o.Comments[0] != "DropNoMapping" {
			t.Errorf("packet %d: %+v", i, o)
		}
	}
	if _, _, err := r.ReadPacketData(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	i, err := r.Interface(0)
	if err != nil || i.Name != "node:worker" || i.Description != "node worker, VNI 7" || i.LinkType != 1 || i.SnapLength != 256 || i.TimestampResolution != 9 ||
		!strings.HasSuffix(i.Filter, "tcp port 80") {
		t.Errorf("interface 0: %+v, %v", i, err)
	}
	if s := i.Statistics; s.PacketsReceived != 10 || s.PacketsDropped != 1 || s.Comment != "enough" || s.StartTime.UnixNano() != start || s.EndTime.UnixNano() != start+2 {
		t.Errorf("statistics of interface 0: %+v", s)
	}
}

// TestTshark: so does Wireshark.
func TestTshark(t *testing.T) {
	source.NeedPrograms(t, "tshark")
	file := filepath.Join(t.TempDir(), "sample.pcapng")
	if err := os.WriteFile(file, sample(4), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tshark", "-r", file, "-T", "fields", "-E", "separator=|",
		"-e", "frame.interface_name", "-e", "frame.interface_description", "-e", "frame.time_epoch", "-e", "frame.cap_len", "-e", "frame.len",
		"-e", "frame.packet_flags_direction", "-e", "frame.comment")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	var want strings.Builder
	for i := range 4 {
		name, direction, comment := "node:worker|node worker, VNI 7", "0x00000001", ""
		if i%2 == 1 {
			name, direction, comment = "tunnel|", "0x00000002", "DropNoMapping"
		}
		fmt.Fprintf(&want, "%s|%d.%09d|%d|100|%s|%s\n", name, start/1e9, start%1e9+int64(i), i, direction, comment)
	}
	if diff := cmp.Diff(want.String(), string(out)); diff != "" {
		t.Errorf("-want +got:\n%s\n%s", diff, &stderr)
	}
}

// TestCopier: whatever the pieces in which a file comes, it is passed on block by
// block, and counted.
func TestCopier(t *testing.T) {
	file := sample(100)
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var out bytes.Buffer
		c := NewCopier(&out)
		end := random.IntN(len(file) + 1)
		for rest := file[:end]; len(rest) > 0; {
			n := min(1+random.IntN(300), len(rest))
			if m, err := c.Write(rest[:n]); m != n || err != nil {
				t.Fatal(m, err)
			}
			rest = rest[n:]
		}
		if !bytes.HasPrefix(file, out.Bytes()) || c.Totals().Bytes != uint64(out.Len()) {
			t.Fatal("it is not what came in")
		}
		if out.Len() == 0 {
			continue
		}
		if end-out.Len() > 200 {
			t.Errorf("%d bytes came, %d were passed on", end, out.Len())
		}
		r, err := pcapgo.NewNgReader(&out, pcapgo.NgReaderOptions{WantMixedLinkType: true})
		if err != nil {
			t.Fatalf("not complete after %d bytes: %v", end, err)
		}
		packets := uint64(0)
		for {
			if _, _, err = r.ReadPacketData(); err != nil {
				break
			}
			packets++
		}
		if err != io.EOF || c.Totals().Packets != packets {
			t.Errorf("%d packets, %v; counted %+v", packets, err, c.Totals())
		}
	}
	c := NewCopier(io.Discard)
	if _, err := c.Write(file); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Totals{Packets: 100, Bytes: uint64(len(file)), Lost: 4, End: "enough"}, c.Totals()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCopierRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"text":                  []byte("gateway: no such thing"),
		"no section at first":   AppendInterface(nil, Interface{}),
		"a length that is none": append(AppendSection(nil, "", ""), 6, 0, 0, 0, 11, 0, 0, 0),
		"a block without end":   append(AppendSection(nil, "", ""), 6, 0, 0, 0, 0, 0, 0, 0xf0),
	} {
		if _, err := NewCopier(io.Discard).Write(b); err != ErrNoCapture {
			t.Errorf("%s: %v", name, err)
		}
	}
	full := errors.New("full")
	if _, err := NewCopier(failing{full}).Write(AppendSection(nil, "", "")); err != full {
		t.Errorf("a writer that fails: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestLongText: an option holds no more than its length can say.
func TestLongText(t *testing.T) {
	b := AppendSection(nil, strings.Repeat("x", 70000), "")
	if n, err := blockSize(b, true); n != len(b) || err != nil {
		t.Errorf("%d of %d bytes, %v", n, len(b), err)
	}
}

// FuzzCopier: no stream does harm, and however it is cut, the same is passed on.
func FuzzCopier(f *testing.F) {
	f.Add(sample(3), uint16(7))
	f.Add([]byte("\n\r\r\n"), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		var one, two bytes.Buffer
		c1, c2 := NewCopier(&one), NewCopier(&two)
		_, err1 := c1.Write(b)
		cut := min(int(at), len(b))
		_, err2 := c2.Write(b[:cut])
		if err2 == nil {
			_, err2 = c2.Write(b[cut:])
		}
		if (err1 == nil) != (err2 == nil) {
			t.Fatalf("in one piece %v, in two %v", err1, err2)
		}
		if err1 == nil && (!bytes.Equal(one.Bytes(), two.Bytes()) || c1.Totals() != c2.Totals()) {
			t.Errorf("%d and %d bytes, %+v and %+v", one.Len(), two.Len(), c1.Totals(), c2.Totals())
		}
	})
}

// BenchmarkCopier measures what a client spends on each byte.
func BenchmarkCopier(b *testing.B) {
	file := AppendInterface(AppendSection(nil, "", ""), Interface{})
	for range 1000 {
		file = AppendPacket(file, &Packet{Data: make([]byte, 128), Length: 1300})
	}
	c := NewCopier(io.Discard)
	b.SetBytes(int64(len(file)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(file); err != nil {
			b.Fatal(err)
		}
	}
}
