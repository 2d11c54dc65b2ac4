package services

import "time"

// Hurry makes an Exchange that does not wait where nobody but a test looks on.
func (x *Exchange) Hurry() {
	x.times.addresses, x.times.batch, x.times.accept = 10*time.Millisecond, time.Millisecond, time.Millisecond
	x.times.heartbeat = 50 * time.Millisecond
	x.times.retry = [2]time.Duration{10 * time.Millisecond, 50 * time.Millisecond}
	x.times.refused = x.times.retry
}

// Endure makes an Exchange that takes a silent connection for one that lives.
func (x *Exchange) Endure() { x.times.silence = time.Hour }

// FrameBurst and FrameRate bound the changes that are read.
const (
	FrameBurst = frameBurst
	FrameRate  = frameRate
)
