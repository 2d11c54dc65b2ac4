package cluster

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// facts are what a replica decides by.
type facts struct {
	lease   *coordinationv1.Lease // nil: it does not exist, or is not known yet
	seen    time.Time             // when the lease was first seen as it is now, by our own clock
	self    string
	leading bool
	leaving bool      // this replica ends soon
	rival   bool      // another pod forwards without taking part in the election
	alone   bool      // no other replica has said lately that it stands by
	written time.Time // when this replica wrote the lease last
	asked   time.Time // when it had an answer to a question for the lease last
	now     time.Time

	// toldFirst and toldLast are when this replica has said, since it stands by, that it
	// does; zero: not yet.
	toldFirst, toldLast time.Time

	duration time.Duration // how long a holder may be silent
	retry    time.Duration // between two renewals
}

const (
	// tellEvery is how often a replica says that it stands by, and forgetAfter how long a
	// leader goes by that. A leader that is new counts on others as long: those of a
	// version before do not say so.
	tellEvery, forgetAfter = 2 * time.Minute, 5 * time.Minute
	// seldom times the period for others is how long a leader that is alone waits until
	// it renews.
	seldom = 10
)

// action is what to do now.
type action uint8

const (
	standBy  action = iota // not leading
	lead                   // leading, nothing to write
	ask                    // leading, and it is time to see that the API server answers
	renew                  // leading, and the lease must say so again
	announce               // not leading, and the leader may not know of this replica
	acquire                // write the lease; leading only when that has worked, or if already
	release                // leading until another one takes the lease, which must say that it may
)

var actionNames = [...]string{"stand by", "lead", "ask", "renew", "announce", "acquire", "release"}

func (a action) String() string { return actionNames[a] }

// decide says what a replica does.
//
//	holder                   leading            not leading
//	---------------------------------------------------------------------
//	lease not there          lead               stand by
//	self                     lead; renew or ask the same: the process was
//	                         when it is time    started again
//	nobody                   acquire            acquire
//	nobody ever; a rival     acquire            stand by; acquire after a silence
//	other, renewed lately    stand by           stand by; announce when it
//	                                            is time
//	other, silent too long   stand by           acquire
//
// Nobody waits for the renewals of a leader without other replicas, which are most of
// what a thousand gateways write. So it renews ten times less often, and asks for the
// lease in between, which the API server answers from memory: one that was cut off
// notices it as soon as ever. A replica that stands by says so in a label of the lease,
// and counts the silence of the leader only from then on.
//
// A rival is a pod of a template without election, which is being replaced by one
// with it: it ends when its successor stands by, and until then the two would take
// the peer from each other.
//
// How long a holder has been silent is counted from when we saw its last
// renewal, so that the clocks of two machines need not agree.
//
// There is no row for "the API server does not answer", and this is where it
// differs from the election of client-go, whose leaders give up when they cannot
// renew. While the API server is away nobody can take the lease, so there is
// nobody to give up for, and traffic must not stop because of it. But a leader that
// is cut off from an API server which the others do reach leads on beside the one that
// takes over, and both hold the peer's key. The nodes follow the InternalFabric to the
// new one, and the peer its handshake. So the former one, which hears neither the API
// server nor the peer any more, sends pings only: see Unconfirmed, and tunnel.Tunnel's.
func decide(f facts) action {
	if f.leaving {
		return decideLeaving(f)
	}
	if f.lease == nil {
		return leadIf(f.leading)
	}
	switch holder := holderOf(f.lease); {
	case holder == f.self && f.now.Sub(f.written) >= f.renewal():
		return renew
	case holder == f.self && f.now.Sub(later(f.written, f.asked)) >= f.retry:
		return ask
	case holder == f.self:
		return lead
	case f.waitsForRival():
		return standBy
	case holder == "":
		return acquire
	case f.leading:
		return standBy // first of all
	case f.now.Sub(f.toldLast) >= tellEvery:
		return announce
	case f.silence() >= f.leaseDuration():
		return acquire
	}
	return standBy
}

// renewal is the time between two renewals.
func (f facts) renewal() time.Duration {
	if f.alone {
		return seldom * f.retry
	}
	return f.retry
}

// silence is how long the leader has not renewed although it should have.
func (f facts) silence() time.Duration { return f.now.Sub(later(f.seen, f.toldFirst)) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// decideLeaving is decide for a replica that ends soon. It frees the lease first
// and goes on leading until another one has it: a pod that is replaced ends
// before its successor is there, and nobody would forward in between.
//
//	holder              leading      not leading
//	--------------------------------------------
//	lease not there     lead         stand by
//	self                release      release
//	nobody              lead         stand by
//	other               stand by     stand by
func decideLeaving(f facts) action {
	switch holder := holderOf(f.lease); {
	case f.lease == nil, holder == "":
		return leadIf(f.leading)
	case holder == f.self:
		return release
	}
	return standBy
}

func leadIf(leading bool) action {
	if leading {
		return lead
	}
	return standBy
}

// waitsForRival tells whether a rival has to end first.
func (f facts) waitsForRival() bool {
	return f.rival && !f.leading && f.lease.Spec.AcquireTime == nil && holderOf(f.lease) == "" && f.now.Sub(f.seen) < f.leaseDuration()
}

// leaseDuration is how long the holder may go without renewing: as the lease says,
// since the holder may run with other settings.
func (f facts) leaseDuration() time.Duration {
	if s := f.lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		return time.Duration(*s) * time.Second
	}
	return f.duration
}

// rivalCheck is how often it is looked whether the rival has ended.
const rivalCheck = 100 * time.Millisecond

// next is when to decide again at the latest.
func (f facts) next() time.Duration {
	if f.lease != nil && f.waitsForRival() {
		return rivalCheck
	}
	if f.lease != nil && !f.leading && holderOf(f.lease) != "" {
		if wait := f.leaseDuration() - f.silence(); wait > 0 {
			return min(wait, f.retry)
		}
	}
	return f.retry
}

func holderOf(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}
