package fabric

import (
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/objects/manifests"
)

// follow judges the objects if they, or the paths to the gateways, differ from
// those judged last. What is wrong is logged and kept for State; what is in
// force stays in force.
func (r *Runner) follow(pathsToo bool) {
	known := r.judged
	if known != (manifests.Digest{}) && (pathsToo && r.moved() || !slices.Equal(r.reserved(), r.ways.reserved)) {
		known = manifests.Digest{} // the same objects may mean something else
	}
	reading, err := r.feed.Read(known)
	if err == nil && known != (manifests.Digest{}) && reading.Digest == known {
		return
	}
	r.judged = reading.Digest
	var plan Plan
	if err == nil {
		plan, err = r.build(reading.Objects)
	}
	if reading.Heavy {
		reading.Objects = manifests.Objects{}
		debug.FreeOSMemory()
	}
	var waiting manifests.Waiting
	switch {
	case errors.As(err, &waiting):
		r.wait(waiting)
	case err != nil:
		r.refuse(err, append(reading.Warnings, plan.Warnings...))
	default:
		r.adopt(plan, reading.Warnings)
	}
}

// build decides what the objects ask for.
func (r *Runner) build(objects manifests.Objects) (Plan, error) {
	all := Objects{Objects: objects, InCluster: r.inCluster}
	r.gateways = Underlay(all, r.options.NodeName)
	r.ways = r.lookUp()
	return Build(all, Facts{
		NodeName: r.options.NodeName, Kind: r.choice.Kind, Port: r.options.Port, RulePriority: r.options.RulePriority,
		HideAll: r.options.HideAll, Reserved: r.ways.reserved, Paths: r.ways.paths, NoPath: r.ways.noPath, Connected: r.ways.connected,
		InForce: r.inForce(),
	})
}

// ways is how the node reaches the gateways, and others without a router.
type ways struct {
	paths     map[netip.Addr]hostnet.Path
	noPath    map[netip.Addr]string
	connected []hostnet.Network
	reserved  []Reserved
}

func (w ways) equal(other ways) bool {
	return maps.Equal(w.paths, other.paths) && maps.Equal(w.noPath, other.noPath) && slices.Equal(w.connected, other.connected) && slices.Equal(w.reserved, other.reserved)
}

// lookUp asks the kernel for the ways.
func (r *Runner) lookUp() ways {
	w := ways{paths: make(map[netip.Addr]hostnet.Path), noPath: make(map[netip.Addr]string), reserved: r.reserved()}
	for _, gateway := range r.gateways {
		path, err := r.host.Path(gateway, r.options.Port)
		if err != nil {
			w.noPath[gateway] = err.Error()
			continue
		}
		w.paths[gateway] = path
	}
	var err error
	if w.connected, err = r.host.Networks(); err != nil {
		r.log.Warn("the networks of this node cannot be found, those known before count", "error", err)
		w.connected = r.ways.connected
	}
	return w
}

// reserved are the prefixes that no tunnel may take.
func (r *Runner) reserved() []Reserved {
	if f, ok := r.feed.(Reserver); ok {
		return slices.Concat(r.options.Reserved, f.Reserved())
	}
	return r.options.Reserved
}

// moved tells whether something is reached in another way than before.
func (r *Runner) moved() bool { return !r.lookUp().equal(r.ways) }

// inForce returns the links that are there.
func (r *Runner) inForce() []hostnet.Link {
	routes, gateways := make(map[string][]netip.Prefix), make(map[string]netip.Addr)
	for _, rt := range r.actual.Routes {
		if rt.Src.IsValid() {
			gateways[rt.Device] = rt.Dst.Addr()
		} else {
			routes[rt.Device] = append(routes[rt.Device], rt.Dst)
		}
	}
	out := make([]hostnet.Link, 0, len(r.actual.Links))
	for i := range r.actual.Links {
		a := &r.actual.Links[i]
		l := hostnet.Link{
			Name: a.Name, Owner: a.Owner(), Kind: a.Kind, VNI: a.VNI, Gateway: a.Gateway, Port: a.Port, MTU: a.MTU, Routes: routes[a.Name],
			GatewayAddress: gateways[a.Name],
		}
		for _, p := range a.Addresses {
			if p.IsSingleIP() {
				l.Address = p.Addr()
			}
		}
		out = append(out, l)
	}
	return out
}

// choose decides what links are made of.
func (r *Runner) choose() {
	supported := r.host.Probe()
	if r.options.Ends == nil {
		for i := range supported {
			if supported[i].Kind == hostnet.KindTUN {
				supported[i] = hostnet.KindSupport{Kind: hostnet.KindTUN, Reason: "this agent has no end for them"}
			}
		}
	}
	var inForce hostnet.Kind
	for i := range r.actual.Links {
		inForce = r.actual.Links[i].Kind
	}
	was := r.choice.Kind
	r.choice, r.noKind = chooseKind(r.options.Link, supported, maps.Clone(r.failed), inForce)
	if r.noKind == nil && r.choice.Kind != was {
		r.log.Info("kind of link chosen", "kind", r.choice.Kind, "reason", r.choice.Reason)
	}
}

// retryKinds looks again for what could not be had: a module may be loaded now.
func (r *Runner) retryKinds() {
	if r.choice.Kind == "" {
		clear(r.failed)
		r.takeKind()
	}
}

// takeKind chooses anew and makes the plan's links of it.
func (r *Runner) takeKind() {
	r.choose()
	r.plan.Desired.Links = slices.Clone(r.plan.Desired.Links) // State reads the others
	for i := range r.plan.Desired.Links {
		r.plan.Desired.Links[i].Kind = r.choice.Kind
	}
	r.dirty = r.dirty || r.planned
}

// adopt makes a plan the one to go by.
func (r *Runner) adopt(plan Plan, warnings manifests.Problems) {
	same := r.planned && reflect.DeepEqual(r.plan.Desired, plan.Desired)
	r.plan, r.planned = plan, true
	if !same {
		r.fresh, r.dirty = true, true
		r.backoff = 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.state
	logNew := func(say func(string, ...any), message string, now, before manifests.Problems) {
		for _, p := range now.Without(before) {
			say(message, p.Attrs()...)
		}
	}
	warnings = joined(warnings, plan.Warnings)
	waiting, ignored := joined(plan.Waiting, plan.HostsWaiting), joined(plan.Ignored, plan.HostsIgnored)
	unreachable, untranslated := plan.Unreachable.Condensed(), plan.Untranslated.Condensed()
	logNew(r.log.Warn, "object", warnings, append(s.Warnings, s.refusedWarnings...))
	logNew(r.log.Info, "waiting", waiting, s.Waiting)
	logNew(r.log.Warn, "object ignored, what was in force of it stays", ignored, s.Ignored)
	logNew(r.log.Warn, "gateway out of reach", unreachable, s.Unreachable)
	logNew(r.log.Warn, "addresses are not translated", untranslated, s.Untranslated)
	if len(s.Unreachable) > 0 && len(unreachable) == 0 {
		r.log.Info("every gateway can be reached again")
	}
	s.Warnings, s.Waiting, s.Ignored, s.Unreachable, s.Untranslated = warnings, waiting, ignored, unreachable, untranslated
	s.Refused, s.refusedWarnings, s.RefusedAt = nil, nil, time.Time{}
	s.NodeIP = plan.NodeIP
}

// joined is two lists as one, with as much of it as is worth reading.
func joined(a, b manifests.Problems) manifests.Problems { return slices.Concat(a, b).Condensed() }

// wait records that there is nothing to go by yet.
func (r *Runner) wait(w manifests.Waiting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range manifests.Problems(w).Without(r.state.Waiting) {
		r.log.Info("waiting", p.Attrs()...)
	}
	r.state.Waiting = manifests.Problems(w)
}

// warn logs warnings, for Load: nothing is known yet.
func (r *Runner) warn(warnings manifests.Problems) {
	warnings = warnings.Condensed()
	for _, p := range warnings {
		r.log.Warn("object", p.Attrs()...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Warnings = warnings
}

// refuse records why a state of a directory is not put in force. The same reasons
// again are not worth a second line.
func (r *Runner) refuse(err error, warnings manifests.Problems) {
	problems := manifests.ProblemsOf(err)
	warnings = warnings.Condensed()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.state
	for _, p := range warnings.Without(append(s.Warnings, s.refusedWarnings...)) {
		r.log.Warn("object", p.Attrs()...)
	}
	s.Waiting, s.refusedWarnings = nil, warnings
	if len(problems) == len(s.Refused) && len(problems.Without(s.Refused)) == 0 {
		return
	}
	s.Refused, s.RefusedAt = problems, time.Now()
	s.ReloadErrors++
	for _, p := range problems.Condensed() {
		r.log.Error("object", p.Attrs()...)
	}
	r.log.Error("configuration refused, what was in force stays in force", "problems", len(problems), "generation", s.Generation)
}
