package netstack

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"testing"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/sluice-net/sluice/test/packettest"
)

func TestQueueKeepsOrderAndContent(t *testing.T) {
	q := newQueue(1 << 16)
	const senders, each = 4, 2000
	var wg sync.WaitGroup
	for sender := range senders {
		wg.Go(func() {
			for i := uint32(0); i < each; {
				pkt := binary.BigEndian.AppendUint32([]byte{byte(sender)}, i)
				pkt = append(pkt, bytes.Repeat([]byte{byte(i)}, int(i%100))...)
				if q.push(pkt) {
					i++
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var next [senders]uint32
	total := 0
	q.drain(ctx, func(pkt []byte) {
		sender, i := pkt[0], binary.BigEndian.Uint32(pkt[1:])
		if i != next[sender] || len(pkt) != 5+int(i%100) || bytes.Count(pkt[5:], []byte{byte(i)}) != int(i%100) {
			t.Errorf("sender %d: got packet %d of %d bytes, want packet %d", sender, i, len(pkt), next[sender])
		}
		next[sender] = i + 1
		if total++; total == senders*each {
			cancel()
		}
	})
	wg.Wait()
	if got := q.sent.Load(); got != senders*each {
		t.Errorf("sent %d, want %d", got, senders*each)
	}
}

func TestQueueRefuses(t *testing.T) {
	q := newQueue(20)
	for _, tt := range []struct {
		name string
		size int
		want bool
	}{
		{"empty packet", 0, false},
		{"longer than the limit", 17, false},
		{"half", 6, true},
		{"rest", 6, true},
		{"one byte more", 1, false},
	} {
		if got := q.push(make([]byte, tt.size)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	q.close()
	q.close()
	if q.push([]byte{1}) {
		t.Error("closed queue took a packet")
	}
	q.drain(context.Background(), func([]byte) { t.Error("a closed queue gave a packet") })
	if got := q.drops.Load(); got != 4 {
		t.Errorf("%d drops, want 4", got)
	}
}

// A packet in several pieces with unused header room in front comes out whole.
func TestQueueFlattens(t *testing.T) {
	q := newQueue(1 << 16)
	pkt := piecewisePacket()
	defer pkt.DecRef()
	want := append(bytes.Repeat([]byte{1}, 20), append(bytes.Repeat([]byte{2}, 700), bytes.Repeat([]byte{3}, 900)...)...)
	if !q.pushBuffer(pkt) {
		t.Fatal("dropped")
	}
	got := q.take(nil)
	if n := binary.NativeEndian.Uint32(got); int(n) != len(want) || !bytes.Equal(got[recordHeader:], want) {
		t.Errorf("%d bytes: %x", n, got)
	}
}

func piecewisePacket() *stack.PacketBuffer {
	payload := buffer.MakeWithData(bytes.Repeat([]byte{2}, 700))
	payload.Append(buffer.NewViewWithData(bytes.Repeat([]byte{3}, 900)))
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{ReserveHeaderBytes: 100, Payload: payload})
	copy(pkt.NetworkHeader().Push(20), bytes.Repeat([]byte{1}, 20))
	return pkt
}

func TestQueueAllocatesNothing(t *testing.T) {
	if packettest.Race {
		t.Skip("NOT CHECKED under the race detector, which allocates itself; the run without it checks")
	}
	q := newQueue(1 << 16)
	pkt := piecewisePacket()
	defer pkt.DecRef()
	raw := make([]byte, 1340)
	batch := make([]byte, 1<<16)
	if n := testing.AllocsPerRun(1000, func() {
		if !q.push(raw) || !q.pushBuffer(pkt) {
			t.Error("dropped")
		}
		batch = q.take(batch)
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}
