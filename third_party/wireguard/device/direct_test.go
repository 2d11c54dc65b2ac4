package device

// This file is Sluice's, as direct.go is.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/tun"
)

// directTUN is a TUN device, and keeps what is delivered to it.
type directTUN struct {
	tun.Device               // nil: what is not here is not called
	packets    chan [][]byte // to be read, in batches of up to directBatchSize
	end        chan struct{}
	discard    bool
	written    [][]byte
	marks      []uint8 // of their outer headers
}

func (t *directTUN) Write(bufs [][]byte, offset int) (int, error) {
	if t.discard {
		return len(bufs), nil
	}
	for _, b := range bufs {
		t.written = append(t.written, bytes.Clone(b[offset:]))
	}
	return len(bufs), nil
}

func (t *directTUN) Deliver(bufs [][]byte, ecn []uint8, offset int) {
	if !t.discard {
		t.marks = append(t.marks, ecn...)
	}
	_, _ = t.Write(bufs, offset)
}

func (t *directTUN) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	select {
	case packets := <-t.packets:
		for i, packet := range packets {
			sizes[i] = copy(bufs[i][offset:], packet)
		}
		return len(packets), nil
	case <-t.end:
		return 0, os.ErrClosed
	}
}

func (t *directTUN) Events() <-chan tun.Event {
	none := make(chan tun.Event)
	close(none)
	return none
}

func (t *directTUN) MTU() (int, error) { return DefaultMTU, nil }
func (t *directTUN) BatchSize() int    { return directBatchSize }
func (t *directTUN) Close() error      { close(t.end); return nil }

const directBatchSize = 4

// directBind is a bind that keeps what is sent by it.
type directBind struct {
	conn.Bind // nil: what is not here is not called
	discard   bool
	err       error // of whatever is to be sent
	sent      [][]byte
	to        []conn.Endpoint
	marks     []uint8 // for their outer headers
}

func (b *directBind) Open(uint16) ([]conn.ReceiveFunc, uint16, error) { return nil, 1, nil }
func (b *directBind) Close() error                                    { return nil }
func (b *directBind) BatchSize() int                                  { return 1 }
func (b *directBind) SetMark(uint32) error                            { return nil }

func (b *directBind) Send(bufs [][]byte, to conn.Endpoint) error {
	if b.discard || b.err != nil {
		return b.err
	}
	for _, m := range bufs {
		b.sent, b.to = append(b.sent, bytes.Clone(m)), append(b.to, to)
	}
	return nil
}

func (b *directBind) SendMarked(bufs [][]byte, ecn []uint8, to conn.Endpoint) error {
	if !b.discard {
		b.marks = append(b.marks, ecn...)
	}
	return b.Send(bufs, to)
}

// directBatch is a batch from one sender, marked in one way.
type directBatch struct {
	from conn.Endpoint
	ecn  uint8
}

func (b directBatch) Endpoint(int) conn.Endpoint { return b.from }
func (b directBatch) ECN(int) uint8              { return b.ecn }

type directEndpoint struct {
	conn.Endpoint // nil: what is not here is not called
	name          string
	cleared       int // how often
}

func (e *directEndpoint) ClearSrc() { e.cleared++ }

// directPair is a device with one peer, with which it has a session whose keys are the
// same both ways: it opens what it seals.
type directPair struct {
	*Device
	tun  *directTUN
	bind *directBind
	peer *Peer
	keys *Keypair
	in   Inbound
	// keepalives is how many wireguard-go's own routines say that they have accepted.
	keepalives atomic.Int32
}

const directIndex = 7

func newDirectPair(t testing.TB) *directPair {
	p := &directPair{tun: &directTUN{packets: make(chan [][]byte), end: make(chan struct{})}, bind: new(directBind)}
	p.Device = NewDevice(p.tun, p.bind, &Logger{func(format string, _ ...any) {
		if format == "%v - Receiving keepalive packet" {
			p.keepalives.Add(1)
		}
	}, DiscardLogf})
	t.Cleanup(p.Close)
	key, err := newPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	peer, err := newPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	public := peer.publicKey()
	if err := p.IpcSet(fmt.Sprintf("private_key=%x\npublic_key=%x\nallowed_ip=10.0.0.0/8\nallowed_ip=fd00::/8\n", key[:], public[:])); err != nil {
		t.Fatal(err)
	}
	if err := p.Up(); err != nil {
		t.Fatal(err)
	}
	p.peer = p.LookupPeer(public)
	runtime.SetFinalizer(p.peer.queue.inbound, nil) // they would run outside of what testing/synctest knows of
	runtime.SetFinalizer(p.peer.queue.outbound, nil)
	p.peer.SetEndpointFromPacket(&directEndpoint{name: "first"})
	aead, err := chacha20poly1305.New(make([]byte, chacha20poly1305.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	p.keys = &Keypair{send: aead, receive: aead, created: time.Now(), localIndex: directIndex, remoteIndex: directIndex}
	p.indexTable.table[directIndex] = IndexTableEntry{peer: p.peer, keypair: p.keys}
	p.peer.keypairs.current = p.keys
	return p
}

// open opens and accepts a batch, and delivers its packets.
func (p *directPair) open(d *Direct, bufs [][]byte, sizes []int, from Batch) Received {
	d.Open(bufs, sizes)
	packets, ecn, r := d.Accept(&p.in, from)
	p.tun.Deliver(packets, ecn, MessageTransportOffsetContent)
	return r
}

// receive opens one message and returns what came of it.
func (p *directPair) receive(d *Direct, message []byte, from *directEndpoint) (r Received, packets [][]byte) {
	p.tun.written = nil
	bufs, sizes := [][]byte{append(message, make([]byte, 64)...)}, []int{len(message)}
	r = p.open(d, bufs, sizes, directBatch{from: from})
	return r, p.tun.written
}

// message seals content, which need not be a packet.
func (p *directPair) message(counter uint64, content []byte) []byte {
	return directMessage(p.keys, counter, content)
}

// directMessage is a message of the peer, whose keys are the same both ways.
func directMessage(k *Keypair, counter uint64, content []byte) []byte {
	m := binary.LittleEndian.AppendUint32(nil, MessageTransportType)
	m = binary.LittleEndian.AppendUint32(m, k.localIndex)
	m = binary.LittleEndian.AppendUint64(m, counter)
	var nonce [chacha20poly1305.NonceSize]byte
	binary.LittleEndian.PutUint64(nonce[4:], counter)
	return k.receive.Seal(m, nonce[:], content, nil)
}

func directPacket(dst, src string, length int) []byte {
	d, s := netip.MustParseAddr(dst), netip.MustParseAddr(src)
	b := make([]byte, length)
	if d.Is4() {
		b[0] = 0x45
		binary.BigEndian.PutUint16(b[IPv4offsetTotalLength:], uint16(length))
		copy(b[IPv4offsetSrc:], s.AsSlice())
		copy(b[IPv4offsetDst:], d.AsSlice())
	} else {
		b[0] = 0x60
		binary.BigEndian.PutUint16(b[IPv6offsetPayloadLength:], uint16(length-40))
		copy(b[IPv6offsetSrc:], s.AsSlice())
		copy(b[IPv6offsetDst:], d.AsSlice())
	}
	return b
}

// A round trip: what Send makes is opened, without its padding, once.
func TestDirectRoundTrip(t *testing.T) {
	p := newDirectPair(t)
	send, receive := p.NewDirect(8), p.NewDirect(8)
	packets := [][]byte{directPacket("10.1.1.1", "10.2.2.2", 100), directPacket("fd00::1", "fd00::2", 113), directPacket("10.1.1.1", "10.2.2.2", 20)}
	bufs, sizes := make([][]byte, 4), make([]int, 4) // the second is skipped
	for i, packet := range [][]byte{packets[0], nil, packets[1], packets[2]} {
		bufs[i] = make([]byte, MaxMessageSize)
		sizes[i] = copy(bufs[i][MessageTransportHeaderSize:], packet)
	}
	if !send.Ready(bufs, sizes) {
		t.Fatal("not ready")
	}
	send.Send(bufs, sizes)
	if len(p.bind.sent) != len(packets) || p.keys.sendNonce.Load() != uint64(len(packets)) {
		t.Fatalf("%d messages, next counter %d", len(p.bind.sent), p.keys.sendNonce.Load())
	}
	for i, m := range p.bind.sent {
		if (len(m)-MessageTransportSize)%PaddingMultiple != 0 {
			t.Errorf("a message of %d bytes", len(m))
		}
		from := &directEndpoint{name: "roamed"}
		r, got := p.receive(receive, bytes.Clone(m), from)
		if r != (Received{Stranger: -1}) || len(got) != 1 || !bytes.Equal(got[0], packets[i]) {
			t.Errorf("%d: %+v, %x", i, r, got)
		}
		if p.peer.endpoint.val != conn.Endpoint(from) {
			t.Error("the endpoint does not follow the peer")
		}
		elsewhere := &directEndpoint{name: "elsewhere"}
		if r, got := p.receive(receive, bytes.Clone(m), elsewhere); r.Rejected != 1 || len(got) != 0 || p.peer.endpoint.val == conn.Endpoint(elsewhere) {
			t.Errorf("%d again: %+v, %x", i, r, got)
		}
	}
}

// A peer that has another session may go on with that from elsewhere. What comes by the
// one before is of somebody else with its key, and does not lead its packets away.
func TestDirectEndpoint(t *testing.T) {
	const former, current = directIndex, directIndex + 1
	type message struct {
		session uint32
		from    string
	}
	for _, tt := range []struct {
		name     string
		age      time.Duration // of the current session
		messages []message     // each in a batch of its own
		want     string
		told     int // in how many batches something came by the session before
	}{
		{"one that moves", time.Minute, []message{{current, "here"}, {current, "there"}}, "there", 0},
		{"another one with its key", time.Minute, []message{{current, "here"}, {former, "there"}, {former, "there"}}, "here", 2},
		{"another one, then the peer moves", time.Minute, []message{{current, "here"}, {former, "there"}, {current, "anywhere"}}, "anywhere", 1},
		{"one that moves before it has used the session", time.Minute, []message{{former, "there"}}, "there", 0},
		{"what was under way when the session began", time.Second, []message{{current, "here"}, {former, "there"}}, "here", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newDirectPair(t)
			p.keys.created = time.Now().Add(-2 * time.Minute)
			after := &Keypair{send: p.keys.send, receive: p.keys.receive, created: time.Now().Add(-tt.age), localIndex: current, remoteIndex: current}
			p.indexTable.table[current] = IndexTableEntry{peer: p.peer, keypair: after}
			p.peer.keypairs.previous, p.peer.keypairs.current = p.keys, after
			d, told := p.NewDirect(1), 0
			for i, m := range tt.messages {
				b := p.message(uint64(i), directPacket("10.1.1.1", "10.2.2.2", 100))
				binary.LittleEndian.PutUint32(b[MessageTransportOffsetReceiver:], m.session)
				r, packets := p.receive(d, b, &directEndpoint{name: m.from})
				if len(packets) != 1 {
					t.Errorf("message %d: %+v, %d packets", i, r, len(packets))
				}
				told += r.Replaced
			}
			if got := p.peer.endpoint.val.(*directEndpoint).name; got != tt.want || told != tt.told {
				t.Errorf("the peer is %s, and %d batches told of a session before; want %s and %d", got, told, tt.want, tt.told)
			}
		})
	}
}

// Of a batch with messages of two sessions, the later one counts.
func TestDirectEndpointOfAMixedBatch(t *testing.T) {
	p := newDirectPair(t)
	p.keys.created = time.Now().Add(-2 * time.Minute)
	after := &Keypair{send: p.keys.send, receive: p.keys.receive, created: time.Now().Add(-time.Minute)}
	p.indexTable.table[directIndex+1] = IndexTableEntry{peer: p.peer, keypair: after}
	p.peer.keypairs.previous, p.peer.keypairs.current = p.keys, after
	bufs, sizes := make([][]byte, 3), make([]int, 3)
	from := directBatches{&directEndpoint{name: "first"}, &directEndpoint{name: "peer"}, &directEndpoint{name: "other"}}
	for i, session := range []uint32{directIndex, directIndex + 1, directIndex} {
		bufs[i] = p.message(uint64(i), directPacket("10.1.1.1", "10.2.2.2", 100))
		binary.LittleEndian.PutUint32(bufs[i][MessageTransportOffsetReceiver:], session)
		sizes[i] = len(bufs[i])
	}
	p.open(p.NewDirect(len(bufs)), bufs, sizes, from)
	if got := p.peer.endpoint.val; got != from[1] || len(p.tun.written) != len(bufs) {
		t.Errorf("the peer is %+v, and %d packets were delivered", got, len(p.tun.written))
	}
}

// What the peer may not send from is rejected, whatever came before in the batch.
func TestDirectSources(t *testing.T) {
	p := newDirectPair(t)
	var bufs [][]byte
	var sizes []int
	for i, src := range []string{"192.0.2.1", "10.2.2.2", "10.2.2.2", "192.0.2.1", "192.0.2.1", "fd00::2", "2001:db8::2", "fd00::2", "10.2.2.2"} {
		dst := "10.1.1.1"
		if strings.Contains(src, ":") {
			dst = "fd00::1"
		}
		bufs = append(bufs, p.message(uint64(i), directPacket(dst, src, 100)))
		sizes = append(sizes, len(bufs[i]))
	}
	r := p.open(p.NewDirect(len(bufs)), bufs, sizes, directBatch{from: &directEndpoint{name: "peer"}})
	if r.Rejected != 4 || len(p.tun.written) != 5 {
		t.Errorf("%d rejected, %d delivered", r.Rejected, len(p.tun.written))
	}
	for _, packet := range p.tun.written {
		if src := binary.BigEndian.Uint16(packet[IPv4offsetSrc:]); packet[0]>>4 == 4 && src != 10<<8|2 || packet[0]>>4 == 6 && packet[IPv6offsetSrc] != 0xfd {
			t.Errorf("delivered: %x", packet)
		}
	}
}

// A peer may not send from an address of another one, in whichever order their messages come.
func TestDirectSourcesOfSeveralPeers(t *testing.T) {
	p := newDirectPair(t)
	other, err := p.NewPeer(NoisePublicKey{1})
	if err != nil {
		t.Fatal(err)
	}
	other.Start()
	aead, err := chacha20poly1305.New(bytes.Repeat([]byte{1}, chacha20poly1305.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	others := &Keypair{send: aead, receive: aead, created: time.Now(), localIndex: directIndex + 1}
	other.keypairs.current = others
	p.indexTable.table[others.localIndex] = IndexTableEntry{peer: other, keypair: others}
	p.allowedips.Insert(netip.MustParsePrefix("10.3.3.0/24"), other)

	var bufs [][]byte
	var sizes []int
	var want []string
	for i, m := range []struct {
		of   *Keypair
		src  string
		good bool
	}{
		{p.keys, "10.2.2.2", true}, {others, "10.2.2.2", false}, {others, "10.3.3.3", true}, {p.keys, "10.3.3.3", false}, {p.keys, "10.2.2.2", true},
		{others, "10.3.3.3", true}, {others, "10.2.2.2", false}, {others, "10.3.3.3", true},
	} {
		bufs = append(bufs, directMessage(m.of, uint64(i), directPacket("10.1.1.1", m.src, 60)))
		sizes = append(sizes, len(bufs[i]))
		if m.good {
			want = append(want, m.src)
		}
	}
	r := p.open(p.NewDirect(len(bufs)), bufs, sizes, directBatch{from: &directEndpoint{name: "peer"}})
	var got []string
	for _, packet := range p.tun.written {
		got = append(got, netip.AddrFrom4([4]byte(packet[IPv4offsetSrc:])).String())
	}
	if !slices.Equal(got, want) || r.Rejected != len(bufs)-len(want) {
		t.Errorf("delivered from %v, want %v; %d rejected", got, want, r.Rejected)
	}
}

// directBatches is a batch of which each message has a sender.
type directBatches []conn.Endpoint

func (b directBatches) Endpoint(i int) conn.Endpoint { return b[i] }
func (b directBatches) ECN(int) uint8                { return 0 }

// What is not for Send stays as it is.
func TestDirectReady(t *testing.T) {
	for _, tt := range []struct {
		name   string
		want   bool
		to     []string
		change func(p *directPair)
	}{
		{"a session", true, []string{"10.1.1.1", "fd00::1"}, nil},
		{"nothing to send", false, nil, nil},
		{"one for nobody", false, []string{"10.1.1.1", "192.0.2.1"}, nil},
		{"for two peers", false, []string{"10.3.3.3", "10.1.1.1"}, func(p *directPair) {
			other, err := p.NewPeer(NoisePublicKey{1})
			if err != nil {
				panic(err)
			}
			p.allowedips.Insert(netip.MustParsePrefix("10.3.3.0/24"), other)
		}},
		{"several, and one for nobody", false, []string{"10.1.1.1", "10.1.1.1", "192.0.2.1", "10.1.1.1"}, nil},
		{"no session", false, []string{"10.1.1.1"}, func(p *directPair) { p.peer.keypairs.current = nil }},
		{"an old one", false, []string{"10.1.1.1"}, func(p *directPair) { p.keys.created = time.Now().Add(-RejectAfterTime) }},
		{"one that was ended", false, []string{"10.1.1.1"}, func(p *directPair) { p.peer.ExpireCurrentKeypairs() }},
		{"counters for one of two", false, []string{"10.1.1.1", "10.1.1.1"}, func(p *directPair) { p.keys.sendNonce.Store(RejectAfterMessages - 1) }},
		{"a peer that stopped", false, []string{"10.1.1.1"}, func(p *directPair) { p.peer.Stop() }},
		{"down", false, []string{"10.1.1.1"}, func(p *directPair) {
			if err := p.Down(); err != nil {
				panic(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newDirectPair(t)
			if tt.change != nil {
				tt.change(p)
			}
			var bufs [][]byte
			var sizes []int
			for _, to := range tt.to {
				b := make([]byte, MaxMessageSize)
				bufs, sizes = append(bufs, b), append(sizes, copy(b[MessageTransportHeaderSize:], directPacket(to, to, 60)))
			}
			if got := p.NewDirect(8).Ready(bufs, sizes); got != tt.want {
				t.Errorf("ready: %t", got)
			}
		})
	}
}

// Counters end: between Ready and Send a session can.
func TestDirectSendAfterTheLastCounter(t *testing.T) {
	p := newDirectPair(t)
	d := p.NewDirect(1)
	b := make([]byte, MaxMessageSize)
	sizes := []int{copy(b[MessageTransportHeaderSize:], directPacket("10.1.1.1", "10.1.1.1", 60))}
	if !d.Ready([][]byte{b}, sizes) {
		t.Fatal("not ready")
	}
	p.peer.ExpireCurrentKeypairs()
	if d.Send([][]byte{b}, sizes); len(p.bind.sent) != 0 {
		t.Errorf("sent %x", p.bind.sent)
	}
}

// countingBind notes the counters of what is sent by it. It is safe for concurrent use.
type countingBind struct {
	directBind
	mu   sync.Mutex
	used map[uint64]int
}

func (b *countingBind) SendMarked(bufs [][]byte, _ []uint8, _ conn.Endpoint) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range bufs {
		b.used[binary.LittleEndian.Uint64(m[MessageTransportOffsetCounter:])]++
	}
	return nil
}

// Several seal with one key until no counter is left, or somebody ends the key: none is used
// twice, and none beyond the last.
func TestDirectsUseEachCounterOnce(t *testing.T) {
	const senders, batch, left = 8, 128, 50_000
	for name, expire := range map[string]bool{"until the last": false, "until the key is ended": true} {
		t.Run(name, func(t *testing.T) {
			p := newDirectPair(t)
			bind := &countingBind{used: make(map[uint64]int)}
			p.bind.discard = true // what asks for another key
			const first = RejectAfterMessages - left
			p.keys.sendNonce.Store(first)
			p.peer.handshake.lastSentHandshake = time.Now().Add(time.Hour) // it would ask for another key
			var wg sync.WaitGroup
			for range senders {
				d := p.NewDirect(batch)
				d.bind = bind
				bufs, sizes := make([][]byte, batch), make([]int, batch)
				wg.Add(1)
				go func() {
					defer wg.Done()
					for {
						for i := range bufs {
							bufs[i] = append(make([]byte, MessageTransportHeaderSize, 128), directPacket("10.0.0.1", "10.0.0.2", 40)...)
							sizes[i] = 40
						}
						if !d.Ready(bufs, sizes) {
							return
						}
						d.Send(bufs, sizes)
					}
				}()
			}
			if expire {
				p.peer.ExpireCurrentKeypairs()
			}
			wg.Wait()
			for counter, n := range bind.used {
				if n != 1 || counter < first || counter >= RejectAfterMessages {
					t.Errorf("counter %d was used %d times", counter, n)
				}
			}
			if n := len(bind.used); !expire && n < left-senders*batch {
				t.Errorf("%d counters were used of %d", n, left)
			}
			if end := p.keys.sendNonce.Load(); end > RejectAfterMessages+senders*batch {
				t.Errorf("the counter is %d beyond the last", end-RejectAfterMessages)
			}
		})
	}
}

// A packet without room behind it is sealed all the same.
func TestDirectSealsTheLargest(t *testing.T) {
	p := newDirectPair(t)
	p.Device.tun.mtu.Store(1<<16 - 1)
	d := p.NewDirect(1)
	b := make([]byte, MaxMessageSize)
	length := len(b) - MessageTransportHeaderSize
	sizes := []int{copy(b[MessageTransportHeaderSize:], directPacket("10.1.1.1", "10.2.2.2", length))}
	if !d.Ready([][]byte{b}, sizes) {
		t.Fatal("not ready")
	}
	d.Send([][]byte{b}, sizes)
	if len(p.bind.sent) != 1 || len(p.bind.sent[0]) != length+MessageTransportSize {
		t.Fatalf("%d messages", len(p.bind.sent))
	}
	if r, got := p.receive(d, p.bind.sent[0], new(directEndpoint)); r.Rejected != 0 || len(got) != 1 || len(got[0]) != length {
		t.Errorf("%+v, %d packets", r, len(got))
	}
}

// The ECN field of a packet goes into the outer header, and that of the outer header goes
// with the packet.
func TestDirectECN(t *testing.T) {
	p := newDirectPair(t)
	send, receive := p.NewDirect(8), p.NewDirect(8)
	var bufs [][]byte
	var sizes []int
	for ecn := range uint8(4) {
		for _, packet := range [][]byte{directPacket("10.1.1.1", "10.2.2.2", 60), directPacket("fd00::1", "fd00::2", 60)} {
			if packet[0]>>4 == 4 {
				packet[1] = 0xb8 | ecn
			} else {
				packet[0], packet[1] = 0x6b, 0x80|ecn<<4|0xf
			}
			b := make([]byte, MaxMessageSize)
			sizes = append(sizes, copy(b[MessageTransportHeaderSize:], packet))
			bufs = append(bufs, b)
		}
	}
	if !send.Ready(bufs, sizes) {
		t.Fatal("not ready")
	}
	send.Send(bufs, sizes)
	if want := []uint8{0, 0, 1, 1, 2, 2, 3, 3}; !bytes.Equal(p.bind.marks, want) || len(p.bind.sent) != len(want) {
		t.Errorf("sent with ECN %v, want %v", p.bind.marks, want)
	}
	for i, m := range p.bind.sent {
		p.open(receive, [][]byte{m}, []int{len(m)}, directBatch{&directEndpoint{name: "peer"}, uint8(i % 4)})
	}
	if want := []uint8{0, 1, 2, 3, 0, 1, 2, 3}; !bytes.Equal(p.tun.marks, want) {
		t.Errorf("delivered with ECN %v, want %v", p.tun.marks, want)
	}
}

func TestDirectAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	const runs, batch = 100, 16
	p := newDirectPair(t)
	p.tun.discard, p.bind.discard = true, true
	send, receive := p.NewDirect(batch), p.NewDirect(batch)
	bufs, sizes := make([][]byte, batch), make([]int, batch)
	for i := range bufs {
		bufs[i] = make([]byte, MaxMessageSize)
	}
	packet := directPacket("10.1.1.1", "10.2.2.2", 1300)
	if n := testing.AllocsPerRun(runs, func() {
		for i, b := range bufs {
			sizes[i] = copy(b[MessageTransportHeaderSize:], packet)
		}
		if !send.Ready(bufs, sizes) {
			t.Fatal("not ready")
		}
		send.Send(bufs, sizes)
	}); n != 0 {
		t.Errorf("%v allocations for %d packets sent", n, batch)
	}
	messages := make([][]byte, (runs+1)*batch)
	for i := range messages {
		messages[i] = p.message(uint64(i), packet)
	}
	from := Batch(directBatch{from: &directEndpoint{name: "peer"}})
	next := 0
	if n := testing.AllocsPerRun(runs, func() {
		for i, b := range bufs {
			sizes[i] = copy(b, messages[next])
			next++
		}
		if r := p.open(receive, bufs, sizes, from); r != (Received{Stranger: -1}) {
			t.Fatalf("%+v", r)
		}
	}); n != 0 {
		t.Errorf("%v allocations for %d messages received", n, batch)
	}
}

// TestOutdated: an initiation is outdated if it is genuine and earlier than one that was
// accepted.
func TestOutdated(t *testing.T) {
	p := newDirectPair(t)
	key, err := newPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	other := NewDevice(&directTUN{end: make(chan struct{})}, new(directBind), NewLogger(LogLevelSilent, ""))
	defer other.Close()
	if err := other.SetPrivateKey(key); err != nil {
		t.Fatal(err)
	}
	to, err := other.NewPeer(p.staticIdentity.publicKey)
	if err != nil {
		t.Fatal(err)
	}
	message, err := to.Initiation()
	if err != nil {
		t.Fatal(err)
	}
	if p.Outdated(message) != nil {
		t.Error("of nobody")
	}
	if err := p.IpcSet(fmt.Sprintf("public_key=%x\n", other.staticIdentity.publicKey[:])); err != nil {
		t.Fatal(err)
	}
	from := p.LookupPeer(other.staticIdentity.publicKey)
	if p.Outdated(message) != nil {
		t.Error("the first one")
	}
	from.handshake.lastTimestamp[0] = 0xff
	if got := p.Outdated(message); got != from {
		t.Fatalf("%v, want %v", got, from)
	}
	for i := range message {
		forged := bytes.Clone(message)
		forged[i] ^= 1
		if i < MessageInitiationSize-blake2s.Size128 && p.Outdated(forged) != nil {
			t.Errorf("byte %d is not authenticated by the first MAC", i)
		}
		to.cookieGenerator.AddMacs(forged)
		// The index of the session is not authenticated by anything else.
		sealed := i < 4 || i >= 8 && i < MessageInitiationSize-2*blake2s.Size128
		if got := p.Outdated(forged); sealed != (got == nil) {
			t.Errorf("byte %d changed: %v", i, got)
		}
	}
	if p.Outdated(message[:len(message)-1]) != nil {
		t.Error("a message that is too short")
	}
	from.handshake.lastTimestamp[0] = 0
	var msg MessageInitiation
	if err := msg.unmarshal(message); err != nil || p.ConsumeMessageInitiation(&msg) != from {
		t.Fatal("the initiation is not accepted", err)
	}
	if p.Outdated(message) != nil {
		t.Error("the one that was accepted")
	}
}

// An initiation is accepted by the time that it claims, as those of Initiation are by the
// time that they are made at.
func TestInitiationAt(t *testing.T) {
	p := newDirectPair(t)
	key, err := newPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	other := NewDevice(&directTUN{end: make(chan struct{})}, new(directBind), NewLogger(LogLevelSilent, ""))
	defer other.Close()
	if err := other.SetPrivateKey(key); err != nil {
		t.Fatal(err)
	}
	to, err := other.NewPeer(p.staticIdentity.publicKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.IpcSet(fmt.Sprintf("public_key=%x\n", other.staticIdentity.publicKey[:])); err != nil {
		t.Fatal(err)
	}
	from := p.LookupPeer(other.staticIdentity.publicKey)
	before := time.Now().Add(-time.Minute)
	at := func(at time.Time) func() ([]byte, error) {
		return func() ([]byte, error) { return to.InitiationAt(at) }
	}
	for _, step := range []struct {
		name   string
		make   func() ([]byte, error)
		accept bool
	}{
		{"the first", at(before), true},
		{"the same time", at(before), false},
		{"somewhat later", at(before.Add(20 * time.Millisecond)), true},
		{"now", to.Initiation, true},
		{"earlier", at(before.Add(time.Second)), false},
	} {
		from.handshake.lastInitiationConsumption = time.Time{} // else they come too fast
		message, err := step.make()
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Outdated(message); (got == nil) != step.accept && step.name != "the same time" {
			t.Errorf("%s: outdated: %v", step.name, got != nil)
		}
		var msg MessageInitiation
		if err := msg.unmarshal(message); err != nil {
			t.Fatal(err)
		}
		if got := p.ConsumeMessageInitiation(&msg); (got == from) != step.accept {
			t.Errorf("%s: accepted: %v", step.name, got == from)
		}
	}
}

// toldStates takes the peers' states out of the text of the configuration protocol's "get".
func toldStates(t *testing.T, device *Device) map[string]string {
	t.Helper()
	text, err := device.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	told, key := make(map[string]string), ""
	for _, line := range strings.SplitAfter(text, "\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "public_key":
			key = value
			told[key] = ""
		case "endpoint", "last_handshake_time_sec", "last_handshake_time_nsec", "rx_bytes", "tx_bytes":
			told[key] += line
		}
	}
	return told
}

// asTold writes a state as the configuration protocol does.
func asTold(s PeerState) (text string) {
	if s.Endpoint != nil {
		text = fmt.Sprintf("endpoint=%s\n", s.Endpoint.DstToString())
	}
	var sec, nsec int64
	if !s.LastHandshake.IsZero() {
		sec, nsec = s.LastHandshake.Unix(), int64(s.LastHandshake.Nanosecond())
	}
	return text + fmt.Sprintf("last_handshake_time_sec=%d\nlast_handshake_time_nsec=%d\ntx_bytes=%d\nrx_bytes=%d\n", sec, nsec, s.TxBytes, s.RxBytes)
}

// TestPeerState: of each peer it is what IpcGetOperation tells.
func TestPeerState(t *testing.T) {
	p := newDirectPair(t)
	peers := map[NoisePublicKey]*Peer{}
	for range 8 {
		key, err := newPrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		public := key.publicKey()
		if got, s := p.PeerState(public); got != nil || s != (PeerState{}) {
			t.Fatalf("%v, %+v of a peer that is not there", got, s)
		}
		if err := p.IpcSet(fmt.Sprintf("public_key=%x\n", public[:])); err != nil {
			t.Fatal(err)
		}
		peers[public] = p.LookupPeer(public)
	}
	p.RemovePeer(p.peer.handshake.remoteStatic) // its endpoint has no text
	compare := func() {
		t.Helper()
		told := toldStates(t, p.Device)
		if len(told) != len(peers) {
			t.Fatalf("%d peers are told, want %d", len(told), len(peers))
		}
		for key, peer := range peers {
			got, s := p.PeerState(key)
			if want := told[fmt.Sprintf("%x", key[:])]; got != peer || asTold(s) != want {
				t.Errorf("%v, want %v, with\n%swant\n%s", got, peer, asTold(s), want)
			}
		}
	}
	compare() // of peers that were never heard
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		for _, peer := range peers {
			peer.rxBytes.Store(r.Uint64() >> r.IntN(64))
			peer.txBytes.Store(r.Uint64() >> r.IntN(64))
			peer.lastHandshakeNano.Store(int64(r.Uint64() >> (1 + r.IntN(63))))
			e, err := CreateDummyEndpoint()
			if err != nil {
				t.Fatal(err)
			}
			peer.SetEndpointFromPacket(e)
		}
		compare()
	}
}

// TestPeerStateMeanwhile reads while peers are heard, added and removed: for the race detector.
func TestPeerStateMeanwhile(t *testing.T) {
	p := newDirectPair(t)
	public := p.peer.handshake.remoteStatic
	send, receive := p.NewDirect(directBatchSize), p.NewDirect(directBatchSize)
	other, err := newPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	otherPublic := other.publicKey()
	p.bind.discard, p.tun.discard = true, true
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range uint64(200) {
			bufs, sizes := [][]byte{make([]byte, 200)}, []int{60}
			copy(bufs[0][MessageTransportHeaderSize:], directPacket("10.0.0.1", "10.0.0.2", 60))
			if !send.Ready(bufs, sizes) {
				t.Error("not ready")
			}
			send.Send(bufs, sizes)
			p.receive(receive, p.message(i, directPacket("10.0.0.2", "10.0.0.1", 60)), &directEndpoint{name: "elsewhere"})
			for _, remove := range []string{"", "remove=true\n"} {
				if err := p.IpcSet(fmt.Sprintf("public_key=%x\n%s", otherPublic[:], remove)); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	var last PeerState
	for {
		_, s := p.PeerState(public)
		if s.RxBytes < last.RxBytes || s.TxBytes < last.TxBytes {
			t.Errorf("%+v after %+v", s, last)
		}
		last = s
		p.PeerState(otherPublic)
		select {
		case <-done:
			if _, s := p.PeerState(public); s.RxBytes == 0 || s.TxBytes == 0 {
				t.Errorf("%+v", s)
			}
			return
		default:
		}
	}
}
