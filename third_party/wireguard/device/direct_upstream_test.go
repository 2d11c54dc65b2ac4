//go:build go1.25

package device

// This file is Sluice's, as direct.go is.

import (
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"golang.zx2c4.com/wireguard/conn"
)

// The tests of this file give the same keys, state of the peer, packets and messages to a Direct
// and to the routines that it replaces, and want the same of both: messages byte for byte, where
// they go, what is delivered, counters, replay filters, sessions, timers that run, and what is
// remembered of handshakes. Time stands still meanwhile, so that ages are exact.
//
// What differs on purpose:
//   - Packets without a session are the caller's. wireguard-go keeps them itself: nothing is left of
//     them here after each step.
//   - Messages of a session before the one that the peer uses do not move its endpoint
//     (Inbound.heard). Of a batch of several sessions those of the latest do.
//   - The handshake of a session's last seconds is begun on another goroutine, so that the timer of
//     keepalives may be told first what came, and then what was sent.
//   - A packet of IPv6 that claims to be longer than 65535 bytes is rejected. wireguard-go
//     delivers a part of it.
//   - A packet without room behind it has no padding (TestDirectSealsTheLargest), and messages have
//     ECN fields (TestDirectECN).

// directScript is where decisions of a test come from: one of each byte, and the first
// alternative once there is none.
type directScript []byte

func choose[T any](s *directScript, from ...T) T {
	if len(*s) == 0 {
		return from[0]
	}
	n := int((*s)[0])
	*s = (*s)[1:]
	return from[n%len(from)]
}

// directSide is a device with a peer in some state. Only what reads its TUN device, seals and
// opens runs by itself; the test calls the rest.
type directSide struct {
	*directPair
	out, in  *Direct     // nil: wireguard-go's routines
	sessions [3]*Keypair // previous, current, next: whether the peer has them or not
}

// lastMinute is the age from which on a session that is heard is replaced.
const lastMinute = RejectAfterTime - KeepaliveTimeout - RekeyTimeout

func newDirectSide(t *testing.T, direct bool, s *directScript) *directSide {
	p := &directSide{directPair: newDirectPair(t)}
	if direct {
		p.out, p.in = p.NewDirect(directBatchSize), p.NewDirect(directBatchSize)
	}
	peer, now := p.peer, time.Now()
	peer.queue.inbound.c <- nil
	peer.queue.outbound.c <- nil
	synctest.Wait()

	var ages []time.Duration
	for range p.sessions {
		age := choose(s, 0, time.Minute, RekeyAfterTime, lastMinute, RejectAfterTime)
		ages = append(ages, age+choose[time.Duration](s, 0, 1, -1))
	}
	slices.Sort(ages)
	peer.keypairs.current = nil
	for i := range p.sessions {
		k := &Keypair{
			send: directCipher(t, byte(2*i)), receive: directCipher(t, byte(2*i+1)),
			created: now.Add(-ages[len(ages)-1-i]), isInitiator: choose(s, true, false),
			localIndex: directIndex + uint32(i), remoteIndex: 0x01020304 * uint32(i+1),
		}
		k.sendNonce.Store(choose[uint64](s, 0, 1<<40, RekeyAfterMessages, RejectAfterMessages) + choose(s, 0, 1, 2, ^uint64(0), ^uint64(1), ^uint64(2)))
		p.sessions[i] = k
		delete(p.indexTable.table, k.localIndex)
		if choose(s, true, true, true, false) {
			p.indexTable.table[k.localIndex] = IndexTableEntry{peer: peer, keypair: k}
			switch i {
			case 0:
				peer.keypairs.previous = k
			case 1:
				peer.keypairs.current = k
			case 2:
				peer.keypairs.next.Store(k)
			}
		}
	}
	for _, timer := range p.timers() {
		if choose(s, false, true) {
			timer.Mod(time.Hour)
		}
	}
	peer.timers.handshakeAttempts.Store(choose[uint32](s, 0, 3))
	peer.timers.needAnotherKeepalive.Store(choose(s, false, true))
	peer.timers.sentLastMinuteHandshake.Store(choose(s, false, true))
	peer.persistentKeepaliveInterval.Store(choose[uint32](s, 0, 25))
	peer.handshake.lastSentHandshake = now.Add(-choose(s, time.Hour, RekeyTimeout, RekeyTimeout-1))
	peer.endpoint.clearSrcOnTx = choose(s, false, true)
	peer.endpoint.disableRoaming = choose(s, false, false, true)
	if choose(s, false, false, false, false, true) {
		peer.endpoint.val = nil
	}
	p.Device.tun.mtu.Store(choose[int32](s, DefaultMTU, 1340, 1339, 100, 16, 1, 0, 1<<16-1))
	p.bind.err = choose[error](s, nil, nil, nil, nil, io.ErrClosedPipe)
	peer.isRunning.Store(choose(s, true, true, true, true, true, true, true, false))
	t.Cleanup(func() { peer.isRunning.Store(true) }) // or it would not be stopped
	return p
}

func directCipher(t *testing.T, key byte) cipher.AEAD {
	aead, err := chacha20poly1305.New(bytes.Repeat([]byte{key}, chacha20poly1305.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return aead
}

func (p *directSide) timers() []*Timer {
	t := &p.peer.timers
	return []*Timer{t.retransmitHandshake, t.sendKeepalive, t.newHandshake, t.zeroKeyMaterial, t.persistentKeepalive}
}

// send has packets sent.
func (p *directSide) send(packets [][]byte) {
	if p.out == nil {
		p.tun.packets <- packets
	} else {
		p.sendDirect(packets)
	}
	p.drain()
	p.peer.FlushStagedPackets()
}

// sendDirect is what package tunnel does with a batch.
func (p *directSide) sendDirect(packets [][]byte) {
	d := p.out
	var bufs [][]byte
	var sizes []int
	for _, packet := range packets {
		b := bytes.Repeat([]byte{0xff}, MaxMessageSize) // what padding overwrites
		bufs, sizes = append(bufs, b), append(sizes, copy(b[MessageTransportHeaderSize:], packet))
	}
	if d.Ready(bufs, sizes) {
		d.Send(bufs, sizes)
		return
	}
	for i, packet := range packets {
		if d.Ready(bufs[i:i+1], sizes[i:i+1]) {
			d.Send(bufs[i:i+1], sizes[i:i+1])
		} else if peer := d.Peer(packet); peer != nil {
			d.Ask(peer)
		}
	}
}

// drain has what is queued sent.
func (p *directSide) drain() {
	synctest.Wait()
	p.peer.queue.outbound.c <- nil
	p.peer.stopping.Add(1)
	p.peer.RoutineSequentialSender(directBatchSize)
}

// receive has messages received, each of which is from somewhere.
func (p *directSide) receive(messages [][]byte, from []string) (r Received) {
	var endpoints directBatches
	for _, name := range from {
		endpoints = append(endpoints, &directEndpoint{name: name})
	}
	if p.in == nil {
		p.receiveQueued(messages, endpoints)
	} else {
		var bufs [][]byte
		var sizes []int
		for _, m := range messages {
			bufs, sizes = append(bufs, append(bytes.Clone(m), make([]byte, 64)...)), append(sizes, len(m))
		}
		r = p.open(p.in, bufs, sizes, endpoints)
	}
	p.drain()
	return r
}

// receiveQueued has wireguard-go's own routines receive messages.
func (p *directSide) receiveQueued(messages [][]byte, endpoints []conn.Endpoint) {
	p.queue.decryption.wg.Add(1)
	p.queue.handshake.wg.Add(1)
	p.net.stopping.Add(1)
	once := false
	p.RoutineReceiveIncoming(directBatchSize, func(bufs [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		if once {
			return 0, net.ErrClosed
		}
		once = true
		for i, m := range messages {
			sizes[i], eps[i] = copy(bufs[i], m), endpoints[i]
		}
		return len(messages), nil
	})
	p.peer.queue.inbound.c <- nil
	p.peer.stopping.Add(1)
	p.peer.RoutineSequentialReceiver(directBatchSize)
}

// endpointName is where packets for the peer go.
func (p *directSide) endpointName() string {
	if e, ok := p.peer.endpoint.val.(*directEndpoint); ok {
		return e.name
	}
	return "nowhere"
}

// observe tells what has happened since the last time, and the state, by names.
func (p *directSide) observe() (seen [][2]string) {
	add := func(name string, value ...any) { seen = append(seen, [2]string{name, fmt.Sprint(value...)}) }
	peer := p.peer
	var messages, to, handshakes, handshakesTo []string
	for i, m := range p.bind.sent {
		name := p.bind.to[i].(*directEndpoint).name
		if kind := binary.LittleEndian.Uint32(m); kind == MessageTransportType {
			messages, to = append(messages, fmt.Sprintf("%x", m)), append(to, name)
		} else {
			handshakes, handshakesTo = append(handshakes, fmt.Sprintf("%d of %d bytes", kind, len(m))), append(handshakesTo, name)
		}
	}
	add("messages", messages)
	add("handshakes", handshakes)
	add("to", to, handshakesTo)
	add("delivered", fmt.Sprintf("%x", p.tun.written))
	p.bind.sent, p.bind.to, p.bind.marks, p.tun.written = nil, nil, nil, nil
	add("txBytes", peer.txBytes.Load())
	add("rxBytes", peer.rxBytes.Load())
	for i, k := range p.sessions {
		add(fmt.Sprint("session ", i), " current ", peer.keypairs.current == k, " previous ", peer.keypairs.previous == k, " next ", peer.keypairs.next.Load() == k,
			" received ", p.indexTable.Lookup(k.localIndex).keypair == k, " sendNonce ", k.sendNonce.Load(), " replay filter ", k.replayFilter)
	}
	for i, name := range []string{"retransmitHandshake", "sendKeepalive", "newHandshake", "zeroKeyMaterial", "persistentKeepalive"} {
		add(name, p.timers()[i].IsPending())
	}
	add("handshakeAttempts", peer.timers.handshakeAttempts.Load())
	add("needAnotherKeepalive", peer.timers.needAnotherKeepalive.Load())
	add("sentLastMinuteHandshake", peer.timers.sentLastMinuteHandshake.Load())
	add("lastHandshakeNano", peer.lastHandshakeNano.Load())
	add("lastSentHandshake", peer.handshake.lastSentHandshake)
	add("endpoint", p.endpointName(), " to be cleared ", peer.endpoint.clearSrcOnTx)
	if e, ok := peer.endpoint.val.(*directEndpoint); ok {
		add("cleared", e.cleared)
	}
	return seen
}

// directSides are a Direct and wireguard-go's routines, in one state.
type directSides struct {
	*testing.T
	ours, theirs *directSide
	content      []byte // a packet or whatever messages have in it
}

func newDirectSides(t *testing.T, s *directScript, content []byte) *directSides {
	same := *s
	return &directSides{t, newDirectSide(t, true, &same), newDirectSide(t, false, s), content}
}

// compare compares what has happened, but for what may differ.
func (d *directSides) compare(step string, except ...string) {
	d.Helper()
	want := d.theirs.observe()
	for i, got := range d.ours.observe() {
		if got != want[i] && !slices.Contains(except, got[0]) {
			d.Errorf("%s: %s\n is %s\nnot %s", step, got[0], got[1], want[i][1])
		}
	}
}

// keepalive has both send a keepalive, which is wireguard-go's in both.
func (d *directSides) keepalive(step string) {
	for _, p := range []*directSide{d.ours, d.theirs} {
		p.peer.SendKeepalive()
		p.drain()
	}
	d.compare(step)
}

// send has both send a batch.
func (d *directSides) send(step string, s *directScript) {
	var packets [][]byte
	var lengths []int
	mtu := int(d.ours.Device.tun.mtu.Load())
	for range choose(s, 1, 2, 3, directBatchSize) {
		length := choose(s, 60, 0, 20, 40, mtu, 2*mtu) + choose(s, 0, 0, 1, 2, 15, 16, 17, -1, -15, -16, -17)
		const room = MaxMessageSize - MessageTransportSize - PaddingMultiple + 1
		length = max(0, min(length, room))
		to := choose(s, "10.1.1.1", "10.1.1.2", "fd00::1", "10.1.1.1", "10.1.1.2", "fd00::1", "192.0.2.1", "2001:db8::1")
		packet := append(directPacket(to, to, 60), make([]byte, length)...)[:length]
		if choose(s, false, false, false, false, false, true) {
			packet = d.content[:min(len(d.content), room)]
		}
		packets, lengths = append(packets, packet), append(lengths, len(packet))
	}
	d.ours.send(packets)
	d.theirs.send(packets)
	d.compare(fmt.Sprintf("%s, packets of %d bytes, MTU %d", step, lengths, mtu))
}

// receive has both receive a batch.
func (d *directSides) receive(step string, s *directScript) {
	v4, v6 := directPacket("10.1.1.1", "10.2.2.2", 60), directPacket("fd00::1", "fd00::2", 80)
	var messages [][]byte
	var from []string
	var of []*Keypair // their sessions
	want := Received{}
	for range choose(s, 1, 2, 3, directBatchSize) {
		k := choose(s, d.theirs.sessions[1], d.theirs.sessions[2], d.theirs.sessions[0], d.theirs.sessions[1], &Keypair{
			receive: directCipher(d.T, 0), localIndex: directIndex + uint32(len(d.theirs.sessions)),
		})
		counter := choose(s, 0, 1, 2, 3, 64, 8127, 8128, 8129, 8192, 1<<40, RejectAfterMessages-2, RejectAfterMessages-1, RejectAfterMessages, ^uint64(0))
		m := directMessage(k, counter, choose(s, v4, nil, v6, d.content, append(bytes.Clone(v4), 0, 0, 0), directPacket("10.1.1.1", "192.0.2.1", 60)))
		switch e := d.theirs.indexTable.Lookup(k.localIndex).keypair; {
		case choose(s, false, false, false, false, false, false, false, true):
			m = choose(s, m[:MessageTransportSize-1], append([]byte{MessageTransportType + 1}, m[1:]...), nil)
			want.Left++
		case e == nil || time.Since(e.created) > RejectAfterTime:
			want.Unknown++
		default:
			of = append(of, k)
		}
		if choose(s, false, false, false, false, false, true) && len(m) > MessageTransportOffsetCounter {
			m[len(m)-1-choose(s, 0, 15, 16, 17)%(len(m)-MessageTransportOffsetCounter)] ^= 1
		}
		messages, from = append(messages, m), append(from, choose(s, "here", "there", "elsewhere"))
	}
	before, next, asked := d.ours.endpointName(), d.theirs.peer.keypairs.next.Load(), d.ours.peer.handshake.lastSentHandshake
	got := d.ours.receive(messages, from)
	d.theirs.receive(messages, from)

	want.Confirmed = next != nil && d.theirs.peer.keypairs.next.Load() == nil
	want.Rejected = len(of) - len(d.theirs.tun.written) - int(d.theirs.keepalives.Swap(0))
	want.Stranger, want.StrangerSize, want.Replaced = got.Stranger, got.StrangerSize, got.Replaced // wireguard-go does not tell
	if got != want {
		d.Errorf("%s: %+v, want %+v", step, got, want)
	}
	var except []string
	if d.ours.endpointName() != d.theirs.endpointName() {
		d.otherEndpoint(step, before, of, from)
		except = append(except, "to")
	}
	if d.ours.peer.handshake.lastSentHandshake != asked {
		except = append(except, "sendKeepalive", "needAnotherKeepalive")
	}
	d.compare(fmt.Sprintf("%s, %d messages", step, len(messages)), except...)
	if slices.Contains(except, "sendKeepalive") { // both go on with the same
		ours, theirs := &d.ours.peer.timers, &d.theirs.peer.timers
		theirs.needAnotherKeepalive.Store(ours.needAnotherKeepalive.Load())
		if theirs.sendKeepalive.Del(); ours.sendKeepalive.IsPending() {
			theirs.sendKeepalive.Mod(time.Hour)
		}
	}
}

// otherEndpoint judges another endpoint than wireguard-go's, and has both go on with it.
func (d *directSides) otherEndpoint(step, before string, of []*Keypair, from []string) {
	former := false // some message is of a session before the one in use
	for _, k := range of {
		former = former || d.theirs.peer.keypairs.current != nil && k.created.Before(d.theirs.peer.keypairs.current.created) || k != of[0]
	}
	if ours := d.ours.endpointName(); !former || ours != before && !slices.Contains(from, ours) {
		d.Errorf("%s: the peer is %s after %s, and by wireguard-go %s", step, ours, before, d.theirs.endpointName())
	}
	d.theirs.peer.endpoint.val = &directEndpoint{name: d.ours.endpointName()}
	d.theirs.peer.endpoint.clearSrcOnTx = d.ours.peer.endpoint.clearSrcOnTx
}

func FuzzDirect(f *testing.F) {
	v4, v6 := directPacket("10.1.1.1", "10.2.2.2", 60), directPacket("fd00::1", "fd00::2", 80)
	contents := [][]byte{
		v4, v6, directPacket("10.1.1.1", "10.2.2.2", 20), nil, {0x45}, v4[:19], v6[:39], v4[:59], v6[:79], append(bytes.Clone(v4), 0, 0, 0), append(bytes.Clone(v6), 0),
		directPacket("10.1.1.1", "192.0.2.1", 60), directPacket("fd00::1", "2001:db8::1", 80), append([]byte{0x55}, v4[1:]...),
		append([]byte{0x60, 0, 0, 0, 0xff, 0xf0}, v6[6:]...), append([]byte{0x45, 0, 0, 19}, v4[4:]...),
	}
	for i := range 40 * len(contents) {
		r, script := rand.New(rand.NewPCG(uint64(i), 0)), make([]byte, 200)
		for j := range script {
			script[j] = byte(r.Uint32())
		}
		f.Add(script, contents[i%len(contents)])
	}
	f.Fuzz(func(t *testing.T, script, content []byte) {
		if len(content) > MaxContentSize {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			if len(content) >= 40 && content[0]>>4 == 6 && binary.BigEndian.Uint16(content[IPv6offsetPayloadLength:]) > 1<<16-1-40 {
				p := newDirectPair(t)
				if r, got := p.receive(p.NewDirect(1), p.message(0, content), new(directEndpoint)); r.Rejected != 1 || len(got) > 0 {
					t.Errorf("%+v, delivered %x, longer than what came", r, got)
				}
				return
			}
			s := directScript(script)
			d := newDirectSides(t, &s, content)
			for i := 0; i < 8 && len(s) > 0 && !t.Failed(); i++ {
				switch kind := choose(&s, "send", "receive", "keepalive", "send", "receive"); kind {
				case "send":
					d.send(fmt.Sprint(i, " send"), &s)
				case "receive":
					d.receive(fmt.Sprint(i, " receive"), &s)
				case "keepalive":
					d.keepalive(fmt.Sprint(i, " keepalive"))
				}
			}
		})
	})
}

// Counters and ages at which a session is replaced, or ends, exactly.
func TestDirectAtTheLimits(t *testing.T) {
	change := func(name string, change func(k *Keypair)) {
		for packets := range byte(directBatchSize) {
			t.Run(fmt.Sprint(name, ", packets: ", packets+1), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDirectSides(t, new(directScript), nil)
					change(d.ours.sessions[1])
					change(d.theirs.sessions[1])
					for i := range byte(3) {
						d.send(fmt.Sprint(i), &directScript{packets})
						s := directScript{packets}
						for j := range byte(directBatchSize) {
							s = append(s, 0, 5*i+j, 0, 0, 0, 0) // the last counters are those from RejectAfterMessages - 2
						}
						d.receive(fmt.Sprint(i), &s)
					}
				})
			})
		}
	}
	for name, limit := range map[string]uint64{"RekeyAfterMessages": RekeyAfterMessages, "RejectAfterMessages": RejectAfterMessages} {
		for beyond := -directBatchSize - 1; beyond <= 2; beyond++ {
			change(fmt.Sprint(name, " ", beyond), func(k *Keypair) { k.sendNonce.Store(limit + uint64(beyond)) })
		}
	}
	for _, limit := range []time.Duration{RekeyAfterTime, lastMinute, RejectAfterTime} {
		for beyond := range time.Duration(3) {
			for _, initiator := range []bool{true, false} {
				change(fmt.Sprint(limit+beyond-1, " initiator ", initiator), func(k *Keypair) {
					k.created, k.isInitiator = time.Now().Add(-limit-beyond+1), initiator
				})
			}
		}
	}
}
