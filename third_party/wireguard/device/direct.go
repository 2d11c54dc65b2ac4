package device

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"time"

	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/tai64n"
)

// This file is Sluice's. Everything else in this module is as its authors publish
// it, which TestThirdParty in the root of the repository verifies.

// Direct seals and opens batches on the goroutine that calls, without a queue and
// without another goroutine. It does what these do, in their order:
//
//	Ready, Send   RoutineReadFromTUN, SendStagedPackets, RoutineEncryption, RoutineSequentialSender, SendBuffers
//	Open, Accept  RoutineReceiveIncoming, RoutineDecryption, RoutineSequentialReceiver
//
// Handshakes, timers, keys, cookies and keepalives are the device's. A Direct serves one
// goroutine for one of the directions. Several may be in Open at the same time. In Accept
// there may be one, of all that receive messages of the device: its replay filters have no
// lock.
type Direct struct {
	device *Device
	bind   Bind
	nonce  [chacha20poly1305.NonceSize]byte
	bufs   [][]byte // messages to send, or packets that were accepted
	ecn    []uint8  // for their outer headers, or of them

	// What Ready has found.
	peer    *Peer
	keypair *Keypair
	count   int

	// What Open has done.
	opened   []opened
	received Received
}

// opened is a genuine message, whose packet is open.
type opened struct {
	place   int // in its batch
	message []byte
	peer    *Peer
	keypair *Keypair
}

// Inbound is what all who receive messages of a device share. It belongs to who is in Accept.
type Inbound struct {
	// confirmed is the session in use of the peer that was heard last, once it was heard
	// by it.
	confirmed *Keypair
}

// Bind is what a Direct sends by: the device's bind, of which it needs more than conn.Bind.
type Bind interface {
	// SendMarked is Send with the ECN field (RFC 3168 section 5) for the IP header of each
	// message.
	SendMarked(bufs [][]byte, ecn []uint8, ep conn.Endpoint) error
}

// Batch is where the messages of a batch are from.
type Batch interface {
	// Endpoint is the sender of a message. It is asked for genuine ones only.
	Endpoint(i int) conn.Endpoint
	// ECN is the ECN field of a message's IP header.
	ECN(i int) uint8
}

// NewDirect returns a Direct for batches of up to size. The device's bind must be a Bind.
func (device *Device) NewDirect(size int) *Direct {
	return &Direct{
		device: device, bind: device.net.bind.(Bind),
		bufs: make([][]byte, 0, size), ecn: make([]uint8, 0, size), opened: make([]opened, 0, size),
	}
}

// Ready reports whether Send can send packets: the i-th in
// bufs[i][MessageTransportHeaderSize:][:sizes[i]]; size 0 is skipped. It cannot where there
// is no session, or not one peer for all of them.
func (d *Direct) Ready(bufs [][]byte, sizes []int) bool {
	d.peer, d.count = d.route(bufs, sizes)
	if d.peer == nil || !d.peer.isRunning.Load() || !d.device.isUp() {
		return false
	}
	d.keypair = d.peer.keypairs.Current()
	return d.keypair != nil && d.keypair.sendNonce.Load() <= RejectAfterMessages-uint64(d.count) && time.Since(d.keypair.created) < RejectAfterTime
}

// Send seals the packets for which Ready was asked last, in place, and sends them. Where a
// buffer has no room behind its packet there is no padding, and the message is a copy. The
// outer header has the ECN field of the inner one: RFC 6040 section 4.1, normal mode.
func (d *Direct) Send(bufs [][]byte, sizes []int) {
	peer, keypair := d.peer, d.keypair
	end := keypair.sendNonce.Add(uint64(d.count))
	if end > RejectAfterMessages {
		return // ExpireCurrentKeypairs was faster
	}
	counter := end - uint64(d.count)
	mtu := int(d.device.tun.mtu.Load())
	for i, size := range sizes {
		if size < 1 {
			continue
		}
		d.ecn = append(d.ecn, ecnOf(bufs[i][MessageTransportHeaderSize:])) // sealing overwrites it
		d.bufs = append(d.bufs, d.seal(keypair, counter, bufs[i], size, mtu))
		counter++
	}

	peer.timersAnyAuthenticatedPacketTraversal()
	peer.timersAnyAuthenticatedPacketSent()
	err := d.sendBuffers(peer)
	peer.timersDataSent()
	d.bufs, d.ecn = d.bufs[:0], d.ecn[:0]
	if err != nil {
		d.device.log.Errorf("%v - Failed to send data packets: %v", peer, err)
		return
	}
	peer.keepKeyFreshSending()
}

// ecnOf returns the ECN field of an IP packet.
func ecnOf(packet []byte) uint8 {
	const mask = 3
	if packet[0]>>4 == 6 {
		return packet[1] >> 4 & mask
	}
	return packet[1] & mask
}

// sendBuffers is Peer.SendBuffers with ECN fields.
func (d *Direct) sendBuffers(peer *Peer) error {
	d.device.net.RLock()
	defer d.device.net.RUnlock()
	if d.device.isClosed() {
		return nil
	}
	peer.endpoint.Lock()
	endpoint := peer.endpoint.val
	if endpoint == nil {
		peer.endpoint.Unlock()
		return errors.New("no known endpoint for peer")
	}
	if peer.endpoint.clearSrcOnTx {
		endpoint.ClearSrc()
		peer.endpoint.clearSrcOnTx = false
	}
	peer.endpoint.Unlock()
	if err := d.bind.SendMarked(d.bufs, d.ecn, endpoint); err != nil {
		return err
	}
	var total uint64
	for _, b := range d.bufs {
		total += uint64(len(b))
	}
	peer.txBytes.Add(total)
	return nil
}

// route returns the peer that all packets are for, nil if there is not one, and how
// many there are.
func (d *Direct) route(bufs [][]byte, sizes []int) (peer *Peer, n int) {
	var last []byte // the destination that peer was found for
	for i, size := range sizes {
		if size < 1 {
			continue
		}
		dst := destination(bufs[i][MessageTransportHeaderSize:][:size])
		if dst == nil {
			return nil, 0
		}
		n++
		if bytes.Equal(dst, last) {
			continue // the lookup costs more than this: most of a batch belongs to one flow
		}
		to := d.device.allowedips.Lookup(dst)
		if to == nil || last != nil && to != peer {
			return nil, 0
		}
		peer, last = to, dst
	}
	return peer, n
}

// Peer returns the peer that has the destination of a packet in its allowed IPs, nil if
// none has.
func (d *Direct) Peer(packet []byte) *Peer {
	if dst := destination(packet); dst != nil {
		return d.device.allowedips.Lookup(dst)
	}
	return nil
}

// destination is the destination address of an IP packet, nil if it is none.
func destination(packet []byte) []byte {
	switch {
	case len(packet) >= ipv4.HeaderLen && packet[0]>>4 == 4:
		return packet[IPv4offsetDst:][:net.IPv4len]
	case len(packet) >= ipv6.HeaderLen && packet[0]>>4 == 6:
		return packet[IPv6offsetDst:][:net.IPv6len]
	}
	return nil
}

// Ask begins a handshake with a peer, as RoutineReadFromTUN does for packets without a
// session: not within RekeyTimeout after another one. An error is logged by the device, and
// means what a lost message means.
func (d *Direct) Ask(peer *Peer) {
	if peer.isRunning.Load() && d.device.isUp() {
		_ = peer.SendHandshakeInitiation(false)
	}
}

// seal makes the message of a packet that has room in front.
func (d *Direct) seal(k *Keypair, counter uint64, buf []byte, size, mtu int) []byte {
	header := buf[:MessageTransportHeaderSize]
	binary.LittleEndian.PutUint32(header, MessageTransportType)
	binary.LittleEndian.PutUint32(header[MessageTransportOffsetReceiver:], k.remoteIndex)
	binary.LittleEndian.PutUint64(header[MessageTransportOffsetCounter:], counter)
	padding := max(0, min(calculatePaddingSize(size, mtu), len(buf)-MessageTransportSize-size))
	packet := buf[MessageTransportHeaderSize : MessageTransportHeaderSize+size+padding]
	clear(packet[size:])
	binary.LittleEndian.PutUint64(d.nonce[4:], counter)
	return k.send.Seal(header, d.nonce[:], packet, nil)
}

// Received is what became of the data messages of a batch.
type Received struct {
	// Unknown are for no session of ours, or an expired one. Stranger is the place of
	// the largest of them, -1 for none, and StrangerSize its size.
	Unknown, Stranger, StrangerSize int
	// Rejected were not genuine, came before, or were for nobody here.
	Rejected int
	// Replaced tells, by being above zero, that some came by a session although the peer uses
	// a later one, of ReplacedAfter ago: they are of another holder of the peer's key.
	Replaced int
	// Left are no data messages.
	Left int
	// Confirmed: a session that a peer began can be used from now on.
	Confirmed bool
}

// ReplacedAfter is how long messages of a session may be under way when the peer has used the
// next one already.
const ReplacedAfter = 10 * time.Second

// Open opens the data messages of a batch in place, the i-th in bufs[i][:sizes[i]]. It makes
// the sizes of all of them -1, and leaves alone what is no data message. What it opens is
// genuine, but may have come before: Accept follows.
func (d *Direct) Open(bufs [][]byte, sizes []int) {
	d.received = Received{Stranger: -1}
	r, now := &d.received, time.Now()
	var session uint32
	var entry IndexTableEntry // of that session
	for i, size := range sizes {
		if size < MessageTransportSize || binary.LittleEndian.Uint32(bufs[i]) != MessageTransportType {
			r.Left++
			continue
		}
		sizes[i] = -1
		message := bufs[i][:size]
		// Most messages are of the session of the one before. The table has a lock that all
		// processors write to.
		if of := binary.LittleEndian.Uint32(message[MessageTransportOffsetReceiver:]); entry.keypair == nil || of != session {
			session, entry = of, d.device.indexTable.Lookup(of)
		}
		if entry.keypair == nil || entry.keypair.created.Add(RejectAfterTime).Before(now) {
			r.Unknown++
			if size > r.StrangerSize {
				r.Stranger, r.StrangerSize = i, size
			}
			continue
		}
		if !entry.peer.isRunning.Load() || !d.open(entry.keypair, message) {
			r.Rejected++
			continue
		}
		d.opened = append(d.opened, opened{i, message, entry.peer, entry.keypair})
	}
}

// open opens a message.
func (d *Direct) open(k *Keypair, message []byte) bool {
	copy(d.nonce[4:], message[MessageTransportOffsetCounter:MessageTransportOffsetContent])
	content := message[MessageTransportOffsetContent:]
	_, err := k.receive.Open(content[:0], d.nonce[:], content, nil)
	return err == nil
}

// Accept rejects what came before of that which Open has opened, and has the rest take effect.
// It returns the packets, the i-th in packets[i][MessageTransportOffsetContent:], and the ECN
// field of the IP header of the message that each of them came in; both until the next Open.
func (d *Direct) Accept(in *Inbound, from Batch) (packets [][]byte, ecn []uint8, r Received) {
	d.bufs, d.ecn = d.bufs[:0], d.ecn[:0]
	r = d.received
	b := inboundBatch{last: -1}
	for i := range d.opened {
		m := &d.opened[i]
		if m.peer != b.peer {
			in.heard(d, &b, from, &r)
			b = inboundBatch{peer: m.peer, last: -1}
		}
		if !d.accept(&b, m, from) {
			r.Rejected++
		}
		r.Confirmed = r.Confirmed || b.confirmed
	}
	in.heard(d, &b, from, &r)
	clear(d.opened) // keys are not kept until something else comes
	d.opened = d.opened[:0]
	return d.bufs, d.ecn, r
}

// inboundBatch is what came from one peer.
type inboundBatch struct {
	peer    *Peer
	last    int      // the last genuine message of the latest session, -1 for none
	session *Keypair // that one
	rxBytes uint64
	data    bool // not keepalives alone
	// allowed is the latest source found to be among the allowed IPs of the peer.
	allowed []byte
	// confirmed: a message is the first of its session, which the peer has begun.
	confirmed bool
}

// accept accepts a message that was opened, and keeps its packet.
func (d *Direct) accept(b *inboundBatch, m *opened, from Batch) bool {
	peer, k := b.peer, m.keypair
	if !k.replayFilter.ValidateCounter(binary.LittleEndian.Uint64(m.message[MessageTransportOffsetCounter:]), RejectAfterMessages) {
		return false
	}
	if b.last < 0 || !k.created.Before(b.session.created) {
		b.last, b.session = m.place, k
	}
	if peer.ReceivedWithKeypair(k) {
		peer.SetEndpointFromPacket(from.Endpoint(m.place))
		peer.timersHandshakeComplete()
		d.elsewhere(peer.SendStagedPackets) // a keepalive, if any
		b.confirmed = true
	}
	packet := m.message[MessageTransportOffsetContent : len(m.message)-chacha20poly1305.Overhead]
	b.rxBytes += uint64(len(packet) + MinMessageSize)
	if len(packet) == 0 {
		return true // a keepalive
	}
	b.data = true
	length, src := 0, []byte(nil)
	switch {
	case packet[0]>>4 == 4 && len(packet) >= ipv4.HeaderLen:
		length = int(binary.BigEndian.Uint16(packet[IPv4offsetTotalLength:]))
		src = packet[IPv4offsetSrc:][:net.IPv4len]
	case packet[0]>>4 == 6 && len(packet) >= ipv6.HeaderLen:
		length = int(binary.BigEndian.Uint16(packet[IPv6offsetPayloadLength:])) + ipv6.HeaderLen
		src = packet[IPv6offsetSrc:][:net.IPv6len]
	}
	if length < ipv4.HeaderLen || length > len(packet) {
		return false
	}
	if !bytes.Equal(src, b.allowed) { // see route
		if d.device.allowedips.Lookup(src) != peer {
			return false
		}
		b.allowed = src
	}
	d.bufs = append(d.bufs, m.message[:MessageTransportOffsetContent+length])
	d.ecn = append(d.ecn, from.ECN(m.place))
	return true
}

// heard tells the timers of a peer that something has come from it. Unlike
// RoutineSequentialReceiver it leaves the peer's endpoint alone where messages are of a
// session before the one that the peer uses. A peer that moves goes on with that. One
// that does not have it is another holder of the peer's key, in whose place the peer has
// come: what it sends is genuine, and the answer would not reach the peer.
func (in *Inbound) heard(d *Direct, b *inboundBatch, from Batch, r *Received) {
	if b.last < 0 {
		return
	}
	peer := b.peer
	peer.rxBytes.Add(b.rxBytes)
	current := peer.keypairs.Current()
	if b.session == current {
		in.confirmed = current
	}
	switch {
	case b.session == current, current == nil, current != in.confirmed, !b.session.created.Before(current.created):
		peer.SetEndpointFromPacket(from.Endpoint(b.last))
	case time.Since(current.created) >= ReplacedAfter:
		r.Replaced++
	}
	d.keepKeyFreshReceiving(peer, current)
	peer.timersAnyAuthenticatedPacketTraversal()
	peer.timersAnyAuthenticatedPacketReceived()
	if b.data {
		peer.timersDataReceived()
	}
}

// keepKeyFreshReceiving is that of Peer, with a handshake that is begun elsewhere.
func (d *Direct) keepKeyFreshReceiving(peer *Peer, k *Keypair) {
	if k != nil && k.isInitiator && !peer.timers.sentLastMinuteHandshake.Load() &&
		time.Since(k.created) > RejectAfterTime-KeepaliveTimeout-RekeyTimeout {
		d.elsewhere(peer.keepKeyFreshReceiving)
	}
}

// elsewhere calls what may send on a goroutine of its own, once or twice in the life of
// a session. Sending waits while BindUpdate has the lock of the sockets, and BindUpdate
// waits for the end of receiving. The encryption queue stays open meanwhile: until
// receiving ends, handshake workers keep it open.
func (d *Direct) elsewhere(send func()) {
	d.device.queue.encryption.wg.Add(1)
	go func() {
		defer d.device.queue.encryption.wg.Done()
		send()
	}()
}

// PeerState is what the configuration protocol's "get" tells of a peer besides its configuration.
type PeerState struct {
	Endpoint         conn.Endpoint // nil: not known
	LastHandshake    time.Time     // zero: there was none
	RxBytes, TxBytes uint64
}

// PeerState returns a peer and its state, without the text that IpcGetOperation makes of all peers; nil: there is no such
// peer. Like that it waits for the end of an IpcSetOperation.
func (device *Device) PeerState(key NoisePublicKey) (peer *Peer, s PeerState) {
	device.ipcMutex.RLock()
	defer device.ipcMutex.RUnlock()
	if peer = device.LookupPeer(key); peer == nil {
		return nil, s
	}
	peer.endpoint.Lock()
	s.Endpoint = peer.endpoint.val
	peer.endpoint.Unlock()
	if nano := peer.lastHandshakeNano.Load(); nano != 0 {
		s.LastHandshake = time.Unix(0, nano)
	}
	s.RxBytes, s.TxBytes = peer.rxBytes.Load(), peer.txBytes.Load()
	return peer, s
}

// Established returns when the session in use was made, zero if there is none. Unlike the time that the configuration
// protocol tells it does not change its distance to now when the clock is set.
func (peer *Peer) Established() time.Time {
	if k := peer.keypairs.Current(); k != nil {
		return k.created
	}
	return time.Time{}
}

// RoundTrip is how long the handshake of the session in use was under way, there and back. sent
// is when our last initiation was. What is not positive is not known.
func (peer *Peer) RoundTrip(sent time.Time) time.Duration {
	k := peer.keypairs.Current()
	switch {
	case k == nil:
		return 0
	case k.isInitiator:
		return k.created.Sub(sent)
	}
	// From our response to what confirms it.
	return time.Unix(0, peer.lastHandshakeNano.Load()).Sub(k.created)
}

// PeerOf returns the peer to whom an initiation or a response of ours is, and its key;
// nil: it was given up meanwhile.
func (device *Device) PeerOf(message []byte) (*Peer, NoisePublicKey) {
	const sender = 4 // in both
	entry := device.indexTable.Lookup(binary.LittleEndian.Uint32(message[sender:]))
	if entry.peer == nil {
		return nil, NoisePublicKey{}
	}
	return entry.peer, entry.peer.handshake.remoteStatic // which never changes
}

// Initiation returns a message that begins a handshake with the peer, for whoever sends it
// to where the peer may be. Unlike SendHandshakeInitiation it starts no timer, so that
// nothing repeats the message, and the peer's endpoint stays what it is until a response
// comes. The handshake that was under way, if any, is given up.
func (peer *Peer) Initiation() ([]byte, error) {
	msg, err := peer.device.CreateMessageInitiation(peer)
	if err != nil {
		return nil, err
	}
	return peer.finish(msg), nil
}

// InitiationAt is Initiation with the time of another moment: the peer refuses it if it has
// accepted a later one, be it of another holder of our key. It is CreateMessageInitiation
// but for that.
func (peer *Peer) InitiationAt(at time.Time) ([]byte, error) {
	device, handshake := peer.device, &peer.handshake
	device.staticIdentity.RLock()
	defer device.staticIdentity.RUnlock()
	handshake.mutex.Lock()
	defer handshake.mutex.Unlock()

	handshake.hash, handshake.chainKey = InitialHash, InitialChainKey
	var err error
	if handshake.localEphemeral, err = newPrivateKey(); err != nil {
		return nil, err
	}
	handshake.mixHash(handshake.remoteStatic[:])
	msg := MessageInitiation{Type: MessageInitiationType, Ephemeral: handshake.localEphemeral.publicKey()}
	handshake.mixKey(msg.Ephemeral[:])
	handshake.mixHash(msg.Ephemeral[:])

	var key [chacha20poly1305.KeySize]byte
	ss, err := handshake.localEphemeral.sharedSecret(handshake.remoteStatic)
	if err != nil {
		return nil, err
	}
	KDF2(&handshake.chainKey, &key, handshake.chainKey[:], ss[:])
	aead, _ := chacha20poly1305.New(key[:])
	aead.Seal(msg.Static[:0], ZeroNonce[:], device.staticIdentity.publicKey[:], handshake.hash[:])
	handshake.mixHash(msg.Static[:])

	if isZero(handshake.precomputedStaticStatic[:]) {
		return nil, errInvalidPublicKey
	}
	KDF2(&handshake.chainKey, &key, handshake.chainKey[:], handshake.precomputedStaticStatic[:])
	timestamp := tai64nOf(at)
	aead, _ = chacha20poly1305.New(key[:])
	aead.Seal(msg.Timestamp[:0], ZeroNonce[:], timestamp[:], handshake.hash[:])

	device.indexTable.Delete(handshake.localIndex)
	if msg.Sender, err = device.indexTable.NewIndexForHandshake(peer, handshake); err != nil {
		return nil, err
	}
	handshake.localIndex = msg.Sender
	handshake.mixHash(msg.Timestamp[:])
	handshake.state = handshakeInitiationCreated
	return peer.finish(&msg), nil
}

// tai64nOf is a time as in initiations, like those of tai64n.Now.
func tai64nOf(at time.Time) (t tai64n.Timestamp) {
	const (
		epoch    = 0x400000000000000a
		whitener = 1<<24 - 1
	)
	binary.BigEndian.PutUint64(t[:], epoch+uint64(at.Unix()))
	binary.BigEndian.PutUint32(t[8:], uint32(at.Nanosecond())&^whitener)
	return t
}

// finish makes the datagram of an initiation.
func (peer *Peer) finish(msg *MessageInitiation) []byte {
	packet := make([]byte, MessageInitiationSize)
	_ = msg.marshal(packet) // fails only on another size
	peer.cookieGenerator.AddMacs(packet)
	return packet
}

// Outdated returns the peer that made an initiation which the device refuses because the
// peer made another one that was later, by the peer's clock; nil for every other message.
// It does what ConsumeMessageInitiation does, and changes nothing.
func (device *Device) Outdated(message []byte) *Peer {
	var msg MessageInitiation
	if len(message) != MessageInitiationSize || !device.cookieChecker.CheckMAC1(message) || msg.unmarshal(message) != nil ||
		msg.Type != MessageInitiationType {
		return nil
	}
	device.staticIdentity.RLock()
	defer device.staticIdentity.RUnlock()
	var hash, chainKey [blake2s.Size]byte
	mixHash(&hash, &InitialHash, device.staticIdentity.publicKey[:])
	mixHash(&hash, &hash, msg.Ephemeral[:])
	mixKey(&chainKey, &InitialChainKey, msg.Ephemeral[:])

	var key [chacha20poly1305.KeySize]byte
	var public NoisePublicKey
	ss, err := device.staticIdentity.privateKey.sharedSecret(msg.Ephemeral)
	if err != nil {
		return nil
	}
	KDF2(&chainKey, &key, chainKey[:], ss[:])
	aead, _ := chacha20poly1305.New(key[:])
	if _, err := aead.Open(public[:0], ZeroNonce[:], msg.Static[:], hash[:]); err != nil {
		return nil
	}
	mixHash(&hash, &hash, msg.Static[:])

	peer := device.LookupPeer(public)
	if peer == nil || !peer.isRunning.Load() {
		return nil
	}
	handshake := &peer.handshake
	handshake.mutex.RLock()
	defer handshake.mutex.RUnlock()
	if isZero(handshake.precomputedStaticStatic[:]) {
		return nil
	}
	var timestamp tai64n.Timestamp
	KDF2(&chainKey, &key, chainKey[:], handshake.precomputedStaticStatic[:])
	aead, _ = chacha20poly1305.New(key[:])
	if _, err := aead.Open(timestamp[:0], ZeroNonce[:], msg.Timestamp[:], hash[:]); err != nil {
		return nil
	}
	if !handshake.lastTimestamp.After(timestamp) {
		return nil // accepted, or about to be: this may run first
	}
	return peer
}
