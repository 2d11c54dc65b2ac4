package tunnel

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/sluice-net/sluice/underlay"
)

// strange are datagrams of somebody who has no key that the gateway knows: none of them
// is, or begins, a session. He may know the gateway's public key.
func strange(t *testing.T, to PublicKey) (all [][]byte) {
	var macs device.CookieGenerator // of the upstream implementation
	macs.Init(device.NoisePublicKey(to))
	r := rand.NewChaCha8([32]byte{1})
	random := func(kind uint32, size int) []byte {
		m := message(kind, size)
		r.Read(m[4:])
		return m
	}
	for _, size := range []int{4, 31, keepaliveLen, cookieReplyLen, 92, initiationLen, 1400} {
		for _, kind := range []uint32{0, typeInitiation, typeResponse, typeCookieReply, 5, 1 << 31} {
			all = append(all, random(kind, size))
		}
	}
	for _, m := range [][]byte{random(typeInitiation, initiationLen), random(typeResponse, responseLen)} {
		macs.AddMacs(m)
		all = append(all, m)
	}
	return append(all, initiationAt(t, 0, GeneratePrivateKey(), to))
}

// A port scanner hears nothing, whatever it sends and whether there is a session or not.
// (What looks like a message of a session is that of TestStrangerHearsLittle.)
func TestStrangersHearNothing(t *testing.T) {
	keyA, keyB := GeneratePrivateKey(), GeneratePrivateKey()
	toA, toB := strange(t, keyA.Public()), strange(t, keyB.Public())
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
		b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
		a.key, b.key = keyA, keyB
		connect(t, a, b)
		b.run(t)
		synctest.Wait()
		stranger := newStranger(t, n, "192.0.2.66")
		defer stranger.Close()
		scan := func(g *gateway, all [][]byte) {
			for _, m := range all {
				n.send(stranger.memSocket, g.bind.open.LocalAddr(), m)
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if count, bytes := stranger.received(); count > 0 {
				t.Errorf("the stranger hears %d datagrams of %d bytes", count, bytes)
			}
		}
		keepPeers(b)
		scan(b, toB)
		a.run(t)
		synctest.Wait()
		cross(t, a, b, 1)
		keepPeers(a, b)
		scan(b, toB)
		scan(a, toA)
		cross(t, a, b, 2)
		cross(t, b, a, 3)
	})
}

// Who reads the traffic sees neither what a packet carries nor whose it is.
func TestPacketsCannotBeRead(t *testing.T) {
	noLeaks(t)
	n := newMemNet()
	a, b := newPair(t, n)
	cross(t, a, b, 0)
	const secret = "what one pod tells another"
	p := ipPacket(a.inner, b.inner, 1, 100)
	copy(p[24:], secret)
	addresses := slices.Clone(p[12:20])
	var sent, readable atomic.Int64
	n.setDrop(func(from, _ netip.AddrPort, m []byte) bool {
		if from.Addr().String() == a.host && classify(m) == messageData {
			sent.Add(1)
		}
		if bytes.Contains(m, []byte(secret)) || bytes.Contains(m, addresses) {
			readable.Add(1)
		}
		return false
	})
	a.overlay.out <- p
	if got := receive(t, b.overlay.in, "the packet"); !bytes.Contains(got, []byte(secret)) {
		t.Fatalf("another packet arrives: %q", got)
	}
	if sent.Load() == 0 || readable.Load() > 0 {
		t.Errorf("of %d messages %d can be read", sent.Load(), readable.Load())
	}
}

// countedSocket counts calls that write.
type countedSocket struct {
	Socket
	calls atomic.Int64
}

func (s *countedSocket) WriteBatch(ds []underlay.Datagram) (int, error) {
	s.calls.Add(1)
	return s.Socket.WriteBatch(ds)
}

// A flood of handshakes draws cookies, which are less than half as large and leave in batches, and the peer connects all
// the same.
func TestFloodOfHandshakesDrawsLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
		socket := new(countedSocket)
		b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: func(port uint16) (Socket, error) {
			s, err := n.listen("192.0.2.2")(port)
			socket.Socket = s
			return socket, err
		}})
		connect(t, a, b)
		stranger := newStranger(t, n, "192.0.2.66")
		defer stranger.Close()
		var macs device.CookieGenerator
		macs.Init(device.NoisePublicKey(b.key.Public()))
		r := rand.NewChaCha8([32]byte{2})
		if device.QueueHandshakeSize != 1024 {
			t.Errorf("%d handshakes wait, and not 1024, as the documents say", device.QueueHandshakeSize)
		}
		const flood = 1000
		var all [][]byte
		for range flood {
			m := message(typeInitiation, initiationLen)
			r.Read(m[4:])
			macs.AddMacs(m)
			all = append(all, m)
		}
		b.run(t)
		synctest.Wait()
		keepPeers(b)
		// On one processor they are all read before any is answered, or a fast machine would be
		// under no load.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		for _, m := range all {
			n.send(stranger.memSocket, b.bind.open.LocalAddr(), m)
		}
		synctest.Wait()
		count, bytes := stranger.received()
		if count == 0 || count > flood || bytes != count*cookieReplyLen {
			t.Errorf("%d handshakes draw %d datagrams of %d bytes, want cookies of %d each", flood, count, bytes, cookieReplyLen)
		}
		if calls := int(socket.calls.Load()); calls == 0 || calls > 4+count/BatchSize {
			t.Errorf("%d cookies took %d system calls", count, calls)
		}
		if limited := b.Stats().DropHandshakeLimit; limited > flood-quotaSize || limited < flood-2*quotaSize {
			t.Errorf("%d of %d handshakes are dropped, want those above %d", limited, flood, quotaSize)
		}
		t.Logf("%d bytes draw %d", flood*initiationLen, bytes)
		a.run(t)
		synctest.Wait()
		keepPeers(a)
		if took := reconnect(t, a, b, func() {}); took > 10*time.Second {
			t.Errorf("the peer needed %v", took)
		}
		if s := b.Stats(); s.Endpoint != a.bind.open.LocalAddr() {
			t.Errorf("the peer is at %v, want %v", s.Endpoint, a.bind.open.LocalAddr())
		}
	})
}

// Without the peer's key nothing passes from that moment on, either way: there is no
// grace as there is for a key that another one replaces.
func TestWithoutThePeersKeyNothingPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, newMemNet())
		cross(t, a, b, 0)
		cross(t, b, a, 1)
		keepPeers(a, b)
		b.apply(t, func(c *Config) { c.PeerKey = PublicKey{} })
		for id := range uint32(300) {
			a.overlay.out <- ipPacket(a.inner, b.inner, 2+id, 100)
			b.overlay.out <- ipPacket(b.inner, a.inner, 2+id, 100)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if there, here := len(a.overlay.in), len(b.overlay.in); there > 0 || here > 0 {
			t.Errorf("%d packets pass to the peer, and %d from it", there, here)
		}
		if s := b.Stats(); s.DropNoPeer+s.DropNoEndpoint != 300 {
			t.Errorf("not all 300 packets were dropped for want of a peer: %+v", s)
		}
	})
}
