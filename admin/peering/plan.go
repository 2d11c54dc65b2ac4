package peering

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-net/sluice/admin/progress"
)

// plan is a list of steps in the order in which the user reads about them. They
// run as early as they can: each as soon as those are over that it comes after.
type plan struct{ steps []*step }

// stage is some steps of a plan.
type stage []*step

// add adds steps that come after all those of some stages.
func (p *plan) add(after []stage, steps ...*step) stage {
	for _, s := range steps {
		for _, a := range after {
			s.after = append(s.after, a...)
		}
	}
	p.steps = append(p.steps, steps...)
	return steps
}

// after lists stages.
func after(stages ...stage) []stage { return stages }

// run does all steps, and reports them in their order. It returns when nothing is running any
// more. The error is a *Failure.
func (p *plan) run(ctx context.Context, tell progress.Func) error {
	started := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan func(*teller)) // what happened to a step, received by the loop below
	var wg sync.WaitGroup
	for _, s := range p.steps {
		s.over = make(chan struct{})
		s.warn = func(text string) { changed <- func(t *teller) { t.warn(s, text) } }
		if s.detailed {
			s.lacks = func(missing string) { changed <- func(t *teller) { t.lacks(s, missing) } }
		}
	}
	for _, s := range p.steps {
		wg.Go(func() {
			for _, a := range s.after {
				select {
				case <-a.over:
				case <-ctx.Done():
					return
				}
			}
			changed <- func(t *teller) { t.begin(s) }
			err := s.run(ctx)
			if err == nil {
				close(s.over)
			}
			changed <- func(t *teller) { t.end(s, err) }
		})
	}
	go func() {
		wg.Wait()
		close(changed)
	}()
	t := teller{tell: tell, steps: p.steps, state: make(map[*step]state), missing: make(map[*step]string), shown: make(map[string]string)}
	for change := range changed {
		change(&t)
		if t.failed != nil {
			cancel() // the others have nothing to work for any more
		}
	}
	if t.told == len(p.steps) {
		return nil
	}
	return p.fail(ctx, &t, time.Since(started))
}

// state is how far a step is.
type state int

const (
	begun state = 1 + iota
	succeeded
	gaveUp
)

// teller reports steps in their order, whatever the order in which they end.
type teller struct {
	tell    progress.Func
	steps   []*step
	state   map[*step]state
	missing map[*step]string  // what detailed ones wait for
	shown   map[string]string // for each cluster what the user is told it waits for
	told    int               // so many steps, from the first, have been told as done

	failed *step // the first one
	err    error
}

func (t *teller) begin(s *step) {
	t.state[s] = begun
	t.waits()
}

func (t *teller) lacks(s *step, missing string) {
	t.missing[s] = missing
	t.waits()
}

func (t *teller) warn(s *step, text string) {
	t.shown[s.in.Name] = "" // this ends what is shown as waiting
	t.tell.Warning(s.in.Name, text)
	t.waits()
}

func (t *teller) end(s *step, err error) {
	if err != nil {
		t.state[s] = gaveUp
		if t.failed == nil && !errors.Is(err, errStopped) {
			t.failed, t.err = s, err
		}
		return
	}
	t.state[s] = succeeded
	for t.told < len(t.steps) && t.state[t.steps[t.told]] == succeeded {
		t.done(t.steps[t.told])
		t.told++
	}
	t.waits()
}

// done tells what a step has to tell at its end.
func (t *teller) done(s *step) {
	notes := s.notes
	if s.done != "" {
		notes = append(notes, progress.Event{Kind: progress.Done, Cluster: s.in.Name, Text: s.done})
	}
	for _, n := range notes {
		t.shown[n.Cluster] = "" // this ends what is shown as waiting
		if t.tell != nil {
			t.tell(n)
		}
	}
}

// waits reports the first thing that each cluster waits for, if it has changed.
func (t *teller) waits() {
	seen := make(map[string]bool)
	for _, s := range t.steps {
		name := s.in.Name
		if seen[name] || t.state[s] != begun || s.waiting == "" {
			continue
		}
		seen[name] = true
		text := s.waiting
		if missing := t.missing[s]; missing != "" {
			text += ": " + missing
		}
		if t.shown[name] != text {
			t.shown[name] = text
			t.tell.Waiting(name, text)
		}
	}
}

// count is how many steps are over.
func (t *teller) count() (n int) {
	for _, s := range t.state {
		if s == succeeded {
			n++
		}
	}
	return n
}

// rest reports the steps that are done although an earlier one is not.
func (t *teller) rest() {
	for _, s := range t.steps[t.told:] {
		if t.state[s] == succeeded {
			t.done(s)
		}
	}
}

// culprit is the step that stands for the failure: the one that failed, or else
// the first that was not over when time was up.
func (t *teller) culprit() *step {
	if t.failed != nil {
		return t.failed
	}
	for _, s := range t.steps {
		if t.state[s] == gaveUp {
			return s
		}
	}
	for _, s := range t.steps { // time was up before it could begin
		if t.state[s] != succeeded {
			return s
		}
	}
	return nil
}
