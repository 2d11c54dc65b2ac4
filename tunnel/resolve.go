package tunnel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"
)

// How a configured endpoint is followed while there is no session.
const (
	// lookupFast is the pace of lookups during the first lookupEager without a
	// session, lookupSlow afterwards: a peer that just moved is found within a
	// handshake attempt, one that is gone for long is no load for the DNS.
	lookupFast  = 5 * time.Second
	lookupSlow  = 5 * time.Minute
	lookupEager = 10 * time.Minute
	// lookupTimeout bounds one lookup.
	lookupTimeout = 4 * time.Second
	// tryFor is how long one address is tried before the next of the same name:
	// three handshake attempts.
	tryFor = 15 * time.Second
	// silence is how long a peer may leave messages unanswered before its session
	// counts as over. WireGuard answers within 10 s, if only by a keepalive, and
	// itself tries a new handshake after 15 s (paper section 6.5).
	silence = 20 * time.Second
	// idleCheck is when the follower looks again when it has nothing to do; Apply
	// wakes it.
	idleCheck = time.Hour
)

// follower keeps the peer's endpoint at the configured one while the peer does
// not answer. Its methods are decisions; Tunnel.followEndpoint carries them out.
type follower struct {
	endpoint string
	peer     PublicKey
	applied  time.Time // when this endpoint was configured
	lookedUp time.Time // the last lookup, zero for none
	moved    time.Time // when the endpoint was last set
	owed     bool      // a name was configured and has never been found
	failing  bool      // the last lookup failed

	rx, sent   uint64    // bytes received at the last answer, and packets sent until then
	unanswered time.Time // since when there are packets without an answer; zero for not at all
	ended      time.Time // when the session was over, zero while there is one or never was
}

// configure takes over what is configured now, and tells whether it is new. An
// address needs no first lookup: Apply has set it.
func (f *follower) configure(c Config, now time.Time) bool {
	if f.endpoint == c.Endpoint && f.peer == c.PeerKey {
		return false
	}
	*f = follower{endpoint: c.Endpoint, peer: c.PeerKey, applied: now, owed: true}
	if _, ok := literalEndpoint(c.Endpoint); ok {
		f.lookedUp, f.moved, f.owed = now, now, false
	}
	return true
}

// idle reports whether there is nothing to follow.
func (f *follower) idle() bool { return f.endpoint == "" || f.peer.IsZero() }

// observe takes over what is known about the peer now; sent are the packets sent
// to it so far. Bytes would not do: keepalives are bytes and need no answer.
func (f *follower) observe(p peerStats, sent uint64, now time.Time) {
	switch {
	case p.RxBytes != f.rx:
		f.rx, f.sent, f.unanswered = p.RxBytes, sent, time.Time{}
	case sent != f.sent && f.unanswered.IsZero():
		f.unanswered = now
	}
	silent := !f.unanswered.IsZero() && now.Sub(f.unanswered) >= silence
	switch alive := now.Sub(p.LastHandshake) < sessionLife && !silent; {
	case alive:
		f.ended = time.Time{}
	case f.ended.IsZero():
		f.ended = now
	}
}

// alive reports whether there is a session.
func (f *follower) alive() bool { return f.ended.IsZero() }

// next decides when to look up again: now (0), or after how long to ask again.
//
//	just configured              now
//	session alive                not, unless the name was never found: it was
//	                             configured to be used
//	no session for 10 minutes    every 5 s
//	no session for longer        every 5 minutes
func (f *follower) next(now time.Time) time.Duration {
	since := f.ended
	switch {
	case f.lookedUp.IsZero():
		return 0
	case f.owed:
		since = f.applied
	case f.alive():
		return lookupFast
	}
	pace := lookupFast
	if now.Sub(since) >= lookupEager {
		pace = lookupSlow
	}
	return max(f.lookedUp.Add(pace).Sub(now), 0)
}

// choose returns the endpoint to use out of a lookup's result: the current one
// while it is among them and has not been tried in vain for tryFor, else the one
// after it.
func (f *follower) choose(current netip.AddrPort, found []netip.AddrPort, now time.Time) netip.AddrPort {
	i := slices.Index(found, current)
	if i >= 0 && now.Sub(f.moved) < tryFor {
		return current
	}
	return found[(i+1)%len(found)]
}

// followEndpoint runs until ctx ends.
func (t *Tunnel) followEndpoint(ctx context.Context) {
	var f follower
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.changed:
		case <-timer.C:
		}
		timer.Reset(t.followStep(ctx, &f))
	}
}

// followStep looks up and moves the endpoint if it is time to, and returns when
// to come again.
func (t *Tunnel) followStep(ctx context.Context, f *follower) time.Duration {
	t.mu.Lock()
	config := t.config
	t.mu.Unlock()
	if f.configure(config, time.Now()) {
		t.noteLookup("")
	}
	if f.idle() {
		return idleCheck
	}
	f.observe(readPeerStats(t.dev.Load(), f.peer), t.egress.packetsSent(), time.Now())
	if wait := f.next(time.Now()); wait > 0 {
		return min(wait, lookupFast) // soon enough to see a session begin or end
	}
	found, err := t.lookup(ctx, f.endpoint)
	f.lookedUp = time.Now()
	if ctx.Err() != nil {
		return idleCheck
	}
	if err != nil || len(found) == 0 {
		if !f.failing {
			t.log.Warn("looking up the peer's endpoint failed", "endpoint", f.endpoint, "error", err)
		}
		f.failing = true
		t.noteLookup(lookupProblem(err))
		return lookupFast
	}
	f.failing = false
	t.noteLookup("")
	t.moveEndpoint(f, found)
	f.owed = false
	return lookupFast
}

// noteLookup keeps the outcome of a lookup for Stats.
func (t *Tunnel) noteLookup(problem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lookupError = problem
}

// lookupProblem says why a lookup failed, in the same words each time: what a
// resolver says has the ports of its sockets in it. A nil error found nothing.
func lookupProblem(err error) string {
	var dns *net.DNSError
	switch {
	case err == nil:
		return "it has no usable address"
	case !errors.As(err, &dns):
		return err.Error()
	case dns.IsNotFound:
		return "no such host"
	case dns.IsTimeout:
		return "the name server does not answer"
	}
	return "the name server gave no usable answer"
}

// moveEndpoint sets the peer's endpoint to one of found, unless the
// configuration or the session changed during the lookup.
func (t *Tunnel) moveEndpoint(f *follower, found []netip.AddrPort) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != running || t.config.Endpoint != f.endpoint || t.config.PeerKey != f.peer {
		return
	}
	dev := t.dev.Load()
	peer, now := readPeerStats(dev, f.peer), time.Now()
	f.observe(peer, t.egress.packetsSent(), now)
	if f.alive() && !f.owed {
		return // a session came up: where the peer is now is right
	}
	to := f.choose(peer.Endpoint, found, now)
	if to == peer.Endpoint {
		return
	}
	if err := dev.IpcSet(uapiEndpoint(f.peer, to)); err != nil {
		t.log.Warn("setting the peer's endpoint failed", "endpoint", to, "error", err)
		return
	}
	f.moved = now
	t.egress.setReachable()
	t.log.Info("peer endpoint set", "endpoint", to, "name", f.endpoint)
}

// lookup returns the addresses of an endpoint.
func (t *Tunnel) lookup(ctx context.Context, endpoint string) ([]netip.AddrPort, error) {
	if addr, ok := literalEndpoint(endpoint); ok {
		return []netip.AddrPort{addr}, nil
	}
	host, port, err := splitEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addrs, err := t.opts.Resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	found := make([]netip.AddrPort, 0, len(addrs))
	for _, a := range addrs {
		if a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() {
			found = append(found, netip.AddrPortFrom(a.Unmap(), port))
		}
	}
	return found, nil
}

// systemResolve is the default of Options.Resolve.
func systemResolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
