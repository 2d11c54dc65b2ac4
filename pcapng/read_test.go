package pcapng

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// file is a capture of two packets.
func file() []byte {
	b := AppendSection(nil, "test", "")
	b = AppendInterface(b, Interface{Name: "node:a", Link: Ethernet, Snaplen: 64, Filter: "tcp"})
	b = AppendInterface(b, Interface{Name: "dropped", Link: RawIP})
	b = AppendPacket(b, &Packet{Interface: 1, Time: 1<<40 + 7, Data: []byte("abcde"), Length: 1500, Direction: Outbound, Comment: "DropFilter"})
	b = AppendStatistics(b, Statistics{Received: 2})
	return AppendPacket(b, &Packet{Data: []byte{1, 2, 3, 4}, Length: 4, Direction: Inbound})
}

// TestReader: what was written is read, however the stream is cut.
func TestReader(t *testing.T) {
	type read struct {
		Name   string
		Link   LinkType
		Packet Packet
	}
	want := []read{
		{"dropped", RawIP, Packet{Interface: 1, Time: 1<<40 + 7, Data: []byte("abcde"), Length: 1500, Direction: Outbound, Comment: "DropFilter"}},
		{"node:a", Ethernet, Packet{Data: []byte{1, 2, 3, 4}, Length: 4, Direction: Inbound}},
	}
	for size := 1; size < 200; size += 7 {
		var got []read
		c := NewCopier(&Reader{Each: func(i Interface, p *Packet) {
			q := *p
			q.Data = append([]byte(nil), p.Data...)
			got = append(got, read{i.Name, i.Link, q})
		}})
		for b := file(); len(b) > 0; b = b[min(size, len(b)):] {
			if _, err := c.Write(b[:min(size, len(b))]); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("in pieces of %d (-want +got):\n%s", size, diff)
		}
	}
}

// FuzzReader: whatever comes, a packet lies within what came.
func FuzzReader(f *testing.F) {
	f.Add(file())
	f.Add(AppendPacket(AppendSection(nil, "", ""), &Packet{Interface: 9}))
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		c := NewCopier(&Reader{Each: func(_ Interface, p *Packet) { total += len(p.Data) }})
		_, _ = c.Write(b) // it may be no capture
		if total > len(b) {
			t.Errorf("%d bytes of %d", total, len(b))
		}
	})
}
