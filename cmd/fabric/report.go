package main

import (
	"time"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/node/fabric"
	"github.com/sluice-net/sluice/node/tunlink"
	"github.com/sluice-net/sluice/objects/mirror"
)

// report is everything that "fabric status" shows. Its JSON form is what scripts
// read: fields are added, not renamed.
type report struct {
	Version   string        `json:"version"`
	Running   bool          `json:"running"`             // false: no agent answers, this is what the kernel holds
	Elsewhere bool          `json:"elsewhere,omitempty"` // an agent runs here, but does not answer on this socket
	Time      time.Time     `json:"time"`
	Started   time.Time     `json:"started,omitzero"`
	Manifests string        `json:"manifests,omitempty"` // empty: in a cluster
	API       *mirror.State `json:"api,omitempty"`       // nil: standalone
	fabric.State
	// Userspace is what carries the packets of links of kind tun; nil: there are
	// none.
	Userspace *tunlink.Status `json:"userspace,omitempty"`
	Memory    daemon.Memory   `json:"memory"`
}

// empty tells whether the kernel holds nothing of ours, as far as it lets us see.
func (r report) empty() bool {
	return len(r.Tunnels)+len(r.Rules) == 0 && !r.Translation.Exists
}

// report gathers what is shown.
func (a *agent) report() report {
	r := report{
		Version: daemon.Version(version), Running: true, Time: time.Now(), Started: a.started, Manifests: a.options.manifests,
		State: a.runner.State(), Memory: daemon.ReadMemory(),
	}
	if a.api != nil {
		r.API = new(a.api.State())
	}
	if s := a.ends.Status(); len(s.Tunnels)+len(s.Sockets) > 0 {
		r.Userspace = &s
	}
	return r
}
