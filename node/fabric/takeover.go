package fabric

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/objects/manifests"
)

// This agent takes the place of Liqo's (--take-over-liqo) in two steps, each of
// which may be interrupted at any point and is then gone on with:
//
//	before anything is put in force   Liqo's Geneve links get our mark (takeLinks)
//	everything is in force            Liqo's rules, routes and tables go (takeOver)
//
// In between both are in force and ours come first, so no packet is lost. Liqo's
// agent, if it still runs, makes again what is removed. Then the pauses between
// removals grow: two that are both fast would keep a processor busy.

const (
	// liqoInterval is how often is looked for what is left of Liqo's agent: no
	// notification tells of its tables.
	liqoInterval = 5 * time.Second
	// liqoPause is the first pause between two removals, maxLiqoPause the last.
	liqoPause    = 15 * time.Second
	maxLiqoPause = 5 * time.Minute
)

// besideLiqo is what is wrong while Liqo's agent makes again what is removed.
const besideLiqo = "Liqo's node agent runs beside this one"

// LiqoState is how far this agent has taken the place of Liqo's.
type LiqoState struct {
	// Left is what is left of it, in few words; empty: nothing.
	Left string `json:"left,omitempty"`
	// Rules, Routes and Tables count it.
	Rules  int `json:"rules"`
	Routes int `json:"routes"`
	Tables int `json:"tables"`
	// Waits is why it is left; empty: it is the turn of the next look.
	Waits string `json:"waits,omitempty"`
	// Others has names as Liqo gives them, and is somebody else's: it stays.
	Others []string `json:"others,omitempty"`
	// Contested says that Liqo's agent runs, too: what was removed was made again.
	Contested bool `json:"contested"`
	// Removals counts how often something was removed.
	Removals uint64 `json:"removals"`
}

// liqo is the memory of the takeover.
type liqo struct {
	looked    bool // there was a look
	fabrics   []hostnet.PredecessorFabric
	left      hostnet.Left
	waits     string
	contested bool
	removals  uint64
	removed   bool          // all that was left was removed: if there is something now, it was made again
	tried     time.Time     // the last removal
	pause     time.Duration // before the next one
}

func (l *liqo) state() *LiqoState {
	return &LiqoState{
		Left: l.left.String(), Rules: l.left.Rules, Routes: l.left.Routes, Tables: len(l.left.Tables),
		Waits: l.waits, Others: l.left.Others, Contested: l.contested, Removals: l.removals,
	}
}

// found takes what there is. It tells whether a contest begins or ends.
func (l *liqo) found(left hostnet.Left, now time.Time) (begins, ends bool) {
	l.left, l.waits = left, ""
	switch {
	case left.Plan.Empty():
		if l.contested && now.Sub(l.tried) > 2*l.pause {
			l.contested, l.pause, ends = false, 0, true
		}
	case l.removed:
		// Nobody but Liqo's agent makes such things: once is enough to know.
		begins = !l.contested
		l.contested, l.removed = true, false
		l.longer()
	}
	return begins, ends
}

// tries takes what became of a removal.
func (l *liqo) tries(err error, now time.Time) {
	l.tried, l.removed = now, err == nil
	if err != nil {
		l.waits = "it cannot be removed: " + err.Error()
		l.longer()
		return
	}
	l.removals++
	l.left = hostnet.Left{Others: l.left.Others}
}

func (l *liqo) longer() { l.pause = min(max(2*l.pause, liqoPause), maxLiqoPause) }

// replaced is the condition LiqoReplaced.
func (l *liqo) replaced() metav1.Condition {
	const kind, left = networkingv1beta1.ConditionLiqoReplaced, networkingv1beta1.ReasonLiqoLeft
	why, what := l.waits, l.left.String()
	if strings.HasPrefix(why, removedAgain) { // a message that counts seconds would be written again and again
		why = "it could not be removed, and is tried again"
	}
	switch {
	case l.contested:
		return condition(kind, left, besideLiqo+" and makes again what is removed")
	case what == "" && why == "":
		return condition(kind, networkingv1beta1.ReasonLiqoReplaced, "Nothing of Liqo's node agent is left")
	case what == "":
		return condition(kind, left, "what is left of Liqo's node agent is not known: "+why)
	}
	return condition(kind, left, strings.TrimSuffix("of Liqo's node agent is left: "+what+": "+why, ": "))
}

// removedAgain begins what is said in the pause before the next removal.
const removedAgain = "it is removed again in "

// notBefore is when the next removal may be.
func (l *liqo) notBefore() time.Time { return l.tried.Add(l.pause) }

// takeLinks makes links of Liqo's ours, and returns what is there then.
func (r *Runner) takeLinks(actual hostnet.Actual) (hostnet.Actual, error) {
	if !r.options.TakeOver {
		return actual, nil
	}
	plan := hostnet.TakeOver(r.plan.Desired, actual)
	if plan.Empty() {
		return actual, nil
	}
	if err := r.host.Apply(plan); err != nil {
		return actual, fmt.Errorf("take over links of Liqo's node agent: %w", err)
	}
	r.sampler.outdated()
	r.log.Info("links of Liqo's node agent taken over", "links", len(plan.Steps), "first", plan.Lines()[0])
	actual, err := r.host.Read()
	if err != nil {
		return actual, fmt.Errorf("read the network of this node: %w", err)
	}
	return actual, nil
}

// takeOver removes what is left of Liqo's agent, if everything of this one is in
// force.
func (r *Runner) takeOver(now time.Time) {
	l := &r.liqo
	r.due.liqo = now.Add(liqoInterval)
	if !r.planned {
		return // it is not known yet what is Liqo's
	}
	l.looked = true
	if !reflect.DeepEqual(l.fabrics, r.plan.Fabrics) {
		// What is found of others may have been there all the time.
		l.fabrics, l.removed = r.plan.Fabrics, false
	}
	left, err := r.host.Left(hostnet.Predecessor{Fabrics: r.plan.Fabrics, Tables: r.options.LiqoTables})
	if err != nil {
		if l.waits == "" {
			r.log.Warn("it cannot be found what is left of Liqo's node agent", "error", err)
		}
		l.waits = "it cannot be found: " + err.Error()
		return
	}
	others := l.left.Others
	switch begins, ends := l.found(left, now); {
	case begins:
		r.log.Warn(besideLiqo+": it made again what was removed, which is removed more slowly from now on", "what", left.String())
	case ends:
		r.log.Info("Liqo's node agent runs beside this one no longer")
	}
	if len(left.Others) > 0 && !slices.Equal(others, left.Others) {
		r.log.Warn("left alone: it looks like Liqo's, but is somebody else's", "count", len(left.Others), "first", left.Others[0])
	}
	if left.Plan.Empty() {
		return
	}
	if l.waits = r.notInForce(); l.waits != "" {
		return
	}
	if next := l.notBefore(); now.Before(next) {
		l.waits = fmt.Sprint(removedAgain, next.Sub(now).Round(time.Second))
		return
	}
	err = r.host.Apply(left.Plan)
	l.tries(err, now)
	if err != nil {
		r.log.Error("what is left of Liqo's node agent cannot be removed, trying again", "error", err, "after", l.pause)
		return
	}
	r.log.Info("what was left of Liqo's node agent is removed", "what", left.String())
}

// notInForce says what of this agent is not in force: as long as there is
// something, what Liqo's has made may still be of use. It is empty where nothing is
// missing. Single hosts do not count: anybody in the cluster can ask for one that
// cannot be had.
func (r *Runner) notInForce() string {
	r.mu.Lock()
	refused := r.state.Refused
	r.mu.Unlock()
	named := func(what string, ps manifests.Problems) string {
		return strings.TrimSuffix(what+": "+oneLine(ps.Condensed()), ": ")
	}
	p := &r.plan
	for _, m := range []struct {
		missing bool
		what    string
	}{
		{r.fresh || r.dirty || len(r.failures) > 0, "not everything is put in force"},
		{len(refused) > 0, named("the newest objects are refused", refused)},
		{len(p.Ignored)+len(p.Desired.Keep) > 0, named("objects are ignored", p.Ignored)},
		{len(p.Waiting) > 0, named("the agent waits for objects", p.Waiting)},
		{len(p.Untranslated) > 0 || !r.actual.Translation.Available, named("addresses are not translated", p.Untranslated)},
		{!r.diff(p.Desired, r.actual).Empty(), "something of this agent is missing"},
	} {
		if m.missing {
			return m.what
		}
	}
	return ""
}
