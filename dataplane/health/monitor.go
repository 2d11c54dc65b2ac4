package health

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Defaults of Config.
const (
	DefaultInterval       = 2 * time.Second
	DefaultThreshold      = 5
	DefaultUpdateInterval = 10 * time.Second
)

// minInterval keeps a wrong unit in a flag from becoming a flood.
const minInterval = 10 * time.Millisecond

// maxOutstanding bounds the PINGs that may still be answered. A PONG that is
// older than that many intervals says nothing about now.
const maxOutstanding = 16

// Config is what a Monitor needs to know. It is comparable.
type Config struct {
	// ClusterID goes into our PINGs and is expected in their PONGs: the peer's
	// cluster ID, by which a stock gateway finds its own record.
	ClusterID string
	// Peer is where PINGs go and PONGs come from: the peer's tunnel address.
	// A zero port means Port.
	Peer netip.AddrPort
	// Interval is the time between PINGs. Zero means DefaultInterval.
	Interval time.Duration
	// Threshold is how many intervals without a PONG make an error. Zero means
	// DefaultThreshold.
	Threshold int
	// UpdateInterval is the time between two reports of the same value. Zero
	// means DefaultUpdateInterval.
	UpdateInterval time.Duration
	// MTU is our tunnel MTU, told to the peer. Zero tells nothing.
	MTU int
	// Disabled sends no PINGs and takes the peer as connected. PINGs are
	// answered all the same.
	Disabled bool
}

// withDefaults checks c and fills in what is zero.
func (c Config) withDefaults() (Config, error) {
	if c.Peer.Port() == 0 {
		c.Peer = netip.AddrPortFrom(c.Peer.Addr(), Port)
	}
	c.Peer = netip.AddrPortFrom(c.Peer.Addr().Unmap(), c.Peer.Port())
	if c.Interval == 0 {
		c.Interval = DefaultInterval
	}
	if c.Threshold == 0 {
		c.Threshold = DefaultThreshold
	}
	if c.UpdateInterval == 0 {
		c.UpdateInterval = DefaultUpdateInterval
	}
	switch {
	case !c.Peer.IsValid():
		return c, errors.New("peer address is missing")
	case c.Interval < minInterval:
		return c, fmt.Errorf("ping interval %v is below %v", c.Interval, minInterval)
	case c.Threshold < 0:
		return c, fmt.Errorf("ping loss threshold %d is negative", c.Threshold)
	case c.UpdateInterval < 0:
		return c, fmt.Errorf("ping update interval %v is negative", c.UpdateInterval)
	case c.MTU < 0 || c.MTU > 65535:
		return c, fmt.Errorf("mtu %d is not between 0 and 65535", c.MTU)
	}
	longest := time.Date(2000, 1, 1, 0, 0, 0, 123456789, time.UTC)
	if _, err := Encode(Message{ClusterID: c.ClusterID, Type: Ping, Timestamp: longest, MTU: c.MTU}); err != nil {
		return c, fmt.Errorf("cluster ID does not fit: %w", err)
	}
	return c, nil
}

// Value is the state of the connection, in the words of the Connection kind.
type Value string

// The states of a connection.
const (
	Connecting Value = "Connecting" // no PONG yet
	Connected  Value = "Connected"  // the last PONG is recent
	Error      Value = "Error"      // none for Threshold intervals
)

// Status is what is known about the peer.
type Status struct {
	Value Value
	// Latency is the last round trip that was measured, 0 when there is none or
	// when it is too long ago (FormatLatency writes that as "N/A"). The PONG
	// that connects may measure nothing: see sentPing.
	Latency time.Duration
	// Timestamp is when Latency was measured, or when Value changed if that
	// was later.
	Timestamp time.Time
	// PeerMTU is the tunnel MTU that the peer's last PING told, 0 when it
	// did not.
	PeerMTU int
}

// Verdict is what became of a received datagram.
type Verdict uint8

// What becomes of a datagram.
const (
	Answered           Verdict = iota // a PING, sent back
	Measured                          // a PONG that counted
	DropTooLong                       // more than MaxMessage bytes
	DropMalformed                     // not our JSON, or no way to send it back
	DropUnknownType                   // neither PING nor PONG
	DropUnknownSource                 // a PONG from elsewhere than the peer
	DropUnknownCluster                // a PONG with a cluster ID that we did not send
	DropOutOfOrder                    // a PONG older than one that counted, or the same again
	DropUnsolicited                   // a PONG to a PING that we did not send, or long ago
	verdicts
)

var verdictNames = [verdicts]string{
	"Answered", "Measured", "DropTooLong", "DropMalformed", "DropUnknownType",
	"DropUnknownSource", "DropUnknownCluster", "DropOutOfOrder", "DropUnsolicited",
}

// String returns the constant's name.
func (v Verdict) String() string {
	if v < verdicts {
		return verdictNames[v]
	}
	return fmt.Sprintf("Verdict(%d)", v)
}

// sentPing is one PING that may be answered. Its two times differ: stamp is on
// the wire and strictly increasing; at has the monotonic clock, so that setting
// the wall clock neither makes a latency nor loses a connection.
type sentPing struct {
	stamp int64 // Unix nanoseconds
	at    time.Time
	// blind: sent while not Connected. It may have waited for the handshake of
	// the tunnel, so its PONG connects, but is no measure of the way if it took
	// longer than an interval or if a later PING is on the way: of those that
	// waited together only the last tells something.
	blind bool
}

// Monitor is the state machine of one peer: told the time and what arrived, it
// says what to send and what state the connection is in. It does no I/O, starts
// nothing and is not safe for concurrent use. Make one with NewMonitor.
//
//	Connecting --PONG--> Connected --no PONG for Interval*Threshold--> Error
//	     |                   ^                                          |
//	     '---- the same time without PONG: Error       <------PONG------'
type Monitor struct {
	config Config
	status Status

	lastHeard time.Time  // last PONG that counted, or the start
	nextPing  time.Time  // when the next PING is due
	sent      []sentPing // oldest first, at most maxOutstanding, all newer than answered
	answered  int64      // stamp of the newest PING with a PONG that counted
	lastStamp int64

	reported   Status // what Report returned last
	reportedAt time.Time
}

// NewMonitor returns a Monitor whose first PING is due at once.
func NewMonitor(c Config, now time.Time) (*Monitor, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Monitor{config: c}
	m.reset(now)
	return m, nil
}

// reset forgets everything about the peer but not what was reported.
func (m *Monitor) reset(now time.Time) {
	m.sent = m.sent[:0]
	m.answered = m.lastStamp // no PONG to an earlier PING counts any more
	m.lastHeard, m.nextPing = now, now
	m.status = Status{Value: Connecting, Timestamp: now}
	if m.config.Disabled {
		m.status.Value = Connected
	}
}

// Apply replaces the configuration. The state survives unless it is about
// another peer.
func (m *Monitor) Apply(c Config, now time.Time) error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	old := m.config
	m.config = c
	if c.Peer != old.Peer || c.ClusterID != old.ClusterID || c.Disabled != old.Disabled {
		m.reset(now)
	}
	if c.Interval != old.Interval && m.nextPing.After(now.Add(c.Interval)) {
		m.nextPing = now.Add(c.Interval)
	}
	return nil
}

// Status returns the state as of the last call of Tick, Receive or Apply.
func (m *Monitor) Status() Status { return m.status }

// Peer is where what Tick returns must be sent.
func (m *Monitor) Peer() netip.AddrPort { return m.config.Peer }

// Tick does what is due at now. It returns the PING to send, if any, and when
// to call it again at the latest.
func (m *Monitor) Tick(now time.Time) (ping []byte, next time.Time) {
	if m.config.Disabled {
		return nil, now.Add(m.config.UpdateInterval)
	}
	deadline := m.lastHeard.Add(m.config.Interval * time.Duration(m.config.Threshold))
	if m.status.Value != Error && !now.Before(deadline) {
		m.status.Value, m.status.Latency, m.status.Timestamp = Error, 0, now
	}
	if !now.Before(m.nextPing) {
		ping = m.ping(now)
		m.nextPing = m.nextPing.Add(m.config.Interval)
		if !m.nextPing.After(now) { // we were late: do not catch up in a burst
			m.nextPing = now.Add(m.config.Interval)
		}
	}
	next = m.nextPing
	if m.status.Value != Error && deadline.Before(next) {
		next = deadline
	}
	return ping, next
}

// ping makes the next PING and remembers it.
func (m *Monitor) ping(now time.Time) []byte {
	m.lastStamp = max(now.UnixNano(), m.lastStamp+1)
	if len(m.sent) == maxOutstanding {
		m.sent = append(m.sent[:0], m.sent[1:]...)
	}
	m.sent = append(m.sent, sentPing{stamp: m.lastStamp, at: now, blind: m.status.Value != Connected})
	b, err := Encode(Message{
		ClusterID: m.config.ClusterID,
		Type:      Ping,
		Timestamp: time.Unix(0, m.lastStamp).UTC(),
		MTU:       m.config.MTU,
	})
	if err != nil {
		return nil // withDefaults has tried it; only a clock beyond year 9999 comes here
	}
	return b
}

// Receive takes one datagram. A reply, if any, goes to where it came from. b is
// not kept.
func (m *Monitor) Receive(now time.Time, from netip.Addr, b []byte) (reply []byte, v Verdict) {
	if len(b) > MaxMessage {
		return nil, DropTooLong
	}
	msg, err := Decode(b)
	if err != nil {
		return nil, DropMalformed
	}
	fromPeer := from.Unmap() == m.config.Peer.Addr()
	switch msg.Type {
	case Ping:
		msg.Type = Pong
		// JSON may write the same text longer than it came; a reply that is
		// longer than the question would make us an amplifier.
		reply, err = Encode(msg)
		if err != nil || len(reply) > len(b) && !fromPeer {
			return nil, DropMalformed
		}
		if fromPeer {
			m.status.PeerMTU = plausibleMTU(msg.MTU)
			m.hasten(now)
		}
		return reply, Answered
	case Pong:
		if !fromPeer {
			return nil, DropUnknownSource
		}
		if msg.ClusterID != m.config.ClusterID {
			return nil, DropUnknownCluster
		}
		return nil, m.pong(now, msg.Timestamp.UnixNano())
	default:
		return nil, DropUnknownType
	}
}

// hasten brings the next PING forward when the peer is heard while it does not
// count as connected: a server could not reach its client before, and need not
// wait for its turn. A tenth of the interval always lies between two PINGs, so
// that two Monitors do not drive each other on.
func (m *Monitor) hasten(now time.Time) {
	if m.status.Value == Connected {
		return
	}
	soonest := m.nextPing.Add(-m.config.Interval * 9 / 10)
	if soonest.Before(now) {
		soonest = now
	}
	if soonest.Before(m.nextPing) {
		m.nextPing = soonest
	}
}

// pong counts the answer to the PING with that stamp.
func (m *Monitor) pong(now time.Time, stamp int64) Verdict {
	if stamp <= m.answered {
		return DropOutOfOrder
	}
	for i, p := range m.sent {
		if p.stamp != stamp {
			continue
		}
		m.answered, m.lastHeard = stamp, now
		m.status.Value, m.status.Timestamp = Connected, now
		roundTrip := max(now.Sub(p.at), 1) // 0 would read as none
		if overtaken := i+1 < len(m.sent); p.blind && (overtaken || roundTrip > m.config.Interval) {
			roundTrip = 0
		}
		m.status.Latency = roundTrip
		m.sent = append(m.sent[:0], m.sent[i+1:]...)
		return Measured
	}
	return DropUnsolicited
}

// Report returns the status, and whether it should be told to others now: when
// what a user would act on has changed, and every UpdateInterval for the
// latency. It is told at most once for each reason.
func (m *Monitor) Report(now time.Time) (Status, bool) {
	s := m.status
	urgent := s.Value != m.reported.Value || s.PeerMTU != m.reported.PeerMTU
	due := s != m.reported && now.Sub(m.reportedAt) >= m.config.UpdateInterval
	if !urgent && !due {
		return s, false
	}
	m.reported, m.reportedAt = s, now
	return s, true
}

func plausibleMTU(mtu int) int {
	if mtu < 0 || mtu > 65535 {
		return 0
	}
	return mtu
}
