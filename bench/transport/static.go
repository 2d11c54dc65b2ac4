package transport

// Static is a tunnel with two keys that never change, and no handshake.
type Static struct {
	send    *SendKey
	receive *ReceiveKey
}

// NewStatic returns the tunnel of one end. The other has the keys exchanged.
func NewStatic(send, receive [KeyLen]byte) *Static {
	return &Static{send: NewSendKey(send, 0), receive: NewReceiveKey(receive)}
}

// Attach does nothing: there is nothing to agree on.
func (s *Static) Attach(func(message []byte)) {}

// Sender returns the key to seal with.
func (s *Static) Sender() *SendKey { return s.send }

// Receiver returns the key to open with, whatever the index.
func (s *Static) Receiver(uint32) *ReceiveKey { return s.receive }

// Confirm does nothing.
func (s *Static) Confirm(uint32) {}

// Control does nothing.
func (s *Static) Control([]byte) {}
