package tunnel

// Handshake starts a handshake with the peer now. WireGuard itself does so only
// after 15 seconds without an answer (paper section 6.2), which is long for a
// peer that restarted and has lost the session. The session in use stays until
// the new one is there, so asking in vain costs nothing but a message.
//
// It reports whether there is a peer with a known address to ask. Within 5 seconds after
// a handshake message of WireGuard's own it sends nothing, however often this is called.
//
// Further tunnels that packets do not go by are asked, too.
func (t *Tunnel) Handshake() bool {
	t.mu.Lock()
	key, running := t.config.PeerKey, t.state == running && t.up
	t.mu.Unlock()
	// Not under the lock: sending may block, and Run unblocks it only after it
	// has taken the lock.
	if !running || key.IsZero() {
		return false
	}
	for _, f := range t.runningFurther(false) {
		f.Handshake()
	}
	return t.greet(key)
}
