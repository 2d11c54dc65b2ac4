package tunnel

import (
	"encoding/binary"
	"time"
)

// Message types and lengths (WireGuard paper section 5.4). The type is one byte
// and three reserved zero bytes; wireguard-go reads all four as a little endian
// number.
const (
	typeInitiation  = 1
	typeResponse    = 2
	typeCookieReply = 3
	typeTransport   = 4

	initiationLen  = 148
	responseLen    = 92
	cookieReplyLen = 64
	// keepaliveLen is a transport message without content: a header of 16 bytes
	// and the authentication tag. Longer ones carry a packet.
	keepaliveLen = 32
)

// sessionLife is how long a session is valid (WireGuard paper section 6.1,
// REJECT_AFTER_TIME).
const sessionLife = 180 * time.Second

// messageClass is what a datagram is, as far as one can tell without keys.
type messageClass uint8

const (
	messageMalformed messageClass = iota
	messageHandshake
	messageKeepalive
	messageData
)

func classify(b []byte) messageClass {
	if len(b) < keepaliveLen {
		return messageMalformed
	}
	switch t := binary.LittleEndian.Uint32(b); {
	case t == typeTransport && len(b) > keepaliveLen:
		return messageData
	case t == typeTransport:
		return messageKeepalive
	case t == typeInitiation && len(b) == initiationLen,
		t == typeResponse && len(b) == responseLen,
		t == typeCookieReply && len(b) == cookieReplyLen:
		return messageHandshake
	}
	return messageMalformed
}

// handshakeCounts counts handshake messages of one direction. Which of them get
// through, and which do not, tells on which way a network loses them.
type handshakeCounts struct {
	all, initiations, responses uint64
	// lastInitiation and lastResponse are the times of the last of each; zero: never.
	lastInitiation, lastResponse time.Time
}

// add counts one message that classify calls a handshake.
func (c *handshakeCounts) add(m []byte) {
	c.all++
	switch binary.LittleEndian.Uint32(m) {
	case typeInitiation:
		c.initiations++
		c.lastInitiation = time.Now()
	case typeResponse:
		c.responses++
		c.lastResponse = time.Now()
	}
}
