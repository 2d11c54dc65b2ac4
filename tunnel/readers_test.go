package tunnel

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// withReaders gives Options several Readers besides the Overlay.
func withReaders(o Options, n int) (Options, []*memOverlay) {
	var readers []*memOverlay
	for range n {
		r := newMemOverlay()
		readers = append(readers, r)
		o.Readers = append(o.Readers, r)
	}
	return o, readers
}

// counters checks that each counter of a key is used once, in the messages from one host.
type counters struct {
	t    *testing.T
	host string
	mu   sync.Mutex
	used map[uint32]map[uint64]bool // by session, which the index of the receiver tells
}

func (c *counters) drop(from, _ netip.AddrPort, m []byte) bool {
	if from.Addr().String() != c.host || classify(m) != messageData {
		return false
	}
	session, counter := binary.LittleEndian.Uint32(m[4:]), binary.LittleEndian.Uint64(m[8:])
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used[session] == nil {
		c.used[session] = make(map[uint64]bool)
	}
	if c.used[session][counter] {
		c.t.Errorf("counter %d of session %x is used again", counter, session)
	}
	c.used[session][counter] = true
	return false
}

// Several loops seal with the same keys, over several sessions. No counter is used twice, the
// other end gets each packet once, and those of one reader in their order.
func TestReadersShareSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		used := counters{t: t, host: "192.0.2.1", used: make(map[uint32]map[uint64]bool)}
		n.setDrop(used.drop)
		options, readers := withReaders(Options{Listen: n.listen("192.0.2.1")}, 3)
		a := newGateway(t, "192.0.2.1", "10.1.0.1", options)
		b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
		connect(t, a, b)
		a.run(t)
		b.run(t)
		cross(t, a, b, 0)
		keepPeers(a, b)
		readers = append(readers, a.overlay)
		const rounds, each = 50, 3 * BatchSize
		var next [4]uint32
		for round := range rounds {
			var wg sync.WaitGroup
			for i, r := range readers {
				wg.Go(func() {
					for j := range uint32(each) {
						r.out <- ipPacket(a.inner, b.inner, uint32(i)<<24|uint32(round)*each+j, 100)
					}
				})
			}
			if round%10 == 5 { // a configuration meets the traffic
				a.apply(t, func(c *Config) { c.ListenPort = uint16(2000 + round) })
			}
			for range each * len(readers) {
				id := packetID(receive(t, b.overlay.in, "a packet"))
				if i, number := id>>24, id&0xffffff; number != next[i] {
					t.Fatalf("reader %d: got packet %d, want %d", i, number, next[i])
				} else {
					next[i]++
				}
			}
			wg.Wait()
			time.Sleep(10 * time.Second) // a session is replaced after two minutes
		}
		synctest.Wait()
		if len(used.used) < 3 {
			t.Errorf("only %d sessions", len(used.used))
		}
		if s := a.Stats(); s.TxPackets != 1+rounds*each*uint64(len(readers)) || s.DropNoSession != 0 {
			t.Errorf("%+v", s)
		}
		if s := b.Stats(); s.DropRejected != 0 || len(b.overlay.in) != 0 {
			t.Errorf("%d messages were rejected, %d packets too many", s.DropRejected, len(b.overlay.in))
		}
	})
}

// All loops wait for the first session, and all go on when there is one: none until its
// patience ends.
func TestBurstsOfReadersWaitForTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		n.setDelay(50 * time.Millisecond)
		options, readers := withReaders(Options{Listen: n.listen("192.0.2.1")}, 3)
		a := newGateway(t, "192.0.2.1", "10.1.0.1", options)
		b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
		connect(t, a, b)
		readers = append(readers, a.overlay)
		const each = 3 * maxWaiting
		for i, r := range readers {
			for j := range uint32(each) {
				r.out <- ipPacket(a.inner, b.inner, uint32(i)<<24|j, 100)
			}
		}
		start := time.Now()
		a.run(t)
		b.run(t)
		for range each * len(readers) {
			receive(t, b.overlay.in, "a packet")
		}
		if took := time.Since(start); took >= readPause {
			t.Errorf("the packets took %v: a loop has waited in vain", took)
		}
		if s := a.Stats(); s.DropNoSession != 0 {
			t.Errorf("%d packets were dropped", s.DropNoSession)
		}
	})
}

// What ends one reader ends the tunnel, and so the others.
func TestAReaderFails(t *testing.T) {
	noLeaks(t)
	broken := &funcOverlay{read: func([][]byte, []int, int) (int, int, error) { return 0, 0, errTest }}
	options, _ := withReaders(Options{Listen: newMemNet().listen("192.0.2.1")}, 2)
	options.Readers = append(options.Readers, broken)
	a := newGateway(t, "192.0.2.1", "10.1.0.1", options)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(t.Context()) }()
	if err := receive(t, ended, "the end of Run"); !errors.Is(err, errTest) {
		t.Errorf("Run: %v, want %v", err, errTest)
	}
}

func TestTooManyReaders(t *testing.T) {
	options, _ := withReaders(Options{Overlay: newMemOverlay(), Listen: newMemNet().listen("192.0.2.1")}, MaxReaders+1)
	if _, err := New(options); err == nil {
		t.Errorf("%d Readers are accepted", len(options.Readers))
	}
}
