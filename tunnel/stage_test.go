package tunnel

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/underlay"
)

// TestStage: batches are worked on one at a time and in order, the large ones beside the loop.
func TestStage(t *testing.T) {
	for _, apart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var done []int
			working := false
			s := newStage(apart, func(batch int) {
				if working {
					t.Error("two at a time")
				}
				working = true
				time.Sleep(time.Second)
				working = false
				done = append(done, batch)
			})
			begun := time.Now()
			for i, large := range []bool{true, true, false, true} {
				if underWay := s.take(i, large); underWay != (apart && large) {
					t.Errorf("apart %v, batch %d: under way is %v", apart, i, underWay)
				} else if !underWay && len(done) != i+1 {
					t.Errorf("apart %v: done are %v after batch %d", apart, done, i)
				}
				time.Sleep(time.Second) // the loop makes the next one
			}
			s.close()
			if want := []int{0, 1, 2, 3}; !slices.Equal(done, want) {
				t.Errorf("apart %v: %v", apart, done)
			}
			want := 8 * time.Second
			if apart {
				want -= 3 * time.Second // while the three large ones were worked on, the loop was, too
			}
			if took := time.Since(begun); took != want {
				t.Errorf("apart %v: it took %v, want %v", apart, took, want)
			}
		})
	}
}

// gatedSocket is a socket whose user waits for what the test waits for.
type gatedSocket struct {
	*memSocket
	beforeRead          func(waiting func() int)
	afterRead           func(n int)
	beforeSend, sentAll func(n int)
}

func (s *gatedSocket) ReadBatch(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
	s.beforeRead(func() int { return len(s.in) })
	n, err := s.memSocket.ReadBatch(bufs, sizes, from)
	s.afterRead(n)
	return n, err
}

func (s *gatedSocket) WriteBatch(ds []underlay.Datagram) (int, error) {
	s.beforeSend(len(ds))
	defer s.sentAll(len(ds))
	return s.memSocket.WriteBatch(ds)
}

// TestHalvesOfLoops: where there are processors for it a gateway reads the next packets before it has sent those before,
// and receives the next messages before it has delivered those before. Nothing is lost, reordered or overwritten by that.
func TestHalvesOfLoops(t *testing.T) {
	const batches, total = 8, 8 * BatchSize
	noLeaks(t)
	await := func(what string, ok func() bool) {
		for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("not within %v: %s", patience, what)
				return
			}
		}
	}
	n := newMemNet()
	listen := func(host string, s gatedSocket) func(uint16) (Socket, error) {
		return func(port uint16) (Socket, error) {
			inner, err := n.listen(host)(port)
			if err != nil {
				return nil, err
			}
			s.memSocket = inner.(*memSocket)
			return &s, nil
		}
	}
	packet := func(id uint32) []byte { return ipPacket("10.1.0.1", "10.2.0.1", id, 1340) }
	begin, end := make(chan struct{}), make(chan struct{}) // begin is closed when there is a session
	begun := func() bool {
		select {
		case <-begin:
			return true
		default:
			return false
		}
	}

	var asked, sent atomic.Int64 // batches
	source := &funcOverlay{write: func([][]byte, int) {}, read: func(bufs [][]byte, sizes []int, offset int) (int, int, error) {
		k := asked.Add(1) - 2
		if k < 0 {
			sizes[0] = copy(bufs[0][offset:], packet(0)) // begins the session
			return 1, 0, nil
		}
		<-begin
		if k >= batches {
			<-end
			return 0, 0, errTest
		}
		for i := range bufs {
			sizes[i] = copy(bufs[i][offset:], packet(uint32(k)*BatchSize+uint32(i)))
		}
		return len(bufs), 0, nil
	}}
	fromSource := gatedSocket{beforeRead: func(func() int) {}, afterRead: func(int) {}, beforeSend: func(n int) {
		if n == BatchSize {
			await("the next packets are read before these are sent", func() bool { return asked.Load() > sent.Load()+2 })
		}
	}, sentAll: func(n int) {
		if n == BatchSize {
			sent.Add(1)
		}
	}}

	var reads, messages, written, packets atomic.Int64
	sink := &funcOverlay{read: func([][]byte, []int, int) (int, int, error) { <-end; return 0, 0, errTest }, write: func(bufs [][]byte, offset int) {
		if !begun() {
			close(begin)
			return
		}
		if written.Add(1); len(bufs) >= largeBatch {
			await("the next messages are received before these are delivered", func() bool { return reads.Load() > written.Load() || messages.Load() >= total })
		}
		for _, b := range bufs {
			if id := packets.Add(1) - 1; !bytes.Equal(b[offset:], packet(uint32(id))) {
				t.Errorf("another packet in place %d: %d", id, packetID(b[offset:]))
			}
		}
	}}
	toSink := gatedSocket{beforeSend: func(int) {}, sentAll: func(int) {}, beforeRead: func(waiting func() int) {
		if begun() && messages.Load() < total {
			await("a whole batch comes", func() bool { return waiting() >= BatchSize || sent.Load() == batches })
		}
	}, afterRead: func(n int) {
		if begun() {
			reads.Add(1)
			messages.Add(int64(n))
		}
	}}
	a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: listen("192.0.2.1", fromSource), Overlay: source, Processors: 4})
	b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: listen("192.0.2.2", toSink), Overlay: sink, Processors: 4})
	connect(t, a, b)
	ended := make(chan error, 2)
	for _, g := range []*gateway{a, b} {
		go func() { ended <- g.Run(t.Context()) }()
	}
	eventually(t, "all is delivered", func() bool { return packets.Load() == total })
	if written.Load() > 2*batches {
		t.Errorf("%d packets came in %d batches: they were not large", total, written.Load())
	}
	close(end)
	for range 2 {
		receive(t, ended, "the end of Run")
	}
}
