package peering

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
)

// How often a step looks, and how long one look may take.
const (
	firstPause = 25 * time.Millisecond
	longPause  = 250 * time.Millisecond
	tryTimeout = 10 * time.Second
)

// step is one thing to be done in one cluster: what the user reads about it, and
// how it is done.
//
// A step looks at the world and applies what is missing, again and again, until
// nothing is left to wait for. So it does not matter whether it ran before, how
// far it came then, or who did its work instead.
type step struct {
	in *access.Cluster
	// waiting is what the user reads while it runs, done what the user reads afterwards; an
	// empty text is not shown.
	waiting, done string
	// detailed: the user also reads what is missing while it runs.
	detailed bool
	// try looks and applies. It returns what is still to wait for; "": nothing.
	try func(ctx context.Context) (missing string, err error)
	// clues reads what may explain why it takes so long, beyond what was told; nil: there is
	// nothing to read.
	clues func(ctx context.Context, told string) []string

	after []*step
	over  chan struct{} // closed after the last successful look
	lacks func(string)  // told what is missing, when that changes; nil: nobody reads it
	warn  func(string)  // tells at once what the user should know while it runs; set by the plan

	// Owned by run until it returns.
	notes   []progress.Event // told before done
	missing string           // at the last look
	wrong   error            // the same, if it failed
}

// note tells something on the way.
func (s *step) note(kind progress.Kind, text string) {
	s.notes = append(s.notes, progress.Event{Kind: kind, Cluster: s.in.Name, Text: text})
}

// runAlone runs a step that is all there is to do.
func (s *step) runAlone(ctx context.Context, tell progress.Func) error {
	return (&plan{steps: []*step{s}}).run(ctx, tell)
}

// errStopped says that the context of a step ended before the step did.
var errStopped = errors.New("stopped")

// run looks until there is nothing to wait for. What goes wrong is tolerated for
// as long as it may pass by itself.
func (s *step) run(ctx context.Context) error {
	var wrongSince time.Time
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		began := time.Now()
		missing, err := s.tryOnce(ctx)
		if err == nil && missing == "" {
			return nil
		}
		if err == nil {
			s.lack(missing)
			s.wrong, wrongSince = nil, time.Time{}
		} else if ctx.Err() == nil {
			s.lack(err.Error())
			s.wrong = err
			if wrongSince.IsZero() {
				wrongSince = began
			}
			if time.Since(wrongSince) >= patience(err) {
				return err
			}
		}
		if !access.Pause(ctx, pause) {
			return errStopped
		}
	}
}

// lack takes down what is missing.
func (s *step) lack(missing string) {
	if s.lacks != nil && missing != s.missing {
		s.lacks(missing)
	}
	s.missing = missing
}

func (s *step) tryOnce(ctx context.Context) (missing string, err error) {
	if s.try == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return s.try(ctx)
}

// How long to wait for problems that may go away by themselves.
const (
	// unreachableFor is long enough for an API server to be replaced on a slow node.
	unreachableFor = time.Minute
	// conflictFor is long enough for others to have written what they write.
	conflictFor = 15 * time.Second
	// complaintFor is long enough for a controller to see what was just changed.
	complaintFor = 5 * time.Second
	// obstacleFor is long enough for the controllers to report that the provider can be
	// reached: they ask every 15 s, and wait 5 s for the answer.
	obstacleFor = 25 * time.Second
	// unassignedFor is long enough for a cloud to give a Service an address, which takes it up to three minutes.
	unassignedFor = 4 * time.Minute
	// unassignedTold is when the user is told of it: most clouds have answered, and a cluster without one never does.
	unassignedTold = 15 * time.Second
)

// patience is how long an error may last.
func patience(err error) time.Duration {
	switch {
	case errors.As(err, new(*unassigned)):
		return unassignedFor
	case errors.As(err, new(*obstacle)):
		return obstacleFor
	case errors.As(err, new(*complaint)):
		return complaintFor
	case access.Unreachable(err):
		return unreachableFor
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return conflictFor
	}
	return 0
}

// complaint is a problem that a controller reports and only a person can solve.
type complaint struct{ text string }

func (c *complaint) Error() string { return c.text }

// final is a complaint that the same command would only meet again.
type final struct{ complaint }

func (f *final) Unwrap() error { return &f.complaint }
