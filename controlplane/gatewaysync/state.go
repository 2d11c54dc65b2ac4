package gatewaysync

import (
	"slices"
	"time"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// State is what the Runner does now, as plain values for display.
type State struct {
	Gateway Gateway `json:"gateway"`
	// Generation counts the states that were applied.
	Generation uint64    `json:"generation"`
	AppliedAt  time.Time `json:"appliedAt"`
	Warnings   Problems  `json:"warnings,omitempty"`
	// Refused says why the newest files are not in force; empty when they are.
	Refused Problems `json:"refused,omitempty"`
	// RefusedWarnings are the warnings about those files.
	RefusedWarnings Problems  `json:"refusedWarnings,omitempty"`
	RefusedAt       time.Time `json:"refusedAt,omitzero"`
	ReloadErrors    uint64    `json:"reloadErrors"`
	// Endpoint is where a client was told to find the peer: "host:port". The
	// data plane knows the address that was found.
	Endpoint string `json:"endpoint,omitempty"`
	Peer     Peer   `json:"peer"`
}

// Peer is the peer's health as the ping sees it.
type Peer struct {
	Value networkingv1beta1.ConnectionValue `json:"value"`
	// Latency is the last round trip; zero when there is none.
	Latency     time.Duration `json:"latencyNanoseconds"`
	LatencyText string        `json:"latency"`
	Timestamp   time.Time     `json:"timestamp,omitzero"`
	// MTU is the peer's, zero when it does not tell.
	MTU int `json:"mtu,omitempty"`
	// MTUMismatch says what to do when the peer's MTU is not ours.
	MTUMismatch string `json:"mtuMismatch,omitempty"`
}

// State returns a copy.
func (r *Runner) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.Warnings, s.Refused, s.RefusedWarnings = slices.Clone(s.Warnings), slices.Clone(s.Refused), slices.Clone(s.RefusedWarnings)
	return s
}
