package transport

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
)

// The reference is wireguard-go: what it seals must open here, and the other way
// round, whoever begins.

const testMTU = 1420 // wireguard-go's for a device that has none of its own

var (
	loopback  = netip.MustParseAddr("127.0.0.1")
	ourInner  = netip.MustParseAddr("10.1.0.1")
	peerInner = netip.MustParseAddr("10.2.0.1")
)

// newKeys returns a pair of static keys.
func newKeys(t testing.TB) (private, public [KeyLen]byte) {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return [KeyLen]byte(k.Bytes()), [KeyLen]byte(k.PublicKey().Bytes())
}

// end is our end, on a socket.
type end struct {
	*Peer
	t       *testing.T
	conn    *net.UDPConn
	to      atomic.Pointer[netip.AddrPort] // the peer
	packets chan []byte                    // opened
	heard   chan []byte                    // every message as it came
	skew    atomic.Int64                   // what the clock is ahead
	nonce   Nonce                          // of the sending thread
}

func newEnd(t *testing.T, private, peer [KeyLen]byte) *end {
	t.Helper()
	p, err := NewPeer(private, peer)
	if err != nil {
		t.Fatal(err)
	}
	e := &end{Peer: p, t: t, packets: make(chan []byte, 64), heard: make(chan []byte, 4096)}
	if e.conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0))); err != nil {
		t.Fatal(err)
	}
	p.now = func() time.Time { return time.Now().Add(time.Duration(e.skew.Load())) }
	p.Attach(e.write)
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.read()
	}()
	t.Cleanup(func() {
		e.conn.Close()
		<-done
	})
	return e
}

func (e *end) addr() netip.AddrPort { return e.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

func (e *end) write(message []byte) {
	if to := e.to.Load(); to != nil {
		_, _ = e.conn.WriteToUDPAddrPort(message, *to)
	}
}

// read is the thread that opens.
func (e *end) read() {
	var nonce Nonce
	b := make([]byte, 65536)
	for {
		n, _, err := e.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		e.take(b[:n], &nonce)
	}
}

// take takes one message, as a loop does.
func (e *end) take(message []byte, nonce *Nonce) {
	select {
	case e.heard <- bytes.Clone(message):
	default:
	}
	index, ok := Receiver(message)
	if !ok {
		e.Control(message)
		return
	}
	key := e.Receiver(index)
	if key == nil {
		return
	}
	packet, ok := key.Open(message, nonce)
	if !ok {
		return
	}
	e.Confirm(index)
	if len(packet) > 0 {
		e.packets <- bytes.Clone(packet[:binary.BigEndian.Uint16(packet[2:])])
	}
}

// send seals and sends a packet, and reports false while there is no session.
func (e *end) send(packet []byte) bool {
	key := e.Sender()
	if key == nil {
		return false
	}
	padded := make([]byte, PaddedLen(len(packet), testMTU))
	copy(padded, packet)
	message := make([]byte, len(padded)+Overhead)
	e.write(message[:key.Seal(message, padded, key.Reserve(1), &e.nonce)])
	return true
}

// wireGuard is a device of wireguard-go.
type wireGuard struct {
	*device.Device
	tun  *tuntest.ChannelTUN
	port uint16
}

// newWireGuard starts a device. Without an endpoint the peer has to come first.
func newWireGuard(t *testing.T, private, peer [KeyLen]byte, endpoint netip.AddrPort) *wireGuard {
	t.Helper()
	w := &wireGuard{tun: tuntest.NewChannelTUN()}
	w.Device = device.NewDevice(w.tun.TUN(), conn.NewStdNetBind(), &device.Logger{Verbosef: device.DiscardLogf, Errorf: t.Logf})
	t.Cleanup(w.Close)
	text := fmt.Sprintf("private_key=%x\nlisten_port=0\npublic_key=%x\nallowed_ip=%s/32\n", private, peer, ourInner)
	if endpoint.IsValid() {
		text += "endpoint=" + endpoint.String() + "\n"
	}
	if err := w.IpcSet(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(w.get(t, "listen_port"), "%d", &w.port); err != nil {
		t.Fatal(err)
	}
	return w
}

// get returns one value of the device.
func (w *wireGuard) get(t *testing.T, key string) string {
	t.Helper()
	text, err := w.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			return value
		}
	}
	t.Fatalf("no %s in\n%s", key, text)
	return ""
}

// connect returns both ends, with the device's endpoint set or to be learned.
func connect(t *testing.T, endpoint bool) (*end, *wireGuard) {
	t.Helper()
	ourPrivate, ourPublic := newKeys(t)
	private, public := newKeys(t)
	e := newEnd(t, ourPrivate, public)
	to := netip.AddrPort{}
	if endpoint {
		to = e.addr()
	}
	w := newWireGuard(t, private, ourPublic, to)
	peer := netip.AddrPortFrom(loopback, w.port)
	e.to.Store(&peer)
	return e, w
}

// ipPacket returns an IPv4 packet that says what it is.
func ipPacket(src, dst netip.Addr, id, size int) []byte {
	b := make([]byte, size)
	b[0], b[8], b[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(b[2:], uint16(size))
	binary.BigEndian.PutUint16(b[4:], uint16(id))
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	for i := 20; i < size; i++ {
		b[i] = byte(id + i)
	}
	return b
}

// next waits for a packet.
func next(t *testing.T, c <-chan []byte, what string) []byte {
	t.Helper()
	select {
	case p := <-c:
		return p
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: nothing came", what)
		return nil
	}
}

// exchange sends packets of all lengths both ways.
func exchange(t *testing.T, e *end, w *wireGuard) {
	t.Helper()
	for size := 20; size <= testMTU; size += 7 {
		out, back := ipPacket(ourInner, peerInner, size, size), ipPacket(peerInner, ourInner, size, size)
		if !e.send(out) {
			t.Fatalf("no session for packet of %d bytes", size)
		}
		if got := next(t, w.tun.Inbound, "at wireguard-go"); !bytes.Equal(got, out) {
			t.Fatalf("%d bytes arrived as\n%s", size, hex.Dump(got))
		}
		w.tun.Outbound <- back
		if got := next(t, e.packets, "from wireguard-go"); !bytes.Equal(got, back) {
			t.Fatalf("%d bytes came back as\n%s", size, hex.Dump(got))
		}
	}
}

// begin makes our end begin a session.
func begin(t *testing.T, e *end) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for e.Sender() == nil {
		if time.Now().After(deadline) {
			t.Fatal("no session")
		}
		time.Sleep(time.Millisecond) // the response comes to another thread
	}
}

func TestInitiatorToWireGuardGo(t *testing.T) {
	e, w := connect(t, false)
	begin(t, e)
	exchange(t, e, w)
}

func TestResponderToWireGuardGo(t *testing.T) {
	e, w := connect(t, true)
	w.tun.Outbound <- ipPacket(peerInner, ourInner, 1, 100)
	if got := next(t, e.packets, "the first packet"); len(got) != 100 {
		t.Errorf("%d bytes", len(got))
	}
	exchange(t, e, w)
}

func TestSessionsFollowEachOther(t *testing.T) {
	for _, ours := range []bool{true, false} {
		t.Run(fmt.Sprintf("ours=%v", ours), func(t *testing.T) {
			e, w := connect(t, !ours)
			if ours {
				begin(t, e)
			} else {
				w.tun.Outbound <- ipPacket(peerInner, ourInner, 1, 100)
				next(t, e.packets, "the first packet")
			}
			first := e.current.Load()
			exchange(t, e, w)
			if e.current.Load() != first {
				t.Fatal("another session although the first is young")
			}
			// The responder leaves it to the other end until the session is over.
			e.skew.Add(int64(rekeyAfterTime))
			if !ours {
				e.Sender()
				if e.pending != nil {
					t.Error("the responder began a handshake that is not due")
				}
				e.skew.Add(int64(rejectAfterTime - rekeyAfterTime))
				if e.Sender() != nil {
					t.Error("a session is used that is over")
				}
			} else if e.Sender() == nil {
				t.Error("the session ended before the next one was there")
			}
			// wireguard-go ignores an initiation that comes too soon after another: then
			// it is repeated, when the clock says so.
			deadline := time.Now().Add(10 * time.Second)
			for e.current.Load() == first {
				if time.Now().After(deadline) {
					t.Fatal("no other session")
				}
				time.Sleep(time.Millisecond)
				e.skew.Add(int64(rekeyTimeout / 100))
				e.Sender()
			}
			exchange(t, e, w)
		})
	}
}

func TestReplayedMessages(t *testing.T) {
	e, w := connect(t, true)
	w.tun.Outbound <- ipPacket(peerInner, ourInner, 1, 100)
	next(t, e.packets, "the first packet")
	exchange(t, e, w)
	session := e.current.Load()

	// Everything that came comes once more: no packet twice, no other session.
	for range len(e.heard) {
		if _, err := e.conn.WriteToUDPAddrPort(<-e.heard, e.addr()); err != nil {
			t.Fatal(err)
		}
	}
	exchange(t, e, w)
	if len(e.packets) > 0 || e.current.Load() != session || e.next != nil {
		t.Error("a replay had an effect")
	}
}
