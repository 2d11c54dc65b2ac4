package fabric

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/node/tunlink"
)

// failures is what could not be put in force, by link; what is about none is
// under "" or aboutTranslation, which is no name of a link.
type failures map[string]error

const aboutTranslation = "translation"

// add joins another error.
func (f failures) add(link string, err error) { f[link] = errors.Join(f[link], err) }

// lines are the failures in a stable order.
func (f failures) lines() (out []string) {
	for _, link := range slices.Sorted(maps.Keys(f)) {
		for line := range strings.SplitSeq(f[link].Error(), "\n") {
			if strings.HasPrefix(link, hostnet.LinkPrefix) && !strings.Contains(line, link) {
				line = "link " + link + ": " + line
			}
			out = append(out, line)
		}
	}
	return out
}

// ofTunnels are those that are not about translation: tunnels work without it.
func (f failures) ofTunnels() failures {
	out := maps.Clone(f)
	delete(out, aboutTranslation)
	return out
}

// enforce makes the kernel what the plan asks for.
func (r *Runner) enforce(now time.Time) {
	if r.choice.Kind == "" {
		r.fail(failures{"": r.noKind}, now)
		return
	}
	for r.attempt(now) { // once for each kind
		if r.choice.Kind == "" {
			r.fail(failures{"": r.noKind}, now)
			return
		}
	}
}

// attempt is one try. It tells whether another one, with links of another kind,
// is worth it.
func (r *Runner) attempt(now time.Time) (again bool) {
	actual, err := r.host.Read()
	if err != nil {
		r.fail(failures{"": fmt.Errorf("read the network of this node: %w", err)}, now)
		return false
	}
	if actual, err = r.takeLinks(actual); err != nil {
		r.fail(failures{"": err}, now)
		return false
	}
	r.actual = actual
	diff, idle := r.diff(r.plan.Desired, actual), r.idle()
	changes := !diff.Empty() || len(idle) > 0
	var tampered []string
	if changes && !r.fresh {
		tampered = r.tampered(diff, idle)
	}
	if len(tampered) > 0 && now.Before(r.contest.notBefore()) {
		r.due.ours = r.contest.notBefore()
		return false
	}
	began := time.Now()
	failed := r.apply(diff, idle)
	if !changes && len(failed) == 0 && !r.fresh {
		r.succeeded()
		return false
	}
	if changes {
		r.count(len(tampered) > 0, len(failed) > 0, time.Since(began))
	}
	if len(tampered) > 0 {
		r.repaired(tampered, now)
	}
	r.open = nil
	if len(failed) > 0 {
		r.open = make(map[string]bool)
		for _, step := range r.diff(r.plan.Desired, r.actual).Steps {
			r.open[step.String()] = true
		}
	}
	if r.kindFails(failed, diff.Problems) {
		return true
	}
	r.inForceNow(failed, diff)
	if len(failed) > 0 {
		r.fail(failed, now)
		return false
	}
	r.succeeded()
	return false
}

// tampered is what others have changed since the last attempt: all that is to be
// done and was not left open then.
func (r *Runner) tampered(diff hostnet.Plan, idle []string) (lines []string) {
	for _, step := range diff.Steps {
		if line := step.String(); !r.open[line] {
			lines = append(lines, line)
		}
	}
	for _, device := range idle {
		lines = append(lines, "attach to TUN device "+device+" again")
	}
	return lines
}

// apply carries out a diff and attaches to devices, the idle ones anew. Links of
// kernel kinds and the agent's own ends use the same UDP port, so the latter let
// go before.
func (r *Runner) apply(diff hostnet.Plan, idle []string) failures {
	failed := make(failures)
	stay := maps.Clone(r.attached)
	maps.DeleteFunc(stay, func(device string, _ tunlink.Tunnel) bool {
		return slices.Contains(idle, device) || r.choice.Kind != hostnet.KindTUN && !slices.Contains(r.plan.Desired.Keep, device)
	})
	if len(stay) < len(r.attached) {
		r.attach(stay, failed)
	}
	if !diff.Empty() {
		for link, err := range hostnet.LinkErrors(r.host.Apply(diff)) {
			eachError(err, func(err error) {
				if errors.As(err, new(*hostnet.TranslationError)) {
					failed.add(aboutTranslation, err)
					return
				}
				failed.add(link, err)
			})
		}
		r.afterwards(failed)
	} else {
		for _, p := range diff.Problems {
			failed.add(p.Link, p.Err)
		}
	}
	// A device that was made again needs an end again, although it is the same one.
	wanted := r.tunnels()
	if len(wanted)+len(r.attached) > 0 && (!diff.Empty() || len(r.failures) > 0 || !maps.Equal(wanted, r.attached)) {
		r.attach(wanted, failed)
		r.sampler.outdated()
	}
	return failed
}

// idle are the TUN devices that should be served and that nobody has open: what
// is sent into them is lost.
func (r *Runner) idle() (devices []string) {
	for i := range r.actual.Links {
		l := &r.actual.Links[i]
		if _, ours := r.attached[l.Name]; ours && l.Kind == hostnet.KindTUN && l.Up && !l.Carrier {
			devices = append(devices, l.Name)
		}
	}
	return devices
}

// resume serves the TUN devices that are there, as long as nothing is known but
// what the kernel holds: where they lead to is in their alias. What cannot be
// served is tried again with the next look.
func (r *Runner) resume() {
	if r.options.Ends == nil {
		return
	}
	there := make(map[string]tunlink.Tunnel)
	for _, l := range r.inForce() {
		if r.servable(l) {
			there[l.Name] = tunnelOf(l)
		}
	}
	failed, idle := make(failures), r.idle()
	if len(idle) > 0 {
		stay := maps.Clone(r.attached)
		maps.DeleteFunc(stay, func(device string, _ tunlink.Tunnel) bool { return slices.Contains(idle, device) })
		r.attach(stay, failed)
	}
	if maps.Equal(there, r.attached) {
		return
	}
	r.attach(there, failed)
	r.sampler.outdated()
	if len(failed) > 0 {
		r.log.Warn("TUN devices that are there cannot be served", "first", strings.Join(firstOf(failed.lines()), "; "))
		clear(r.attached)
		return
	}
	r.log.Info("TUN devices that are there are served until the objects are known", "tunnels", len(there))
}

// tunnels are the ends that TUN devices need which are there: as desired, or as
// they are where they stay for the lack of something better.
func (r *Runner) tunnels() map[string]tunlink.Tunnel {
	out := make(map[string]tunlink.Tunnel)
	for _, l := range r.inForce() {
		if t, attached := r.attached[l.Name]; attached {
			out[l.Name] = t
		}
		if r.servable(l) {
			out[l.Name] = tunnelOf(l)
		}
	}
	there := make(map[string]bool, len(r.actual.Links))
	for i := range r.actual.Links {
		there[r.actual.Links[i].Name] = true
	}
	for _, l := range r.plan.Desired.Links {
		if l.Kind == hostnet.KindTUN && there[l.Name] {
			out[l.Name] = tunnelOf(l)
		}
	}
	return out
}

// servable tells whether it is known of a link in force how to serve it.
func (r *Runner) servable(l hostnet.Link) bool {
	return l.Kind == hostnet.KindTUN && l.Port == r.options.Port && l.Gateway.IsValid() && l.Address.IsValid() && l.GatewayAddress.IsValid()
}

// tunnelOf is the agent's end of a TUN device.
func tunnelOf(l hostnet.Link) tunlink.Tunnel {
	return tunlink.Tunnel{
		Device: l.Name, VNI: geneve.VNI(l.VNI), Gateway: l.Gateway, Internal: l.Address, GatewayInternal: l.GatewayAddress, MTU: l.MTU,
	}
}

// attach hands tunnels to the agent's own ends.
func (r *Runner) attach(tunnels map[string]tunlink.Tunnel, failed failures) {
	if r.options.Ends == nil {
		return
	}
	list := make([]tunlink.Tunnel, 0, len(tunnels))
	for _, device := range slices.Sorted(maps.Keys(tunnels)) {
		list = append(list, tunnels[device])
	}
	eachError(r.options.Ends.Apply(list), func(err error) {
		link := ""
		if te := (*tunlink.TunnelError)(nil); errors.As(err, &te) {
			link = te.Device
		}
		if failed[link] == nil { // else the device is missing, and it is known why
			failed.add(link, err)
		}
	})
	r.attached = tunnels
}

// eachError calls do for every error that was joined.
func eachError(err error, do func(error)) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			eachError(e, do)
		}
	} else if err != nil {
		do(err)
	}
}

// afterwards brings what is known of the kernel up to date.
func (r *Runner) afterwards(failed failures) {
	r.sampler.outdated()
	if actual, err := r.host.Read(); err == nil {
		r.actual = actual
	} else {
		failed.add("", fmt.Errorf("read the network of this node: %w", err))
	}
}

// kindFails tells whether no link could be made of the chosen kind although it
// seemed to be possible, and chooses the next one.
func (r *Runner) kindFails(failed failures, problems []*hostnet.LinkError) bool {
	if r.choice.Forced || len(r.plan.Desired.Links) == 0 {
		return false
	}
	for i := range r.actual.Links {
		if r.actual.Links[i].Kind == r.choice.Kind {
			return false
		}
	}
	for _, l := range r.plan.Desired.Links {
		other := slices.ContainsFunc(problems, func(p *hostnet.LinkError) bool { return p.Link == l.Name })
		if err := failed[l.Name]; err == nil || other || errors.Is(err, hostnet.ErrNotPermitted) || errors.Is(err, hostnet.ErrInTheWay) {
			return false
		}
	}
	if r.failed == nil {
		r.failed = make(map[hostnet.Kind]string)
	}
	r.failed[r.choice.Kind] = failed[r.plan.Desired.Links[0].Name].Error()
	r.log.Warn("no link of this kind can be made", "kind", r.choice.Kind, "error", r.failed[r.choice.Kind])
	r.takeKind()
	return true
}

// inForceNow records that a plan was put in force, all that can be of it.
func (r *Runner) inForceNow(failed failures, diff hostnet.Plan) {
	broken := len(failed.ofTunnels())
	if !r.fresh || failed[""] != nil || broken > 0 && broken >= len(r.plan.Desired.Links) {
		return
	}
	r.fresh = false
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Generation++
	r.state.AppliedAt = time.Now()
	r.log.Info("configuration applied", "generation", r.state.Generation, "tunnels", len(r.plan.Desired.Links), "kept", len(r.plan.Desired.Keep),
		"kind", r.choice.Kind, "changes", len(diff.Steps), "failures", len(failed))
}

// repaired logs what was changed behind our back.
func (r *Runner) repaired(lines []string, now time.Time) {
	before := r.contest.over
	switch begins := r.contest.repaired(lines, now); {
	case begins:
		r.log.Warn("another program keeps changing what is ours: it is put right more slowly from now on", "what", r.contest.over)
	case before == "":
		r.log.Warn("put right what another program has changed", "changes", len(lines), "first", strings.Join(firstOf(lines), "; "))
	}
}

// firstOf are as many lines as are worth reading.
func firstOf(lines []string) []string { return lines[:min(len(lines), 5)] }

// fail records what could not be done, and plans another attempt.
func (r *Runner) fail(failed failures, now time.Time) {
	if now, before := failed.lines(), r.failures.lines(); !slices.Equal(now, before) {
		r.log.Error("the network of this node is not as it should be, trying again", "failures", len(now), "first", strings.Join(firstOf(now), "; "))
	}
	r.failures, r.dirty = failed, false
	if r.due.retry.IsZero() { // else this was not the attempt that was planned, and must not put it off
		r.backoff = min(max(2*r.backoff, firstRetry), maxRetry)
		r.due.retry = now.Add(r.backoff)
	}
}

// succeeded records that everything is as it should be.
func (r *Runner) succeeded() {
	if len(r.failures) > 0 {
		r.log.Info("the network of this node is as it should be again")
	}
	r.failures, r.backoff, r.dirty = nil, 0, false
	r.due.retry = time.Time{}
}

// count keeps the books for metrics.
func (r *Runner) count(repair, failed bool, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.state
	s.Applies++
	s.LastApply = took
	if repair {
		s.Repairs++
	}
	if failed {
		s.ApplyErrors++
	}
}
