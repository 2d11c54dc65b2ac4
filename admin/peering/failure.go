package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/admin/access"
)

// Failure is why the work ended before its time, and what is known about the
// reasons. What was done before stays done, and the same command continues from
// there.
type Failure struct {
	// Cluster is the name of the one where it ended.
	Cluster string
	// Doing is what was being done: "waiting for gateway pod gw-milan to be ready".
	Doing string
	// Missing is what was still to wait for.
	Missing string
	// Err is the cause: context.DeadlineExceeded when time was up,
	// context.Canceled when somebody interrupted it, else what went wrong.
	Err error
	// After is how long it lasted.
	After time.Duration
	// Clues are lines about the reasons: conditions, pods, events, and what to do.
	Clues []string
	// Done of Steps steps are over.
	Done, Steps int
}

// timeToExplain bounds the search for reasons.
const timeToExplain = 10 * time.Second

// fail says why a plan ended.
func (p *plan) fail(ctx context.Context, t *teller, took time.Duration) error {
	s := t.culprit()
	t.rest()
	f := &Failure{
		Cluster: s.in.Name, Doing: cmp.Or(lowerFirst(s.waiting), "working"), Missing: s.missing, Err: t.err,
		After: took, Done: t.count(), Steps: len(p.steps),
	}
	if f.Err == nil {
		f.Err = ctx.Err()
	}
	switch {
	case errors.Is(f.Err, context.Canceled): // who interrupts wants no explanation
	case access.Unreachable(s.wrong):
		f.Clues = []string{"Next: find out why the API server does not answer"}
	case s.clues != nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeToExplain)
		defer cancel()
		f.Clues = s.clues(ctx, f.headline())
	}
	return f
}

func (f *Failure) Unwrap() error { return f.Err }

func (f *Failure) Error() string {
	lines := []string{f.headline()}
	for _, clue := range f.Clues {
		lines = append(lines, "  "+clue)
	}
	if f.Done > 0 && !errors.As(f.Err, new(*final)) {
		lines = append(lines, fmt.Sprintf("%d of %d steps are done and stay done: run the same command again to continue", f.Done, f.Steps))
	}
	return strings.Join(lines, "\n")
}

// headline is what went wrong, in one line.
func (f *Failure) headline() string {
	why := ""
	if f.Missing != "" {
		why = ": " + strings.TrimPrefix(f.Missing, prefix(f.Cluster))
	}
	switch {
	case errors.Is(f.Err, context.Canceled):
		return prefix(f.Cluster) + "interrupted while " + f.Doing + why
	case f.Err == context.DeadlineExceeded: //lint:ignore errorlint not the deadline of a request in it
		return fmt.Sprintf("%stimed out after %v while %s%s", prefix(f.Cluster), f.After.Round(time.Second), f.Doing, why)
	}
	return prefix(f.Cluster) + f.Doing + ": " + strings.TrimPrefix(f.Err.Error(), prefix(f.Cluster))
}

// prefix is the cluster's name before a text.
func prefix(cluster string) string {
	if cluster == "" {
		return ""
	}
	return "(" + cluster + ") "
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
