package control

import (
	"reflect"
	"slices"
	"time"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/objects/manifests"
)

// inForce records that a state was applied.
func (r *Runner) inForce(d Desired, loud bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acceptLocked(d)
	r.state.Generation++
	r.state.AppliedAt = time.Now()
	if f := r.options.OnExported; f != nil {
		f(d.Exported)
	}
	if !loud {
		return
	}
	r.log.Info("configuration applied", "generation", r.state.Generation,
		"gateway", d.Gateway.Kind+" "+d.Gateway.Name, "peer", d.Gateway.ClusterID,
		"nodes", len(d.DataPlane.Nodes), "routes", len(d.DataPlane.Routes), "mtu", d.DataPlane.MTU)
	if p := d.DataPlane; p.Sources == dataplane.SourceUnchecked || p.Sources == dataplane.SourceRouted && len(p.Routes) == 0 {
		r.log.Warn("any node can send as any pod: there are no routes to tell, or --strict-source=off", "routes", len(p.Routes), "sources", p.Sources)
	}
}

// confirm records that the newest objects ask for what is in force already.
func (r *Runner) confirm(d Desired) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acceptLocked(d)
}

// acceptLocked records what goes with a state that is in force. The caller holds
// the lock.
func (r *Runner) acceptLocked(d Desired) {
	for _, p := range d.Ignored.Without(r.state.Ignored) {
		r.log.Warn("object ignored", p.Attrs()...)
	}
	r.warn(d.Warnings)
	s := &r.state
	s.Gateway, s.Warnings, s.Ignored, s.Endpoint = d.Gateway, d.Warnings, d.Ignored, d.DataPlane.Tunnel.Endpoint
	s.Refused, s.RefusedWarnings, s.RefusedAt = nil, nil, time.Time{}
	s.Waiting = nil
	switch {
	case !d.Kept.IsZero() && s.Kept.IsZero():
		r.log.Warn("in force is what was kept over the restart, until the API server answers", "newest", d.Kept)
	case d.Kept.IsZero() && !s.Kept.IsZero():
		r.log.Info("the objects are read again", "kept", s.Kept)
	}
	s.Kept = d.Kept
}

// warn logs the warnings that are new. The caller holds the lock.
func (r *Runner) warn(warnings manifests.Problems) {
	for _, p := range warnings.Without(r.state.Warnings).Without(r.state.RefusedWarnings) {
		if p.File == "" {
			r.log.Warn("object", p.Attrs()...)
			continue
		}
		r.log.Warn("manifest", p.Attrs()...)
	}
}

// wait records that there is nothing to apply yet.
func (r *Runner) wait(w manifests.Waiting, warnings manifests.Problems) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warn(warnings)
	for _, p := range manifests.Problems(w).Without(r.state.Waiting) {
		r.log.Info("waiting", p.Attrs()...)
	}
	r.state.Waiting = manifests.Problems(w)
}

// refuse records why a state was not applied. The same reasons again are not
// worth a second line.
func (r *Runner) refuse(err error, warnings manifests.Problems) {
	problems := manifests.ProblemsOf(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warn(warnings)
	r.state.Waiting = nil
	r.state.RefusedWarnings = warnings
	if slices.Equal(problems, r.state.Refused) {
		return
	}
	r.state.Refused, r.state.RefusedAt = problems, time.Now()
	r.state.ReloadErrors++
	for _, p := range problems {
		if p.File == "" {
			r.log.Error("object", p.Attrs()...)
			continue
		}
		r.log.Error("manifest", p.Attrs()...)
	}
	r.log.Error("configuration refused, the old one stays in force", "problems", len(problems), "generation", r.state.Generation)
}

// isInForce tells whether d asks for what is in force.
func (r *Runner) isInForce(d Desired) bool {
	return !r.missed && r.desired.Gateway == d.Gateway && slices.Equal(r.desired.DataPlane.Routes, d.DataPlane.Routes) &&
		sameButRoutes(r.desired.DataPlane, d.DataPlane)
}

// sameButRoutes compares everything but the routes, of which there may be a
// hundred thousand, too many for reflection.
func sameButRoutes(a, b dataplane.Config) bool {
	a.Routes, b.Routes = nil, nil
	return reflect.DeepEqual(a, b)
}
