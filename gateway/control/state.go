package control

import (
	"slices"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
)

// State is what the Runner does now, as plain values for display.
type State struct {
	Gateway Gateway `json:"gateway"`
	// Role says what the gateway does among its replicas.
	Role Role `json:"role"`
	// Generation counts the states that were applied.
	Generation uint64    `json:"generation"`
	AppliedAt  time.Time `json:"appliedAt"`
	// Kept is when the objects in force were the newest, where they were kept over a
	// restart because the API server has not answered since then.
	Kept     time.Time          `json:"kept,omitzero"`
	Warnings manifests.Problems `json:"warnings,omitempty"`
	// Waiting says what there must be before anything can be applied.
	Waiting manifests.Problems `json:"waiting,omitempty"`
	// Ignored are objects of a cluster that cannot be used and were left out.
	Ignored manifests.Problems `json:"ignored,omitempty"`
	// Refused says why the newest files are not in force; empty when they are.
	Refused manifests.Problems `json:"refused,omitempty"`
	// RefusedWarnings are the warnings about those files.
	RefusedWarnings manifests.Problems `json:"refusedWarnings,omitempty"`
	RefusedAt       time.Time          `json:"refusedAt,omitzero"`
	ReloadErrors    uint64             `json:"reloadErrors"`
	// Endpoint is where a client was told to find the peer: "host:port". The
	// data plane knows the address that was found.
	Endpoint string `json:"endpoint,omitempty"`
	Peer     Peer   `json:"peer"`
	// Path is what was found out about the path; zero without Options.Path.
	Path PathState `json:"path,omitzero"`
}

// Role is what a gateway does among its replicas.
type Role string

// The roles. A gateway without replicas is active.
const (
	RoleActive  Role = "active"
	RoleStandBy Role = "standby"
)

// Peer is the peer's health as the ping sees it.
type Peer struct {
	Value networkingv1beta1.ConnectionValue `json:"value"`
	// Latency is the last round trip; zero when there is none.
	Latency     time.Duration `json:"latencyNanoseconds"`
	LatencyText string        `json:"latency"`
	Timestamp   time.Time     `json:"timestamp,omitzero"`
	// Lost counts the pings since the peer's last answer that it should have answered by
	// now. Value becomes Error by several of them.
	Lost int `json:"lostPings,omitempty"`
	// Silence says why the peer does not answer, where Value is Error.
	Silence Silence `json:"silence,omitzero"`
	// MTU is the peer's, zero when it does not tell.
	MTU int `json:"mtu,omitempty"`
	// MTUMismatch says what to do when the peer's MTU is not ours.
	MTUMismatch string `json:"mtuMismatch,omitempty"`
	// Several says that several gateways speak with the peer's key, and what to do.
	Several string `json:"several,omitempty"`
	// LeftOut says which of several tunnels carry no packets, and what to do.
	LeftOut string `json:"leftOut,omitempty"`
}

// State returns a copy.
func (r *Runner) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.Warnings, s.Refused, s.RefusedWarnings = slices.Clone(s.Warnings), slices.Clone(s.Refused), slices.Clone(s.RefusedWarnings)
	s.Waiting, s.Ignored = slices.Clone(s.Waiting), slices.Clone(s.Ignored)
	if s.Role = RoleActive; r.standBy {
		s.Role = RoleStandBy
	}
	return s
}

// Ready tells whether the gateway does its work: it forwards, or stands by with
// everything at hand. why is for the person who asks.
func (r *Runner) Ready() (ready bool, why string) {
	s := r.State()
	switch {
	case s.Generation > 0 && s.Role == RoleStandBy:
		return true, "standing by"
	case s.Generation > 0 && !s.Kept.IsZero():
		return true, "ok, by the objects that were kept over a restart"
	case s.Generation > 0:
		return true, "ok"
	case len(s.Refused) > 0:
		return false, "refused: " + s.Refused.Error()
	case len(s.Waiting) > 0:
		return false, "waiting: " + s.Waiting.Error()
	}
	return false, "starting"
}
