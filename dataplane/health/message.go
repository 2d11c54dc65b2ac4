package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// MaxMessage is the longest datagram that is looked at, in bytes. A message is
// about 130 bytes long.
const MaxMessage = 1024

// Port is the UDP port of the protocol.
const Port = 12345

// MessageType says who speaks first.
type MessageType string

// The two messages of the protocol.
const (
	Ping MessageType = "PING" // a question
	Pong MessageType = "PONG" // the same message sent back
)

// Message is one datagram.
type Message struct {
	ClusterID string      `json:"clusterID"`
	Type      MessageType `json:"msgType"`
	// Timestamp is when the PING was made; a PONG carries the PING's.
	Timestamp time.Time `json:"timeStamp"`
	// MTU is the tunnel MTU of the PING's sender, 0 when it did not say.
	MTU int `json:"mtu,omitempty"`
}

var errNoTimestamp = errors.New("no timeStamp")

// Decode reads a datagram. Unknown fields are ignored and the type may be one
// that we do not know; a message without time is an error.
func Decode(b []byte) (Message, error) {
	if len(b) > MaxMessage {
		return Message{}, fmt.Errorf("decode message: %d bytes exceed %d", len(b), MaxMessage)
	}
	var m Message
	if err := json.Unmarshal(b, &m); err != nil {
		return Message{}, fmt.Errorf("decode message: %w", err)
	}
	if m.Timestamp.IsZero() {
		return Message{}, fmt.Errorf("decode message: %w", errNoTimestamp)
	}
	return m, nil
}

// Encode returns the datagram of m, or an error when it would be longer than
// MaxMessage or its time has no RFC 3339 form.
func Encode(m Message) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("encode message: %d bytes exceed %d", len(b), MaxMessage)
	}
	return b, nil
}

// FormatLatency is the text of a latency in a Connection's status: whole
// milliseconds, below one millisecond whole microseconds, "N/A" for none.
func FormatLatency(d time.Duration) string {
	switch {
	case d <= 0:
		return "N/A"
	case d < time.Millisecond:
		return fmt.Sprintf("%dμs", d.Microseconds())
	default:
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
}
